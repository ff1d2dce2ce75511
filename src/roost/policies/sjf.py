"""Shortest job first, without preemption: once started, a job runs to its end."""

from __future__ import annotations

from roost.core.plan import Plan
from roost.core.state import Job
from roost.core.waiting import Key
from roost.policies.kit.order import fill


def sjf(plan: Plan) -> None:
    """Shortest job first, by the estimated run time; no job is stopped for it."""
    fill(plan, time_left)


def time_left(job: Job) -> Key:
    """Estimated run time that is left."""
    return job.remaining_s
