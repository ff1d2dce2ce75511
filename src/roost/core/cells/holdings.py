"""Who holds which cells: the claims of jobs, and the GPUs of those that must not be disturbed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from roost.core.cells.claim import CellClaim
from roost.core.cells.dues import Due, Dues
from roost.core.cells.forest import Cell
from roost.core.spec import JobId, QueueId

if TYPE_CHECKING:
    from roost.core.state import Job


class Holdings:
    """What jobs hold of what is due to their queues, and what they sit on beside it."""

    def __init__(self, dues: Dues, version: int = 0) -> None:
        self.dues = dues
        #: The promise by which each claimed cell is held.
        self.holders: dict[Cell, Due] = {}
        self.claims: dict[JobId, tuple[CellClaim, ...]] = {}
        #: GPUs of runs without claims that must not be disturbed.
        self.squats: dict[JobId, list[Cell]] = {}
        #: The jobs of each queue that have claims.
        self.jobs: dict[QueueId, dict[JobId, Job]] = {}
        #: Grows whenever somebody holds something else; and the same of each queue.
        self.version = version
        self.versions: dict[QueueId, int] = {}

    def owner(self, cell: Cell) -> Due | None:
        """The promise that a cell is held by, or kept for by its name."""
        return self.holders.get(cell) or self.dues.pins.get(cell)

    def known(self, queue: QueueId, claims: Iterable[CellClaim]) -> list[tuple[Due, Cell]]:
        """Claims of a queue's job as far as there are still such cells and promises."""
        cells, dues = self.dues.forest.cells, self.dues
        found = [(dues.find(queue, one.promise), cells.get(one.cell)) for one in claims]
        return [(due, cell) for due, cell in found if due is not None and cell is not None]

    def hold(self, job: Job, claims: tuple[CellClaim, ...], squats: list[Cell]) -> None:
        """Note what a job holds; it must have left before."""
        queue = job.queue.spec.id
        for due, cell in self.known(queue, claims):
            if cell not in due.held:
                due.held[cell] = set()
                due.claimed += 1
                self.holders[cell] = due
                if cell not in self.dues.pins:
                    self.dues.forest.take(cell)
            due.held[cell].add(job.id)
        if claims:
            self.claims[job.id] = claims
            self.jobs.setdefault(queue, {})[job.id] = job
        for leaf in squats:
            self.dues.forest.take(leaf)
        if squats:
            self.squats[job.id] = squats
        self._changed(queue)

    def leave(self, job: Job) -> tuple[tuple[CellClaim, ...], list[Cell]]:
        """A job gives up all that it holds; returns that."""
        queue = job.queue.spec.id
        claims, squats = self.claims.pop(job.id, ()), self.squats.pop(job.id, [])
        if claims:
            del self.jobs[queue][job.id]
        for leaf in squats:
            self.dues.forest.give_back(leaf)
        for due, cell in self.known(queue, claims):
            if cell not in due.held:
                continue
            due.held[cell].discard(job.id)
            if not due.held[cell]:
                del due.held[cell]
                due.claimed -= 1
                del self.holders[cell]
                if cell not in self.dues.pins:
                    self.dues.forest.give_back(cell)
        self._changed(queue)
        return claims, squats

    def _changed(self, queue: QueueId) -> None:
        self.version += 1
        self.versions[queue] = self.versions.get(queue, 0) + 1
