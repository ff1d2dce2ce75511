"""Sizes of all jobs decided at once, at the beginning of each slot, and made real.

Optimus and the rules it is compared with share this: which jobs there are, what there is in all,
and how a list of sizes becomes places. Runs that shrink go first, then waiting jobs start, then
others grow or move. A run that cannot have its new place yet, because others are still in motion
there, is tried again when something was given back; so is a job that found no place.

A policy of this kind is called a *sizing* here: it maps runs and waiting jobs to sizes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from roost.core.allocation import WORKER, Allocation
from roost.core.node import mask_of
from roost.core.plan import Plan
from roost.core.spec import JobId, NodeId, NodeSpec, Shape
from roost.core.state import Job, Run, needs
from roost.placement.even import Refusals, divisible, even
from roost.policies.fifo import arrival
from roost.policies.kit.parameter_servers.gains import Size, Vector
from roost.policies.kit.parameter_servers.outlook import bounds
from roost.policies.kit.speeds import start_if_idle

#: Says which size every run and every waiting job shall have; None: it has to wait.
Sizing: TypeAlias = Callable[[list[Run], list[Job]], Mapping[JobId, Size | None]]

_HOUR_S = 3600.0
#: The amount of a resource that is not counted.
_PLENTY = 1 << 60
#: How many jobs that found no place are tried again between slots.
_PATIENCE = 64


@dataclass(slots=True)
class Slots:
    """What is remembered between decisions. It may vanish: then the next call begins a slot."""

    next_s: float = -math.inf
    #: Sizes that were decided on and could not be made real yet.
    todo: dict[JobId, Size] = field(default_factory=dict)
    #: When each job's size was changed, newest last.
    changes: dict[JobId, list[float]] = field(default_factory=dict)
    #: Jobs for which there was room in all but nowhere in particular.
    stuck: set[JobId] = field(default_factory=set)
    releases: int = -1
    poor: Refusals = field(default_factory=Refusals)

    def decide(self, plan: Plan, slot_s: float, sizing: Sizing) -> None:
        """Decide if a slot begins, or no job runs; else do what could not be done yet."""
        if plan.now >= self.next_s or not any(counts(run) for run in plan.running):
            self.next_s = (plan.now // slot_s + 1) * slot_s
            self.forget(plan)
            runs = [run for run in plan.running if counts(run)]
            waiting = sorted(plan.pending, key=arrival)
            self.apply(plan, runs, waiting, sizing(runs, waiting))
            start_if_idle(plan)
        elif plan.ledger.releases != self.releases:
            self.carry_on(plan)
        self.releases = plan.ledger.releases
        if any(counts(run) for run in plan.running) or plan.decisions:
            plan.wake(self.next_s)
        for line in plan.waiting.open:
            left = self.next_s - plan.now
            plan.say(line, f"sizes and places are decided every {slot_s:g} s: in {left:.0f} s")

    def may_change(self, run: Run, now: float, per_hour: int) -> bool:
        """Whether a run can be given another size now."""
        job = run.job
        low, high = bounds(job)
        if low == high or not run.settled or not divisible(shape_of(job, low)):
            return False
        if run.started_at is None or now < run.started_at + job.spec.min_run_s:
            return False
        size = held(run)
        if not all(a <= b <= c for a, b, c in zip(low, size, high, strict=True)):
            return False
        recent = [at for at in self.changes.get(job.id, ()) if at > now - _HOUR_S]
        return len(recent) < per_hour

    def reshape(self, plan: Plan, run: Run, size: Size) -> bool:
        """Give a run another size, evenly on the fewest nodes, near to where it is."""
        job, now_held = run.job, run.allocation
        own: dict[NodeId, int] = {}
        for part in now_held.parts:
            own[part.node] = own.get(part.node, 0) | mask_of(part.gpus)
        with plan.ledger.trial():
            for part in now_held.parts:
                plan.ledger.release(part, needs(job, part))
            parts = even(plan.ledger, shape_of(job, size), own, self.poor)
            for part in now_held.parts:
                plan.ledger.take(part, needs(job, part))
        return parts is not None and plan.reshape(run, Allocation(parts))

    # -- making it real ------------------------------------------------------------------------

    def apply(
        self,
        plan: Plan,
        runs: list[Run],
        waiting: list[Job],
        sizes: Mapping[JobId, Size | None],
    ) -> None:
        """Make sizes real: first runs that shrink, then waiting jobs, then runs that grow."""
        self.todo.clear()
        changing = [
            (run, size)
            for run in sorted(runs, key=lambda run: run.job.seq)
            if (size := sizes[run.job.id]) is not None and size != held(run)
        ]
        for run, size in changing:
            if _less(size, held(run)):
                self._change(plan, run, size)
        self.stuck = {job.id for job in waiting if not self._place(plan, job, sizes[job.id])}
        for run, size in sorted(changing, key=lambda item: sum(item[1])):
            if run.target is None and not _less(size, held(run)):
                self._change(plan, run, size)

    def _change(self, plan: Plan, run: Run, size: Size) -> bool:
        if self.reshape(plan, run, size):
            self.changes.setdefault(run.job.id, []).append(plan.now)
            return True
        self.todo[run.job.id] = size
        return False

    def _place(self, plan: Plan, job: Job, size: Size | None) -> bool:
        """Start a waiting job with so much, or as much less as it takes to find a place."""
        if size is None:
            return False
        low, high = bounds(job)
        # Its bounds may have changed since that size was decided on.
        size = Size(*(min(max(a, b), c) for a, b, c in zip(low, size, high, strict=True)))
        for smaller in _downwards(size, low):
            shape = shape_of(job, smaller)
            if plan.over_limit(job, shape.gpu_milli):
                continue
            parts = even(plan.ledger, shape, None, self.poor) or plan.placer(plan.ledger, shape)
            if parts is not None and plan.place_at(job, Allocation(parts)):
                return True
        self.todo[job.id] = low
        return False

    def carry_on(self, plan: Plan) -> None:
        """Try once more what found no place before."""
        for name in list(self.todo)[:_PATIENCE]:
            job, size = plan.jobs.get(name), self.todo.pop(name)
            if job is None or job.state.over:
                continue
            if job.waiting:
                self._place(plan, job, size)
            elif job.run is not None and job.run.settled and size != held(job.run):
                self._change(plan, job.run, size)
            elif job.run is not None and size != held(job.run):
                self.todo[name] = size

    def forget(self, plan: Plan) -> None:
        """Forget jobs that are over."""
        jobs = plan.jobs
        for name in [name for name in self.changes if name not in jobs or jobs[name].state.over]:
            del self.changes[name]


def _downwards(size: Size, low: Size) -> Iterable[Size]:
    """Sizes to try: the one wanted, then ever nearer to the least."""
    while size != low:
        yield size
        size = Size(
            low.servers + (size.servers - low.servers) // 2,
            low.workers + (size.workers - low.workers) // 2,
        )
    yield low


def _less(size: Size, than: Size) -> bool:
    return size.servers <= than.servers and size.workers <= than.workers


def shape_of(job: Job, size: Size) -> Shape:
    """A job of that size as a placer sees it."""
    spec = job.spec
    roles = spec.roles
    if roles:
        roles = (replace(roles[0], workers=size.servers, most=0), *roles[1:])
    return Shape(size.workers, spec.resources, roles, spec.within)


def size_of(job: Job, allocation: Allocation) -> Size:
    """Servers (workers of a job's first role) and workers of an allocation."""
    role = job.spec.roles[0].name if job.spec.roles else WORKER
    servers = sum(p.workers for p in allocation.parts if p.role == role != WORKER)
    return Size(servers, allocation.workers)


def held(run: Run) -> Size:
    """What a run has, or will have once the change under way is done."""
    return size_of(run.job, run.target or run.allocation)


def counts(run: Run) -> bool:
    """Whether a run holds something that will not soon be free."""
    return run.booked


def usual_node(plan: Plan) -> NodeSpec | None:
    """A node like most of those in service."""
    kinds = Counter(replace(node.spec, id=NodeId("")) for node in plan.ledger.order if node.up)
    return max(kinds, key=lambda spec: kinds[spec], default=None)


def capacity_of(plan: Plan) -> Vector:
    """All GPUs, CPUs and memory in service; what some node does not count is plenty."""
    up = [node.spec for node in plan.ledger.order if node.up]
    cpus = [node.cpu_milli for node in up]
    memory = [node.memory_mib for node in up]
    return (
        plan.ledger.capacity_milli,
        sum(cpus) if all(cpus) else _PLENTY,
        sum(memory) if all(memory) else _PLENTY,
    )
