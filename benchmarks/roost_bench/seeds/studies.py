"""The questions that Optimus, DL2 and Harmony put to a scheduler, each asked of all of them here.

How long do jobs take, and all of them together? What does adjusting cost? How much depends on
right estimates of speed and of the epochs left, on how jobs train, on how they arrive? How long
does a decision take on a large cluster? Jobs, physics and seeds are those of ``roost bench
optimus``, decisions those of ``roost bench decide``; what was published was measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

from roost import policies
from roost_bench.decisions import RigidJobs, time_decisions
from roost_bench.optimus.benchmark import OptimusBench, OptimusRow, compare, run_all
from roost_bench.plots import Bar, bars

#: The first is what others are compared with. Those that are not installed are left out.
POLICIES: Final = ("drf", "tetris", "fifo", "srtf", "optimus", "dl2", "harmony", "roost")
DECISIONS: Final = "decisions"
#: Told of every case that is over.
Said: TypeAlias = Callable[[str], None]


class Published(NamedTuple):
    """A claim of a paper, as a ratio of mean completion times on its own cluster."""

    policy: str
    against: str
    ratio: float
    source: str


PUBLISHED: Final = (
    Published("optimus", "drf", 1 / 2.39, "Optimus, EuroSys 2018: 139 % better"),
    Published("dl2", "drf", 1 - 0.441, "DL2, TPDS 2021: 44.1 % below"),
    Published("dl2", "optimus", 1 - 0.175, "DL2, TPDS 2021: 17.5 % below"),
)


@dataclass(frozen=True, slots=True)
class Study:
    """One question: the values of a setting of the benchmark, or of a parameter of policies."""

    title: str
    setting: str = ""
    values: Sequence[Any] = ("",)
    of_policies: bool = False


STUDIES: Final[Mapping[str, Study]] = {
    "performance": Study("Mean completion time"),
    "adjusting": Study("Cost of adjusting: times what a restart takes", "restart", (0.0, 1.0, 4.0)),
    "speed": Study("Errors of speeds", "speed_error", (0.0, 0.1, 0.3), of_policies=True),
    "epochs": Study("Errors of epochs left", "epochs_error", (0.0, 0.1, 0.3), of_policies=True),
    "mode": Study("Training modes", "mode", ("sync", "async", "mixed")),
    "arrivals": Study("Arrival processes", "arrivals", ("poisson", "uniform", "diurnal", "bursty")),
}


class SeedsRow(NamedTuple):
    """One policy under one value of a study; ratios are to the first policy with the same jobs."""

    study: str
    value: str
    policy: str
    mean_jct_h: float | None
    makespan_h: float | None
    jct_ratio: float | None
    makespan_ratio: float | None
    resizes_per_job: float | None
    decision_ms_p50: float
    decision_ms_max: float


def installed(names: Sequence[str] = POLICIES) -> list[str]:
    """Those of these policies that there are."""
    known = set(policies.names())
    return [name for name in names if name in known]


def run(
    name: str,
    bench: OptimusBench,
    names: Sequence[str],
    seeds: Sequence[int],
    said: Said = lambda _: None,
) -> Iterator[SeedsRow]:
    """One study of these policies."""
    study = STUDIES[name]
    for value in study.values:
        varied = bench
        texts = dict.fromkeys(names)
        if study.of_policies:
            texts = dict.fromkeys(_with(one, study.setting, value) for one in names)
        elif study.setting:
            varied = replace(bench, **{study.setting: value})
        cases = [(varied, text, seed) for text in texts for seed in seeds]
        for row in compare(run_all(cases)):
            said(f"{name} {value}: {row.policy}, {row.mean_jct_h.mean or 0:.2f} h")
            yield _row(name, str(value), row)


def decide(nodes: int, jobs: int, names: Sequence[str]) -> Iterator[SeedsRow]:
    """How long decisions take on a full cluster with half of its jobs waiting."""
    for name in names:
        took = time_decisions(
            name, RigidJobs(nodes, jobs), placer="first-fit", rounds=3, every_s=600.0
        )
        yield SeedsRow(
            DECISIONS,
            f"{jobs} jobs, {nodes} nodes",
            name,
            *(None,) * 5,
            took.median_ms,
            took.worst_ms,
        )


def _with(policy: str, parameter: str, value: float) -> str:
    """A policy with one more parameter, if it has it."""
    if parameter not in policies.parameters(policy):
        return policy
    return f"{policy}{',' if ':' in policy else ':'}{parameter}={value}"


def _row(study: str, value: str, row: OptimusRow) -> SeedsRow:
    return SeedsRow(
        study,
        value,
        row.policy.partition(":")[0],
        row.mean_jct_h.mean,
        row.makespan_h.mean,
        row.jct_ratio.mean,
        row.makespan_ratio.mean,
        row.resizes_per_job,
        row.decision_ms_p50,
        row.decision_ms_max,
    )


def plot(name: str, rows: Sequence[SeedsRow]) -> str:
    """A study as a chart: a group of bars for each value, ticks at what was published."""
    groups: dict[str, dict[str, Bar]] = {}
    marks = {one.policy: one.ratio for one in PUBLISHED if one.against == "drf"}
    for row in rows:
        mark = marks.get(row.policy) if name == "performance" else None
        if name == DECISIONS:
            bar = Bar(row.decision_ms_p50)
        else:
            bar = Bar(row.jct_ratio or 0.0, mark=mark)
        groups.setdefault(row.value or "all", {})[row.policy] = bar
    if name == DECISIONS:
        return bars("Time of a decision", "ms at the median", groups)
    first = rows[0].policy
    axis = f"mean completion time over that of {first}"
    return bars(STUDIES[name].title, axis, groups, mark="published")
