"""Parameter-server jobs under several policies: the comparison that Optimus was made for.

Nine sorts of model like those of the Optimus paper (EuroSys 2018, Table 1): image, text, speech.
Names and sizes are those under which such models are known; how long a sample takes, batches, the
lengths of trainings and all of the hardware are our own choice, and of its order of magnitude only.

A job trains until its loss hardly falls any more. Under a policy that only gives an order
(``drf``, ``fifo``, ``tetris`` and the like) it has as many servers and workers as its user asked
for, and the policy is told how long that takes; ``optimus``, ``roost`` and others that size jobs
may give it 1 to 16 of each, and are told nothing but what is measured. All else is the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mean, median
from typing import TypeAlias

import numpy as np

from roost.core.controller import Policy
from roost.core.plan import Plan
from roost.core.spec import (
    Costs,
    JobId,
    JobSpec,
    NodeId,
    NodeSpec,
    Range,
    Resources,
    Role,
    Training,
)
from roost.errors import InvalidSpec
from roost.perf.servers import Mode
from roost.placement import placer
from roost.policies import policy, resizes
from roost.sim.metrics import Estimate, estimate, summarise
from roost.sim.parallel import workers as processes_of
from roost.sim.simulation import Setup, Simulation
from roost.traces.generate import Synthetic, generate
from roost.traces.workload import TraceJob, Workload
from roost_bench.optimus.world import (
    NodeShare,
    ParameterServerWorld,
    TrainedModel,
    TrueLoss,
    TrueTraining,
)

MODES = ("sync", "async", "mixed")

_MILLION = 1_000_000
_GIB = 1024
WORKER = Resources(gpus=1, cpu_milli=4000, memory_mib=8 * _GIB)
SERVER = Resources(gpus=0, cpu_milli=4000, memory_mib=8 * _GIB)
_MOST = 16
_MOST_ASKED = 8
#: The setting in which lengths of jobs are thought of: four of each on one node.
_USUAL = (NodeShare(4, 4, 1.0),)


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of model: millions of parameters, seconds per sample and per step, batch sizes."""

    name: str
    parameters: float
    sample_s: float
    fixed_s: float
    batch: int
    local_batch: int

    def network(self, mode: Mode) -> TrainedModel:
        """It as the hardware sees it."""
        batch = self.local_batch if mode is Mode.ASYNC else self.batch
        return TrainedModel(
            4 * _MILLION * self.parameters, self.sample_s, self.fixed_s, batch, mode
        )

    @property
    def restart_s(self) -> float:
        """What it takes to save it, start it elsewhere and bring it back: 10 to 60 s."""
        return 10 + 50 * min(1.0, self.parameters / _LARGEST)


