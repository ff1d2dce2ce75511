"""Gavel's benchmark (OSDI'20): jobs with a speed for each of three kinds of GPU.

The cluster is so many V100, P100 and K80; jobs are of Gavel's 26 types, from a trace or out of a
hat, and go as fast as Gavel's table of throughputs says: on one node where they are on one, spread
where they are not. Policies are told the table's rates of each job (``JobSpec.rates``), as a
profiler would, and its run time on a V100; those that do not look at kinds do not use the rates.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from roost import traces
from roost.core.spec import Costs, JobSpec, NodeId, NodeSpec
from roost.errors import InvalidSpec, NotFound
from roost.placement import placer as find_placer
from roost.policies import policy as find_policy
from roost.sim.results import JobResult, Results
from roost.sim.simulation import Setup, Simulation
from roost.traces.gavel import BESIDE
from roost.traces.throughputs import read_throughputs
from roost.traces.workload import Workload
from roost_bench.gavel.jobs import Mix, TableSpeed, profiled
from roost_bench.sia.benchmark import TimedPolicy

Floats = npt.NDArray[np.float64]

#: Gavel's kinds, fastest first; the first is the reference.
KINDS = ("v100", "p100", "k80")
#: The cluster of Gavel's simulations, and the one on which it really ran.
SIMULATED = (36, 36, 36)
PHYSICAL = (8, 16, 24)
_HOUR_S = 3600.0
_PERCENT = 0.99


@dataclass(frozen=True, slots=True)
class GavelRow:
    """The figures of one run.

    ``mean_rho`` and ``worst_rho`` are of finish-time fairness: completion time over that on an
    equal part of every kind of its own, for as many jobs as there were at each moment.
    """

    policy: str
    workload: str
    jobs_per_hour: float | None
    seed: int
    jobs: int
    mean_jct_h: float
    p99_jct_h: float
    makespan_h: float
    mean_rho: float
    worst_rho: float
    preemptions: int
    gpu_hours_per_job: float
    wall_s: float
    decision_ms_p50: float


@dataclass(frozen=True, slots=True)
class GavelBench:
    """A workload and a cluster, for any policy.

    ``trace`` is a file of Gavel's; without one jobs come out of the ``mix``. ``limit`` keeps the
    first so many jobs, ``restart_s`` is what every start after the first costs.
    """

    data: str
    cluster: tuple[int, ...] = SIMULATED
    gpus_per_node: int = 8
    trace: str | None = None
    mix: Mix | None = None
    limit: int | None = None
    restart_s: float = 0.0
    placer: str = "first-fit"

    def __post_init__(self) -> None:
        """Refuse clusters that are none."""
        if len(self.cluster) != len(KINDS) or min(self.cluster) < 0 or not sum(self.cluster):
            shape = ":".join(map(str, self.cluster))
            raise InvalidSpec(f"a cluster is so many {', '.join(KINDS)}: 36:36:36, not {shape}")
        if self.gpus_per_node < 1:
            raise InvalidSpec(f"a node has at least one GPU, not {self.gpus_per_node}")

    def nodes(self) -> list[NodeSpec]:
        """The cluster: nodes of so many GPUs, and one of what is left."""
        found = []
        for kind, gpus in zip(KINDS, self.cluster, strict=True):
            for number, first in enumerate(range(0, gpus, self.gpus_per_node)):
                size = min(self.gpus_per_node, gpus - first)
                found.append(NodeSpec(NodeId(f"{kind}-{number}"), gpus=size, kind=kind))
        return found

    def workload(self, speed: TableSpeed) -> Workload:
        """The jobs, with their rates by kind."""
        if self.mix is not None:
            workload = self.mix.generate(speed.table)
        else:
            source = Path(self.trace or "")
            workload = traces.read(
                source, format="gavel", throughputs=Path(self.data) / BESIDE, kind=KINDS[0]
            )
        costs = Costs(restart_s=self.restart_s, resize_s=self.restart_s)
        jobs = [
            replace(job, spec=replace(job.spec, costs=costs)) for job in workload.jobs[: self.limit]
        ]
        return profiled(Workload(workload.name, jobs), speed, self.nodes())

    def setup(self, policy: str) -> tuple[Setup, TimedPolicy]:
        """One run of a policy, and the clock on it."""
        speed = TableSpeed(read_throughputs(Path(self.data) / BESIDE), KINDS[0])
        timed = TimedPolicy(find_policy(policy))
        setup = Setup(
            workload=self.workload(speed),
            nodes=self.nodes(),
            policy=timed,
            placer=find_placer(self.placer),
            policy_name=policy,
            placer_name=self.placer,
            speed=speed,
            skip_impossible=True,
        )
        return setup, timed


def find_trace(data: str, name: str | None, *, needed: bool = True) -> str | None:
    """A trace by its path, or by its name in the folder; without one the physical cluster's.

    Where none is needed, only the folder is looked at.
    """
    folder = Path(data)
    if not (folder / BESIDE).is_file():
        raise NotFound(f"{data} has no {BESIDE}: --data takes a folder with Gavel's table of rates")
    if not needed:
        return None
    if name is None:
        found = sorted(folder.glob("physical-*.trace"))
        if not found:
            raise NotFound(f"{data} has no physical-*.trace: give --trace, or --jobs-per-hour")
        return str(found[0])
    for path in (Path(name), folder / name, folder / f"{name}.trace"):
        if path.is_file():
            return str(path)
    there = ", ".join(sorted(path.name for path in folder.glob("*.trace"))) or "none"
    raise NotFound(f"no trace {name!r}; {data} has: {there}")


def measure(bench: GavelBench, policy: str) -> GavelRow:
    """Run one policy here and now."""
    begin = time.perf_counter()
    setup, timed = bench.setup(policy)
    results = Simulation(setup).run()
    return _row(bench, setup, results, timed.spent_ms, time.perf_counter() - begin)


def _row(
    bench: GavelBench,
    setup: Setup,
    results: Results,
    spent_ms: Sequence[float],
    wall_s: float,
) -> GavelRow:
    ended = [job for job in results.jobs if job.finished_at is not None]
    if len(ended) < len(results.jobs) or not ended:
        late = next((job.id for job in results.jobs if job.finished_at is None), "any")
        raise InvalidSpec(f"under {results.policy!r} job {late} never ends")
    jcts = sorted((job.finished_at or 0.0) - job.submitted_at for job in ended)
    ratios = finish_ratios(setup, ended)
    first = min(job.submitted_at for job in ended)
    last = max(job.finished_at or 0.0 for job in ended)
    mix = bench.mix
    return GavelRow(
        policy=results.policy,
        workload=results.workload,
        jobs_per_hour=None if mix is None else mix.jobs_per_hour,
        seed=0 if mix is None else mix.seed,
        jobs=len(ended),
        mean_jct_h=statistics.fmean(jcts) / _HOUR_S,
        p99_jct_h=jcts[int(_PERCENT * len(jcts))] / _HOUR_S,
        makespan_h=(last - first) / _HOUR_S,
        mean_rho=float(ratios.mean()),
        worst_rho=float(ratios.max()),
        preemptions=results.preemptions,
        gpu_hours_per_job=sum(job.service_gpu_s for job in ended) / len(ended) / _HOUR_S,
        wall_s=wall_s,
        decision_ms_p50=statistics.median(spent_ms) if spent_ms else 0.0,
    )


def finish_ratios(setup: Setup, ended: Sequence[JobResult]) -> Floats:
    """Each job's completion time over the one on an equal part of every kind of its own.

    While there are n jobs, a job's own part is 1/n of each kind. If that is fewer GPUs than it
    takes it runs for as small a part of the time; if more, all the time, on the kinds in turn.
    """
    specs: dict[str, JobSpec] = {job.id: job.spec for job in setup.workload.jobs}
    gpus: dict[str, int] = {}
    for node in setup.nodes:
        gpus[node.kind] = gpus.get(node.kind, 0) + node.gpus
    total = sum(gpus.values())
    changes = sorted(
        [(job.submitted_at, 1) for job in ended] + [(job.finished_at or 0.0, -1) for job in ended]
    )
    times = np.array([at for at, _ in changes])
    count = np.cumsum([step for _, step in changes])
    served: dict[int, Floats] = {}
    found = []
    for job in ended:
        spec = specs[job.id]
        size = spec.workers.min
        if size not in served:
            pace = 1.0 / np.maximum(np.maximum(count[:-1], 1) * size, total)
            served[size] = np.concatenate(([0.0], np.cumsum(np.diff(times) * pace)))
        speed = sum(rate * gpus[kind] for kind, rate in spec.rates)
        needed = job.work_s / speed
        begin = float(np.interp(job.submitted_at, times, served[size]))
        beyond = begin + needed - float(served[size][-1])
        if beyond > 0:  # all others have ended
            alone_s = times[-1] + beyond * max(size, total) - job.submitted_at
        else:
            alone_s = float(np.interp(begin + needed, served[size], times)) - job.submitted_at
        found.append(((job.finished_at or 0.0) - job.submitted_at) / max(alone_s, 1e-9))
    return np.array(found) if found else np.array([math.nan])
