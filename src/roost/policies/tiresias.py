"""Tiresias' discretised two-dimensional least attained service.

Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI 2019): a
multi-level feedback queue on GPU-seconds held; within a level first come, first served; a job that
has waited ``promote`` times as long as it has run starts again from the top (0: never).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import partial

from roost.core.decisions import Evict
from roost.core.plan import Plan
from roost.core.spec import WHOLE
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.policies.levels import Levels


@dataclass(frozen=True, slots=True)
class Tiresias:
    """Two-dimensional discretised LAS: levels by GPU-seconds held, promotion against starvation."""

    limits: tuple[float, ...] = (3250.0, 7200.0)
    promote: float = 8.0
    min_run_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse levels that are not in order."""
        if not self.limits or list(self.limits) != sorted(set(self.limits)) or self.limits[0] <= 0:
            msg = f"limits must be positive and ascending, got {self.limits}"
            raise InvalidSpec(msg)

    def __call__(self, plan: Plan) -> None:
        """Promote the starved, then fill by level."""
        levels: Levels = plan.memo.setdefault(
            "tiresias", Levels(list(self.limits), [float(n) for n in range(len(self.limits) + 1)])
        )
        starving: list[tuple[float, int, Job, int]] = plan.memo.setdefault("starving", [])
        if self.promote:
            self._promote(plan, levels, starving)
        levels.fill(plan, self.min_run_s)
        if self.promote:
            self._watch(plan, starving)

    def _watch(self, plan: Plan, starving: list[tuple[float, int, Job, int]]) -> None:
        """Remember when those who had to give way now will have starved."""
        for decision in plan.decisions:
            if isinstance(decision, Evict):
                job = plan.jobs[decision.job]
                run = job.run
                if run is None:
                    continue
                ran_s = run.attained_gpu_s(plan.now) / (run.gpu_milli / WHOLE)
                at = plan.now + self.promote * ran_s
                heapq.heappush(starving, (at, job.seq, job, job.attempts))
        if starving:
            plan.wake(max(starving[0][0], plan.now))

    def _promote(
        self, plan: Plan, levels: Levels, starving: list[tuple[float, int, Job, int]]
    ) -> None:
        while starving and starving[0][0] <= plan.now:
            _, _, job, attempts = heapq.heappop(starving)
            if job.run is None and not job.state.over and not job.held and job.attempts == attempts:
                plan.waiting.rekey(job, partial(_forgive, levels))


def _forgive(levels: Levels, job: Job) -> None:
    levels.forgiven[job.id] = job.attained_gpu_s
