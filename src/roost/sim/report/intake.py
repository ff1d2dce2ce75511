"""The jobs that policies were given, embedded once, and what became of them under each policy.

Up to ``MAX_ROWS`` jobs all get into the page's table; beyond, those that waited longest under any
policy and an even choice of the others. Jobs that have a bar in a timeline are named as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roost.sim.report.bars import TickScale
from roost.sim.report.thin import compact, pick
from roost.sim.results import JobResult, Results

MAX_ROWS = 20_000
LONGEST = 5_000


@dataclass(slots=True, eq=False)
class Intake:
    """One list of jobs, in order of submission, that one or several policies were given.

    ``table`` are the places of those in the table: all, or the longest and each ``every``-th.
    """

    jobs: list[JobResult]
    table: list[int]
    every: int
    named: set[int] = field(default_factory=set)

    def mention(self, places: Iterable[int]) -> None:
        """Make sure that these jobs are named in the page."""
        self.named.update(places)

    def known(self, places: Sequence[int]) -> list[int]:
        """Where these jobs stand among those that the page names."""
        found: list[int] = np.searchsorted(self._names(), places).tolist()
        return found

    def columns(self, clock: TickScale, queues: Sequence[str]) -> dict[str, Any]:
        """List what does not depend on the policy, for all jobs that the page names."""
        number = {queue: index for index, queue in enumerate(queues)}
        jobs = [self.jobs[place] for place in self._names()]
        return {
            "total": len(self.jobs),
            "every": self.every,
            "longest": LONGEST,
            "table": self.known(self.table),
            "id": [job.id for job in jobs],
            "queue": [number[job.queue] for job in jobs],
            "gpus": compact([job.gpus for job in jobs]),
            "submitted": [clock.at(job.submitted_at) for job in jobs],
            "work": [clock.ticks(job.work_s) for job in jobs],
        }

    def outcomes(self, run: Results, clock: TickScale, names: Sequence[str]) -> dict[str, Any]:
        """List what became of the jobs in the table under one policy; lengths in ticks."""
        jobs = [run.jobs[place] for place in self.table]
        return {
            "jct": [
                None if job.finished_at is None else clock.ticks(job.finished_at - job.submitted_at)
                for job in jobs
            ],
            "outcome": [names.index(job.outcome) for job in jobs],
            "runs": [job.runs for job in jobs],
            "preemptions": [job.preemptions for job in jobs],
            "resizes": [job.resizes for job in jobs],
            "lost": compact([job.lost_gpu_s / 3600 for job in jobs], digits=3),
            "waits": [[clock.ticks(_waits(job)[cause]) for job in jobs] for cause in range(4)],
        }

    def _names(self) -> list[int]:
        return sorted(self.named.union(self.table))


def in_order(run: Results) -> Results:
    """Put the jobs of a run in order of submission."""
    order = sorted(
        range(len(run.jobs)), key=lambda index: (run.jobs[index].submitted_at, run.jobs[index].id)
    )
    if order == list(range(len(order))):
        return run
    place = {index: place for place, index in enumerate(order)}
    return replace(
        run,
        jobs=[run.jobs[index] for index in order],
        segments=[segment._replace(job=place[segment.job]) for segment in run.segments],
    )


def intakes(runs: Sequence[Results]) -> list[Intake]:
    """Find the intake of each run; runs that were given the same jobs have the same one."""
    keys = [tuple(map(_fixed, run.jobs)) for run in runs]
    together: dict[tuple[object, ...], list[Results]] = {}
    for key, run in zip(keys, runs, strict=True):
        together.setdefault(key, []).append(run)
    made = {key: _intake(own) for key, own in together.items()}
    return [made[key] for key in keys]


def _intake(runs: Sequence[Results]) -> Intake:
    waits = np.array([[sum(_waits(job)) for job in run.jobs] for run in runs], dtype=np.float64)
    table, every = pick(waits.max(axis=0), most=MAX_ROWS, longest=LONGEST)
    return Intake(runs[0].jobs, table, every)


def _fixed(job: JobResult) -> tuple[object, ...]:
    """Tell what a job brings along, whatever the policy does with it."""
    return job.id, job.queue, job.gpus, job.submitted_at, job.work_s


def _waits(job: JobResult) -> tuple[float, float, float, float]:
    return job.wait_quota_s, job.wait_fragmentation_s, job.wait_capacity_s, job.wait_turn_s
