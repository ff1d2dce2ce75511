"""Other conditions than the published ones: each changes what it should, and nothing else."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from tests.benchmarks.test_sia import crowd, four_each
from tests.oracles.profiled import NAME, step, toy_tables

from roost.core.events import Event, Measured
from roost.core.observed import Setting
from roost.core.spec import JobId
from roost.errors import InvalidSpec
from roost.sim.failures import Failures
from roost.sim.learning import Terms
from roost.traces.generate import Arrivals
from roost.traces.profiles import Tables
from roost_bench.sia import benchmark
from roost_bench.sia.benchmark import SiaOutcome
from roost_bench.sia.conditions import Conditions

ADAPTIVE = Terms(adaptive=True)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return toy_tables(tmp_path)


def run(tables: Tables, conditions: Conditions) -> SiaOutcome:
    return benchmark.run(
        tables, crowd(12), "four", policy=four_each, terms=ADAPTIVE, conditions=conditions
    )


def test_free_restarts_make_jobs_faster_and_dear_ones_slower(tables: Tables) -> None:
    free, usual, dear = (
        run(tables, Conditions(restart_s=seconds)).row.mean_jct_h for seconds in (0.0, None, 600.0)
    )
    assert free < usual < dear
    assert dear - free > 600 / 3600


def test_jobs_see_wrong_times_within_the_error(tables: Tables) -> None:
    told: list[Event] = []
    simulation, _ = benchmark.prepare(
        tables,
        crowd(12),
        "four",
        policy=four_each,
        terms=ADAPTIVE,
        conditions=Conditions(speed_error=0.3),
    )
    simulation.run(observer=lambda events, _decisions, _actions: told.extend(events))
    ratios = [
        seen.step_s / step(seen.kind, seen.nodes, seen.workers, seen.local_batch)[0]
        for seen in told
        if isinstance(seen, Measured) and seen.step_s
    ]
    assert 0.7 <= min(ratios) < 0.9
    assert 1.1 < max(ratios) <= 1.3


def test_users_are_wrong_about_epochs_within_the_error(tables: Tables) -> None:
    conditions = Conditions(epochs_error=0.5)
    jobs, _ = benchmark.trace_jobs(tables, crowd(40), benchmark.cluster(), ADAPTIVE, conditions)
    epochs = [job.spec.training.epochs for job in jobs if job.spec.training is not None]
    assert 1.5 <= min(epochs) < max(epochs) <= 4.5
    assert len(set(epochs)) == 40
    assert {job.work_s for job in jobs} == {tables[NAME].work}


def test_some_jobs_are_rigid_and_always_the_same_ones(tables: Tables) -> None:
    def rigid(share: float) -> set[JobId]:
        conditions = Conditions(rigid=share)
        jobs, totals = benchmark.trace_jobs(
            tables, crowd(40), benchmark.cluster(), ADAPTIVE, conditions
        )
        found = {job.id for job in jobs if not job.spec.elastic}
        assert found == totals.keys()
        return found

    assert rigid(0.0) == set()
    assert len(rigid(1.0)) == 40
    assert rigid(0.2) < rigid(0.6)


def test_twice_the_load_comes_in_half_the_time() -> None:
    rows = Conditions(load=2.0).rows(crowd(5))
    assert [row.submitted_at for row in rows] == [0.0, 10.0, 20.0, 30.0, 40.0]


@pytest.mark.parametrize("arrivals", Arrivals)
def test_redrawn_arrivals_come_at_the_same_rate(arrivals: Arrivals) -> None:
    spans = []
    for seed in range(20):
        rows = Conditions(seed=seed, arrivals=arrivals).rows(crowd(200))
        times = [row.submitted_at for row in rows]
        assert times == sorted(times)
        spans.append(times[-1])
    if arrivals is not Arrivals.DIURNAL:  # the night comes first
        assert fmean(spans) == pytest.approx(199 * 20.0, rel=0.2)


def test_jobs_outlive_nodes_that_break(tables: Tables) -> None:
    failing = Conditions(failures=Failures(node_mtbf_s=900.0, node_mttr_s=60.0))
    outcome = run(tables, failing)
    assert outcome.row.jobs == 12
    assert outcome.row.restarts_per_job > run(tables, Conditions()).row.restarts_per_job


def test_what_is_drawn_depends_on_the_seed_and_the_name_alone() -> None:
    setting = Setting("T4", 1, 2, 8)
    first, again = Conditions(speed_error=0.2), Conditions(speed_error=0.2, load=3.0)
    other = Conditions(seed=1, speed_error=0.2)
    assert first.seen(JobId("a"), setting) == again.seen(JobId("a"), setting)
    assert first.seen(JobId("a"), setting) != first.seen(JobId("b"), setting)
    assert first.seen(JobId("a"), setting) != other.seen(JobId("a"), setting)
    assert Conditions().seen(JobId("a"), setting) == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"speed_error": 1.0},
        {"epochs_error": -0.1},
        {"rigid": 1.1},
        {"load": 0.0},
        {"restart_s": -1.0},
    ],
)
def test_conditions_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSpec, match=next(iter(wrong))):
        Conditions(**wrong)  # type: ignore[arg-type]
