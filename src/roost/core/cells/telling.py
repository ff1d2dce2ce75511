"""What people are told of promises of cells: by which one a job runs, how they stand, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from roost.core.cells.books import CellBooks
from roost.core.cells.dues import Due
from roost.core.cells.promise import CellPromise
from roost.core.spec import QueueId

if TYPE_CHECKING:
    from roost.core.state import Job


def promise_of(books: CellBooks, job: Job) -> str:
    """By which promise a job has its place; nothing, if it is a guest."""
    names = dict.fromkeys(claim.promise for claim in books.claims_of(job))
    dues = [due for name in names if (due := books.dues.find(job.queue.spec.id, name))]
    return " and ".join(due.promise.title for due in dues)


def why(queue: QueueId, dues: Iterable[Due]) -> str:
    """Which promise somebody makes room for."""
    told = " and ".join(dict.fromkeys(due.promise.title for due in dues))
    return f"{queue} is promised {told}"


def standing(books: CellBooks, queue: QueueId) -> list[tuple[CellPromise, int, int]]:
    """Each promise to a queue, how many of its cells it uses, and how many are broken."""
    lacking = dict(books.dues.broken())
    return [(due.promise, len(due.held), lacking.get(due, 0)) for due in books.dues.of(queue)]


def tell(books: CellBooks, queue: QueueId) -> str:
    """How it stands with the promises to a queue, in a sentence; nothing, if it has none."""
    told = []
    for promise, used, lacking in standing(books, queue):
        bad = f", {lacking} cannot be kept: too little healthy hardware is left" if lacking else ""
        told.append(f"{used} of {promise.title}{bad}")
    return f"its queue uses {'; '.join(told)}" if told else ""
