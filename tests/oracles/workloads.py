"""Generated workloads with everything on: costs, queues, elastic jobs, failures."""

from __future__ import annotations

from dataclasses import replace

from roost.core import Costs, NodeSpec, Policy, QueueId, QueueSpec
from roost.perf.speed import Speed
from roost.placement import placer
from roost.sim.failures import Failures
from roost.sim.simulation import Setup
from roost.testing.builders import node
from roost.traces.generate import Synthetic, generate
from roost.traces.workload import Workload

#: A checkpoint every ten minutes costs ten seconds, a restart a minute, a resize half of one.
COSTS = Costs(
    checkpoint_every_s=600.0, checkpoint_s=10.0, restart_s=60.0, resize_s=30.0, suspend_s=5.0
)
FAILURES = Failures(
    node_mtbf_s=200_000.0, node_mttr_s=1800.0, gpu_mtbf_s=800_000.0, gpu_mttr_s=3600.0
)
SIZES = ((1, 50.0), (2, 15.0), (4, 15.0), (8, 15.0), (16, 5.0))


def busy(jobs: int, seed: int, gpus: int, largest: int = 16) -> Workload:
    """Jobs of up to 4 hours from four queues, a quarter of them elastic, at a load of 1.1."""
    made = generate(
        Synthetic(
            jobs=jobs,
            seed=seed,
            load=1.1,
            gpus=gpus,
            queues=4,
            gpu_weights=tuple(pair for pair in SIZES if pair[0] <= largest),
            max_run_s=14400.0,
            elastic=0.25,
            estimate_error=0.3,
        )
    )
    return Workload(
        f"busy-{seed}",
        [replace(job, spec=replace(job.spec, costs=COSTS)) for job in made.jobs],
    )


def setup(policy: Policy, workload: Workload, nodes: list[NodeSpec], *, seed: int) -> Setup:
    """A run of that workload with failures, and a queue each with a limit, a quota, a weight."""
    gpus = sum(spec.gpus for spec in nodes)
    return Setup(
        workload,
        nodes,
        policy,
        placer("consolidate"),
        queues=(
            QueueSpec(QueueId("queue-1"), weight=2.0),
            QueueSpec(QueueId("queue-2"), quota_milli=gpus * 1000 // 4),
            QueueSpec(QueueId("queue-3"), limit_milli=gpus * 1000 // 2),
        ),
        speed=Speed(),
        failures=FAILURES,
        seed=seed,
        timeline=True,
    )


def machines(count: int, gpus: int) -> list[NodeSpec]:
    """Equal nodes of two sockets, four to a switch."""
    return [node(f"n{i}", gpus, sockets=2, switch=f"s{i // 4}") for i in range(count)]
