"""Reports come late, twice, or from attempts long gone; only what was asked for is believed."""

from __future__ import annotations

import pytest

from roost.core import (
    CancelRequested,
    Core,
    Event,
    Exited,
    JobState,
    Outcome,
    Progressed,
    Resized,
    Started,
    Submitted,
    Suspended,
)
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, job, node, run, spec
from roost.testing.checks import validate
from roost.testing.journal import differ, snapshot
from roost.testing.policies import Scripted

A, B = job("a"), job("b")

LATE: list[Event] = [
    Started(5.0, run("a")),
    Progressed(5.0, run("a"), 50.0, 2.0),
    Resized(5.0, run("a")),
    Suspended(5.0, run("a"), 50.0),
    Exited(5.0, run("a"), Outcome.SUCCEEDED, 100.0),
    Exited(5.0, run("never"), Outcome.SUCCEEDED),
]


@pytest.mark.parametrize("report", LATE, ids=lambda event: type(event).__name__)
def test_reports_of_an_older_attempt_change_nothing(report: Event) -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, A, spec(1, 100.0)))
    core.handle(Started(1.0, run("a")))
    core.handle(Exited(2.0, run("a"), Outcome.LOST, 0.5))
    core.handle(Started(5.0, run("a", 2)))
    before = snapshot(core)

    assert core.handle(report) == []
    assert differ(before, snapshot(core)) == []


def test_a_second_started_does_not_reset_the_clock() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, A, spec(1, 100.0)))
    core.handle(Started(1.0, run("a")), Started(50.0, run("a")))

    assert core.runs[run("a")].done(51.0) == 50.0


def test_an_exit_is_counted_once() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, A, spec(1)))
    gone = Exited(2.0, run("a"), Outcome.SUCCEEDED)

    core.handle(gone, gone)

    assert core.finished == 1
    assert len(core.history.service) == 0, "it held its device for no time"
    validate(core)


def suspended() -> tuple[Core, Scripted]:
    core = core_with(script := Scripted(), node("n0", 1))
    core.handle(Submitted(0.0, A, spec(1)), Submitted(0.0, B, spec(1)))
    script.at(core, 1.0, lambda plan: plan.place(plan.jobs[A]))
    core.handle(Started(1.0, run("a")))
    script.at(core, 2.0, lambda plan: plan.suspend(plan.runs[run("a")], "later"))
    core.handle(Suspended(3.0, run("a"), 1.0))
    return core, script


def test_a_late_started_does_not_revive_a_suspended_run() -> None:
    core, _ = suspended()

    core.handle(Started(4.0, run("a")))

    assert core.jobs[A].state is JobState.SUSPENDED
    assert not core.runs[run("a")].settled
    validate(core)


def test_a_late_started_does_not_start_a_resume_that_is_only_reserved() -> None:
    core, script = suspended()
    script.at(core, 4.0, lambda plan: plan.place(plan.jobs[B]))
    core.handle(Started(4.0, run("b")))
    script.at(
        core,
        5.0,
        lambda plan: plan.evict(plan.runs[run("b")], "a goes on"),
        lambda plan: plan.place(plan.jobs[A]),
    )

    core.handle(Started(6.0, run("a")))

    assert core.jobs[A].state is JobState.STARTING
    validate(core)


def test_a_late_resized_does_not_complete_a_reshape_that_is_only_reserved() -> None:
    core = core_with(script := Scripted(), node("n0", 3))
    core.handle(Submitted(0.0, A, spec(1, workers=(1, 3))), Submitted(0.0, B, spec(1)))
    script.at(
        core, 1.0, lambda plan: plan.place(plan.jobs[A]), lambda plan: plan.place(plan.jobs[B])
    )
    core.handle(Started(1.0, run("a")), Started(1.0, run("b")))
    script.at(core, 2.0, lambda plan: plan.resize(plan.runs[run("a")], 2))
    core.handle(Resized(3.0, run("a")))
    script.at(
        core,
        4.0,
        lambda plan: plan.evict(plan.runs[run("b")], "a grows"),
        lambda plan: plan.resize(plan.runs[run("a")], 3),
    )

    core.handle(Resized(5.0, run("a")))

    assert core.runs[run("a")].workers == 2
    assert core.jobs[A].state is JobState.RESIZING
    validate(core)


def test_a_run_that_was_asked_to_stop_may_still_say_that_it_started() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, A, spec(1)))
    core.handle(CancelRequested(1.0, A))

    assert core.handle(Started(2.0, run("a"))) == []
    validate(core)
    core.handle(Exited(3.0, run("a"), Outcome.STOPPED))
    assert core.jobs[A].state is JobState.CANCELLED
