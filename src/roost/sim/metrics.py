"""The figures people compare: one summary per run, and policies side by side over seeds.

Everything is computed from finished ``Results``; what cannot be said (no job finished, nothing in
service, no work) is ``None``, never NaN. How a page shows it is left to ``report``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from roost.sim.results import Results, Series

Floats: TypeAlias = npt.NDArray[np.float64]
Maybe: TypeAlias = float | None

#: Buckets of job size: the most GPUs that each one holds, and its name.
SIZES = ((0.999_999, "<1"), (1.0, "1"), (4.0, "2-4"), (8.0, "5-8"), (16.0, "9-16"))
LARGEST = "17+"

#: What a job can wait for, as in ``JobRow.wait_<cause>_s``.
CAUSES = ("quota", "fragmentation", "capacity", "turn")


#: States of jobs that hold GPUs.
_ON_DEVICES = frozenset({"starting", "running", "resizing"})
#: Times are floating point: a job that never waited may seem late by this part of its JCT.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Summary:
    """One run in figures. Times in seconds; ``None`` where nothing can be said.

    - ``jct_*``: completion time, from submission to the end, of jobs that ended in any way.
    - ``makespan``: from the first submission to the last end.
    - ``delay_*``: time a job did not run, of all jobs, also those that never ended; ``wait_*`` is
      its mean split by cause, and ``wait_*_fraction`` each cause's part of all waiting.
    - ``gpu_allocation``: GPU time held over GPU time in service, within the makespan.
    - ``gpu_useful``: likewise, of GPU time that did work that counts. It is the smaller of the
      series' useful time and of held minus lost time: lost time includes restarts, which the
      series may have left out already, and these must not be taken off twice.
    - ``rho_*``: finish-time fairness in the style of Themis (NSDI 2020) and Gavel (OSDI 2020):
      ``JCT / (work_s * contention)``, where contention is the time average of GPUs asked for over
      GPUs in service during the job's life, at least 1. It compares a job's completion time with
      the one it would have on its own 1/contention of the cluster: above 1 it got less than an
      equal part. ``unfair_fraction`` is the part of jobs above 1. Jobs without work have no rho.

    In ``by_queue`` and ``by_size`` the two GPU figures are the group's part of the whole cluster,
    from its jobs' own service and lost time.
    """

    jobs: int
    finished: int
    outcomes: dict[str, int]
    jct_mean: Maybe
    jct_median: Maybe
    jct_p95: Maybe
    jct_p99: Maybe
    jct_max: Maybe
    makespan: Maybe
    delay_mean: Maybe
    delay_median: Maybe
    delay_p95: Maybe
    wait_quota: Maybe
    wait_fragmentation: Maybe
    wait_capacity: Maybe
    wait_turn: Maybe
    wait_quota_fraction: Maybe
    wait_fragmentation_fraction: Maybe
    wait_capacity_fraction: Maybe
    wait_turn_fraction: Maybe
    gpu_allocation: Maybe
    gpu_useful: Maybe
    restarts: int
    preemptions: int
    resizes: int
    lost_gpu_h: Maybe
    rho_mean: Maybe
    rho_p95: Maybe
    rho_max: Maybe
    unfair_fraction: Maybe
    by_queue: dict[str, Summary] = field(default_factory=dict)
    by_size: dict[str, Summary] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


class Estimate(NamedTuple):
    """A mean over ``n`` seeds, and half the width of its 95 % confidence interval (n >= 2)."""

    mean: Maybe
    half_width: Maybe
    n: int


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One policy over all its seeds: every figure, and its paired difference to the first policy.

    ``against_first`` pairs runs of the same workload and seed, and is empty for the first policy.
    """

    policy: str
    placer: str
    seeds: tuple[int, ...]
    figures: dict[str, Estimate]
    against_first: dict[str, Estimate]
    summaries: tuple[Summary, ...]


def summarise(results: Results) -> Summary:
    """Compute every figure of one run, for all jobs, by queue and by job size."""
    with np.errstate(all="ignore"):
        jobs = _Columns.of(results)
        cluster = _Cluster.of(results.series, jobs)
        sizes = {gpus: size_of(gpus) for gpus in {job.gpus for job in results.jobs}}
        whole = _summary(jobs, cluster, cluster.allocated, cluster.useful)
        return replace(
            whole,
            by_queue=_groups(jobs, cluster, sorted(set(jobs.queue)), jobs.queue),
            by_size=_groups(jobs, cluster, _BUCKETS, [sizes[job.gpus] for job in results.jobs]),
        )


