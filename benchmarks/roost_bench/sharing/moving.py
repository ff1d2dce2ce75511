"""Gangs and single GPUs on the same nodes: what it brings that runs move towards fewer nodes.

Jobs of 1, 2 and 4 GPUs come to four nodes of four. A gang that is spread over nodes goes at half
the speed, which is in the range that Gandiva's authors measured.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from roost.core.spec import Costs, JobId, JobSpec, Level, NodeId, NodeSpec, Range
from roost.perf.speed import Speed
from roost.placement import placer
from roost.policies import policy as find_policy
from roost.sim.simulation import Setup, Simulation
from roost.traces.workload import TraceJob, Workload

NODES, GPUS_PER_NODE, JOBS, LOAD = 4, 4, 200, 0.8
SIZES, WEIGHTS = (1, 2, 4), (60, 25, 15)
SPREAD = 0.5
MOVE_S = 2.0
_MEDIAN_S = 1800.0
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class MoveRow:
    """Completion times of all jobs, and of those of several GPUs, for a policy and a seed."""

    part: str
    policy: str
    seed: int
    mean_jct_h: float
    gangs_jct_h: float
    moves: int


def moves(names: Sequence[str], seeds: Sequence[int]) -> list[MoveRow]:
    """The same jobs under policies that move runs and that do not."""
    return [_run(name, seed) for name in names for seed in seeds]


def _run(name: str, seed: int) -> MoveRow:
    nodes = [NodeSpec(NodeId(f"n{number}"), GPUS_PER_NODE) for number in range(NODES)]
    setup = Setup(
        workload=_workload(seed),
        nodes=nodes,
        policy=find_policy(name),
        placer=placer("anywhere"),
        policy_name=name,
        speed=Speed(spread=dict.fromkeys((Level.SWITCH, Level.CLUSTER), SPREAD)),
    )
    results = Simulation(setup).run()
    jcts = {
        row.id: ((row.finished_at or math.nan) - row.submitted_at) / _HOUR_S for row in results.jobs
    }
    gangs = [jcts[row.id] for row in results.jobs if row.gpus > 1]
    moved = sum(row.resizes for row in results.jobs)
    means = statistics.fmean(jcts.values()), statistics.fmean(gangs)
    return MoveRow("move", name, seed, *means, moved)


def _workload(seed: int) -> Workload:
    chance = random.Random(f"moves/{seed}")  # noqa: S311 - not for secrets
    sizes = chance.choices(SIZES, WEIGHTS, k=JOBS)
    works = [round(chance.lognormvariate(math.log(_MEDIAN_S), 1.0), 3) for _ in sizes]
    total = sum(size * work for size, work in zip(sizes, works, strict=True))
    every_s = total / (LOAD * NODES * GPUS_PER_NODE) / JOBS
    costs = Costs(restart_s=MOVE_S, resize_s=MOVE_S, suspend_s=0.1)
    jobs, now = [], 0.0
    for number, (size, work_s) in enumerate(zip(sizes, works, strict=True)):
        spec = JobSpec(workers=Range(size, size), costs=costs)
        jobs.append(TraceJob(JobId(f"job-{number:03d}"), now, spec, work_s))
        now = round(now + chance.expovariate(1.0) * every_s, 3)
    return Workload("moves", jobs)
