"""Waiting jobs for which their queue's cells had no room, remembered until anything has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from roost.core.ledger import Ledger
    from roost.core.state import Job
    from roost.core.waiting import Line

#: How many lines are remembered beyond those that wait.
_SPARE = 64


class ClaimVersion(NamedTuple):
    """What claims are like: a number for those of all queues, for those of one, and for cells."""

    all_claims: int
    of_queue: int
    cells: int


class _Refusal(NamedTuple):
    """A job that was refused, and when."""

    seq: int
    version: ClaimVersion
    stamp: int


class RefusedLines:
    """Lines for which no room was found, and when."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._lines: dict[Line, _Refusal] = {}

    def still(self, line: Line, job: Job, version: ClaimVersion) -> bool:
        """Whether nothing has changed since the job at the head of a line was refused."""
        return self._lines.get(line) == _Refusal(job.seq, version, self.ledger.stamp)

    def note(self, line: Line, job: Job, version: ClaimVersion, waiting: int) -> None:
        """Remember a refusal, beside those of so many lines that wait."""
        if len(self._lines) > waiting + _SPARE:
            self._lines.clear()
        self._lines[line] = _Refusal(job.seq, version, self.ledger.stamp)
