"""Scenarios: a seed changes what chance decides and nothing else; nonsense is refused."""

from __future__ import annotations

import math
import pickle

import pytest

from roost.core.spec import Costs, QueueId, QueueSpec
from roost.errors import InvalidSpec, NotFound
from roost.sim.failures import Failures
from roost.sim.scenario import Scenario, uniform_cluster
from roost.traces.generate import Synthetic, generate
from roost.traces.workload import Workload

SYNTHETIC = Synthetic(jobs=20, gpus=16)
FIXED = generate(SYNTHETIC)
NODES = uniform_cluster(2, 8)


def workload(scenario: Scenario, seed: int) -> Workload:
    return scenario.setup("fifo", "pack", seed).workload


def test_a_trace_is_the_same_for_every_seed() -> None:
    scenario = Scenario(FIXED, NODES)

    assert not scenario.random
    assert workload(scenario, 0) is workload(scenario, 1) is FIXED


def test_generated_jobs_differ_from_seed_to_seed() -> None:
    scenario = Scenario(SYNTHETIC, NODES)

    assert scenario.random
    assert workload(scenario, 0) == FIXED
    assert workload(scenario, 1) == workload(scenario, 1) != FIXED


def test_errors_of_estimates_differ_from_seed_to_seed_and_touch_nothing_else() -> None:
    scenario = Scenario(FIXED, NODES, estimate_error=0.5)

    one, other = workload(scenario, 1), workload(scenario, 2)
    assert scenario.random
    assert one == workload(scenario, 1)
    assert [job.spec.run_time_s for job in one.jobs] != [job.spec.run_time_s for job in other.jobs]
    assert [job.work_s for job in one.jobs] == [job.work_s for job in FIXED.jobs]


def test_failures_are_chance_and_an_error_of_zero_is_none() -> None:
    assert Scenario(FIXED, NODES, failures=Failures(node_mtbf_s=1e6)).random
    assert Scenario(FIXED, NODES, failures=Failures(gpu_mtbf_s=1e6)).random
    assert not Scenario(FIXED, NODES, estimate_error=0.0).random


def test_costs_and_least_times_replace_those_of_every_job() -> None:
    found = workload(Scenario(FIXED, NODES, costs={"restart_s": 30}, min_run_s=60.0), 0)

    assert {job.spec.costs for job in found.jobs} == {Costs(restart_s=30)}
    assert {job.spec.min_run_s for job in found.jobs} == {60.0}
    assert FIXED.jobs[0].spec.costs == Costs()


@pytest.mark.parametrize("error", [-0.1, 10.1, math.inf, math.nan])
def test_an_error_that_cannot_be_drawn_is_refused(error: float) -> None:
    with pytest.raises(InvalidSpec, match=f"estimate_error must be from 0 to 10, got {error}"):
        Scenario(FIXED, NODES, estimate_error=error)


def test_two_things_of_one_name_are_refused() -> None:
    queue = QueueSpec(QueueId("q"))
    with pytest.raises(InvalidSpec, match="queue 'q' is given twice"):
        Scenario(FIXED, NODES, queues=[queue, queue])
    with pytest.raises(InvalidSpec, match="node 'node-0000' is given twice"):
        Scenario(FIXED, [*NODES, NODES[0]])


def test_names_are_checked_before_anything_runs() -> None:
    with pytest.raises(NotFound, match="'fifo'"):
        Scenario.check_names("fifoo", "pack")
    with pytest.raises(NotFound, match="'pack'"):
        Scenario.check_names("fifo", "packk")


def test_a_scenario_travels_to_other_processes() -> None:
    scenario = Scenario(SYNTHETIC, NODES, costs={"restart_s": 30}, estimate_error=0.5)
    assert pickle.loads(pickle.dumps(scenario)) == scenario  # noqa: S301 - our own


def test_nodes_that_are_all_alike_hang_on_switches_in_order() -> None:
    nodes = uniform_cluster(5, 4, kind="A100", sockets=2, nodes_per_switch=2)

    assert [node.switch for node in nodes] == [
        *("switch-000", "switch-000", "switch-001", "switch-001", "switch-002")
    ]
    assert {(node.gpus, node.kind, node.sockets) for node in nodes} == {(4, "A100", 2)}
    assert len({node.id for node in nodes}) == 5
    for size in ((0, 8), (8, 0), (-1, 8)):
        with pytest.raises(InvalidSpec, match="needs nodes and GPUs"):
            uniform_cluster(*size)
