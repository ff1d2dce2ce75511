"""Sia's benchmark (SOSP'23): its cluster, its jobs, its figures, for any policy.

Adaptive policies get jobs that run with 1 to 64 workers of one GPU and choose their own batch.
The others get what Sia calls tuned jobs: workers and batch fixed beforehand, with the true speed
of such a job on each GPU kind as Gavel's oracle. No policy is told how long a job runs: what it
sees is the application, the number of epochs, the limits of the batch, and what was measured.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from roost.core.controller import Policy
from roost.core.plan import Plan
from roost.core.spec import Costs, JobId, JobSpec, NodeId, NodeSpec
from roost.errors import Fatal
from roost.placement import placer
from roost.policies import policy as find_policy
from roost.sim.learning import Terms, adaptive, one_kind_placer, tuned
from roost.sim.simulation import Progress, Setup, Simulation
from roost.sim.worlds.learning import LearningWorld, steps_at
from roost.traces.profiles import PER_NODE, Tables
from roost.traces.sia import SiaJob, read_rows
from roost.traces.workload import TraceJob, Workload
from roost_bench.sia.conditions import AS_PUBLISHED, Conditions

#: Nodes of each GPU kind, in the order in which they join.
HETEROGENEOUS = {"T4": 6, "A100": 2, "RTX2080Ti": 3}
HOMOGENEOUS = {"T4": 16}
#: What a name stands for here: Gavel as the authors of Sia ran it, ours without its library.
ALIASES = {"gavel": "gavel:objective=max_sum", "roost-blind": "roost:library=no"}

_PERCENT = 0.99
_HOUR_S = 3600.0
_SIZES = (1, 2, 4, 8, 16, 24)


@dataclass(frozen=True, slots=True)
class SiaRow:
    """The figures of one run, or of several pooled."""

    policy: str
    workload: str
    jobs: int
    mean_jct_h: float
    p99_jct_h: float
    makespan_h: float
    gpu_hours_per_job: float
    restarts_per_job: float
    wall_s: float
    decision_ms_p50: float


class JobEnd(NamedTuple):
    """What became of one job."""

    application: str
    jct_s: float
    gpu_s: float
    restarts: int


@dataclass(frozen=True, slots=True)
class SiaOutcome:
    """One run: its row, and what became of each job."""

    row: SiaRow
    ended: Sequence[JobEnd]
    decisions_ms: Sequence[float] = field(repr=False, default=())

    def by_application(self) -> dict[str, tuple[int, float, float]]:
        """Jobs, mean JCT in hours and mean restarts of each application."""
        return by_application(self.ended)


def by_application(ended: Iterable[JobEnd]) -> dict[str, tuple[int, float, float]]:
    """Jobs, mean JCT in hours and mean restarts of each application, by its name."""
    groups: dict[str, list[JobEnd]] = defaultdict(list)
    for one in ended:
        groups[one.application].append(one)
    return {
        name: (
            len(group),
            statistics.fmean(one.jct_s for one in group) / _HOUR_S,
            statistics.fmean(one.restarts for one in group),
        )
        for name, group in sorted(groups.items())
    }


def label(text: str) -> str:
    """How a policy is called in tables."""
    return next((name for name, meant in ALIASES.items() if meant == text), text)


def cluster(*, homogeneous: bool = False) -> list[NodeSpec]:
    """The 64 GPUs of the benchmark."""
    return [
        NodeSpec(NodeId(f"{kind.lower()}-{number}"), gpus=PER_NODE[kind], kind=kind)
        for kind, count in (HOMOGENEOUS if homogeneous else HETEROGENEOUS).items()
        for number in range(count)
    ]


def run(  # noqa: PLR0913 - one run of the benchmark is what it is
    tables: Tables,
    workload: str | Path | Sequence[SiaJob],
    text: str,
    *,
    policy: Policy | None = None,
    terms: Terms | None = None,
    homogeneous: bool = False,
    conditions: Conditions = AS_PUBLISHED,
    progress: Progress | None = None,
) -> SiaOutcome:
    """Run a workload under a policy: one by name and parameters, or any under a name."""
    simulation, timed = prepare(
        tables,
        workload,
        text,
        policy=policy,
        terms=terms,
        homogeneous=homogeneous,
        conditions=conditions,
    )
    simulation.run(progress=progress)
    return outcome(simulation, timed.spent_ms)


def prepare(  # noqa: PLR0913 - as above
    tables: Tables,
    workload: str | Path | Sequence[SiaJob],
    text: str,
    *,
    policy: Policy | None = None,
    terms: Terms | None = None,
    homogeneous: bool = False,
    conditions: Conditions = AS_PUBLISHED,
) -> tuple[Simulation, TimedPolicy]:
    """A simulation that has not begun, and the clock on its policy."""
    text = ALIASES.get(text, text)
    terms = Terms.of(text) if terms is None else terms
    if isinstance(workload, str | Path):
        name, rows = Path(workload).stem, read_rows(workload)
    else:
        name, rows = "workload", list(workload)
    nodes = cluster(homogeneous=homogeneous)
    jobs, totals = trace_jobs(tables, rows, nodes, terms, conditions)
    timed = TimedPolicy(find_policy(text) if policy is None else policy)
    world = partial(
        LearningWorld,
        tables=tables,
        totals=totals,
        library=terms.library,
        restart_s=conditions.restart_s,
        error=conditions.seen if conditions.speed_error else None,
    )
    setup = Setup(
        workload=Workload(name, jobs),
        nodes=nodes,
        policy=timed,
        placer=one_kind_placer(placer("first-fit"), tables, nodes),
        policy_name=label(text),
        failures=conditions.failures,
        seed=conditions.seed,
        world=world,
    )
    return Simulation(setup), timed


class TimedPolicy:
    """A policy on the clock: milliseconds of every call in which it decided something."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.spent_ms: list[float] = []

    def __call__(self, plan: Plan) -> None:
        """Let the policy decide."""
        begin = time.perf_counter()
        self.policy(plan)
        if plan.decisions:
            self.spent_ms.append(1000 * (time.perf_counter() - begin))


