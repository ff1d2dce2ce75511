"""Ordering by attained service in steps: what Tiresias' 2D-LAS and Gittins policies share.

Service is time x GPUs. It is cut at limits into levels; a level has a rank, and a job's place in
the order changes only when it crosses a limit, so jobs of one level do not swap places all the
time. Crossings are known in advance: the policy wakes itself for them while a job waits.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from dataclasses import dataclass, field

from roost.core.decisions import Place
from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId
from roost.core.state import Job, Run
from roost.core.waiting import Key
from roost.policies.kit.order import fill

#: A limit that will be crossed within this time counts as crossed when the wake-up for it comes.
_ROUNDING_S = 1e-6


@dataclass(slots=True, eq=False)
class Levels:
    """An order by level. It lives in the plan's memo from one decision to the next.

    ``forgiven`` is service that a promoted job no longer counts as having had; ``crossed`` is the
    level of jobs with a crossing that the clock was too coarse to show.
    """

    limits: list[float]
    ranks: list[float]
    forgiven: dict[JobId, float] = field(default_factory=dict)
    crossed: dict[JobId, int] = field(default_factory=dict)
    crossings: list[tuple[float, int, Job]] = field(default_factory=list)

    def waiting(self, job: Job) -> Key:
        """The rank of its level, then first come, first served."""
        return (self.ranks[self.level(job, job.attained_gpu_s)], job.seq)

    def running(self, run: Run, now: float) -> Key:
        """The rank of its level; within a level runs keep their places."""
        return (self.ranks[self.level(run.job, run.attained_gpu_s(now))], -1)

    def level(self, job: Job, attained_gpu_s: float) -> int:
        """How many limits a job's service has crossed."""
        level = bisect_right(self.limits, attained_gpu_s - self.forgiven.get(job.id, 0.0))
        return max(level, self.crossed.get(job.id, 0))

    def forgive(self, job: Job) -> None:
        """Let a job start again from the top."""
        self.forgiven[job.id] = job.attained_gpu_s
        self.crossed.pop(job.id, None)

    def fill(self, plan: Plan, min_run_s: float) -> None:
        """Note crossings until now, fill by level, and ask to be woken for the next crossing."""
        self._cross(plan)
        fill(plan, self.waiting, self, min_run_s)
        for decision in plan.decisions:
            if isinstance(decision, Place):
                job = plan.jobs[decision.job]
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
            if run is None or not run.booked:
                continue
            attained, gpus = run.attained_gpu_s(now), run.gpu_milli / WHOLE
            level = self.level(job, attained)
            missing = self._missing(job, level, attained)
            if 0 < missing <= gpus * _ROUNDING_S:
                self.crossed[job.id] = level + 1  # but for the rounding of the clock
            for node in run.allocation.nodes:
                plan.ledger.touch(plan.ledger.nodes[node])
            self._expect(job, now, attained, gpus)

    def _expect(self, job: Job, now: float, attained: float, gpus: float) -> None:
        """Note when a run will cross its next limit, if it goes on from now."""
        missing = self._missing(job, self.level(job, attained), attained)
        if gpus and missing < math.inf:
            at = max(now + missing / gpus, math.nextafter(now, math.inf))
            heapq.heappush(self.crossings, (at, job.seq, job))

    def _missing(self, job: Job, level: int, attained: float) -> float:
        """Service until the next limit."""
        if level >= len(self.limits):
            return math.inf
        return self.limits[level] - attained + self.forgiven.get(job.id, 0.0)
