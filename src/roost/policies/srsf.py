"""Shortest remaining service first: time left times GPUs.

Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI 2019), section 2,
takes it as the yardstick that knows all run times.
"""

from __future__ import annotations

from dataclasses import dataclass

from roost.core.plan import Plan
from roost.core.spec import WHOLE
from roost.core.state import Job, Run
from roost.core.waiting import Key
from roost.policies.kit.order import fill


@dataclass(frozen=True, slots=True)
class Srsf:
    """Shortest remaining service first (time x GPUs); larger jobs make room."""

    min_run_s: float = 0.0

    def __call__(self, plan: Plan) -> None:
        """Fill by remaining service."""
        fill(plan, self.waiting, self, self.min_run_s)

    def waiting(self, job: Job) -> Key:
        """GPU-seconds left."""
        return job.remaining_s * job.gpu_milli / WHOLE if job.gpu_milli else 0.0

    def running(self, run: Run, now: float) -> Key:
        """GPU-seconds left, less what a stop would cost."""
        left = run.work_left_s(now) - run.disturbance_s(now) * run.rate
        return left * run.job.gpu_milli / WHOLE if run.gpu_milli else 0.0
