"""Jobs that share GPUs in the simulator: what they lose, what they measure, what never meets."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.core import Event, Measured, NodeSpec, Qos
from roost.perf.pairs import Pairs
from roost.perf.speed import Speed
from roost.policies import policy
from roost.sim import saving
from roost.sim.pairs import holding_memory, memory_parts, packable, with_memory
from roost.sim.scenario import Scenario
from roost.sim.simulation import Simulation
from roost.testing.builders import job, node, spec
from roost.traces.workload import TraceJob, Workload

TABLE = Pairs(
    {
        "gpu": {
            "lm": {"gan": 0.5, "lm": 0.6, "huge": 0.0},
            "gan": {"lm": 0.8, "gan": 0.7, "huge": 0.9},
            "huge": {"lm": 0.0, "gan": 0.9, "huge": 0.0},
        }
    }
)


def trace(name: str, application: str, at: float, work_s: float, gpus: float = 1) -> TraceJob:
    wanted = spec(gpus, work_s, application=application)
    return TraceJob(job(name), at, wanted, work_s)


def scenario(*jobs: TraceJob, nodes: tuple[NodeSpec, ...] = (node("n0", 1),)) -> Scenario:
    return Scenario(Workload("w", [*jobs]), nodes, speed=Speed(pairs=TABLE), packable=True)


def times(setup: Scenario) -> dict[str, tuple[float, float]]:
    results = Simulation(setup.setup("fifo", "first-fit", 0)).run()
    return {row.id: (row.started_at or 0.0, row.finished_at or 0.0) for row in results.jobs}


def test_each_loses_what_the_table_says_while_they_are_together() -> None:
    # b does its 80 s of work at 0.8 until 100; a has done 50 by then and the rest alone.
    assert times(scenario(trace("a", "lm", 0, 100), trace("b", "gan", 0, 80))) == {
        "a": (0, 150),
        "b": (0, 100),
    }


def test_two_that_do_not_fit_never_meet() -> None:
    assert times(scenario(trace("a", "lm", 0, 100), trace("b", "huge", 0, 80))) == {
        "a": (0, 100),
        "b": (100, 180),
    }


def test_what_a_job_says_it_holds_counts_where_it_is_more() -> None:
    greedy = TraceJob(job("a"), 0, spec(0.5, 9, application="lm", gpu_memory_mib=900), 9)
    modest = TraceJob(job("b"), 0, spec(0.5, 9, application="huge", gpu_memory_mib=1), 9)
    unknown = TraceJob(job("c"), 0, spec(0.5, 9, application="new"), 9)
    nodes = [node("n0", 1, gpu_memory_mib=1000)]

    held = holding_memory(Workload("w", [greedy, modest, unknown]), nodes, TABLE)

    mib = [one.spec.resources.gpu_memory_mib for one in held.jobs]
    assert mib[0] == 900
    assert mib[1] > 500, "as much as keeps it from another of its kind"
    assert mib[2] == 0, "in proportion to its share, as everywhere"


def test_memory_explains_which_pairs_fit() -> None:
    parts = memory_parts(TABLE, "gpu")

    for one, other, speed in TABLE.of("gpu"):
        assert (parts[one] + parts[other] <= 1) == (speed > 0), (one, other)


def test_jobs_of_one_gpu_ask_for_half_of_it_and_all_others_stay() -> None:
    elastic = TraceJob(job("e"), 0, spec(1, 9, workers=(1, 2)), 9)
    found = packable(Workload("w", [trace("a", "lm", 0, 9), trace("b", "lm", 0, 9, 2), elastic]))

    halves = [one.spec.resources for one in found.jobs]
    assert (halves[0].share_milli, halves[0].qos) == (500, Qos.BEST_EFFORT)
    assert [need.share_milli for need in halves[1:]] == [1000, 1000]


def test_nodes_without_memory_get_some_and_others_keep_theirs() -> None:
    nodes = with_memory([node("n0", 1), node("n1", 1, gpu_memory_mib=80000), node("cpu", 0)])

    assert [one.gpu_memory_mib for one in nodes] == [16384, 80000, 0]


def test_steps_are_measured_alone_and_beside_others_ever_more_rarely() -> None:
    setup = scenario(trace("a", "lm", 0, 300), trace("b", "gan", 100, 40))
    seen: list[Measured] = []

    def look(events: list[Event], *_: object) -> None:
        seen.extend(event for event in events if isinstance(event, Measured))

    simulation = Simulation(setup.setup("fifo", "first-fit", 0))
    simulation.run(observer=look)  # type: ignore[arg-type]

    a = [event for event in seen if event.run.job == "a"]
    # b is there from 100 to 150; a is at 125 then, and ends at 325.
    assert [event.time for event in a] == [20, 40, 60, 100, 120, 140, 170, 190, 210, 250]
    beside = [bool(event.beside) for event in a]
    assert beside == [False] * 4 + [True] * 2 + [False] * 4
    assert a[0].step_s == pytest.approx(1.0, abs=0.1)
    assert a[4].step_s == pytest.approx(2.0, abs=0.2)
    shared = simulation.core.history.profiles["", "lm"].observed.shared
    assert [(company.beside, mean.count) for company, mean in shared.items()] == [
        ((("", "gan"),), 2)
    ]


def test_the_same_jobs_measure_the_same() -> None:
    def told() -> list[float]:
        simulation = Simulation(
            scenario(trace("a", "lm", 0, 300), trace("b", "gan", 100, 40)).setup(
                "fifo", "first-fit", 0
            )
        )
        simulation.run()
        observed = simulation.core.history.profiles["", "lm"].observed
        return [timing.step.mean for timing in observed.timings.values()]

    assert told() == told()
    assert policy("fifo") is not None


@pytest.mark.parametrize("name", ["harmony", "gandiva"])
def test_a_run_that_was_saved_goes_on_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    jobs = [trace(f"j{at}", ("lm", "gan")[at % 2], 40.0 * at, 300) for at in range(6)]
    simulation = Simulation(scenario(*jobs).setup(name, "first-fit", 0))
    simulation.run(until=150.0)
    saving.save(simulation, tmp_path / "half")

    again = saving.load(tmp_path / "half").run()

    assert again.jobs == simulation.run().jobs
