"""Priorities: higher ones first, and lower ones make room for them.

The rule of the Kubernetes scheduler, which Borg had before it (Verma et al., "Large-scale cluster
management at Google with Borg", EuroSys 2015): a job may take the place of runs of lower priority,
never of an equal. The priority of its queue counts before its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from roost.core.plan import Plan
from roost.core.state import Job, Run
from roost.core.waiting import Key
from roost.policies.fifo import arrival
from roost.policies.kit.order import fill


@dataclass(frozen=True, slots=True)
class PriorityPolicy:
    """Higher priority first, then first come; lower priorities make room, equals never."""

    min_run_s: float = 0.0

    def __call__(self, plan: Plan) -> None:
        """Fill by priority."""
        queues = {queue.spec.id: queue.spec.priority for queue in plan.queues.values()}
        before = plan.memo.setdefault("priority", queues)
        if any(queues.get(name) != priority for name, priority in before.items()):
            plan.reconsider()  # runs of a queue that fell may give way now
        plan.memo["priority"] = queues
        fill(plan, arrival, self, self.min_run_s, thorough=True)

    def waiting(self, job: Job) -> Key:
        """Its queue's priority, its own, then its arrival."""
        return arrival(job)

    def running(self, run: Run, now: float) -> Key:  # noqa: ARG002 - other orders change with time
        """The same, but ahead of all that arrive at its priority: it keeps its place."""
        job = run.job
        return (-job.queue.spec.priority, -job.spec.priority, -1)
