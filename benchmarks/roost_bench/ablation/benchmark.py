"""The default policy with parts of it switched off, on the same jobs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

import numpy as np

from roost.core.cells import parse_promises
from roost.core.spec import QueueSpec
from roost.sim.results import JobResult, Results
from roost.sim.scenario import Scenario
from roost.sim.simulation import Simulation
from roost_bench.ablation.workload import PROMISE, TENANTS, cluster, mixed_jobs


class Variant(NamedTuple):
    """What is switched on, and how it is asked for."""

    name: str
    policy: str
    placer: str
    promises: str = ""


#: From nothing to everything. The first is what others are compared with. Each part that can be
#: switched off has a row; the last two are the default, without cells and with them.
VARIANTS = (
    Variant("neither", "roost:shares=no", "consolidate"),
    Variant("fragments", "roost:shares=no", "compact"),
    Variant("fractions in the choice", "roost", "consolidate"),
    Variant("both", "roost", "compact"),
    Variant("both, and cells", "roost", "compact", PROMISE),
)


@dataclass(frozen=True, slots=True)
class AblationRow:
    """What became of the jobs under one variant. Times in seconds, ``allocated_pct`` of all GPUs.

    GPUs are counted from the first submission to the last: what comes then is the same for all, a
    cluster that runs empty. ``shares_wait_s`` is how long shares wait for their GPU on average.
    ``promised`` are jobs of the queues that are promised cells where anybody is, ``others`` those
    of the queue that never is.
    """

    variant: str
    policy: str
    placer: str
    promises: str
    seed: int
    jobs: int
    unfinished: int
    mean_jct_s: float
    p99_jct_s: float
    shares_jct_s: float
    shares_wait_s: float
    whole_jct_s: float
    elastic_jct_s: float
    promised_jct_s: float
    promised_wait_s: float
    others_jct_s: float
    others_wait_s: float
    allocated_pct: float
    preemptions: int
    resizes: int


@dataclass(frozen=True, slots=True)
class AblationBench:
    """So many jobs that ask for ``load`` times all GPUs."""

    jobs: int
    load: float

    def measure(self, variant: Variant, seed: int) -> AblationRow:
        """Run one variant; the same for the same seed."""
        scenario = Scenario(mixed_jobs(self.jobs, self.load, seed), cluster(), timeline=True)
        cells = parse_promises(variant.promises)
        queues = tuple(QueueSpec(queue, cells=cells) for queue in TENANTS)
        scenario = replace(scenario, skip_impossible=True, queues=queues)
        setup = scenario.setup(variant.policy, variant.placer, seed)
        elastic = {job.id for job in setup.workload.jobs if job.spec.elastic}
        return _row(variant, seed, Simulation(setup).run(), elastic)


def _row(variant: Variant, seed: int, results: Results, elastic: Container[str]) -> AblationRow:
    ended = [job for job in results.jobs if job.finished_at is not None]
    times = [_jct(job) for job in ended]
    rigid = [job for job in ended if job.id not in elastic]
    shares = [job for job in rigid if 0 < job.gpus < 1]
    promised = [job for job in ended if job.queue in TENANTS]
    others = [job for job in ended if job.queue not in TENANTS]
    return AblationRow(
        *variant,
        seed=seed,
        jobs=len(results.jobs),
        unfinished=len(results.jobs) - len(ended),
        mean_jct_s=round(fmean(times), 1),
        p99_jct_s=round(float(np.percentile(times, 99)), 1),
        shares_jct_s=_mean([_jct(job) for job in shares]),
        shares_wait_s=_mean([_waited(job) for job in shares]),
        whole_jct_s=_mean([_jct(job) for job in rigid if job.gpus >= 1]),
        elastic_jct_s=_mean([_jct(job) for job in ended if job.id in elastic]),
        promised_jct_s=_mean([_jct(job) for job in promised]),
        promised_wait_s=_mean([_waited(job) for job in promised]),
        others_jct_s=_mean([_jct(job) for job in others]),
        others_wait_s=_mean([_waited(job) for job in others]),
        allocated_pct=round(_allocated(results), 2),
        preemptions=results.preemptions,
        resizes=sum(job.resizes for job in results.jobs),
    )


def _jct(job: JobResult) -> float:
    assert job.finished_at is not None  # noqa: S101 - narrows the type
    return job.finished_at - job.submitted_at


def _waited(job: JobResult) -> float:
    return job.wait_quota_s + job.wait_fragmentation_s + job.wait_capacity_s + job.wait_turn_s


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 1) if values else 0.0


def _allocated(results: Results) -> float:
    """The part of all GPUs that is given away on average, while jobs come."""
    last = max(job.submitted_at for job in results.jobs)
    series = results.series
    until = bisect_right(series.time, last)
    ends = [*series.time[1:until], last]
    spans = [end - begin for begin, end in zip(series.time, ends, strict=False)]
    held = sum(span * gpus for span, gpus in zip(spans, series.allocated, strict=False))
    there = sum(span * gpus for span, gpus in zip(spans, series.capacity, strict=False))
    return 100 * held / there if there else 0.0
