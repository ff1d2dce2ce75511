"""First come, first served. Strict: no job passes the one at the head of the line."""

from __future__ import annotations

from collections.abc import Iterable

from roost.core.plan import Plan
from roost.core.spec import QueueId
from roost.core.state import Job
from roost.core.waiting import Key, Line


def arrival(job: Job) -> Key:
    """Higher priority first, then first come, first served."""
    return (-job.queue.spec.priority, -job.spec.priority, job.seq)


def fifo(plan: Plan) -> None:
    """First come, first served: no job passes the one at the head.

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
        plan.hold(line)
        if line.queue is None or not plan.over_limit(line.head, line.gpu_milli):
            return
        at_limit.add(line.queue)


def _first(lines: Iterable[Line], at_limit: set[QueueId | None]) -> Line | None:
    """The line with the oldest head, among queues that may still start something."""
    best, best_entry = None, None
    for line in lines:
        entry = line.entries[0]
        if (best_entry is None or entry < best_entry) and line.queue not in at_limit:
            best, best_entry = line, entry
    return best