def compare(runs: Iterable[Results]) -> list[ComparisonRow]:
    """Put policies side by side, in the order they first appear; a policy is also its placer."""
    table: dict[tuple[str, str], dict[tuple[str, int], Summary]] = {}
    for run in runs:
        key = (run.policy, run.placer)
        table.setdefault(key, {})[run.workload, run.seed] = summarise(run)
    first = next(iter(table.values()), {})
    return [_row(policy, placer, own, first) for (policy, placer), own in table.items()]


def estimate(values: Iterable[Maybe]) -> Estimate:
    """Mean and confidence half-width of independent values; ``None`` ones are left out."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if known.size < 2:  # noqa: PLR2004 - no spread without two
        return Estimate(_mean(known), None, known.size)
    with np.errstate(all="ignore"):
        error = float(known.std(ddof=1)) / math.sqrt(known.size)
    return Estimate(_mean(known), _finite(student_t(known.size - 1) * error), known.size)


def student_t(df: int) -> float:
    """Return the two-sided 95 % quantile of Student's t with ``df`` degrees of freedom."""
    if df <= len(_T_95):
        return _T_95[df - 1]
    # Cornish-Fisher expansion around the normal quantile; off by less than 0.0002 from here on.
    return 1.959964 + 2.372271 / df + 2.822501 / df**2


def size_of(gpus: float) -> str:
    """Name the bucket of job size that ``gpus`` falls in."""
    return next((name for most, name in SIZES if gpus <= most), LARGEST)


_BUCKETS = (*(name for _, name in SIZES), LARGEST)

_KEYS = tuple(
    name.name for name in fields(Summary) if name.name not in {"outcomes", "by_queue", "by_size"}
)

