"""Situations: small workloads on small clusters, each made to try one thing.

Every job in them can run, by any sensible rule: it fits its queue's slice of the cluster, by quota
or by weight, and the nodes that are left when one has failed. So a policy under which a job
never ends starves it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from roost.core import Costs, JobId, JobSpec, Level, NodeSpec, Policy, QueueSpec
from roost.placement import placer
from roost.sim.failures import Failures
from roost.sim.simulation import Setup, Simulation
from roost.testing.builders import node, queue, role, spec
from roost.traces.workload import TraceJob, Workload

__all__ = [
    "COSTS",
    "SITUATIONS",
    "Situation",
    "breakdowns",
    "cpus",
    "elastic",
    "gangs",
    "kinds",
    "mixture",
    "servers",
    "shares",
    "tenants",
]

COSTS = Costs(checkpoint_every_s=300.0, restart_s=50.0, resize_s=20.0, suspend_s=10.0)


@dataclass(frozen=True, slots=True)
class Situation:
    """Jobs, a cluster, its queues, and what breaks."""

    name: str
    jobs: tuple[TraceJob, ...]
    nodes: tuple[NodeSpec, ...]
    queues: tuple[QueueSpec, ...] = ()
    failures: Failures = field(default_factory=Failures)

    def simulation(self, policy: Policy, placer_name: str = "first-fit") -> Simulation:
        """A simulation of it that has not begun."""
        workload = Workload(self.name, list(self.jobs), self.nodes)
        return Simulation(
            Setup(
                workload,
                self.nodes,
                policy,
                placer(placer_name),
                queues=self.queues,
                failures=self.failures,
            )
        )


def _jobs(count: int, seed: int, make: Callable[[random.Random], JobSpec]) -> tuple[TraceJob, ...]:
    """Jobs that arrive faster than they can be served, with estimates that are right for most."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    jobs, now = [], 0.0
    for index in range(count):
        now += chance.choice((0.0, 0.0, 60.0, 400.0))
        work_s = chance.choice((20.0, 140.0, 800.0, 3000.0, 8000.0))
        known = chance.choice((None, work_s, work_s, 0.5 * work_s))
        wanted = replace(make(chance), run_time_s=known)
        jobs.append(TraceJob(JobId(f"j{index}"), now, wanted, work_s))
    return tuple(jobs)


def gangs() -> Situation:
    """One GPU up to two whole nodes, some within a cell, some not to be disturbed."""

    def make(chance: random.Random) -> JobSpec:
        return spec(
            chance.choice((1, 1, 2)),
            workers=chance.choice((1, 1, 2, 4)),
            costs=COSTS,
            min_run_s=chance.choice((0.0, 250.0)),
            preemptible=chance.random() > 0.2,  # noqa: PLR2004
            within=chance.choice((None, None, None, Level.SWITCH)),
        )

    return Situation("gangs", _jobs(30, 1, make), tuple(node(f"n{n}", 4) for n in range(3)))


def shares() -> Situation:
    """Parts of GPUs, with and without memory limits, beside whole ones."""

    def make(chance: random.Random) -> JobSpec:
        gpus = chance.choice((0.1, 0.25, 0.5, 0.7, 1))
        memory = chance.choice((0, 0, 400)) if gpus < 1 else 0
        return spec(gpus, gpu_memory_mib=memory, workers=chance.choice((1, 1, 2)), costs=COSTS)

    nodes = tuple(node(f"n{n}", 2, gpu_memory_mib=1000) for n in range(2))
    return Situation("shares", _jobs(30, 2, make), nodes)


def kinds() -> Situation:
    """Several kinds of GPU; some jobs take any, some only what they know."""

    def make(chance: random.Random) -> JobSpec:
        wanted = chance.choice(((), ("new",), ("old",), ("new", "old")))
        return spec(1, workers=chance.choice((1, 2)), kinds=wanted, costs=COSTS)

    return Situation(
        "kinds", _jobs(25, 3, make), (node("n0", 2, kind="new"), node("n1", 4, kind="old"))
    )


