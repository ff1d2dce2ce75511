"""A world in which jobs share GPUs: one-GPU jobs of 26 types on 16 V100, by Gavel's pairs.

Types are equally likely, lengths log-normal with a median of half an hour, arrivals Poisson. A load
of 1 is as much work, at the speed of a job alone, as the GPUs can do one job at a time. At most two
jobs are on a GPU, and never two that do not fit into its memory. Stopping, moving and going on cost
``SWITCH_S`` each.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from roost.core.actions import Action
from roost.core.controller import Policy
from roost.core.decisions import Decision
from roost.core.events import Event, Measured
from roost.core.spec import Costs, JobId, JobSpec, NodeId, NodeSpec
from roost.errors import InvalidSpec, NotFound
from roost.perf.pairs import Pairs
from roost.perf.speed import Speed
from roost.placement import placer
from roost.policies import policy as find_policy
from roost.sim.pairs import holding_memory, packable
from roost.sim.simulation import Setup, Simulation
from roost.sim.worlds.rates import TrueRun
from roost.sim.worlds.sharing import SharingWorld
from roost.traces.gavel import BESIDE
from roost.traces.pairs import read_pairs
from roost.traces.workload import TraceJob, Workload
from roost_bench.sharing.baselines import AnyPartner, Informed

KIND = "v100"
NODES, GPUS_PER_NODE = 4, 4
JOBS = 300
MEDIAN_S, SPREAD = 1800.0, 1.0
SWITCH_S = 5.0
_MEMORY_MIB = 16384
_HOUR_S = 3600.0
_PERCENT = 0.99
#: Pairs that do so much of one alone are told from those that lose nothing, whatever the noise.
CLEARLY_LESS = 0.95
#: Policies that have every GPU to themselves.
ALONE = ("fifo", "sjf")


@dataclass(frozen=True, slots=True)
class SharingRow:
    """The figures of one run.

    ``work_per_gpu`` is the work done by all jobs over the GPUs and the time from the first arrival
    to the last end. ``misfits`` counts pairs on one GPU that do not fit, ``worst_losing_s`` is the
    longest time that a pair was together which does less than one alone.
    """

    policy: str
    load: float
    seed: int
    mean_jct_h: float
    p99_jct_h: float
    work_per_gpu: float
    misfits: int
    worst_losing_s: float
    preemptions: int
    cpu_s: float


def read_table(data: str) -> Pairs:
    """Gavel's pairs in a folder."""
    file = Path(data) / BESIDE
    if not file.is_file():
        raise NotFound(f"{data} has no {BESIDE}: --data takes a folder with Gavel's table of rates")
    return read_pairs(file)


def cluster() -> list[NodeSpec]:
    """Sixteen V100 on four nodes."""
    return [
        NodeSpec(NodeId(f"n{number}"), GPUS_PER_NODE, KIND, gpu_memory_mib=_MEMORY_MIB)
        for number in range(NODES)
    ]


def workload(pairs: Pairs, load: float, seed: int, jobs: int = JOBS) -> Workload:
    """The jobs of a seed; another load only moves them apart."""
    if not 0 < load < math.inf:
        raise InvalidSpec(f"a load must be positive, got {load}")
    chance = random.Random(f"sharing/{seed}")  # noqa: S311 - not for secrets
    types = sorted(pairs.table(KIND))
    works = [round(chance.lognormvariate(math.log(MEDIAN_S), SPREAD), 3) for _ in range(jobs)]
    every_s = statistics.fmean(works) / (load * NODES * GPUS_PER_NODE)
    costs = Costs(restart_s=SWITCH_S, resize_s=SWITCH_S)
    found, now = [], 0.0
    for number, work_s in enumerate(works):
        spec = JobSpec(application=chance.choice(types), run_time_s=work_s, costs=costs)
        found.append(TraceJob(JobId(f"job-{number:03d}"), now, spec, work_s))
        now = round(now + chance.expovariate(1.0) * every_s, 3)
    return Workload("sharing", found)


