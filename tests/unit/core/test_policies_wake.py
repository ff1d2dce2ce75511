"""Policies that wake themselves do so in the future, and everyone is looked at in the end."""

from __future__ import annotations

import math

import pytest

from roost.core import (
    CancelRequested,
    Core,
    Exited,
    Launch,
    Level,
    Outcome,
    QueueChanged,
    ResumeRequested,
    Started,
    Stop,
    Submitted,
    SuspendRequested,
    Woke,
)
from roost.errors import InvalidSpec
from roost.policies import policy
from roost.testing.builders import core_with, job, node, queue, run, spec
from roost.testing.checks import validate


def wake(core: Core) -> list[object]:
    assert core.now < core.wake_at < math.inf
    return list(core.handle(Woke(core.wake_at)))


def test_conservative_does_not_wake_itself_for_now() -> None:
    core = core_with(policy("conservative"), node("n0"))
    core.handle(QueueChanged(0.0, queue(limit_milli=1000)))
    core.handle(Submitted(1.0, job("a"), spec(1, 9.0)), Submitted(1.0, job("b"), spec(1, 9.0)))

    assert core.wake_at > core.now


def test_conservative_does_not_spin_for_lack_of_cpus() -> None:
    core = core_with(policy("conservative"), node("n0", 2, cpu_milli=1000))
    core.handle(*(Submitted(1.0, job(name), spec(1, 9.0, cpu_milli=1000)) for name in "ab"))

    assert core.wake_at > core.now
    assert len(core.handle(Exited(2.0, run("a"), Outcome.SUCCEEDED))) == 1


def test_conservative_starts_what_only_the_placer_finds_room_for() -> None:
    core = core_with(
        policy("conservative"), node("n0", 1), node("n1", 4, cpu_milli=4000), placer="anywhere"
    )

    actions = core.handle(Submitted(1.0, job("a"), spec(1, 9.0, workers=3, cpu_milli=1500)))

    assert [type(action) for action in actions] == [Launch]


def test_conservative_reservations_hold_when_estimates_are_true() -> None:
    core = core_with(policy("conservative"), node("n0", 2))
    core.handle(Submitted(0.0, job("a"), spec(1, 50.0)), Submitted(0.0, job("b"), spec(2, 10.0)))
    core.handle(Started(0.0, run("a")))
    core.handle(Submitted(1.0, job("c"), spec(1, 80.0)), Submitted(1.0, job("d"), spec(1, 20.0)))

    explained = core.explain(job("b"))

    assert explained is not None
    assert explained.reason.starts_at == 50.0
    assert set(core.runs) == {run("a"), run("d")}
    validate(core)


def test_static_looks_at_the_next_job_when_the_head_is_cancelled() -> None:
    core = core_with(policy("static"), node("n0"), node("n1"))
    never = spec(1, 9.0, workers=10, within=Level.NODE)
    core.handle(Submitted(0.0, job("never"), never), Submitted(0.0, job("a"), spec(1, 9.0)))

    assert [type(action) for action in core.handle(CancelRequested(1.0, job("never")))] == [Launch]


def test_las_refuses_a_quantum_of_nothing() -> None:
    with pytest.raises(InvalidSpec):
        policy("las:quantum_s=0")


def test_las_swaps_once_per_quantum() -> None:
    core = core_with(policy("las:quantum_s=100"), node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1)))
    core.handle(Started(0.0, run("a")))
    core.handle(Submitted(10.0, job("b"), spec(1)))

    while not core.runs[run("a")].leaves:
        wake(core)
    assert 100.0 < core.now <= 200.0, "b has had nothing: a is a quantum ahead of it"


@pytest.mark.parametrize("name", ["tiresias", "gittins"])
def test_levels_cross_their_limits_on_a_clock_of_large_numbers(name: str) -> None:
    nodes = [node(f"n{n}") for n in range(6)]
    for step in range(20):
        start = 1.7e9 + 0.37 * step
        core = core_with(policy(name), *nodes)
        core.handle(Submitted(start, job("a"), spec(8, workers=6)))
        core.handle(Started(start, run("a")))
        core.handle(Submitted(start + 1.0, job("b"), spec(8, workers=6)))
        while not core.runs[run("a")].leaves:
            wake(core)
        assert core.now < start + 200.0


