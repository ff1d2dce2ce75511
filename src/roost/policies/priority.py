"""Priorities: higher ones first, and lower ones make room for them.

The rule of the Kubernetes scheduler, which Borg had before it (Verma et al., "Large-scale cluster
management at Google with Borg", EuroSys 2015): a job may take the place of runs of lower priority,
never of an equal. The priority of its queue counts before its own.

Promises come first: a job within the quota of its queue goes before all that are not, takes the
place of runs that are not, whatever their priority, and keeps its place from them. Who has to go
is decided by priority; where queues borrow, then by what the stop costs: work since the last
checkpoint, and the restart. Queues that borrow are served by priority, then those first that
borrowed least for their weight.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job, Run
from roost.core.waiting import Key, Line
from roost.policies.fifo import arrival
from roost.policies.kit.contenders import Owed
from roost.policies.kit.order import Brake, fill, make_room
from roost.policies.kit.promises import Promises, any_promises
from roost.policies.kit.reclaim import reclaim

#: Where the order is kept from one decision to the next.
_ORDER = "promises"


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
        if any_promises(plan.queues.values()):
            _fill(plan, self)
        else:
            fill(plan, arrival, self, self.min_run_s, thorough=True)

    def waiting(self, job: Job) -> Key:
        """Its queue's priority, its own, then its arrival."""
        return arrival(job)

    def running(self, run: Run, now: float) -> Key:  # noqa: ARG002 - other orders change with time
        """The same, but ahead of all that arrive at its priority: it keeps its place."""
        job = run.job
        return (-job.queue.spec.priority, -job.spec.priority, -1)


@dataclass(slots=True)
class _Promises:
    """The order of a policy, with the promises to queues before it."""

    policy: PriorityPolicy
    #: Jobs that run within the quota of their queue.
    kept: set[JobId] = field(default_factory=set)

    def waiting(self, job: Job) -> Key:
        """As for a job that is within no quota."""
        return (1, *self.policy.waiting(job))  # type: ignore[misc]

    def running(self, run: Run, now: float) -> Key:
        """Ahead of everything, for a run within the quota of its queue.

        Where queues borrow, of others with one priority those go first whose stop costs least.
        """
        if run.job.id in self.kept:
            return (-1,)
        if run.job.queue.account is None:
            return (1, *self.policy.running(run, now))  # type: ignore[misc]
        return (1, *self.policy.running(run, now), -run.disturbance_s(now))  # type: ignore[misc]


def _fill(plan: Plan, policy: PriorityPolicy) -> None:
    """Start waiting jobs: those within the quota of their queue first, then by priority."""
    lines = plan.lines(arrival, by_queue=True)
    owed = _owed(plan, policy)
    # One order for all decisions: what was found out of runs by it is kept from one to the next.
    order = plan.memo.setdefault(_ORDER, _Promises(policy))
    fallen = order.kept - owed.running
    if fallen and any(run.job.id in fallen for run in plan.running):
        plan.reconsider()  # runs that were within a quota, and may give way now
    order.kept = owed.running
    brake = Brake(order, policy.min_run_s, thorough=True)
    shared = any(queue.account is not None for queue in plan.queues.values())
    heap = [(_rank(line, owed, shared=shared), line) for line in lines]
    heapq.heapify(heap)
    while heap:
        rank, line = heap[0]
        if shared and (now := _rank(line, owed, shared=True)) != rank:
            heapq.heapreplace(heap, (now, line))  # another job of its queue came first
            continue
        job = line.head
        refused = line.refused_at == plan.ledger.releases
        if not (
            (not refused and plan.place(job))
            or make_room(plan, line, rank[0], brake)
            or reclaim(plan, line, policy.min_run_s)
        ):
            plan.hold(line)
            heapq.heappop(heap)
            continue
        if owed.waiting.get(line):
            owed.waiting[line] -= 1
            order.kept.add(job.id)
        if line.entries:
            heapq.heapreplace(heap, (_rank(line, owed, shared=shared), line))
        else:
            heapq.heappop(heap)


def _rank(line: Line, owed: Owed, *, shared: bool) -> tuple[Key, int]:
    """The key of the first of a line, and its number: keys of two lines can be equal.

    Where queues borrow from each other, those go first among equals that borrowed least.
    """
    key, seq, job = line.entries[0]
    kind = 0 if owed.waiting.get(line) else 1
    if not shared:
        return (kind, *key), seq  # type: ignore[misc]
    account = job.queue.account
    share = 0.0 if account is None else account.share()
    return (kind, *key[:2], share, *key[2:]), seq  # type: ignore[index]


def _owed(plan: Plan, policy: PriorityPolicy) -> Owed:
    """Jobs for which their queue was promised room: by priority, and of equals what runs first."""
    promises = Promises(plan)
    claims: list[tuple[Key, int, Run | Line]] = [
        (policy.running(run, plan.now), run.job.seq, run)
        for run in plan.running
        if promises.covers(run.job.queue) and not run.job.waiting
    ]
    claims += [
        (*line.entries[0][:2], line)
        for line in plan.waiting.open
        if promises.covers(line.head.queue)
    ]
    heapq.heapify(claims)
    found = Owed()
    while claims:
        _, _, claim = heapq.heappop(claims)
        if isinstance(claim, Run):
            if promises.take_run(claim):
                found.running.add(claim.job.id)
            continue
        if not promises.take_waiting(claim.head.queue, claim):
            continue
        count = found.waiting[claim] = found.waiting.get(claim, 0) + 1
        if count < len(claim.entries):
            heapq.heappush(claims, (*claim.entries[count][:2], claim))
    return found
