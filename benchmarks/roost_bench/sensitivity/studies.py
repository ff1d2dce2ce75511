"""How much a comparison of policies depends on what it was made with.

A *study* varies one thing and leaves all else as it is: each of its values is run under each policy
with several seeds. A seed is a workload of its own, and the same one for all values and policies,
so that what a value changes, and by how much one policy is ahead of another, are told from pairs.

There are two worlds. The adaptive jobs of Sia's benchmark (``benchmark``) need its profile tables;
parameter-server jobs (``optimus``) need nothing. Every study but that of training modes can be had
in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from roost.errors import Fatal, InvalidSpec, unknown
from roost.settings import seconds
from roost.sim.failures import Failures
from roost.sim.metrics import Estimate, estimate, summarise
from roost.sim.simulation import Simulation
from roost.traces.generate import Arrivals
from roost.traces.profiles import read_profiles
from roost.traces.sia import SiaJob, read_rows
from roost_bench.optimus.benchmark import MODES, OptimusBench
from roost_bench.plots import Bar, bars
from roost_bench.sensitivity.workloads import moments, recorded, resample, stressed
from roost_bench.sia import benchmark
from roost_bench.sia.conditions import Conditions

#: Jobs come when the recorded ones did.
TRACE = "trace"
NEVER = "never"

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Study:
    """What is varied: how its values are called, read and put into effect.

    ``places`` says for which worlds it is: ``learning``, ``servers`` or both.
    """

    title: str
    heading: str
    values: tuple[str, ...]
    read: Callable[[str], Any]
    condition: Callable[[Conditions, Any], Conditions] = lambda usual, _: usual
    bench: Callable[[OptimusBench, Any], OptimusBench] = lambda usual, _: usual
    places: tuple[str, ...] = ("learning", "servers")


class Figures(NamedTuple):
    """What became of one run."""

    jobs: int
    mean_jct_h: float
    p99_jct_h: float
    makespan_h: float
    restarts_per_job: float


@dataclass(frozen=True, slots=True)
class LearningJobs:
    """Jobs drawn from workloads of Sia's benchmark, on its cluster.

    They are as many as one likes and come at the rate of those workloads.
    """

    data: Path
    files: tuple[Path, ...]
    jobs: int
    name: str = "learning"

    def run(self, study: Study, value: Any, policy: str, seed: int) -> Figures:
        """One run."""
        conditions = study.condition(Conditions(seed=seed), value)
        workloads = [read_rows(file) for file in self.files]
        rows = resample(
            [row for rows in workloads for row in rows],
            self._times(workloads, conditions.arrivals, seed, recorded_ones=value == TRACE),
            seed,
        )
        conditions = replace(conditions, arrivals=None)
        tables = read_profiles(self.data / "profiles")
        row = benchmark.run(tables, rows, policy, conditions=conditions).row
        return Figures(
            row.jobs, row.mean_jct_h, row.p99_jct_h, row.makespan_h, row.restarts_per_job
        )

    def _times(
        self,
        workloads: Sequence[Sequence[SiaJob]],
        arrivals: Arrivals | None,
        seed: int,
        *,
        recorded_ones: bool,
    ) -> list[float]:
        if recorded_ones:
            return recorded(workloads[seed % len(workloads)], self.jobs, seed)
        gap_s = fmean(_gap_s(rows) for rows in workloads)
        drawn = moments(arrivals or Arrivals.POISSON, self.jobs, seed)
        return [gap_s * moment for moment in drawn]


def _gap_s(rows: Sequence[SiaJob]) -> float:
    if len(rows) < 2:  # noqa: PLR2004 - no gap without two
        return 0.0
    return (rows[-1].submitted_at - rows[0].submitted_at) / (len(rows) - 1)


@dataclass(frozen=True, slots=True)
class ParameterServerJobs:
    """Parameter-server jobs on nodes that are all alike."""

    bench: OptimusBench
    name: str = "servers"

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return self.bench.jobs

    def run(self, study: Study, value: Any, policy: str, seed: int) -> Figures:
        """One run."""
        conditions = study.condition(Conditions(seed=seed), value)
        simulation = Simulation(stressed(study.bench(self.bench, value), policy, conditions))
        found = summarise(simulation.run())
        if not simulation.over or found.jct_mean is None or found.makespan is None:
            raise Fatal(f"under {policy!r} jobs were left that never ran")
        return Figures(
            found.jobs,
            found.jct_mean / _HOUR_S,
            (found.jct_p99 or 0.0) / _HOUR_S,
            found.makespan / _HOUR_S,
            (found.resizes + found.restarts) / found.jobs,
        )


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a study: a value as it was written, a policy, a seed, and where."""

    what: str
    value: str
    policy: str
    seed: int
    place: LearningJobs | ParameterServerJobs

    def __str__(self) -> str:
        return f"{self.what} {self.value} under {self.policy} with seed {self.seed}"


