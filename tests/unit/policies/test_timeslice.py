"""Time slicing: schedules worked out by hand, and what a switch costs."""

from __future__ import annotations

import pytest
from tests.oracles.played import cluster, job, play, simulation

from roost.core import Costs, SetAside, Started, Submitted, Suspend, Suspended, Way, Woke
from roost.errors import InvalidSpec
from roost.policies.timeslice import Timeslice
from roost.testing.builders import core_with, node, queue, run, spec
from roost.testing.builders import job as name
from roost.testing.checks import validate
from roost.testing.engine import FakeEngine


def test_two_jobs_on_one_gpu_take_turns() -> None:
    # a 0-60, b 60-120, a 120-160 to its end, b 160-200.
    played = play(Timeslice(quantum_s=60), job("a", 0, 100), job("b", 0, 100), nodes=cluster(1))

    assert played.times == {"a": (0, 160), "b": (60, 200)}
    assert played.began == {"a": [0, 120], "b": [60, 160]}
    assert played.rows["a"].runs == 1, "suspended, not started again"


def test_nobody_is_disturbed_while_nobody_waits() -> None:
    played = play(Timeslice(quantum_s=60), job("a", 0, 1000), job("b", 0, 900), nodes=cluster(2))

    assert played.times == {"a": (0, 1000), "b": (0, 900)}
    assert not [action for action in played.diary.actions if isinstance(action, Suspend)]


def test_the_least_served_goes_first() -> None:
    # a 0-60, b 60-120, then c, which came at 100 and counts as level with b (0 when let in): 0 s.
    played = play(
        Timeslice(quantum_s=60),
        job("a", 0, 70),
        job("b", 0, 70),
        job("c", 100, 30),
        nodes=cluster(1),
    )

    assert played.times["c"] == (120, 150)
    assert played.times["a"] == (0, 160)
    assert played.times["b"] == (60, 170)


def test_a_newcomer_does_not_have_all_to_itself_until_it_has_caught_up() -> None:
    # By 600 a and b have had 300 s each. c counts as level: it gets every third turn, not all, and
    # a, which needs 100 s more, is done long before c has had 400.
    played = play(
        Timeslice(quantum_s=60),
        job("a", 0, 400),
        job("b", 0, 400),
        job("c", 610, 400),
        nodes=cluster(1),
    )

    assert played.times["c"][0] == 720
    assert played.times["a"][1] == 820


def test_a_turn_is_longer_where_switching_is_dear() -> None:
    # 60 + 20 * (1 + 2) = 120 s; then 1 s to suspend, and b starts for the first time: no restart.
    # With that second a has had 121 s, so b has as much at 242; 1 s to suspend, 2 s to resume a.
    costs = Costs(suspend_s=1.0, restart_s=2.0)
    played = play(
        Timeslice(quantum_s=60),
        job("a", 0, 1000, costs=costs),
        job("b", 0, 1000, costs=costs),
        nodes=cluster(1),
    )

    assert played.began["b"][0] == 121
    assert played.began["a"][1] == 121 + 121 + 1 + 2


def test_what_was_measured_counts_more_than_what_was_declared() -> None:
    wanted = spec(1, costs=Costs(suspend_s=9.0, restart_s=9.0), application="x")
    engine = FakeEngine(core_with(Timeslice(quantum_s=60), node("n0", 1)))
    engine.took_s = 0.5
    engine.tell(Submitted(0.0, name("a"), wanted), Submitted(0.0, name("b"), wanted))
    engine.answer(run("a"))

    assert engine.tell(Woke(60.0)) == []
    engine.now = 60.0 + 20 * 18.0
    engine.tell(Woke(engine.now))
    engine.answer(run("a"))  # suspended, measured: 0.5 s
    engine.answer(run("b"))

    job_b = engine.core.jobs[name("b")]
    assert job_b.spent is not None
    assert job_b.spent.suspend.mean == 0.5
    started = engine.core.runs[run("b")].started_at
    assert started is not None
    assert engine.core.wake_at == started + 60.0 + 20 * (0.5 + 9.0)


def test_a_job_that_must_not_be_disturbed_keeps_its_place() -> None:
    played = play(
        Timeslice(quantum_s=60),
        job("a", 0, 300, preemptible=False),
        job("b", 0, 100),
        nodes=cluster(1),
    )

    assert played.times == {"a": (0, 300), "b": (300, 400)}


def test_the_minimum_run_time_is_kept() -> None:
    played = play(
        Timeslice(quantum_s=60), job("a", 0, 300, min_run_s=200), job("b", 0, 50), nodes=cluster(1)
    )

    assert played.times == {"a": (0, 350), "b": (200, 250)}


