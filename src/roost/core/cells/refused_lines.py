"""Waiting jobs for which their queue's cells had no room, remembered until something changed there.

Two things are remembered of a line of jobs. Nothing at all has changed since: that is simple. Or
its queue has claimed all that it is promised, and there would be no room in these cells even if all
guests left: then only what happens to their nodes and to the claims of that queue can help.
"""

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
    """A job that was refused, when, and the nodes by which alone it can be helped, if so."""

    seq: int
    version: ClaimVersion
    stamp: int
    nodes: int


class RefusedLines:
    """Lines for which no room was found, and when."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._lines: dict[Line, _Refusal] = {}

    def still(self, line: Line, job: Job, version: ClaimVersion) -> bool:
        """Whether the job at the head of a line would be refused again."""
        found = self._lines.get(line)
        if found is None or found.seq != job.seq:
            return False
        if found.version == version and found.stamp == self.ledger.stamp:
            return True
        if not found.nodes or found.version[1:] != version[1:]:
            return False
        changed = self.ledger.changed_since(found.stamp)
        if changed is None or any(node.bit & found.nodes for node in changed):
            return False
        # So that next time only what comes is looked at.
        self._lines[line] = found._replace(version=version, stamp=self.ledger.stamp)
        return True

    def note(self, line: Line, job: Job, version: ClaimVersion, nodes: int, waiting: int) -> None:
        """Remember a refusal; ``nodes``: only a change of one of these can help, 0: any may."""
        if len(self._lines) > waiting + _SPARE:
            self._lines.clear()
        self._lines[line] = _Refusal(job.seq, version, self.ledger.stamp, nodes)