def run(case: Case) -> Figures:
    """Run a case; all that it needs is read anew, so that it can be run anywhere."""
    study = find(case.what)
    return case.place.run(study, study.read(case.value), case.policy, case.seed)


def cases(
    what: str,
    place: LearningJobs | ParameterServerJobs,
    policies: Sequence[str],
    seeds: int,
    values: Sequence[str] = (),
) -> list[Case]:
    """All runs of a study, one seed after the other, so that the first ones show all values."""
    study = find(what)
    if place.name not in study.places:
        raise InvalidSpec(f"{what} is a study of {' or '.join(study.places)}: leave --data away")
    values = list(dict.fromkeys(values or usual_values(study, place)))
    for value in values:
        meant = study.read(value)
        study.condition(Conditions(), meant)
        if meant == TRACE and isinstance(place, ParameterServerJobs):
            raise InvalidSpec(f"{what} {TRACE}: recorded arrivals need a workload, see --data")
    return [
        Case(what, value, policy, seed, place)
        for seed in range(seeds)
        for value in values
        for policy in dict.fromkeys(policies)
    ]


def usual_values(study: Study, place: LearningJobs | ParameterServerJobs) -> list[str]:
    """The values of a study that can be had in a world."""
    return [value for value in study.values if value != TRACE or isinstance(place, LearningJobs)]


def find(what: str) -> Study:
    """A study by its name."""
    if what not in STUDIES:
        raise unknown("study", what, STUDIES)
    return STUDIES[what]


# -- studies -----------------------------------------------------------------------------------


def _percent(text: str) -> float:
    found = _number(text.removesuffix("%").strip())
    if found > 100:  # noqa: PLR2004 - per cent
        raise InvalidSpec(f"{text!r} is more than 100 %")
    return found / 100


def _error(text: str) -> float:
    found = _percent(text)
    if found >= 1:
        raise InvalidSpec(f"an error of {text!r} would leave nothing: it must be below 100 %")
    return found


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise InvalidSpec(f"{text!r} is not a number from 0 up")
    return found


