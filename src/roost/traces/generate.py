"""Workloads out of a hat: as many jobs as you like that look like Philly's.

Every property of a job comes from a stream of random numbers of its own, so that changing one
parameter (the load, say) leaves all others of every job as they were, and asking for more jobs
leaves the first ones as they were. Only uniform numbers are drawn and times are rounded to
milliseconds, so that a seed means the same workload everywhere. The numbers that give jobs their
shape, and where they come from, are in ``philly_fit``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from roost.core.events import Outcome
from roost.core.spec import WHOLE, JobId, JobSpec, QueueId, Range, Resources
from roost.errors import InvalidSpec
from roost.traces import philly_fit as philly
from roost.traces.workload import TraceJob, Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DAY = 86400.0
_SHARES = (250, 500, 750)
_SOON = 0.001
_WILD = 10.0
_KEPLER_STEPS = 20


#: More than this of anything is a slip of the keyboard.
_MANY = 100_000_000


class Arrivals(StrEnum):
    """How submissions are spread over time."""

    POISSON = "poisson"
    DIURNAL = "diurnal"
    BURSTY = "bursty"
    UNIFORM = "uniform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """What a generated workload shall be like.

    Submissions come at ``rate`` jobs per second or, without it, at the rate at which these jobs
    ask for ``load`` times ``gpus`` GPUs on average. With ``diurnal`` arrivals the rate swings by
    ``daily_swing`` around that, lowest at midnight, which is time 0; with ``bursty`` ones it is
    redrawn every 42 jobs or so. No job needs more than ``gpus`` GPUs.

    ``gpu_weights`` gives how often each number of GPUs is asked for. Run times are those of Philly
    up to ``max_run_s``, then times ``run_time_scale``. ``killed`` and ``failed`` are shares of all
    jobs. So is ``elastic``: such a job runs with half to twice its workers. ``fractional`` is the
    share of the single-GPU jobs that need only a part of it; those are not elastic. Run times
    are declared with a log-normal error of spread ``estimate_error``, or not when that is ``None``.
    """

    jobs: int = 1000
    seed: int = 0
    arrivals: Arrivals | str = Arrivals.POISSON
    load: float = 0.8
    gpus: int = 64
    rate: float | None = None
    daily_swing: float = philly.DAILY_SWING
    queues: int = 11
    gpu_weights: tuple[tuple[int, float], ...] = philly.GPUS
    run_time_scale: float = 1.0
    max_run_s: float = math.inf
    killed: float = philly.KILLED
    failed: float = philly.FAILED
    elastic: float = 0.0
    fractional: float = 0.0
    estimate_error: float | None = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        _require(self.jobs >= 1, "jobs", self.jobs, "at least 1")
        _require(self.jobs <= _MANY, "jobs", self.jobs, f"at most {_MANY}")
        _require(self.seed >= 0, "seed", self.seed, "at least 0")
        choices = [kind.value for kind in Arrivals]
        _require(self.arrivals in choices, "arrivals", self.arrivals, f"one of {choices}")
        for name in ("load", "gpus", "run_time_scale"):
            value = getattr(self, name)
            _require(0 < value < math.inf, name, value, "positive")
        _require(self.max_run_s > 0, "max_run_s", self.max_run_s, "positive")
        _require(self.rate is None or 0 < self.rate < math.inf, "rate", self.rate, "positive")
        _require(0 <= self.daily_swing < 1, "daily_swing", self.daily_swing, "in [0, 1)")
        _require(1 <= self.queues <= _MANY, "queues", self.queues, f"from 1 to {_MANY}")
        _require(self.gpus <= _MANY, "gpus", self.gpus, f"at most {_MANY}")
        known = all(size >= 1 and 0 <= weight < math.inf for size, weight in self.gpu_weights)
        some = any(size <= self.gpus and weight > 0 for size, weight in self.gpu_weights)
        _require(known and some, "gpu_weights", self.gpu_weights, f"for 1 to {self.gpus} GPUs")
        for name in ("killed", "failed", "elastic", "fractional"):
            value = getattr(self, name)
            _require(0 <= value <= 1, name, value, "from 0 to 1")
        _require(self.killed + self.failed <= 1, "killed + failed", self.killed, "at most 1")
        error = self.estimate_error
        _require(error is None or 0 <= error <= _WILD, "estimate_error", error, f"0 to {_WILD}")


def generate(synthetic: Synthetic, name: str = "synthetic") -> Workload:
    """Make a workload as described; the same description gives the same workload."""
    sizes = _sizes(synthetic)
    shares = np.where(sizes == 1, _shares(synthetic), WHOLE)
    elastic = (shares == WHOLE) & (_uniform(synthetic, _For.ELASTIC) < synthetic.elastic)
    low = np.where(elastic, np.maximum(1, sizes // 2), sizes)
    high = np.where(elastic, np.minimum(2 * sizes, synthetic.gpus), sizes)
    # Philly's run times are for ``sizes`` workers; what counts here is the time with ``low``.
    work_s = np.maximum(_SOON, np.round(_run_times(synthetic, sizes) * sizes / low, 3))
    gpu_s = work_s * low * shares / WHOLE
    columns = zip(
        _submissions(synthetic, float(gpu_s.mean())).tolist(),
        _specs(synthetic, low, high, shares, _estimates(synthetic, work_s)),
        work_s.tolist(),
        _outcomes(synthetic),
        strict=True,
    )
    return Workload(
        name, [TraceJob(JobId(f"job-{at}"), *column) for at, column in enumerate(columns, 1)]
    )


class _For(IntEnum):
    """What a stream of random numbers is for. New ones go last: their numbers are seeds."""

    SIZE = 0
    RUN_TIME = 1
    ARRIVAL = 2
    BURST = 3
    BURST_ANGLE = 4
    QUEUE = 5
    OUTCOME = 6
    ELASTIC = 7
    FRACTIONAL = 8
    SHARE = 9
    ESTIMATE = 10
    ESTIMATE_ANGLE = 11


def _uniform(synthetic: Synthetic, purpose: _For, count: int | None = None) -> Floats:
    """Draw numbers from [0, 1), one per job unless told otherwise."""
    stream = np.random.Generator(np.random.PCG64([synthetic.seed, purpose]))
    return stream.random(synthetic.jobs if count is None else count)


def _normal(synthetic: Synthetic, radius: _For, angle: _For, count: int | None = None) -> Floats:
    """Draw standard normal numbers (Box and Muller)."""
    r = np.sqrt(-2.0 * np.log1p(-_uniform(synthetic, radius, count)))
    turned: Floats = r * np.cos(2.0 * np.pi * _uniform(synthetic, angle, count))
    return turned


def _pick(weights: Floats, at: Floats) -> Ints:
    """Draw indexes with these weights."""
    return np.searchsorted(np.cumsum(weights) / weights.sum(), at, side="right")


def _sizes(synthetic: Synthetic) -> Ints:
    """Draw how many GPUs each job asks for."""
    fitting = [pair for pair in synthetic.gpu_weights if pair[0] <= synthetic.gpus]
    sizes, weights = np.array(fitting).T
    picked: Ints = sizes[_pick(weights, _uniform(synthetic, _For.SIZE))].astype(np.int64)
    return picked


def _run_times(synthetic: Synthetic, sizes: Ints) -> Floats:
    """Draw how long each job runs with as many workers as it asks for."""
    at = _uniform(synthetic, _For.RUN_TIME)
    run_s = np.empty_like(at)
    classes = np.array(sorted(philly.RUN_TIME_S))
    members = np.searchsorted(classes, sizes, side="right") - 1
    for index, size in enumerate(classes.tolist()):
        logs = np.log(philly.RUN_TIME_S[size])
        longest = np.interp(math.log(synthetic.max_run_s), logs, philly.LEVELS)
        mine = members == index
        run_s[mine] = np.exp(np.interp(at[mine] * longest, philly.LEVELS, logs))
    shorter: Floats = np.minimum(run_s, synthetic.max_run_s) * synthetic.run_time_scale
    return shorter


def _shares(synthetic: Synthetic) -> Ints:
    """Draw the part of its GPU that each job would need if it had only one."""
    some = np.array(_SHARES)[(_uniform(synthetic, _For.SHARE) * len(_SHARES)).astype(np.int64)]
    wanted = _uniform(synthetic, _For.FRACTIONAL) < synthetic.fractional
    return np.where(wanted, some, WHOLE)


def _submissions(synthetic: Synthetic, mean_gpu_s: float) -> Floats:
    """Draw when each job comes."""
    rate = synthetic.rate or synthetic.load * synthetic.gpus / mean_gpu_s
    gaps = -np.log1p(-_uniform(synthetic, _For.ARRIVAL))
    steady = np.cumsum(gaps) - gaps[0]
    match Arrivals(synthetic.arrivals):
        case Arrivals.POISSON:
            times = steady / rate
        case Arrivals.UNIFORM:
            times = np.arange(synthetic.jobs) / rate
        case Arrivals.BURSTY:
            times = _in_bursts(synthetic, steady) / rate
        case Arrivals.DIURNAL:
            times = _by_day(steady / rate, synthetic.daily_swing)
    rounded: Floats = np.round(times, 3)
    return rounded


def _in_bursts(synthetic: Synthetic, steady: Floats) -> Floats:
    """Move arrivals so that stretches of equal length differ in their rates, log-normally."""
    count = int(steady[-1] / philly.BURST_JOBS) + 1
    normal = _normal(synthetic, _For.BURST, _For.BURST_ANGLE, count)
    rates = np.exp(philly.BURST_SIGMA * normal)
    arrived = np.concatenate(([0.0], np.cumsum(rates / rates.mean())))
    moved: Floats = np.interp(steady, arrived * philly.BURST_JOBS, np.arange(count + 1.0))
    return moved * philly.BURST_JOBS


def _by_day(steady: Floats, swing: float) -> Floats:
    """Move arrivals so that their rate follows 1 - swing cos(2 pi t / day).

    Its integral is Kepler's equation, M = E - swing sin E; Newton's method from E = pi solves it.
    """
    turns, mean = np.divmod(steady * (2.0 * np.pi / _DAY), 2.0 * np.pi)
    angle = np.full_like(mean, np.pi)
    for _ in range(_KEPLER_STEPS):
        angle -= (angle - swing * np.sin(angle) - mean) / (1.0 - swing * np.cos(angle))
    return (turns + angle / (2.0 * np.pi)) * _DAY


def _estimates(synthetic: Synthetic, work_s: Floats) -> list[float] | list[None]:
    """Draw the run times that users declare."""
    if synthetic.estimate_error is None:
        return [None] * synthetic.jobs
    normal = _normal(synthetic, _For.ESTIMATE, _For.ESTIMATE_ANGLE)
    estimates: list[float] = np.round(
        work_s * np.exp(synthetic.estimate_error * normal), 3
    ).tolist()
    return estimates


def _outcomes(synthetic: Synthetic) -> list[Outcome]:
    at = _uniform(synthetic, _For.OUTCOME)
    killed, failed = at < synthetic.killed, at >= 1.0 - synthetic.failed
    choices = (Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.FAILED)
    return [choices[which] for which in (killed + 2 * failed).tolist()]


def _specs(
    synthetic: Synthetic, low: Ints, high: Ints, shares: Ints, estimates: list[float] | list[None]
) -> Iterator[JobSpec]:
    """Write the specs of all jobs; what many have in common they share."""
    ranks = np.arange(1.0, synthetic.queues + 1.0)
    queues = [QueueId(f"queue-{rank}") for rank in range(1, synthetic.queues + 1)]
    picked = _pick(ranks**-philly.QUEUE_EXPONENT, _uniform(synthetic, _For.QUEUE))
    resources = {share: Resources(share_milli=share) for share in (*_SHARES, WHOLE)}
    columns = zip(low.tolist(), high.tolist(), shares.tolist(), picked, estimates, strict=True)
    for least, most, share, queue, estimate in columns:
        yield JobSpec(
            workers=Range(least, most),
            resources=resources[share],
            queue=queues[queue],
            run_time_s=estimate,
        )


def _require(fine: bool, name: str, value: object, expected: str) -> None:  # noqa: FBT001
    if not fine:
        msg = f"{name} must be {expected}, got {value}"
        raise InvalidSpec(msg)


#: What the bundled workload ``demo`` was made of: some 30 hours on 8 nodes with 8 GPUs each, with
#: more multi-GPU jobs than in Philly and a load of 1.1 around noon, so that policies differ.
#: ``write_workload("src/roost/traces/bundled/demo.csv", generate(DEMO))`` makes it anew.
DEMO = Synthetic(
    jobs=400,
    seed=6,
    arrivals=Arrivals.DIURNAL,
    load=0.9,
    gpus=64,
    daily_swing=0.25,
    queues=4,
    gpu_weights=((1, 55), (2, 12), (4, 15), (8, 14), (16, 4)),
    max_run_s=28800.0,
    elastic=0.2,
    estimate_error=0.3,
)
