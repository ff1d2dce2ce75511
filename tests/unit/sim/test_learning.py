"""``roost simulate --world learning``: the workloads, and the figures of Sia's benchmark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.profiled import NAME, toy_tables

from roost.core.spec import WHOLE, JobId, JobSpec, NodeId, NodeSpec, Range, Resources, Role
from roost.errors import InvalidSpec
from roost.sim import saving
from roost.sim.learning import Learning
from roost.sim.metrics import summarise
from roost.sim.scenario import Scenario, uniform_cluster
from roost.sim.simulation import Simulation
from roost.traces.applications import BUILT_IN, built_in
from roost.traces.generate import Synthetic
from roost.traces.profiles import Tables
from roost.traces.sia import SiaJob
from roost.traces.workload import TraceJob, Workload
from roost_bench.sia import benchmark

ROWS = [
    SiaJob(JobId(f"{NAME}-{number}"), 40.0 * number, NAME, 1 + number % 4, 64)
    for number in range(8)
]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return toy_tables(tmp_path)


def job(name: str = "a", **spec: Any) -> TraceJob:
    return TraceJob(JobId(name), 0.0, replace(JobSpec(), **spec), 600.0)


def scenario(*jobs: TraceJob, nodes: int = 2) -> Scenario:
    return Scenario(
        Workload("jobs", list(jobs)),
        uniform_cluster(nodes, 4),
        learning=Learning(built_in(["gpu"], {}), any_application=True),
    )


def finished(case: Scenario, policy: str = "fifo") -> dict[str, float]:
    results = Simulation(case.setup(policy, "consolidate", 0)).run()
    return {one.id: one.finished_at or 0.0 for one in results.jobs}


@pytest.mark.parametrize("policy", ["sia", "pollux", "roost", "roost:library=no", "fifo", "las"])
def test_the_same_run_as_in_the_benchmark(tables: Tables, policy: str) -> None:
    simulation, _ = benchmark.prepare(tables, ROWS, policy)
    simulation.run()
    ours = Scenario(
        Workload(
            "w", [TraceJob(r.id, r.submitted_at, JobSpec(application=NAME), 1.0) for r in ROWS]
        ),
        benchmark.cluster(),
        learning=Learning(tables, {row.id: row for row in ROWS}),
    )
    found = Simulation(ours.setup(policy, "first-fit", 0)).run()
    assert [(j.id, j.finished_at, j.service_gpu_s) for j in found.jobs] == [
        (j.id, j.finished_at, j.service_gpu_s) for j in simulation.results().jobs
    ]


def test_a_rigid_job_takes_its_run_time_and_its_start() -> None:
    name = "bert"
    ends = finished(scenario(job(workers=Range(2, 2), application=name)))
    assert ends["a"] == pytest.approx(600.0 + BUILT_IN[name].penalty_s)


def test_gpus_of_a_worker_become_workers() -> None:
    case = scenario(job(resources=Resources(gpus=4), application="bert"))
    (found,) = case.setup("fifo", "consolidate", 0).workload.jobs
    assert found.spec.workers == Range(4, 4)
    assert found.spec.resources.gpus == 1


def test_an_elastic_job_learns_faster_under_the_default_policy() -> None:
    case = scenario(job(workers=Range(1, 8), application="imagenet"))
    assert finished(case, "roost")["a"] < 0.5 * finished(case, "fifo")["a"]


def test_a_faster_kind_takes_less_time() -> None:
    nodes = [NodeSpec(NodeId("a"), gpus=4, kind="V100"), NodeSpec(NodeId("b"), gpus=4, kind="A100")]
    case = Scenario(
        Workload("jobs", [job(workers=Range(1, 1), application="cifar10")]),
        nodes,
        learning=Learning(built_in(["V100", "A100"], {"A100": 2.0})),
    )
    assert finished(case)["a"] < 600.0


def test_generated_jobs_learn_and_are_the_same_again() -> None:
    case = Scenario(
        Synthetic(jobs=30, gpus=16, max_run_s=1800.0, elastic=0.5),
        uniform_cluster(2, 8),
        learning=Learning(built_in(["gpu"], {}), any_application=True),
    )
    first = Simulation(case.setup("roost", "consolidate", 1)).run()
    again = Simulation(case.setup("roost", "consolidate", 1)).run()
    assert first.jobs == again.jobs
    assert summarise(first).finished == 30


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"resources": Resources(gpus=0)}, "no GPU"),
        ({"resources": Resources(share_milli=WHOLE // 2)}, "part of a GPU"),
        ({"roles": (Role("ps", 1, Resources(gpus=0)),)}, "several roles"),
    ],
)
def test_jobs_that_cannot_learn_are_refused(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSpec, match=f"job a cannot learn: .*{why}"):
        scenario(job(**spec)).setup("fifo", "consolidate", 0)


def test_an_application_without_profiles_is_refused(tables: Tables) -> None:
    case = Scenario(
        Workload("w", [job(application="gpt")]), benchmark.cluster(), learning=Learning(tables)
    )
    with pytest.raises(InvalidSpec, match=f"job a cannot learn.*'gpt'; there are those of {NAME}"):
        case.setup("fifo", "consolidate", 0)


def test_a_kind_without_profiles_is_refused(tables: Tables) -> None:
    case = Scenario(
        Workload("w", [job(application=NAME)]), uniform_cluster(1, 4), learning=Learning(tables)
    )
    with pytest.raises(InvalidSpec, match="GPUs of kind 'gpu'; there are those of T4"):
        case.setup("fifo", "consolidate", 0)


def test_such_a_run_is_not_saved(tmp_path: Path) -> None:
    simulation = Simulation(scenario(job()).setup("fifo", "consolidate", 0))
    with pytest.raises(InvalidSpec, match="cannot be saved"):
        saving.save(simulation, tmp_path / "run.roost")
