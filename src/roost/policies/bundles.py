"""The rules that Optimus and DL2 are compared with in their papers, which size jobs in bundles.

A bundle is one worker and one server (or a worker alone, where there are no servers). In every slot
all of the cluster is dealt out anew, in one of three orders:

- ``drf``: again and again to the job with the smallest dominant share (Ghodsi et al., NSDI 2011);
- ``fifo``: to the job that came first, as many as it can have, then to the next;
- ``tetris``: likewise, to the job with the least work left first (Grandl et al., SIGCOMM 2014):
  bundles of equal shape align equally well everywhere, so that this is what is left of its score.

Unlike ``drf``, ``fifo`` and ``tetris``, which start jobs as large as their users asked for, these
never ask whether one more makes a job any faster.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job, Run
from roost.errors import InvalidSpec
from roost.policies.kit.parameter_servers.gains import (
    Demand,
    Size,
    Vector,
    add,
    dominant,
    minus,
    within,
)
from roost.policies.kit.parameter_servers.outlook import Outlook
from roost.policies.kit.parameter_servers.slots import Slots, capacity_of, held

_ORDERS = ("drf", "fifo", "tetris")


@dataclass(slots=True)
class _Notes:
    """What is remembered between decisions."""

    outlook: Outlook = field(default_factory=Outlook)
    slots: Slots = field(default_factory=Slots)


@dataclass(frozen=True, slots=True)
class Bundles:
    """All of the cluster in bundles of a worker and a server, dealt out anew in every slot."""

    resizes: ClassVar[bool] = True

    order: str = "drf"
    slot_s: float = 600.0
    per_hour: int = 3

    def __post_init__(self) -> None:
        """Refuse unknown orders."""
        if self.order not in _ORDERS or not self.slot_s >= 1 or self.per_hour < 0:
            raise InvalidSpec(f"order is one of {', '.join(_ORDERS)}, slots last 1 s: {self}")

    def __call__(self, plan: Plan) -> None:
        """Decide at the beginning of a slot."""
        notes = plan.memo.get("bundles")
        if not isinstance(notes, _Notes):
            notes = plan.memo["bundles"] = _Notes()
        slots, outlook = notes.slots, notes.outlook

        def sizes(runs: list[Run], waiting: list[Job]) -> Mapping[JobId, Size | None]:
            outlook.forget(plan.jobs)
            demands = [
                outlook.demand(
                    run.job,
                    plan.now,
                    None if slots.may_change(run, plan.now, self.per_hour) else held(run),
                )
                for run in runs
            ]
            demands += [outlook.demand(job, plan.now) for job in waiting]
            jobs = [run.job for run in runs] + waiting
            stuck = any(job.id in slots.stuck for job in waiting)
            found = self._deal(jobs, demands, capacity_of(plan), stuck=stuck)
            return {job.id: size for job, size in zip(jobs, found, strict=True)}

        slots.decide(plan, self.slot_s, sizes)

    def _deal(
        self, jobs: list[Job], demands: list[Demand], capacity: Vector, *, stuck: bool
    ) -> list[Size | None]:
        """The least of each job, in order, then bundles in the order of the rule."""
        left = capacity
        sizes: list[Size | None] = []
        for demand in demands:
            first = demand.fixed or demand.least
            fits = demand.fixed is not None or within(demand.takes(first), left)
            left = minus(left, demand.takes(first)) if fits else left
            sizes.append(first if fits else None)
        if stuck or None in sizes:
            return sizes
        heap = [
            (self._key(jobs[at], demand, size, capacity), at)
            for at, demand in enumerate(demands)
            if (size := sizes[at]) is not None and demand.fixed is None
        ]
        heapq.heapify(heap)
        while heap:
            _, at = heapq.heappop(heap)
            size, demand = sizes[at], demands[at]
            assert size is not None  # noqa: S101 - narrows the type: only such are in the heap
            more = Size(
                min(size.servers + 1, demand.most.servers),
                min(size.workers + 1, demand.most.workers),
            )
            takes = minus(demand.takes(more), demand.takes(size))
            if more.workers > size.workers and within(takes, left):
                left, sizes[at] = minus(left, takes), more
                heapq.heappush(heap, (self._key(jobs[at], demand, more, capacity), at))
        return sizes

    def _key(self, job: Job, demand: Demand, size: Size, capacity: Vector) -> tuple[float, int]:
        match self.order:
            case "drf":
                return dominant(demand.takes(size), capacity), job.seq
            case "fifo":
                return 0.0, job.seq
            case _:
                bundle = dominant(add(demand.worker, demand.server), capacity)
                return demand.left_s(demand.least) * bundle, job.seq