def test_shares_of_the_spatial_way_are_left_alone() -> None:
    played = play(
        Timeslice(quantum_s=60),
        job("a", 0, 300, gpus=0.5, way=Way.SPATIAL),
        job("b", 0, 300, gpus=0.5, way=Way.SPATIAL),
        job("c", 0, 100),
        nodes=cluster(1),
    )

    assert played.times == {"a": (0, 300), "b": (0, 300), "c": (300, 400)}


def test_shares_of_the_temporal_way_take_turns_too() -> None:
    played = play(
        Timeslice(quantum_s=60),
        job("a", 0, 300, gpus=0.5),
        job("b", 0, 300, gpus=0.5),
        job("c", 0, 100, gpus=0.5),
        nodes=cluster(1),
    )

    assert played.times["c"][0] == 60


def test_a_gang_gets_its_turn_when_several_end_at_once() -> None:
    # Four of one GPU begin at 0, 10, 20 and 30; a gang of 4 at 40 waits for the last turn to end.
    small = [job(f"s{n}", 10 * n, 1000) for n in range(4)]
    played = play(Timeslice(quantum_s=60), *small, job("gang", 40, 50, workers=4), nodes=cluster(4))

    assert played.times["gang"] == (90, 140)


def test_small_jobs_that_keep_coming_do_not_starve_a_gang() -> None:
    # There is always a small job that would fit on the GPU that comes free.
    small = [job(f"s{n}", 9 * n, 35) for n in range(300)]
    played = play(Timeslice(quantum_s=60), *small, job("gang", 40, 50, workers=4), nodes=cluster(4))
    started, _ = played.times["gang"]

    assert started is not None
    assert started < 40 + 7 * 60


def test_jobs_of_a_queue_at_its_limit_take_turns_among_themselves() -> None:
    played = play(
        Timeslice(quantum_s=60),
        job("a", 0, 100, queue="q"),
        job("b", 0, 100, queue="q"),
        job("c", 0, 500),
        nodes=cluster(2),
        queues=[queue("q", limit_milli=1000)],
    )

    assert played.times["b"][0] == 60
    assert played.times["c"] == (0, 500)


def test_jobs_without_gpus_take_turns() -> None:
    cpus = node("n0", 0, cpu_milli=1000)
    jobs = [job(f"j{n}", 0, 100, gpus=0, cpu_milli=1000) for n in range(3)]
    played = play(Timeslice(quantum_s=60), *jobs, nodes=[cpus])

    assert [played.times[f"j{n}"][0] for n in range(3)] == [0, 60, 120]


def test_a_job_that_can_never_run_holds_nobody_up() -> None:
    core = core_with(Timeslice(quantum_s=60), node("n0", 1))
    core.handle(Submitted(0.0, name("huge"), spec(4)), Submitted(0.0, name("a"), spec(1)))
    core.handle(Started(0.0, run("a")), Submitted(1.0, name("b"), spec(1)))

    (aside,) = core.handle(Woke(60.0))
    assert isinstance(aside, Suspend)
    assert core.decisions[0] == SetAside(name("a"), "its turn is over: makes room for b")
    core.handle(Suspended(61.0, run("a"), 60.0))
    validate(core)
    assert core.explain(name("huge")) is not None


def test_a_waiting_job_says_that_it_waits_for_its_turn() -> None:
    core = core_with(Timeslice(quantum_s=90), node("n0", 1))
    core.handle(Submitted(0.0, name("a"), spec(1)), Submitted(0.0, name("b"), spec(1)))
    core.handle(Started(0.0, run("a")), Woke(1.0))
    found = core.explain(name("b"))

    assert found is not None
    assert found.reason.text == "waits for its turn: jobs take turns of 90 s or more here"


@pytest.mark.parametrize("quantum_s", [0.0, 0.5, float("inf"), float("nan")])
def test_a_quantum_is_at_least_a_second(quantum_s: float) -> None:
    with pytest.raises(InvalidSpec, match="at least a second"):
        Timeslice(quantum_s=quantum_s)


def test_a_long_run_forgets_jobs_that_are_over() -> None:
    jobs = [job(f"j{n}", 2 * n, 1) for n in range(2500)]
    sim = simulation(Timeslice(), jobs, cluster(1))
    sim.run()

    assert len(sim.core.memo["timeslice"].credit) <= 1001


def test_nobody_steps_aside_for_who_does_not_preempt() -> None:
    played = play(
        Timeslice(quantum_s=60),
        job("a", 0, 200),
        job("b", 0, 100, preempts=False),
        nodes=cluster(1),
    )

    assert played.times == {"a": (0, 200), "b": (200, 300)}
