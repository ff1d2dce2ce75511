"""Who gives way, when, and who is left alone."""

from __future__ import annotations

import math

import pytest

from roost.core import Exited, Outcome, QueueChanged, Started, Stop, Submitted, Woke
from roost.policies import policy
from roost.testing.builders import core_with, job, node, queue, run, spec
from roost.testing.checks import validate

SHORT = job("short")


def test_the_longest_gives_way() -> None:
    core = core_with(policy("srtf"), node("n0", 2))
    core.handle(Submitted(0.0, job("a"), spec(1, 500.0)), Submitted(0.0, job("b"), spec(1, 900.0)))
    core.handle(Started(0.0, run("a")), Started(0.0, run("b")))

    assert core.handle(Submitted(1.0, SHORT, spec(1, 10.0))) == [
        Stop(run("b"), "makes room for short")
    ]
    validate(core)


def test_a_job_that_gave_way_goes_on_where_its_checkpoint_was() -> None:
    core = core_with(policy("srtf"), node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, 500.0)))
    core.handle(Started(0.0, run("a")))
    core.handle(Submitted(100.0, SHORT, spec(1, 10.0)))
    core.handle(Exited(100.0, run("a"), Outcome.STOPPED, saved_s=90.0))
    core.handle(Started(100.0, run("short")))

    (launch,) = core.handle(Exited(110.0, run("short"), Outcome.SUCCEEDED, 10.0))

    assert launch.run == run("a", 2)
    assert core.runs[run("a", 2)].done_s == 90.0
    assert core.jobs[job("a")].preemptions == 1


def test_a_job_that_is_not_preemptible_is_left_alone() -> None:
    core = core_with(policy("srtf"), node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, 500.0, preemptible=False)))
    core.handle(Started(0.0, run("a")))

    assert core.handle(Submitted(1.0, SHORT, spec(1, 10.0))) == []


def test_nobody_is_stopped_in_vain() -> None:
    core = core_with(policy("srtf"), node("n0", 2), node("n1", 2, kind="other"))
    core.handle(Submitted(0.0, job("a"), spec(2, 500.0)), Submitted(0.0, job("b"), spec(2, 500.0)))
    core.handle(Started(0.0, run("a")), Started(0.0, run("b")))

    assert core.handle(Submitted(1.0, SHORT, spec(1, 10.0, workers=3, kinds=("other",)))) == []
    validate(core)


@pytest.mark.parametrize("name", ["srtf", "srsf", "las", "tiresias"])
@pytest.mark.parametrize("placer", ["first-fit", "pack"])
def test_a_run_is_left_alone_for_its_minimum_time(name: str, placer: str) -> None:
    core = core_with(policy(name), node("n0", 1), placer=placer)
    core.handle(Submitted(0.0, job("a"), spec(1, 1e6, min_run_s=5e4)))
    core.handle(Started(0.0, run("a")))
    core.handle(Submitted(4e4, SHORT, spec(1, 10.0)))

    assert not core.runs[run("a")].leaves
    while core.now < 1e5 and not core.runs[run("a")].leaves:
        assert core.wake_at < math.inf, "the end of the minimum time is woken for"
        core.handle(Woke(core.wake_at))
    assert core.runs[run("a")].reason == "makes room for short"
    assert core.now == 5e4


def test_fair_share_leaves_runs_alone_for_their_minimum_time() -> None:
    core = core_with(policy("fair"), node("n0", 2))
    core.handle(*(Submitted(0.0, job(name), spec(1, queue="x", min_run_s=50.0)) for name in "ab"))
    core.handle(*(Started(0.0, run(name)) for name in "ab"))

    assert core.handle(Submitted(10.0, job("c"), spec(1, queue="y"))) == []
    assert core.wake_at == 50.0
    (stop,) = core.handle(Woke(50.0))
    assert isinstance(stop, Stop)


def test_a_victim_that_was_still_starting_gives_way_once_it_runs() -> None:
    core = core_with(policy("srtf"), node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, 500.0)))

    assert core.handle(Submitted(1.0, SHORT, spec(1, 10.0))) == []
    assert core.handle(Started(2.0, run("a"))) == [Stop(run("a"), "makes room for short")]


def test_a_wide_gang_of_odd_workers_may_preempt() -> None:
    core = core_with(policy("srtf"), *(node(f"n{n}") for n in range(3)))
    core.handle(*(Submitted(0.0, job(name), spec(8, 900.0)) for name in "abc"))
    core.handle(*(Started(0.0, run(name)) for name in "abc"))

    stops = core.handle(Submitted(1.0, SHORT, spec(5, 10.0, workers=3)))

    assert {stop.run for stop in stops} == {run("a"), run("b"), run("c")}
    validate(core)


def test_those_who_need_not_have_gone_are_spared() -> None:
    core = core_with(policy("srtf"), node("n0", 1), node("n1", 1), placer="pack")
    core.handle(
        Submitted(0.0, job("a"), spec(1, 900.0)),
        Submitted(0.0, job("b"), spec(1, 800.0, kinds=("gpu",))),
    )
    core.handle(Started(0.0, run("a")), Started(0.0, run("b")))

    assert len(core.handle(Submitted(1.0, SHORT, spec(1, 10.0)))) == 1


def test_a_queue_at_its_limit_takes_nothing_from_others() -> None:
    core = core_with(policy("srtf"), node("n0", 1))
    core.handle(QueueChanged(0.0, queue("small", limit_milli=0)))
    core.handle(Submitted(0.0, job("a"), spec(1, 900.0)))
    core.handle(Started(0.0, run("a")))

    assert core.handle(Submitted(1.0, SHORT, spec(1, 10.0, queue="small"))) == []


def test_a_queue_below_its_share_takes_it_back() -> None:
    core = core_with(policy("fair"), node("n0", 2))
    core.handle(*(Submitted(0.0, job(name), spec(1, queue="x")) for name in "ab"))
    core.handle(*(Started(0.0, run(name)) for name in "ab"))

    assert core.handle(Submitted(1.0, job("c"), spec(1, queue="y"))) == [
        Stop(run("b"), "makes room for c")
    ]
    assert core.handle(Submitted(2.0, job("d"), spec(1, queue="y"))) == [], "y has its half"
    validate(core)
