"""Policies plan on what will be free; the core launches when it is idle."""

from __future__ import annotations

from roost.core import (
    CancelRequested,
    Exited,
    JobState,
    Launch,
    Outcome,
    Started,
    Stop,
    Submitted,
    SuspendRequested,
    Woke,
)
from roost.policies import policy
from roost.testing.builders import core_with, held, job, node, run, shared, spec
from roost.testing.checks import validate

LONG, SHORT = job("long"), job("short")


def test_one_victim_is_enough_while_it_leaves() -> None:
    core = core_with(policy("srtf"), node("n0"))
    core.handle(Submitted(0.0, LONG, spec(8, 900.0)))
    core.handle(Started(1.0, run("long")))

    assert core.handle(Submitted(2.0, SHORT, spec(8, 10.0))) == [
        Stop(run("long"), "makes room for short")
    ]
    assert core.jobs[SHORT].state is JobState.STARTING
    assert core.handle(Woke(3.0)) == []
    assert core.handle(Exited(4.0, run("long"), Outcome.STOPPED, 1.0)) == [
        Launch(run("short"), spec(8, 10.0), held("n0", range(8)))
    ]
    validate(core)


def test_a_reserved_run_waits_for_the_last_of_those_in_its_way() -> None:
    core = core_with(policy("srtf"), node("n0", 2))
    core.handle(*(Submitted(0.0, job(name), spec(1, 900.0)) for name in "ab"))
    core.handle(*(Started(1.0, run(name)) for name in "ab"))

    stops = core.handle(Submitted(2.0, SHORT, spec(2, 10.0)))

    assert {stop.run for stop in stops} == {run("a"), run("b")}
    assert core.handle(Exited(3.0, run("a"), Outcome.STOPPED)) == []
    assert [type(a) for a in core.handle(Exited(4.0, run("b"), Outcome.STOPPED))] == [Launch]


def test_a_reserved_run_is_taken_back_when_its_job_is_cancelled() -> None:
    core = core_with(policy("srtf"), node("n0"))
    core.handle(Submitted(0.0, LONG, spec(8, 900.0)))
    core.handle(Started(1.0, run("long")))
    core.handle(Submitted(2.0, SHORT, spec(8, 10.0)))

    assert core.handle(CancelRequested(3.0, SHORT)) == []
    assert core.jobs[SHORT].state is JobState.CANCELLED
    assert core.jobs[SHORT].attempts == 0
    assert core.handle(Exited(4.0, run("long"), Outcome.STOPPED)) == [
        Launch(run("long", 2), spec(8, 900.0), held("n0", range(8)))
    ]
    validate(core)


def test_a_reserved_run_that_its_user_suspends_is_suspended_when_it_is_up() -> None:
    core = core_with(policy("srtf"), node("n0"))
    core.handle(Submitted(0.0, LONG, spec(8, 900.0)))
    core.handle(Started(1.0, run("long")))
    core.handle(Submitted(2.0, SHORT, spec(8, 10.0)))

    core.handle(SuspendRequested(3.0, SHORT))
    validate(core)

    assert not core.jobs[SHORT].state.over
    assert core.jobs[SHORT].held


def test_a_share_waits_for_the_run_that_leaves_its_device() -> None:
    core = core_with(policy("srtf"), node("n0", 1))
    core.handle(Submitted(0.0, LONG, spec(1, 900.0)))
    core.handle(Started(1.0, run("long")))

    assert core.handle(Submitted(2.0, SHORT, spec(0.5, 10.0))) == [
        Stop(run("long"), "makes room for short")
    ]
    assert core.handle(Exited(3.0, run("long"), Outcome.STOPPED)) == [
        Launch(run("short"), spec(0.5, 10.0), shared("n0", 0, 500))
    ]


def test_a_run_does_not_wait_for_devices_that_it_does_not_use() -> None:
    core = core_with(policy("srtf"), node("n0", 2))
    core.handle(Submitted(0.0, job("a"), spec(1, 5.0)), Submitted(0.0, LONG, spec(1, 900.0)))
    core.handle(Exited(1.0, run("a"), Outcome.SUCCEEDED), CancelRequested(1.0, LONG))

    assert core.handle(Submitted(2.0, SHORT, spec(1, 10.0))) == [
        Launch(run("short"), spec(1, 10.0), held("n0", (0,)))
    ]


def test_cpus_are_waited_for_where_they_are_counted() -> None:
    core = core_with(policy("srtf"), node("n0", 2, cpu_milli=1000))
    core.handle(Submitted(0.0, LONG, spec(1, 900.0, cpu_milli=1000)))
    core.handle(Started(1.0, run("long")))
    core.handle(CancelRequested(2.0, LONG))

    assert core.handle(Submitted(3.0, SHORT, spec(1, 10.0, cpu_milli=1000))) == []
    assert [type(a) for a in core.handle(Exited(4.0, run("long"), Outcome.STOPPED))] == [Launch]


def test_every_action_names_its_cause() -> None:
    core = core_with(policy("srtf"), node("n0"))
    submitted = Submitted(0.0, LONG, spec(8, 900.0))
    wanted = Submitted(2.0, SHORT, spec(8, 10.0))
    gone = Exited(4.0, run("long"), Outcome.STOPPED)

    assert [action.cause for action in core.handle(submitted)] == [submitted]
    core.handle(Started(1.0, run("long")))
    assert [action.cause for action in core.handle(wanted)] == [wanted]
    assert [action.cause for action in core.handle(gone)] == [gone]
