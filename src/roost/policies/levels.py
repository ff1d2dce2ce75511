"""Ordering by attained service in steps: what Tiresias' 2D-LAS and Gittins policies share.

Service is time x GPUs. It is cut at limits into levels; a level has a rank, and a job's place in
the order changes only when it crosses a limit, so jobs of one level do not swap places all the
time. Crossings are known in advance: the policy wakes itself for them while anyone waits.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass, field

from roost.core.decisions import Place
from roost.core.plan import Plan
from roost.core.spec import WHOLE
from roost.core.state import Job, Run
from roost.core.waiting import Key
from roost.policies.fill import fill

#: Crossings are computed in floating point; this much too little still counts as crossed.
_ROUNDING_GPU_S = 1e-6


@dataclass(slots=True, eq=False)
class Levels:
    """An order by level. It lives in the plan's memo from one decision to the next.

    ``forgiven`` is service that a promoted job no longer counts as having had.
    """

    limits: list[float]
    ranks: list[float]
    forgiven: dict[str, float] = field(default_factory=dict)
    crossings: list[tuple[float, int, Job]] = field(default_factory=list)

    def waiting(self, job: Job) -> Key:
        """The rank of its level, then first come, first served."""
        return (self.ranks[self.level(job, job.attained_gpu_s)], job.seq)

    def running(self, run: Run, now: float) -> Key:
        """The rank of its level; within a level runs keep their places."""
        return (self.ranks[self.level(run.job, run.attained_gpu_s(now))], -1)

    def level(self, job: Job, attained_gpu_s: float) -> int:
        """How many limits a job's service has crossed."""
        counted = attained_gpu_s - self.forgiven.get(job.id, 0.0)
        return bisect_right(self.limits, counted + _ROUNDING_GPU_S)

    def fill(self, plan: Plan, min_run_s: float) -> None:
        """Note crossings until now, fill by level, and ask to be woken for the next crossing."""
        self._cross(plan)
        fill(plan, self.waiting, self, min_run_s)
        for decision in plan.decisions:
            if isinstance(decision, Place):
                job = self._placed(plan, decision)
                gpus = decision.allocation.gpu_milli / WHOLE
                self._expect(job, plan.now, job.attained_gpu_s, gpus)
        if plan.waiting.count and self.crossings:
            plan.wake(max(self.crossings[0][0], plan.now))

    def _cross(self, plan: Plan) -> None:
        """Runs that crossed a limit may have to give way: let their nodes be looked at."""
        now, crossings = plan.now, self.crossings
        while crossings and crossings[0][0] <= now:
            _, _, job = heapq.heappop(crossings)
            run = job.run
            if run is None or run.parked or run.stopping is not None:
                continue
            for node in run.allocation.nodes:
                plan.ledger.touch(plan.ledger.nodes[node])
            self._expect(job, now, run.attained_gpu_s(now), run.gpu_milli / WHOLE)

    def _expect(self, job: Job, now: float, attained: float, gpus: float) -> None:
        counted = attained - self.forgiven.get(job.id, 0.0)
        level = bisect_right(self.limits, counted + _ROUNDING_GPU_S)
        if level < len(self.limits) and gpus:
            at = now + (self.limits[level] - counted) / gpus
            heapq.heappush(self.crossings, (at, job.seq, job))

    @staticmethod
    def _placed(plan: Plan, decision: Place) -> Job:
        return plan.jobs[decision.job]