# -- jobs --------------------------------------------------------------------------------------


def trace_jobs(
    tables: Tables,
    rows: Sequence[SiaJob],
    nodes: Sequence[NodeSpec],
    terms: Terms,
    conditions: Conditions = AS_PUBLISHED,
) -> tuple[list[TraceJob], dict[JobId, int]]:
    """The jobs of a workload on a policy's terms, and the batch of those with a fixed batch."""
    gpus: dict[str, int] = defaultdict(int)
    for node in nodes:
        gpus[node.kind] += node.gpus
    jobs, totals = [], {}
    for row in conditions.rows(rows):
        application = tables[row.application]
        if terms.adaptive and not conditions.stays(row.id):
            spec = adaptive(application, row, terms)
            work = application.work
        else:
            spec = tuned(application, row, gpus, PER_NODE)
            work = steps_at(application, row.batch)[-1]
            totals[row.id] = row.batch
        jobs.append(TraceJob(row.id, row.submitted_at, _declared(row.id, spec, conditions), work))
    return jobs, totals


def _declared(name: JobId, spec: JobSpec, conditions: Conditions) -> JobSpec:
    """What a job's user declares under other conditions than the authors'."""
    if conditions.restart_s is not None:
        costs = Costs(restart_s=conditions.restart_s, resize_s=conditions.restart_s)
        spec = replace(spec, costs=costs)
    if conditions.epochs_error and spec.training is not None:
        epochs = conditions.declared_epochs(name, spec.training.epochs)
        spec = replace(spec, training=replace(spec.training, epochs=epochs))
    return spec


# -- figures -----------------------------------------------------------------------------------


def outcome(simulation: Simulation, decisions_ms: Sequence[float]) -> SiaOutcome:
    """What a run that is over has shown."""
    results = simulation.results()
    world = simulation.world
    if not isinstance(world, LearningWorld):
        raise Fatal("this was a run in another world")
    ended, first, last = [], math.inf, 0.0
    for job in results.jobs:
        if job.finished_at is None:
            raise Fatal(f"{results.workload} under {results.policy}: job {job.id} never ends")
        learner = world.learners[JobId(job.id)]
        jct_s = job.finished_at - job.submitted_at
        ended.append(JobEnd(learner.application.name, jct_s, job.service_gpu_s, learner.restarts))
        first, last = min(first, job.submitted_at), max(last, job.finished_at)
    row = _row(
        (results.policy, results.workload), ended, last - first, results.wall_s, decisions_ms
    )
    return SiaOutcome(row, ended, decisions_ms)


def pooled(outcomes: Sequence[SiaOutcome], workload: str) -> SiaRow:
    """Several runs of one policy as one: all their jobs together, makespan and wall time as means.

    The 99th percentile is that of all jobs, as the authors have it.
    """
    rows = [one.row for one in outcomes]
    return _row(
        (rows[0].policy, workload),
        [job for one in outcomes for job in one.ended],
        statistics.fmean(row.makespan_h for row in rows) * _HOUR_S,
        statistics.fmean(row.wall_s for row in rows),
        [spent for one in outcomes for spent in one.decisions_ms],
    )


def spread_h(outcomes: Sequence[SiaOutcome]) -> float:
    """The ± of the published tables: the deviation of the mean JCT from workload to workload."""
    return statistics.pstdev(one.row.mean_jct_h for one in outcomes)


def _row(
    name: tuple[str, str],
    ended: Sequence[JobEnd],
    makespan_s: float,
    wall_s: float,
    decisions_ms: Sequence[float],
) -> SiaRow:
    count = len(ended)
    jcts_s = sorted(job.jct_s for job in ended)
    return SiaRow(
        policy=name[0],
        workload=name[1],
        jobs=count,
        mean_jct_h=statistics.fmean(jcts_s) / _HOUR_S,
        p99_jct_h=jcts_s[int(_PERCENT * count)] / _HOUR_S,
        makespan_h=makespan_s / _HOUR_S,
        gpu_hours_per_job=sum(job.gpu_s for job in ended) / count / _HOUR_S,
        restarts_per_job=sum(job.restarts for job in ended) / count,
        wall_s=wall_s,
        decision_ms_p50=statistics.median(decisions_ms) if decisions_ms else 0.0,
    )


def best_alone_h(tables: Tables) -> dict[str, float]:
    """Hours that a job of each application takes at best: alone, on the best size that there is."""
    gpus = {kind: count * PER_NODE[kind] for kind, count in HETEROGENEOUS.items()}
    return {
        name: application.penalty_s / _HOUR_S
        + min(
            tables.isolated_hours(name, kind, size)
            for kind, count in gpus.items()
            for size in _SIZES
            if size <= count
        )
        for name, application in tables.applications.items()
    }


def floor_h(alone_h: Mapping[str, float], rows: Sequence[SiaJob]) -> float:
    """The mean JCT of a workload were every job alone: a lower bound."""
    return statistics.fmean(alone_h[row.application] for row in rows)
