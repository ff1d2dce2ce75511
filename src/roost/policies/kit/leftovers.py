"""Jobs that a policy's program leaves over: the placer knows whether there is room for them.

Policies that decide about all jobs at once see a cluster of GPUs by kind. A job that needs CPUs,
memory or certain nodes may be granted what no node has left, in every round anew; one that is too
large for any kind is granted nothing. They start with their least workers where there is room, on
several kinds if need be. If then nothing runs at all, any job may start that fits.
"""

from __future__ import annotations

from collections.abc import Mapping

from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job
from roost.policies.kit.assignment import assign
from roost.policies.kit.moves import Wish
from roost.policies.kit.rounds import skip_rounds
from roost.policies.kit.speeds import nothing_runs, start_if_idle, start_others


def start_leftovers(plan: Plan) -> None:
    """Start, where there is room, jobs that might wait for ever; skip rounds if none can start."""
    start_others(plan)
    wishes = {job.id: Wish("", job.spec.workers.min) for job in plan.pending if _odd(job)}
    if wishes:
        assign(plan, wishes)
    start_if_idle(plan)
    if nothing_runs(plan):
        skip_rounds(plan)


def on_one_kind(held: Mapping[JobId, Wish], job: Job) -> bool:
    """Whether a run is on GPUs of one kind; no program could give it what it has otherwise."""
    return job.id in held and bool(held[job.id].kind)


def _odd(job: Job) -> bool:
    """Whether a job is more than equal workers with GPUs, anywhere."""
    return (
        bool(job.spec.roles)
        or job.spec.within is not None
        or job.spec.resources.needs_more_than_gpus
    )
