"""The benchmark of parameter-server jobs: the same jobs for all, and nothing told but events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from roost.core import Action, Core, Decision, Event, Policy
from roost.errors import InvalidSpec
from roost.placement import placer
from roost.policies import policy as by_name
from roost.policies.optimus import Optimus
from roost.sim.simulation import Simulation
from roost_bench.optimus import benchmark
from roost_bench.optimus.benchmark import SORTS, OptimusBench, OptimusOutcome, compare, run, run_all

SMALL = OptimusBench(jobs=12, nodes=8, length_s=1200.0, load=0.6)


@pytest.fixture(autouse=True)
def _own_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(text: str) -> Policy:
        return Optimus() if text == "optimus" else by_name(text)

    monkeypatch.setattr(benchmark, "policy", find)


def test_all_policies_get_the_same_jobs() -> None:
    rigid, elastic = SMALL.setup("drf", 3), SMALL.setup("optimus", 3)
    asked, free = rigid.workload.jobs, elastic.workload.jobs

    assert [job.id for job in asked] == [job.id for job in free]
    assert [job.submitted_at for job in asked] == [job.submitted_at for job in free]
    for one, other in zip(asked, free, strict=True):
        truth = rigid.world.keywords["truth"][one.id]  # type: ignore[attr-defined]
        assert one.work_s * truth.unit == pytest.approx(other.work_s)
        assert not one.spec.elastic
        assert other.spec.elastic


def test_nobody_is_told_how_long_jobs_take_unless_asked_for() -> None:
    told = replace(SMALL, told=True)

    assert all(job.spec.run_time_s is None for job in SMALL.setup("tetris", 0).workload.jobs)
    assert all(job.spec.run_time_s is None for job in told.setup("optimus", 0).workload.jobs)
    assert all(job.spec.run_time_s == job.work_s for job in told.setup("tetris", 0).workload.jobs)


def test_seeds_and_modes_change_the_jobs() -> None:
    def applications(bench: OptimusBench, seed: int) -> list[str]:
        return [job.spec.application for job in bench.setup("drf", seed).workload.jobs]

    assert applications(SMALL, 0) == applications(SMALL, 0) != applications(SMALL, 1)
    assert all(name.endswith("/sync") for name in applications(replace(SMALL, mode="sync"), 0))
    assert all(name.endswith("/async") for name in applications(replace(SMALL, mode="async"), 0))


def test_more_load_comes_faster() -> None:
    def last(load: float) -> float:
        return replace(SMALL, load=load).setup("drf", 0).workload.jobs[-1].submitted_at

    assert last(1.2) == pytest.approx(last(0.6) / 2, rel=1e-3)


@pytest.mark.parametrize("name", ["optimus", "drf", "fifo", "tetris"])
def test_every_job_ends(name: str) -> None:
    outcome = run(SMALL, name, 0)

    assert outcome.jobs == 12
    assert 0 < outcome.median_jct_h <= outcome.p99_jct_h <= outcome.makespan_h
    assert (outcome.resizes_per_job > 0) is (name == "optimus")


def test_optimus_is_faster_than_sizes_that_users_guess() -> None:
    bench = OptimusBench(jobs=30, length_s=5400.0, load=0.4)
    found = {name: run(bench, name, 1) for name in ("optimus", "drf", "fifo", "tetris")}

    for name in ("drf", "fifo", "tetris"):
        assert found["optimus"].mean_jct_h < 0.9 * found[name].mean_jct_h
        assert found["optimus"].makespan_h < 1.02 * found[name].makespan_h


def test_decisions_follow_from_what_was_told_alone() -> None:
    setup = SMALL.setup("optimus", 0)
    log: list[tuple[tuple[Event, ...], tuple[Decision, ...]]] = []

    def note(events: Sequence[Event], decided: Sequence[Decision], _: Sequence[Action]) -> None:
        log.append((tuple(events), tuple(decided)))

    Simulation(setup).run(observer=note)
    blind = Core(Optimus(), placer("even"))
    for events, decided in log:
        blind.handle(*events)
        assert tuple(blind.decisions) == decided


def test_restarts_take_ten_to_sixty_seconds() -> None:
    assert all(10 <= sort.restart_s <= 60 for sort in SORTS)
    assert len({sort.name for sort in SORTS}) == 9


def test_a_comparison_pairs_seeds_with_the_first_policy() -> None:
    def one(name: str, seed: int, jct: float) -> OptimusOutcome:
        return OptimusOutcome(name, seed, 5, jct, jct, jct, 2 * jct, 0.5, 1.0, 1.0, 1.0, 2.0)

    rows = compare([one("a", 0, 1.0), one("a", 1, 2.0), one("b", 0, 2.0), one("b", 1, 4.0)])

    assert [row.policy for row in rows] == ["a", "b"]
    assert rows[1].jct_ratio == (2.0, 0.0, 2)
    assert rows[1].mean_jct_h.mean == 3.0
    assert rows[0].makespan_ratio.mean == 1.0


def test_runs_come_back_in_the_order_of_the_cases() -> None:
    heard: list[str] = []
    cases = [(SMALL, "fifo", 0), (SMALL, "drf", 0)]
    found = run_all(cases, 1, lambda outcome: heard.append(outcome.policy))

    assert [one.policy for one in found] == heard == ["fifo", "drf"]
    again = run_all(cases, 2)
    assert [one.mean_jct_h for one in again] == [one.mean_jct_h for one in found]


@pytest.mark.parametrize(
    "wrong", [{"mode": "none"}, {"jobs": 0}, {"load": 0.0}, {"restart": -1.0}, {"bandwidth": 0.0}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidSpec):
        OptimusBench(**wrong)  # type: ignore[arg-type]