_LARGEST = 38.0
SORTS = (
    Sort("resnext-110", 1.7, 2.2e-3, 0.02, 512, 64),
    Sort("resnet-50", 25.6, 12e-3, 0.03, 256, 32),
    Sort("inception-bn", 11.3, 6e-3, 0.03, 256, 32),
    Sort("kaggle-cnn", 1.4, 1.2e-3, 0.02, 512, 64),
    Sort("cnn-rand", 6.0, 0.4e-3, 0.02, 1024, 128),
    Sort("dssm", 1.5, 0.3e-3, 0.02, 1024, 256),
    Sort("rnn-lstm", 4.7, 1.5e-3, 0.03, 512, 64),
    Sort("seq2seq", 9.1, 5e-3, 0.04, 256, 64),
    Sort("deepspeech2", 38.0, 25e-3, 0.05, 128, 16),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimusBench:
    """What is compared: jobs, a cluster, and how busy it is.

    ``load`` is the GPU time that jobs of the size their users ask for take, per GPU time there is,
    while they arrive. ``restart`` multiplies what restarts take. ``bandwidth`` is that of a node's
    network card, in bits per second.
    """

    jobs: int = 100
    nodes: int = 32
    gpus_per_node: int = 2
    mode: str = "mixed"
    arrivals: str = "poisson"
    load: float = 0.5
    restart: float = 1.0
    bandwidth: float = 10e9
    length_s: float = 3600.0
    placer: str = "even"
    told: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.mode not in MODES:
            raise InvalidSpec(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.jobs < 1 or self.nodes < 1 or self.gpus_per_node < 1:
            raise InvalidSpec("the benchmark needs jobs, nodes and GPUs")
        for name in ("load", "bandwidth", "length_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidSpec(f"{name} must be positive, got {getattr(self, name)}")
        if not 0 <= self.restart < math.inf:
            raise InvalidSpec(f"restart must be a number >= 0, got {self.restart}")

    def cluster(self) -> list[NodeSpec]:
        """Nodes that are all alike: for each GPU eight CPUs and 32 GiB."""
        gpus = self.gpus_per_node
        return [
            NodeSpec(
                NodeId(f"node-{at:03d}"),
                gpus=gpus,
                cpu_milli=8000 * gpus,
                memory_mib=32 * _GIB * gpus,
            )
            for at in range(self.nodes)
        ]

    def setup(self, policy_text: str, seed: int) -> Setup:
        """One run under one policy; what is random is the same for all of them."""
        sizing = resizes(policy(policy_text))
        workload, truth = _workload(self, seed, sizing=sizing)
        return Setup(
            workload,
            self.cluster(),
            policy(policy_text),
            placer(self.placer),
            policy_name=policy_text,
            placer_name=self.placer,
            seed=seed,
            world=partial(ParameterServerWorld, truth=truth, bandwidth=self.bandwidth / 8),
        )


@dataclass(frozen=True, slots=True)
class OptimusOutcome:
    """What became of one run; times in hours."""

    policy: str
    seed: int
    jobs: int
    mean_jct_h: float
    median_jct_h: float
    p99_jct_h: float
    makespan_h: float
    gpu_use: float
    resizes_per_job: float
    wall_s: float
    decision_ms_p50: float
    decision_ms_max: float


#: Told of every run that is over.
Said: TypeAlias = Callable[[OptimusOutcome], None]


def run(bench: OptimusBench, policy_text: str, seed: int) -> OptimusOutcome:
    """Run the benchmark once."""
    setup = bench.setup(policy_text, seed)
    timed = TimedDecisions(setup.policy)
    simulation = Simulation(replace(setup, policy=timed))
    results = simulation.run()
    found = summarise(results)
    if not simulation.over or found.jct_mean is None or found.makespan is None:
        raise InvalidSpec(f"under {policy_text!r} jobs were left that never ran")
    return OptimusOutcome(
        policy_text,
        seed,
        found.jobs,
        found.jct_mean / 3600,
        (found.jct_median or 0.0) / 3600,
        (found.jct_p99 or 0.0) / 3600,
        found.makespan / 3600,
        found.gpu_allocation or 0.0,
        found.resizes / found.jobs,
        results.wall_s,
        1000 * median(timed.took_s),
        1000 * max(timed.took_s),
    )


@dataclass(slots=True)
class TimedDecisions:
    """A policy, and how long each of its decisions took."""

    policy: Policy
    took_s: list[float] = field(default_factory=list)

    def __call__(self, plan: Plan) -> None:
        """Decide, with an eye on the clock."""
        begin = time.perf_counter()
        self.policy(plan)
        self.took_s.append(time.perf_counter() - begin)


def run_all(
    cases: Sequence[tuple[OptimusBench, str, int]], processes: int = 1, said: Said | None = None
) -> list[OptimusOutcome]:
    """Run every case, so many at a time; results come in the order of the cases."""
    said = said or (lambda _: None)
    if min(processes, len(cases)) <= 1:
        found = []
        for case in cases:
            found.append(run(*case))
            said(found[-1])
        return found
    with processes_of(min(processes, len(cases))) as submit:
        futures = [submit(run, *case) for case in cases]
        for future in as_completed(futures):
            said(future.result())
        return [future.result() for future in futures]


@dataclass(frozen=True, slots=True)
class OptimusRow:
    """One policy over all seeds; ``±`` are half widths of 95 % confidence intervals.

    The two ratios are to the first policy with the same seed.
    """

    policy: str
    mean_jct_h: Estimate
    p99_jct_h: Estimate
    makespan_h: Estimate
    jct_ratio: Estimate
    makespan_ratio: Estimate
    gpu_use: float
    resizes_per_job: float
    wall_s: float
    decision_ms_p50: float
    decision_ms_max: float


def compare(outcomes: Sequence[OptimusOutcome]) -> list[OptimusRow]:
    """Put policies side by side, in the order in which they come; the first is the measure."""
    table: dict[str, dict[int, OptimusOutcome]] = {}
    for one in outcomes:
        table.setdefault(one.policy, {})[one.seed] = one
    first = next(iter(table.values()))
    return [
        OptimusRow(
            name,
            estimate(one.mean_jct_h for one in own.values()),
            estimate(one.p99_jct_h for one in own.values()),
            estimate(one.makespan_h for one in own.values()),
            estimate(own[s].mean_jct_h / first[s].mean_jct_h for s in own if s in first),
            estimate(own[s].makespan_h / first[s].makespan_h for s in own if s in first),
            mean(one.gpu_use for one in own.values()),
            mean(one.resizes_per_job for one in own.values()),
            mean(one.wall_s for one in own.values()),
            median(one.decision_ms_p50 for one in own.values()),
            max(one.decision_ms_max for one in own.values()),
        )
        for name, own in table.items()
    ]


# -- jobs ------------------------------------------------------------------------------------------


def _workload(
    bench: OptimusBench, seed: int, *, sizing: bool
) -> tuple[Workload, dict[JobId, TrueTraining]]:
    """Jobs as a policy may see them, and the truth about them."""
    chance = np.random.Generator(np.random.PCG64([seed, 6]))
    drawn = [_draw(bench, chance) for _ in range(bench.jobs)]
    gpu_s = float(np.mean([job.gpu_s for job in drawn]))
    rate = bench.load * bench.nodes * bench.gpus_per_node / gpu_s
    times = generate(Synthetic(jobs=bench.jobs, seed=seed, arrivals=bench.arrivals, rate=rate)).jobs
    jobs: list[TraceJob] = []
    truth: dict[JobId, TrueTraining] = {}
    for at, one in enumerate(drawn):
        name = JobId(f"{one.sort.name}-{at}")
        unit = 1.0 if sizing else one.asked_rate
        steps = one.steps * one.course.converges_at()
        spec = (
            _elastic(one, bench)
            if sizing
            else _asked(one, bench, steps / unit if bench.told else None)
        )
        jobs.append(TraceJob(name, times[at].submitted_at, spec, steps / unit))
        truth[name] = TrueTraining(one.network, one.course, one.steps, unit, seed)
    return Workload(f"servers-{bench.mode}", jobs), truth


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A job out of the hat: what it trains, how, and how its user would run it."""

    sort: Sort
    network: TrainedModel
    course: TrueLoss
    steps: float
    servers: int
    workers: int
    asked_rate: float

    @property
    def gpu_s(self) -> float:
        """GPU time that it takes as its user asks for it."""
        return self.workers * self.steps * self.course.converges_at() / self.asked_rate


def _draw(bench: OptimusBench, chance: np.random.Generator) -> _Drawn:
    sort = SORTS[int(chance.integers(len(SORTS)))]
    flipped = bool(chance.random() < 0.5)  # noqa: PLR2004 - drawn in any mode, for the same jobs
    is_async = flipped if bench.mode == "mixed" else bench.mode == "async"
    network = sort.network(Mode.ASYNC if is_async else Mode.SYNC)
    course = TrueLoss(
        a=float(chance.uniform(0.1, 0.5)),
        b=float(chance.uniform(0.8, 1.5)),
        c=float(chance.uniform(0.05, 0.3)),
        quick=float(chance.uniform(0.0, 0.2)),
    )
    long = float(np.clip(chance.lognormal(0.0, 0.8), 0.1, 8.0))
    steps = max(1.0, bench.length_s * long * network.rate(_USUAL) / course.converges_at())
    # Users ask for more where a training is long, with no more than a rough idea of it.
    power = round(math.log2(4 * math.sqrt(long)) + float(chance.normal(0.0, 0.7)))
    workers = min(2 ** max(power, 0), _MOST_ASKED, bench.nodes * bench.gpus_per_node)
    servers = max(1, workers // int(chance.choice((1, 2, 4))))
    rate = network.rate(desks(workers, servers, bench))
    return _Drawn(sort, network, course, steps, servers, workers, rate)


def desks(workers: int, servers: int, bench: OptimusBench) -> list[NodeShare]:
    """So many workers and servers, evenly on as few empty nodes as hold them."""
    nodes = -(-max(workers, servers) // bench.gpus_per_node)
    return [
        NodeShare(w, p, bench.bandwidth / 8)
        for w, p in zip(_parts(workers, nodes), _parts(servers, nodes), strict=True)
    ]


def _parts(count: int, nodes: int) -> Sequence[int]:
    return [count // nodes + (at < count % nodes) for at in range(nodes)]


def _costs(one: _Drawn, bench: OptimusBench) -> Costs:
    took_s = bench.restart * one.sort.restart_s
    return Costs(restart_s=took_s, resize_s=took_s)


def _asked(one: _Drawn, bench: OptimusBench, run_time_s: float | None) -> JobSpec:
    """A job as its user asks for it, with its true run time at that size."""
    return JobSpec(
        workers=Range(one.workers, one.workers),
        resources=WORKER,
        roles=(Role("ps", one.servers, SERVER),),
        application=_application(one),
        run_time_s=run_time_s,
        costs=_costs(one, bench),
    )


def _elastic(one: _Drawn, bench: OptimusBench) -> JobSpec:
    """A job of unknown length; the policy chooses its size."""
    most = min(_MOST, bench.nodes * bench.gpus_per_node)
    return JobSpec(
        workers=Range(1, most),
        resources=WORKER,
        roles=(Role("ps", 1, SERVER, most=most),),
        application=_application(one),
        costs=_costs(one, bench),
        training=Training(batch=one.network.batch),
    )


def _application(one: _Drawn) -> str:
    return f"{one.sort.name}/{one.network.mode}"
