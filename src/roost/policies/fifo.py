"""First come, first served. Strict: nobody passes the job at the head of the line."""

from __future__ import annotations

from collections.abc import Iterable

from roost.core.plan import Plan
from roost.core.reasons import Cause, Reason
from roost.core.spec import QueueId
from roost.core.state import Job
from roost.core.waiting import Key, Line

_BEHIND = {
    Cause.FRAGMENTATION: Reason(
        Cause.FRAGMENTATION, "the first in line waits for GPUs that are free, but scattered"
    ),
    Cause.CAPACITY: Reason(Cause.CAPACITY, "the first in line waits for GPUs to be freed"),
}


def arrival(job: Job) -> Key:
    """Higher priority first, then first come, first served."""
    return (-job.queue.spec.priority, -job.spec.priority, job.seq)


def fifo(plan: Plan) -> None:
    """First come, first served: nobody passes the job at the head.

    A queue at its limit holds up only itself.
    """
    lines = plan.lines(arrival)
    at_limit: set[QueueId | None] = set()
    while lines:
        line = _first(lines, at_limit)
        if line is None:
            return
        refused = line.refused_at == plan.ledger.releases
        if not refused and plan.place(line.head):
            continue
        cause = plan.lack(line)
        if cause is Cause.QUOTA:
            at_limit.add(line.queue)
            plan.hold(line)
            continue
        line.refused_at = plan.ledger.releases
        plan.hold_all(_BEHIND[cause])
        return


def _first(lines: Iterable[Line], at_limit: set[QueueId | None]) -> Line | None:
    """The line whose head came first, among queues that may still start something."""
    best, best_entry = None, None
    for line in lines:
        entry = line.entries[0]
        if (best_entry is None or entry < best_entry) and line.queue not in at_limit:
            best, best_entry = line, entry
    return best
