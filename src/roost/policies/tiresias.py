"""Tiresias' discretised two-dimensional least attained service.

Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI 2019): a
multi-level feedback queue on GPU-seconds held; within a level first come, first served; a job that
has waited ``promote`` times as long as it has run starts again from the top (0: never).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from roost.core.plan import Plan
from roost.core.spec import WHOLE
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.policies.kit.levels import Levels


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
        if not 0 <= self.promote < float("inf"):
            raise InvalidSpec(f"promote must be a number >= 0, got {self.promote}")

    def __call__(self, plan: Plan) -> None:
        """Promote the starved, then fill by level."""
        levels: Levels = plan.memo.setdefault(
            "tiresias", Levels(list(self.limits), [float(n) for n in range(len(self.limits) + 1)])
        )
        if self.promote:
            self._promote(plan, levels)
        levels.fill(plan, self.min_run_s)

    def _promote(self, plan: Plan, levels: Levels) -> None:
        """Let jobs start again from the top that have waited too long for what they have run."""
        starving: list[tuple[float, int, int, Job]] = plan.memo.setdefault("starving", [])
        for job in plan.waiting.returned:
            if job.gpu_milli:
                ran_s = job.attained_gpu_s / (job.gpu_milli / WHOLE)
                at = job.queued_at + self.promote * ran_s
                heapq.heappush(starving, (at, job.seq, job.attempts, job))
        while starving and starving[0][0] <= plan.now:
            _, _, attempts, job = heapq.heappop(starving)
            if job.waiting and job.attempts == attempts:
                plan.waiting.rekey(job, levels.forgive)
        if starving:
            plan.wake(starving[0][0])