def cpus() -> Situation:
    """CPUs and memory that run out before the GPUs, and jobs without GPUs."""

    def make(chance: random.Random) -> JobSpec:
        return spec(
            chance.choice((0, 0, 1)),
            workers=chance.choice((1, 2)),
            cpu_milli=chance.choice((500, 1000, 2000)),
            memory_mib=chance.choice((0, 100)),
            costs=COSTS,
        )

    nodes = (
        node("n0", 4, cpu_milli=4000, memory_mib=500),
        node("n1", 0, cpu_milli=4000),
        node("n2", 4, cpu_milli=4000, memory_mib=500),
    )
    return Situation("cpus", _jobs(25, 4, make), nodes)


def servers() -> Situation:
    """Workers with parameter servers, on CPUs or on parts of GPUs."""

    def make(chance: random.Random) -> JobSpec:
        extra = role("ps", chance.choice((1, 2)), chance.choice((0, 0.5)), cpu_milli=1000)
        return spec(1, workers=chance.choice((1, 2)), roles=(extra,), costs=COSTS)

    return Situation(
        "servers", _jobs(20, 5, make), tuple(node(f"n{n}", 4, cpu_milli=4000) for n in range(2))
    )


def elastic() -> Situation:
    """Jobs that can grow and shrink."""

    def make(chance: random.Random) -> JobSpec:
        low = chance.choice((1, 1, 2))
        return spec(1, workers=(low, low + chance.choice((0, 1, 3))), costs=COSTS)

    return Situation("elastic", _jobs(25, 6, make), tuple(node(f"n{n}", 4) for n in range(2)))


def tenants() -> Situation:
    """Queues with quotas, limits, weights and priorities; one of them comes first and takes all."""

    def make(chance: random.Random) -> JobSpec:
        tenant = chance.choice(("red", "blue", "green"))
        return spec(
            1,
            workers=chance.choice((1, 1, 2)),
            queue=tenant,
            priority=chance.choice((0, 0, 5)),
            costs=COSTS,
            min_run_s=chance.choice((0.0, 250.0)),
            preemptible=chance.random() > 0.2,  # noqa: PLR2004
        )

    queues = (
        queue("red", quota_milli=2000, limit_milli=4000),
        queue("blue", weight=2.0, priority=1),
        queue("green", limit_milli=2000),
    )
    jobs = _jobs(30, 7, make)
    early = tuple(replace(job, spec=replace(job.spec, queue=queues[1].id)) for job in jobs[:12])
    nodes = tuple(node(f"n{n}", 4) for n in range(3))
    return Situation("tenants", (*early, *jobs[12:]), nodes, queues)


def mixture() -> Situation:
    """A little of everything at once."""
    cases = (gangs(), shares(), kinds(), cpus(), servers(), elastic())
    found = [
        replace(job, id=JobId(f"{case.name}-{job.id}")) for case in cases for job in case.jobs[:9]
    ]
    nodes = (
        node("n0", 8, kind="new", gpu_memory_mib=1000, cpu_milli=32000, sockets=2),
        node("n1", 4, kind="old", gpu_memory_mib=1000),
        node("n2", 4, kind="old", gpu_memory_mib=1000, cpu_milli=16000, memory_mib=4000),
    )
    jobs = tuple(sorted(found, key=lambda job: job.submitted_at))
    return Situation("mixture", jobs, nodes)


def breakdowns() -> Situation:
    """Gangs on nodes and GPUs that break and are repaired all the time."""
    failures = Failures(
        node_mtbf_s=8000.0, node_mttr_s=800.0, gpu_mtbf_s=30000.0, gpu_mttr_s=1200.0
    )
    return replace(gangs(), name="breakdowns", failures=failures)


SITUATIONS: tuple[Callable[[], Situation], ...] = (
    gangs,
    shares,
    kinds,
    cpus,
    servers,
    elastic,
    tenants,
    mixture,
    breakdowns,
)
