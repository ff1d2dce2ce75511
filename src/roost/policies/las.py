"""Least attained service: the job with the fewest GPU-seconds goes first; needs no run times.

Nuyens and Wierman, "The Foreground-Background queue: a survey" (2008). Taken literally it swaps
equals without end, so a run gives way only to a job that is a quantum behind it, and runs are
compared anew once per quantum.
"""

from __future__ import annotations

from dataclasses import dataclass

from roost.core.plan import Plan
from roost.core.spec import WHOLE
from roost.core.state import Job, Run
from roost.core.waiting import Key
from roost.errors import InvalidSpec
from roost.policies.kit.order import fill


@dataclass(frozen=True, slots=True)
class Las:
    """Least attained service (GPU-seconds) first, in quanta."""

    quantum_s: float = 600.0
    min_run_s: float = 0.0

    def __post_init__(self) -> None:
        """A quantum of next to nothing would never end."""
        if not self.quantum_s >= 1:
            raise InvalidSpec(f"quantum_s must be at least a second, got {self.quantum_s}")

    def __call__(self, plan: Plan) -> None:
        """Fill by attained service; compare runs anew when a quantum has passed."""
        due = plan.memo.get("las", 0.0)
        if plan.now >= due:
            plan.reconsider()
            due = plan.now + self.quantum_s
            plan.memo["las"] = due
        fill(plan, self.waiting, self, self.min_run_s)
        if plan.waiting.count:
            plan.wake(due)

    def waiting(self, job: Job) -> Key:
        """GPU-seconds held so far."""
        return job.attained_gpu_s

    def running(self, run: Run, now: float) -> Key:
        """GPU-seconds held so far, less a quantum's worth."""
        return run.attained_gpu_s(now) - self.quantum_s * run.gpu_milli / WHOLE