def contender(name: str, pairs: Pairs) -> Policy:
    """A policy by its name in the benchmark."""
    match name:
        case "balance":
            return AnyPartner()
        case "pack":
            return AnyPartner(tight=True)
        case "known":
            return Informed(pairs)
        case _:
            return find_policy(name)


def check_contender(name: str) -> None:
    """Refuse a name that nothing carries."""
    if name not in ("balance", "pack", "known"):
        find_policy(name)


def setup(name: str, pairs: Pairs, jobs: Workload, chosen: Policy | None = None) -> Setup:
    """One run of a policy; those that share get jobs that may."""
    nodes = cluster()
    if name not in ALONE:
        jobs = holding_memory(packable(jobs), nodes, pairs)
    return Setup(
        workload=jobs,
        nodes=nodes,
        policy=chosen or contender(name, pairs),
        placer=placer("first-fit"),
        policy_name=name,
        placer_name="first-fit",
        speed=Speed(pairs=pairs),
        world=SharingWorld,
    )


@dataclass(slots=True)
class PairWatch:
    """Looks at who is together on a GPU, and for how long at a loss."""

    simulation: Simulation
    pairs: Pairs
    misfits: int = 0
    worst_losing_s: float = 0.0
    _since: dict[tuple[JobId, JobId], float] = field(default_factory=dict)

    def __call__(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        """See who is together now."""
        del decisions
        if not actions and all(isinstance(event, Measured) for event in events):
            return
        now, before = self.simulation.now, self._since
        self._since = {pair: before.get(pair, now) for pair in self._losing()}
        lasts_s = max((now - since for since in self._since.values()), default=0.0)
        self.worst_losing_s = max(self.worst_losing_s, lasts_s)

    def _losing(self) -> Iterator[tuple[JobId, JobId]]:
        """Pairs that clearly do less than one alone."""
        crowds: dict[tuple[NodeId, int], list[TrueRun]] = {}
        for run in self.simulation.world.runs.values():
            if run.working:
                for part in run.allocation.parts:
                    crowds.setdefault((part.node, part.gpus[0]), []).append(run)
        for crowd in crowds.values():
            for one, other in combinations(crowd, 2):
                speeds = self._speeds(one, other)
                self.misfits += not all(speeds)
                if sum(speeds) < CLEARLY_LESS:
                    yield one.id.job, other.id.job

    def _speeds(self, one: TrueRun, other: TrueRun) -> tuple[float, float]:
        table = self.pairs.table(KIND)
        mine, its = (run.job.trace.spec.application for run in (one, other))
        return table[mine][its], table[its][mine]


def measure(data: str, name: str, load: float, seed: int) -> SharingRow:
    """Run one policy here and now."""
    pairs = read_table(data)
    jobs = workload(pairs, load, seed)
    return run(pairs, name, load, seed, setup(name, pairs, jobs))


def run(pairs: Pairs, name: str, load: float, seed: int, what: Setup) -> SharingRow:
    """The figures of a run."""
    begin = time.process_time()
    simulation = Simulation(what)
    watch = PairWatch(simulation, pairs)
    results = simulation.run(observer=watch)
    late = [job.id for job in results.jobs if job.finished_at is None]
    if late:
        raise InvalidSpec(f"under {name!r} job {late[0]} never ends")
    jcts = sorted((job.finished_at or 0.0) - job.submitted_at for job in results.jobs)
    last = max(job.finished_at or 0.0 for job in results.jobs)
    work_s = sum(job.work_s for job in results.jobs)
    return SharingRow(
        policy=name,
        load=load,
        seed=seed,
        mean_jct_h=statistics.fmean(jcts) / _HOUR_S,
        p99_jct_h=jcts[int(_PERCENT * len(jcts))] / _HOUR_S,
        work_per_gpu=work_s / (last * NODES * GPUS_PER_NODE),
        misfits=watch.misfits,
        worst_losing_s=watch.worst_losing_s,
        preemptions=results.preemptions,
        cpu_s=time.process_time() - begin,
    )
