"""Twice as many jobs as GPUs in turns: all of them get on, and switching costs little."""

from __future__ import annotations

import math

import pytest
from tests.oracles.played import cluster, job, simulation

from roost.core import Costs, Policy
from roost.policies.fifo import fifo
from roost.policies.timeslice import Timeslice
from roost.traces.workload import TraceJob

GPUS = 8
WORK_S = 7200.0
COSTS = Costs(suspend_s=1.0, restart_s=2.0)


def crowd(count: int) -> list[TraceJob]:
    return [job(f"j{index}", 10.0 * index, WORK_S, costs=COSTS) for index in range(count)]


@pytest.mark.parametrize("times", [2, 3])
def test_with_more_jobs_than_gpus_everyone_gets_on(times: int) -> None:
    sim = simulation(Timeslice(quantum_s=60), crowd(times * GPUS), cluster(4, nodes=2))
    sim.run(until=3600.0)
    done = [row.service_gpu_s - row.lost_gpu_s for row in sim.results().jobs]

    fair = 3600.0 / times
    assert min(done) > 0.75 * fair
    assert max(done) < 1.25 * fair


def test_switching_takes_a_twentieth_of_the_time_at_most() -> None:
    sim = simulation(Timeslice(quantum_s=60), crowd(2 * GPUS), cluster(4, nodes=2))
    results = sim.run()

    assert sim.over
    held = sum(row.service_gpu_s for row in results.jobs)
    lost = sum(row.lost_gpu_s for row in results.jobs)
    assert math.isclose(held - lost, 2 * GPUS * WORK_S, rel_tol=1e-6)
    assert 0 < lost < held / 20


def test_it_ends_hardly_later_than_without_turns() -> None:
    def end(policy: Policy) -> float:
        rows = simulation(policy, crowd(2 * GPUS), cluster(4, nodes=2)).run().jobs
        return max(row.finished_at or math.inf for row in rows)

    assert end(Timeslice(quantum_s=60)) < 1.06 * end(fifo)


def test_nobody_steps_aside_once_the_crowd_is_gone() -> None:
    jobs = [job("long", 0, 5000, costs=COSTS), job("short", 0, 100, costs=COSTS)]
    sim = simulation(Timeslice(quantum_s=60), jobs, cluster(1))
    results = sim.run()

    assert sum(row.preemptions for row in results.jobs) <= 4
    assert sim.over