def _duration(text: str) -> float:
    try:
        found = seconds(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise InvalidSpec(f"{text!r} is not a duration such as 90s, 15m or 2h")
    return found


def _mtbf(text: str) -> Failures:
    return Failures() if text == NEVER else Failures(node_mtbf_s=_duration(text))


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise unknown("value", text, choices)
        return text

    return read


def _arriving(usual: Conditions, value: str) -> Conditions:
    return replace(usual, arrivals=None if value == TRACE else Arrivals(value))


_ERRORS = ("0", "10", "20", "30", "40", "50")

STUDIES = {
    "speed-error": Study(
        "Step times are measured wrongly",
        "error up to %",
        _ERRORS,
        _error,
        lambda usual, value: replace(usual, speed_error=value),
    ),
    "epochs-error": Study(
        "Users are wrong about the number of epochs",
        "error up to %",
        _ERRORS,
        _error,
        lambda usual, value: replace(usual, epochs_error=value),
        lambda usual, _: replace(usual, told=True),
    ),
    "mode": Study(
        "Synchronous and asynchronous parameter-server training",
        "training",
        MODES,
        _one_of(*MODES),
        bench=lambda usual, value: replace(usual, mode=value),
        places=("servers",),
    ),
    "arrivals": Study(
        "How submissions are spread over time",
        "arrivals",
        ("poisson", "diurnal", "bursty", TRACE),
        _one_of(*(kind.value for kind in Arrivals), TRACE),
        _arriving,
    ),
    "load": Study(
        "Jobs come faster or slower",
        "times the load",
        ("0.5", "0.75", "1", "1.5", "2"),
        _number,
        lambda usual, value: replace(usual, load=value),
    ),
    "restart-cost": Study(
        "What every restart costs",
        "restart takes",
        ("0s", "30s", "1m", "2m", "5m", "10m"),
        _duration,
        lambda usual, value: replace(usual, restart_s=value),
    ),
    "rigid": Study(
        "Jobs that cannot change their size",
        "rigid jobs %",
        ("0", "25", "50", "75", "100"),
        _percent,
        lambda usual, value: replace(usual, rigid=value),
    ),
    "failures": Study(
        "Nodes fail, and are repaired within an hour or so",
        "node mtbf",
        (NEVER, "24h", "12h", "6h", "3h"),
        _mtbf,
        lambda usual, value: replace(usual, failures=value),
    ),
}


# -- figures -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SensitivityRow:
    """One policy at one value, over all seeds; with 95 % confidence intervals (Student's t).

    ``change`` is the part by which mean JCTs differ from those at the first value under the same
    policy, ``ratio`` what they are to those of the first policy at the same value, seed by seed.
    """

    what: str
    value: str
    policy: str
    jobs: int
    seeds: int
    mean_jct_h: Estimate
    change: Estimate
    ratio: Estimate
    p99_jct_h: Estimate
    makespan_h: Estimate
    restarts_per_job: float


def compare(outcomes: Iterable[tuple[Case, Figures]]) -> list[SensitivityRow]:
    """Put values and policies side by side, in the order in which they come."""
    table: dict[tuple[str, str], dict[int, tuple[Case, Figures]]] = {}
    for case, figures in outcomes:
        table.setdefault((case.value, case.policy), {})[case.seed] = case, figures
    if not table:
        return []
    value, policy = next(iter(table))
    rows = []
    for (own_value, own_policy), runs in table.items():
        usual = _jcts(table.get((value, own_policy), {}))
        first = _jcts(table.get((own_value, policy), {}))
        own = _jcts(runs)
        ended = [one for _, one in runs.values()]
        rows.append(
            SensitivityRow(
                next(iter(runs.values()))[0].what,
                own_value,
                own_policy,
                ended[0].jobs,
                len(runs),
                estimate(own.values()),
                estimate(own[seed] / usual[seed] - 1 for seed in own if seed in usual),
                estimate(own[seed] / first[seed] for seed in own if seed in first),
                estimate(one.p99_jct_h for one in ended),
                estimate(one.makespan_h for one in ended),
                fmean(one.restarts_per_job for one in ended),
            )
        )
    return rows


def _jcts(runs: Mapping[int, tuple[Case, Figures]]) -> dict[int, float]:
    return {seed: figures.mean_jct_h for seed, (_, figures) in runs.items()}


def plot(rows: Sequence[SensitivityRow]) -> str:
    """Mean JCTs by value and policy, with their confidence intervals, as SVG."""
    groups: dict[str, dict[str, Bar]] = {}
    for row in rows:
        spread = row.mean_jct_h.half_width or 0.0
        groups.setdefault(row.value, {})[row.policy] = Bar(row.mean_jct_h.mean or 0.0, spread)
    study = find(rows[0].what)
    return bars(f"{study.title} ({study.heading})", "mean JCT, hours", groups)
