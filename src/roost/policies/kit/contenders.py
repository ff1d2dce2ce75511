"""Contenders: the jobs that take part in a decision about all jobs at once.

A rigid run is no reserve for others: it is set aside only for a job that counts more. If nothing is
known of its speed elsewhere, it is not moved either. Where jobs wait that count more, a decision
about these alone comes first, so that no other job profits from what is taken for them.

Waiting jobs of one shape of which nothing is known are the same to a policy: as many of them are
looked at as there could be room for, however many there are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import NamedTuple

from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId
from roost.core.state import Job
from roost.core.waiting import Line
from roost.policies.kit.moves import movable
from roost.policies.kit.sizes import gpus_in_service


class Contest(NamedTuple):
    """Jobs that are weighed against each other, and those of them that must not be set aside.

    ``urgent``: what is taken from runs is for waiting jobs, and no run may grow by it.
    """

    jobs: list[Job]
    stay: Collection[JobId]
    urgent: bool = False


def active(plan: Plan) -> tuple[list[Job], list[Job]]:
    """Jobs that wait or run, first come first: those of equal workers with whole GPUs, and others.

    What is over is not looked at: there may be a lot of it.
    """
    jobs = [entry[2] for line in plan.waiting.open for entry in line.entries]
    jobs += [run.job for run in plan.running if not run.job.waiting]
    jobs.sort(key=_seq)
    return [job for job in jobs if job.spec.uniform], [job for job in jobs if not job.spec.uniform]


def place_all(plan: Plan, jobs: Iterable[Job]) -> None:
    """Start waiting jobs by priority; where one of a line finds no room, none of the line does."""
    refused = set()
    for job in sorted(jobs, key=turn):
        if job.waiting:
            line = plan.waiting.line_of(job)
            if line not in refused and not plan.place(job):
                refused.add(line)


def priority(job: Job) -> int:
    """What counts of a job before everything else: its queue's priority and its own."""
    return job.queue.spec.priority + job.spec.priority


def within_quota(plan: Plan, jobs: Sequence[Job]) -> set[JobId]:
    """Jobs for which their queue was promised room: those that run first, then by arrival."""
    left = {
        name: queue.spec.quota_milli
        for name, queue in plan.queues.items()
        if queue.spec.quota_milli is not None
    }
    if not left:
        return set()
    found = set()
    for job in sorted(jobs, key=lambda job: (job.run is None, job.seq)):
        queue = job.queue.spec.id
        if job.gpu_milli <= left.get(queue, -1):
            left[queue] -= job.gpu_milli
            found.add(job.id)
    return found


def contests(
    plan: Plan, jobs: Sequence[Job], owed: Collection[JobId], window: float
) -> Iterator[Contest]:
    """Jobs that decide together: first those that count more than a rigid run, if there are any."""
    now = plan.now
    waiting = _in_line(plan, [job for job in jobs if job.waiting and job.spec.preempts], owed)
    able = [job for job in jobs if job.run is not None and movable(job.run, now)]
    rigid = [job for job in able if not job.spec.elastic]
    if rigid and waiting:
        least = min(priority(job) for job in rigid)
        urgent = {job.id for job in waiting if job.id in owed or priority(job) > least}
        if urgent:
            top = max(priority(job) for job in waiting if job.id in urgent)
            claims = not urgent.isdisjoint(owed)
            firm = {
                job.id for job in rigid if priority(job) >= top and (job.id in owed or not claims)
            }
            first = [*able, *(job for job in waiting if job.id in urgent)]
            yield Contest(_ordered(first), firm, urgent=True)
    free, stay = [], {job.id for job in rigid}
    for job in able:
        run = job.run
        if run is None or not adaptable(job):
            continue
        if job.spec.elastic and now < run.changed_at + window:
            stay.add(job.id)  # it has its turn
        if job.spec.elastic or run.unsaved_s(now) <= window:
            free.append(job)
    yield Contest(_ordered([*free, *waiting]), stay)


def next_able(plan: Plan) -> float:
    """When the next run has had its minimum time, if a job waits."""
    if not plan.waiting.count:
        return math.inf
    ends = [
        run.started_at + run.job.spec.min_run_s
        for run in plan.running
        if run.started_at is not None
    ]
    return min((end for end in ends if end > plan.now), default=math.inf)


def first_in_line(jobs: Sequence[Job]) -> tuple[float, int]:
    """The place in line of the first rigid job that waits: jobs behind it let it go first.

    Elastic ones find room later as well: they grow and shrink.
    """
    places = [turn(job) for job in jobs if job.waiting and not job.spec.elastic]
    return min(places, default=(math.inf, 0))


def turn(job: Job) -> tuple[float, int]:
    """The place in line of a job: by priority, then by arrival."""
    return -priority(job), job.seq


def adaptable(job: Job) -> bool:
    """Whether a job is elastic, or it is known how it would do elsewhere."""
    spec = job.spec
    return spec.elastic or spec.training is not None or bool(spec.rates)


def _in_line(plan: Plan, waiting: Sequence[Job], owed: Collection[JobId]) -> list[Job]:
    """Waiting jobs; of equal ones of which nothing is known, as many as could find room."""
    gpus = gpus_in_service(plan)
    found: list[Job] = []
    alike: dict[Line, list[Job]] = {}
    for job in waiting:
        if adaptable(job):
            found.append(job)
        else:
            alike.setdefault(plan.waiting.line_of(job), []).append(job)
    for line, jobs in alike.items():
        most = max(1, gpus * WHOLE // max(line.gpu_milli, 1))
        if len(jobs) <= most:
            found += jobs
            continue
        first = nsmallest(most, jobs, key=lambda job: (job.id not in owed, turn(job)))
        short = nsmallest(most, jobs, key=_shortness)
        found += {job.id: job for job in (*first, *short)}.values()
    return found


def _shortness(job: Job) -> tuple[float, int]:
    return (job.run_time_s if job.run_time_s is not None else math.inf), job.seq


def _ordered(jobs: list[Job]) -> list[Job]:
    return sorted(jobs, key=_seq)


def _seq(job: Job) -> int:
    return job.seq
