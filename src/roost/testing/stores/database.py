"""The suites for stores have this in common: a database, entries to write, and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from roost.errors import RoostError
from roost.store import JobRow, JournalEntry, Store

NOW = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class TrialDatabase:
    """A database of one test: its URL, and two ways of treating it badly.

    ``spoil`` runs a statement behind the store's back; ``cut`` takes the lock away from the
    server, as a break of the network or a meddling person would.
    """

    url: str
    spoil: Callable[[str], None]
    cut: Callable[[], None]


def entry(seq: int, **body: object) -> JournalEntry:
    """An entry of the journal."""
    return JournalEntry(seq, f"entry-{seq}", NOW + seq / 7, {"v": 1, **body})


def job_row(name: str, **fields: Any) -> JobRow:
    """A job's row that says just enough."""
    row = JobRow(f"{name}-00000", name, "ada", "default", "queued", submitted_at=NOW)
    return replace(row, **fields)


def fill(store: Store, count: int) -> list[JournalEntry]:
    """Append entries one by one; what was appended."""
    last = store.journal.last()
    first = 1 if last is None else last.seq + 1
    entries = [entry(seq, events=[{"type": "Woke"}]) for seq in range(first, first + count)]
    for one in entries:
        store.journal.append([one])
    return entries


@contextmanager
def raises(kind: type[RoostError], text: str = "") -> Iterator[None]:
    """Require an error of one line that says ``text``."""
    try:
        yield
    except kind as error:
        told = str(error)
        require(text in told, f"{told!r} does not say {text!r}")
        require("\n" not in told, f"{told!r} is more than a line")
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def same(found: object, wanted: object, what: str) -> None:
    """Require that both are equal."""
    require(found == wanted, f"{what}: {found!r} instead of {wanted!r}")


def require(fine: bool, otherwise: str) -> None:  # noqa: FBT001
    """Fail unless it is fine."""
    if not fine:
        raise AssertionError(otherwise)
