"""Everything at once, under every policy: whatever happens, all jobs end and the books balance.

Small random clusters of unlike nodes; shares, gangs, roles, cells, kinds, CPUs, elastic jobs, wrong
and missing estimates, priorities, limits; users who cancel, suspend and resume; nodes and GPUs that
break. The seeds are fixed; a larger range can be tried by hand with ``CHAOS=2000``.
"""

from __future__ import annotations

import math
import os
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.oracles.played import finish, job, simulation

from roost.core import (
    CancelRequested,
    Costs,
    Event,
    GpuFailed,
    GpuRestored,
    JobSpec,
    Level,
    NodeJoined,
    NodeLost,
    NodeSpec,
    QueueSpec,
    Range,
    Resources,
    ResumeRequested,
    SuspendRequested,
)
from roost.errors import InvalidSpec
from roost.perf.speed import Speed
from roost.placement import PLACERS
from roost.policies import names, policy
from roost.sim.results import Segment
from roost.sim.simulation import Simulation
from roost.testing.builders import node, queue, role
from roost.traces.workload import TraceJob

SEEDS = range(int(os.environ.get("CHAOS", "15")))


def some_nodes(chance: random.Random) -> list[NodeSpec]:
    return [
        node(
            f"n{i}",
            chance.choice([2, 4, 4, 8]),
            kind=chance.choice("xy"),
            cpu_milli=chance.choice([0, 8000]),
            memory_mib=chance.choice([0, 1000]),
            gpu_memory_mib=chance.choice([0, 1000]),
            sockets=chance.choice([1, 2]),
            switch=f"s{i // 2}",
        )
        for i in range(chance.randint(1, 4))
    ]


def some_costs(chance: random.Random) -> Costs:
    return Costs(
        checkpoint_every_s=chance.choice([0.0, 10.0, math.inf]),
        checkpoint_s=chance.choice([0.0, 0.0, 1.0]),
        restart_s=chance.choice([0.0, 0.0, 5.0]),
        resize_s=chance.choice([0.0, 3.0]),
        suspend_s=chance.choice([0.0, 2.0]),
    )


def some_spec(chance: random.Random, work_s: float) -> JobSpec:
    least = chance.choice([1, 1, 1, 2, 3, 5])
    most = least + (chance.randint(1, 6) if chance.random() < 0.3 else 0)
    gpus, share = chance.choice([(1, 1000)] * 3 + [(2, 1000), (4, 1000), (1, 250), (1, 700)])
    server = role("ps", chance.randint(1, 2), chance.choice([0, 0, 1, 0.5]), cpu_milli=500)
    return JobSpec(
        Range(least, most),
        Resources(
            gpus,
            share,
            kinds=("x",) if chance.random() < 0.1 else (),
            cpu_milli=chance.choice([0, 0, 0, 1000, 3000]),
            memory_mib=chance.choice([0, 0, 0, 100, 400]),
        ),
        roles=(server,) if chance.random() < 0.1 else (),
        priority=chance.choice([0, 0, 0, 1, -1]),
        run_time_s=chance.choice([work_s, work_s, work_s, work_s * 2, work_s / 2, None]),
        costs=some_costs(chance),
        min_run_s=chance.choice([0.0, 0.0, 5.0, 20.0]),
        preemptible=chance.random() < 0.9,
        within=chance.choice(list(Level)) if chance.random() < 0.1 else None,
    )


def some_jobs(chance: random.Random) -> list[TraceJob]:
    found = []
    for i in range(chance.randint(3, 25)):
        work_s = chance.choice([0.0, 1.0, 5.0, 10.0, 30.0, 60.0, 50 * chance.random()])
        plain = job(f"j{i}", chance.choice([chance.randint(0, 100), 100 * chance.random()]), work_s)
        spec = replace(some_spec(chance, work_s), queue=queue(chance.choice("abc")).id)
        if work_s > 1 and chance.random() < 0.1:
            spec = replace(spec, max_retries=1)
            plain = replace(plain, fails_at_s=(work_s / 2,))
        found.append(replace(plain, spec=spec))
    return found


def some_queues(chance: random.Random) -> list[QueueSpec]:
    limit = chance.choice([None, 4000, 8000])
    weight = chance.choice([0.3, 1.0, 2.0])
    quota = chance.choice([None, 2000])
    return [queue("a", weight=weight, limit_milli=limit), queue("b", quota_milli=quota)]


def some_speed(chance: random.Random) -> Speed:
    return Speed(
        kinds={"y": 0.5} if chance.random() < 0.3 else {},
        spread={Level.SWITCH: 0.5, Level.CLUSTER: 0.3} if chance.random() < 0.3 else {},
        interference=chance.choice([0.0, 0.3]),
    )


def some_trouble(chance: random.Random, sim: Simulation) -> Iterable[Event]:
    """What users and machines do to a run; every machine is back in the end."""
    nodes = list(sim.setup.nodes)
    for at in sorted(chance.sample(range(30, 200), chance.randint(0, 6))):
        target = chance.choice(sorted(sim.jobs))
        machine = nodes.pop() if len(nodes) > 1 else nodes[0]
        match chance.randrange(4):
            case 0:
                yield CancelRequested(100.0 + at, target)
            case 1:
                yield SuspendRequested(100.0 + at, target)
                yield ResumeRequested(100.0 + at + chance.randint(0, 20), target)
            case 2 if len(nodes) > 1:
                yield NodeLost(float(at), machine.id)
                yield NodeJoined(at + 20.0, machine)
            case _:
                gpu = chance.randrange(machine.gpus)
                yield GpuFailed(float(at), machine.id, gpu)
                yield GpuRestored(at + 15.0, machine.id, gpu)


def most_held(segments: Iterable[Segment]) -> int:
    """The most milli-GPUs of one device that were ever held at once."""
    changes: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for bar in segments:
        changes[bar.node, bar.gpu] += [(bar.start, bar.share_milli), (bar.end, -bar.share_milli)]
    most = 0
    for device in changes.values():
        held = 0
        for _, change in sorted(device):
            held += change
            most = max(most, held)
    return most


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [name for name in names() if name != "static"])
def test_all_jobs_end_and_the_books_balance(name: str, seed: int) -> None:
    chance = random.Random(seed)
    nodes, jobs, queues = some_nodes(chance), some_jobs(chance), some_queues(chance)
    speed, placer = some_speed(chance), chance.choice(sorted(PLACERS))
    try:
        sim = simulation(
            policy(name),
            jobs,
            nodes,
            queues=queues,
            placer=PLACERS[placer],
            speed=speed,
            skip_impossible=True,
            timeline=True,
        )
    except InvalidSpec as error:
        assert "can ever run" in str(error)  # noqa: PT017 - not one of these jobs fits anywhere
        return
    for event in some_trouble(chance, sim):
        sim.world.schedule(event)
    played = finish(sim)

    assert [row.id for row in played.results.jobs if row.finished_at is None] == []
    assert sim.core.ledger.free_milli == sim.core.ledger.capacity_milli
    assert sim.core.runs == {}
    for tenant in sim.core.queues.values():
        assert (tenant.used_milli, tenant.used_cpu_milli, tenant.used_memory_mib) == (0, 0, 0)
    assert most_held(played.results.segments) <= 1000
    assert sim.world.gauges.allocated == pytest.approx(0, abs=1e-6)