_T_95 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The jobs as arrays; NaN stands for what never happened."""

    queue: Sequence[str]
    outcome: Sequence[str]
    submitted: Floats
    finished: Floats
    waits: Floats
    service: Floats
    lost: Floats
    counts: Floats
    rho: Floats

    @classmethod
    def of(cls, results: Results) -> _Columns:
        def column(name: str) -> Floats:
            return np.array([*map(attrgetter(name), results.jobs)], dtype=np.float64)

        submitted, finished = column("submitted_at"), column("finished_at")
        work = column("work_s")
        fair = work * _contention(results.series, submitted, finished)
        return cls(
            queue=[job.queue for job in results.jobs],
            outcome=[job.outcome for job in results.jobs],
            submitted=submitted,
            finished=finished,
            waits=np.stack([column(f"wait_{cause}_s") for cause in CAUSES]),
            service=column("service_gpu_s"),
            lost=column("lost_gpu_s"),
            counts=np.stack(
                [np.maximum(column("runs") - 1, 0), column("preemptions"), column("resizes")]
            ),
            rho=np.where(work > 0, (finished - submitted) / fair, np.nan),
        )

    def take(self, members: list[int]) -> _Columns:
        return _Columns(
            queue=(),
            outcome=[self.outcome[index] for index in members],
            submitted=self.submitted[members],
            finished=self.finished[members],
            waits=self.waits[:, members],
            service=self.service[members],
            lost=self.lost[members],
            counts=self.counts[:, members],
            rho=self.rho[members],
        )


class _Cluster(NamedTuple):
    """GPU seconds between the first submission and the last end, or now if jobs still run."""

    capacity: float
    allocated: float
    useful: float

    @classmethod
    def of(cls, series: Series, jobs: _Columns) -> _Cluster:
        if not jobs.finished.size or not series.time:
            return cls(0.0, 0.0, 0.0)
        ends = _known(jobs.finished)
        if not _ON_DEVICES.isdisjoint(jobs.outcome):
            end = series.time[-1]
        elif ends.size:
            end = ends.max()
        else:
            return cls(0.0, 0.0, 0.0)
        window = np.array([jobs.submitted.min(), end])
        capacity, allocated, useful = (
            float(np.diff(_integral(series.time, np.array(values, dtype=np.float64), window))[0])
            for values in (series.capacity, series.allocated, series.useful)
        )
        return cls(capacity, allocated, min(useful, allocated - float(jobs.lost.sum())))


def _summary(jobs: _Columns, cluster: _Cluster, held: float, useful: float) -> Summary:
    jct = _known(jobs.finished - jobs.submitted)
    ends = _known(jobs.finished)
    delay = jobs.waits.sum(axis=0)
    quota, fragmentation, capacity, turn = (_mean(wait) for wait in jobs.waits)
    part = [_ratio(float(wait.sum()), float(delay.sum())) for wait in jobs.waits]
    restarts, preemptions, resizes = (int(count) for count in jobs.counts.sum(axis=1))
    rho = _known(jobs.rho)
    return Summary(
        jobs=jobs.submitted.size,
        finished=jct.size,
        outcomes=dict(sorted(Counter(jobs.outcome).items())),
        jct_mean=_mean(jct),
        jct_median=_percentile(jct, 50),
        jct_p95=_percentile(jct, 95),
        jct_p99=_percentile(jct, 99),
        jct_max=_percentile(jct, 100),
        makespan=_finite(ends.max() - jobs.submitted.min()) if ends.size else None,
        delay_mean=_mean(delay),
        delay_median=_percentile(delay, 50),
        delay_p95=_percentile(delay, 95),
        wait_quota=quota,
        wait_fragmentation=fragmentation,
        wait_capacity=capacity,
        wait_turn=turn,
        wait_quota_fraction=part[0],
        wait_fragmentation_fraction=part[1],
        wait_capacity_fraction=part[2],
        wait_turn_fraction=part[3],
        gpu_allocation=_ratio(held, cluster.capacity),
        gpu_useful=_ratio(max(useful, 0.0), cluster.capacity),
        restarts=restarts,
        preemptions=preemptions,
        resizes=resizes,
        lost_gpu_h=_finite(jobs.lost.sum() / 3600),
        rho_mean=_mean(rho),
        rho_p95=_percentile(rho, 95),
        rho_max=_percentile(rho, 100),
        unfair_fraction=_mean((rho > 1 + _ROUNDING).astype(np.float64)),
    )


def _groups(
    jobs: _Columns, cluster: _Cluster, names: Iterable[str], label: Sequence[str]
) -> dict[str, Summary]:
    """Summarise the jobs of each label apart, in the order of ``names``; empty groups are out."""
    members: dict[str, list[int]] = {name: [] for name in names}
    for index, name in enumerate(label):
        members[name].append(index)
    return {
        name: _summary(
            own, cluster, float(own.service.sum()), float((own.service - own.lost).sum())
        )
        for name, own in (
            (name, jobs.take(indices)) for name, indices in members.items() if indices
        )
    }


def _row(
    policy: str,
    placer: str,
    own: dict[tuple[str, int], Summary],
    first: dict[tuple[str, int], Summary],
) -> ComparisonRow:
    shared = [] if own is first else [key for key in own if key in first]
    return ComparisonRow(
        policy=policy,
        placer=placer,
        seeds=tuple(dict.fromkeys(seed for _, seed in own)),
        figures={key: estimate(getattr(run, key) for run in own.values()) for key in _KEYS},
        against_first={
            key: estimate(
                _minus(getattr(own[run], key), getattr(first[run], key)) for run in shared
            )
            for key in (_KEYS if shared else ())
        },
        summaries=tuple(own.values()),
    )


def _contention(series: Series, submitted: Floats, finished: Floats) -> Floats:
    """Average GPUs asked for per GPU in service over each job's life, at least 1.

    Moments when nothing is in service have no such ratio and are left out of the average.
    """
    if not series.time:
        return np.ones_like(submitted)
    capacity = np.array(series.capacity, dtype=np.float64)
    there = capacity > 0
    ratio = np.divide(series.demand, capacity, out=np.zeros_like(capacity), where=there)
    total, time = (
        _integral(series.time, values, finished) - _integral(series.time, values, submitted)
        for values in (ratio, there.astype(np.float64))
    )
    return np.maximum(1.0, np.divide(total, time, out=np.ones_like(total), where=time > 0))


def _integral(time: Sequence[float], values: Floats, until: Floats) -> Floats:
    """Integrate a step function from its beginning; its last value goes on for ever."""
    edges = np.append(time, max(time[-1], np.nanmax(until, initial=time[-1])))
    sums = np.concatenate(([0.0], np.cumsum(values * np.diff(edges))))
    return np.interp(until, edges, sums)


def _known(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _mean(values: Floats) -> Maybe:
    return _finite(values.mean()) if values.size else None


def _percentile(values: Floats, percent: float) -> Maybe:
    return _finite(np.percentile(values, percent)) if values.size else None


def _ratio(part: float, whole: float) -> Maybe:
    return _finite(part / whole) if whole > 0 else None


def _minus(left: Maybe, right: Maybe) -> Maybe:
    return None if left is None or right is None else left - right


def _finite(value: float | np.floating[Any]) -> Maybe:
    return float(value) if math.isfinite(value) else None
