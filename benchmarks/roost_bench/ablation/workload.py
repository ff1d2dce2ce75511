"""Jobs of all sorts on a cluster of two kinds of GPU: whole GPUs, elastic jobs, shares, CPUs alone.

GPUs, run times and arrivals are those of ``roost.traces.generate``, with shares and elastic jobs
among them. What it does not know of is added: every worker needs CPUs and memory, some of them
much, some jobs ask for a kind of GPU, and some have no GPU at all. Nodes have so many CPUs that a
careless placement leaves GPUs without.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from roost.core.spec import WHOLE, Costs, NodeSpec, QueueId, Range, Resources
from roost.sim.scenario import uniform_cluster
from roost.traces.generate import Synthetic, generate
from roost.traces.workload import TraceJob, Workload

#: A checkpoint every ten minutes costs ten seconds, a restart a minute, a resize half of one.
COSTS = Costs(
    checkpoint_every_s=600.0, checkpoint_s=10.0, restart_s=60.0, resize_s=30.0, suspend_s=5.0
)
#: CPUs for each GPU, or for a job without one, and how often.
_CPUS = ((2, 20), (4, 30), (8, 30), (12, 15), (24, 5))
_MIB_PER_CPU = 4096
_SIZES = ((1, 70.0), (2, 12.0), (4, 10.0), (8, 8.0))
_FRACTIONAL, _ELASTIC = 0.6, 0.6
#: Of jobs of a single GPU so many have none; of all jobs so many ask for a kind, unless they may
#: have more workers than two.
_WITHOUT, _PICKY, _WIDEST_PICKY = 0.1, 0.15, 2
_LONGEST_S = 14400.0
#: Elastic jobs may have so many times the workers that the generator gives them, and so many.
_GROWTH, _WIDEST = 4, 32
#: Nodes of each kind, and what each has: GPUs, CPUs.
_KINDS = {"large": (6, 8, 96), "small": (8, 2, 48)}
#: Two of three jobs belong to a queue that may be promised cells, 20 GPUs each: what such a queue
#: asks for at a load of 1.
TENANTS = (QueueId("vision"), QueueId("speech"))
_QUEUES = (*TENANTS, QueueId("others"))
PROMISE = "2xnode:large,2xnode:small"


def cluster() -> list[NodeSpec]:
    """The nodes: 64 GPUs, 48 of them on large nodes."""
    found: list[NodeSpec] = []
    for kind, (nodes, gpus, cpus) in _KINDS.items():
        some = uniform_cluster(nodes, gpus, kind=kind, first=len(found))
        found += [
            replace(node, cpu_milli=1000 * cpus, memory_mib=cpus * 2 * _MIB_PER_CPU)
            for node in some
        ]
    return found


def mixed_jobs(jobs: int, load: float, seed: int) -> Workload:
    """So many jobs that ask for ``load`` times all GPUs on average."""
    made = generate(
        Synthetic(
            jobs=jobs,
            seed=seed,
            load=load,
            gpus=sum(nodes * gpus for nodes, gpus, _ in _KINDS.values()),
            queues=1,
            gpu_weights=_SIZES,
            max_run_s=_LONGEST_S,
            elastic=_ELASTIC,
            fractional=_FRACTIONAL,
            killed=0.0,
            failed=0.0,
            estimate_error=0.3,
        )
    )
    chance = Random(f"mixed/{seed}")  # noqa: S311 - no secret
    queues = Random(f"queues/{seed}")  # noqa: S311 - no secret
    dressed = [_dressed(job, chance) for job in made.jobs]
    return Workload(f"mixed-{seed}", [_queued(job, queues.choice(_QUEUES)) for job in dressed])


def _queued(job: TraceJob, queue: QueueId) -> TraceJob:
    return replace(job, spec=replace(job.spec, queue=queue))


def _dressed(job: TraceJob, chance: Random) -> TraceJob:
    """A job with CPUs and memory, and perhaps with a wish for a kind of GPU or without any."""
    spec = job.spec
    cpus = chance.choices([n for n, _ in _CPUS], [often for _, often in _CPUS])[0]
    picky, without = chance.random() < _PICKY, chance.random() < _WITHOUT
    alone = spec.workers == (1, 1) and spec.resources.share_milli == WHOLE
    kind = chance.choice([*_KINDS])
    gpus = 0 if alone and without else 1
    need = Resources(
        gpus=gpus,
        share_milli=spec.resources.share_milli,
        kinds=(kind,) if gpus and picky and spec.workers.max <= _WIDEST_PICKY else (),
        cpu_milli=1000 * cpus,
        memory_mib=_MIB_PER_CPU * cpus,
    )
    low, high = spec.workers
    if spec.elastic:
        high = min(_GROWTH * high, max(_WIDEST, high))
    spec = replace(spec, workers=Range(low, high), resources=need, costs=COSTS)
    return replace(job, spec=spec)
