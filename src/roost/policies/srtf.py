"""Shortest remaining time first: longer jobs make room for shorter ones.

Schrage, "A proof of the optimality of the shortest remaining processing time discipline" (1968).
"""

from __future__ import annotations

from dataclasses import dataclass

from roost.core.plan import Plan
from roost.core.state import Job, Run
from roost.core.waiting import Key
from roost.policies.kit.order import fill


@dataclass(frozen=True, slots=True)
class Srtf:
    """Shortest remaining time first; longer jobs make room."""

    min_run_s: float = 0.0

    def __call__(self, plan: Plan) -> None:
        """Fill by remaining time."""
        fill(plan, self.waiting, self, self.min_run_s)

    def waiting(self, job: Job) -> Key:
        """Work left, in seconds at the pace of its least workers."""
        return job.remaining_s

    def running(self, run: Run, now: float) -> Key:
        """Work left, less what a stop would cost: the gain must pay for the move.

        Not time left: on a slow GPU an equal job that waits would seem shorter.
        """
        left, cost = run.work_left_s(now), run.disturbance_s(now)
        return left - cost * run.rate if cost else left