def test_tiresias_lets_new_jobs_pass_and_promotes_the_starved() -> None:
    core = core_with(policy("tiresias:limits=100,promote=2"), node("n0", 1))
    core.handle(Submitted(0.0, job("old"), spec(1)))
    core.handle(Started(0.0, run("old")))
    core.handle(Submitted(50.0, job("new"), spec(1)))

    assert wake(core) == [Stop(run("old"), "makes room for new")]
    assert core.now == 100.0
    core.handle(Exited(100.0, run("old"), Outcome.STOPPED, 100.0))
    core.handle(Started(100.0, run("new")))
    while not core.runs[run("new")].leaves:
        wake(core)
    assert core.now == 300.0, "old has waited twice as long as it had run"


def test_tiresias_leaves_a_starving_job_alone_that_its_user_suspended() -> None:
    core = core_with(policy("tiresias:limits=100,promote=2"), node("n0", 1))
    core.handle(Submitted(0.0, job("old"), spec(1)))
    core.handle(Started(0.0, run("old")))
    core.handle(Submitted(50.0, job("new"), spec(1)))
    wake(core)
    core.handle(Exited(100.0, run("old"), Outcome.STOPPED, 100.0))
    core.handle(Started(100.0, run("new")))
    core.handle(Submitted(110.0, job("other"), spec(1)), SuspendRequested(110.0, job("old")))

    core.handle(Woke(300.0))
    validate(core)
    core.handle(ResumeRequested(301.0, job("old")))

    assert core.runs[run("new")].leaves
    assert {found.id for found in core.waiting} | {r.job for r in core.runs} == set(core.jobs)
    validate(core)


def test_gittins_learns_from_jobs_that_are_over() -> None:
    core = core_with(policy("gittins"), node("n0", 1))
    for index in range(64):
        name = f"j{index}"
        core.handle(Submitted(core.now, job(name), spec(1)))
        core.handle(Started(core.now, run(name)))
        core.handle(Exited(core.now + 30.0, run(name), Outcome.SUCCEEDED))
    core.handle(Submitted(core.now, job("last"), spec(1)))

    assert core.memo["gittins learnt from"] == 64


def test_alnair_shrinks_the_large_and_grows_into_what_is_idle() -> None:
    core = core_with(policy("alnair:calm_s=10"), node("n0", 4))
    core.handle(Submitted(0.0, job("a"), spec(1, workers=(1, 4))))
    core.handle(Started(0.0, run("a")))
    assert core.runs[run("a")].workers == 4

    assert core.handle(Submitted(5.0, job("b"), spec(2))) == [], "a has just changed"
    wake(core)
    assert core.now == 10.0
    assert core.runs[run("a")].target is not None
    assert core.runs[run("b")].after == {run("a")}
    validate(core)


def test_backfill_fills_around_a_reservation() -> None:
    core = core_with(policy("backfill"), node("n0", 2), node("n1", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, 100.0)), Submitted(0.0, job("b"), spec(2, 9.0)))
    core.handle(Started(0.0, run("a")))

    core.handle(
        Submitted(1.0, job("beside"), spec(1, 1e6)),
        Submitted(1.0, job("short"), spec(1, 90.0)),
        Submitted(1.0, job("long"), spec(1, 110.0)),
    )

    assert set(core.runs) == {run("a"), run("beside"), run("short")}


def test_tetris_prefers_what_is_aligned_and_short() -> None:
    core = core_with(policy("tetris"), node("n0", 2, cpu_milli=2000))

    actions = core.handle(
        Submitted(0.0, job("long"), spec(1, 1000.0, cpu_milli=1000)),
        Submitted(0.0, job("short"), spec(1, 1.0, cpu_milli=1000)),
    )

    assert [action.run.job for action in actions] == ["short", "long"]
