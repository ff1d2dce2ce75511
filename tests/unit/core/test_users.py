"""Users cancel, suspend and resume, at any moment and more than once."""

from __future__ import annotations

from roost.core import (
    CancelRequested,
    Core,
    Exited,
    JobState,
    NodeJoined,
    NodeLost,
    Outcome,
    Resume,
    ResumeRequested,
    Started,
    Stop,
    Submitted,
    Suspend,
    Suspended,
    SuspendRequested,
)
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, held, job, node, run, spec
from roost.testing.checks import validate
from roost.testing.policies import Scripted

A = job("a")


def running() -> Core:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, A, spec(1, 100.0)))
    core.handle(Started(1.0, run("a")))
    return core


def parked() -> tuple[Core, Scripted]:
    """A job that its policy has suspended and that waits to be resumed."""
    core = core_with(script := Scripted(), node("n0", 1))
    core.handle(Submitted(0.0, A, spec(1, 100.0)))
    script.at(core, 1.0, lambda plan: plan.place(plan.jobs[A]))
    core.handle(Started(2.0, run("a")))
    script.at(core, 3.0, lambda plan: plan.suspend(plan.runs[run("a")], "later"))
    core.handle(Suspended(4.0, run("a"), 2.0))
    return core, script


def test_a_waiting_job_is_cancelled_at_once() -> None:
    core = core_with(fifo)
    core.handle(Submitted(0.0, A, spec(1)))

    assert core.handle(CancelRequested(1.0, A)) == []
    assert core.jobs[A].state is JobState.CANCELLED
    assert core.jobs[A].finished_at == 1.0
    assert core.waiting.count == 0


def test_a_running_job_is_cancelled_when_it_has_left() -> None:
    core = running()

    assert core.handle(CancelRequested(2.0, A)) == [Stop(run("a"), "cancelled")]
    assert core.handle(CancelRequested(3.0, A)) == [], "once is enough"
    assert core.jobs[A].state is JobState.RUNNING
    core.handle(Exited(4.0, run("a"), Outcome.STOPPED, 1.0))
    assert core.jobs[A].state is JobState.CANCELLED
    validate(core)


def test_a_job_is_suspended_and_resumed_by_its_user() -> None:
    core = running()

    assert core.handle(SuspendRequested(2.0, A)) == [Suspend(run("a"), "suspended by its user")]
    core.handle(Suspended(3.0, run("a"), 1.5))
    assert core.jobs[A].state is JobState.SUSPENDED
    assert core.ledger.free_milli == 1000
    assert core.waiting.count == 0, "it does not even wait"
    validate(core)

    assert core.handle(ResumeRequested(4.0, A)) == [Resume(run("a"), held("n0", (0,)))]
    core.handle(Started(5.0, run("a")))
    assert core.jobs[A].state is JobState.RUNNING
    assert core.runs[run("a")].done(6.0) == 2.5
    validate(core)


def test_a_waiting_job_that_is_suspended_is_passed_over() -> None:
    core = running()
    core.handle(Submitted(2.0, job("b"), spec(1)), Submitted(2.0, job("c"), spec(1)))

    core.handle(SuspendRequested(3.0, job("b")))

    assert core.jobs[job("b")].state is JobState.SUSPENDED
    (launch,) = core.handle(Exited(4.0, run("a"), Outcome.SUCCEEDED, 1.0))
    assert launch.run == run("c")
    core.handle(ResumeRequested(5.0, job("b")))
    assert core.jobs[job("b")].state is JobState.QUEUED
    validate(core)


def test_a_job_suspended_while_it_starts_is_suspended_when_it_is_up() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, A, spec(1)))

    assert core.handle(SuspendRequested(1.0, A)) == []
    assert core.handle(Started(2.0, run("a"))) == [Suspend(run("a"), "suspended by its user")]
    validate(core)


def test_a_job_resumed_while_it_is_being_suspended_waits_to_be_resumed() -> None:
    core = running()
    core.handle(SuspendRequested(2.0, A))

    assert core.handle(ResumeRequested(3.0, A)) == []
    assert core.handle(Suspended(4.0, run("a"), 1.0)) == [Resume(run("a"), held("n0", (0,)))]
    validate(core)


def test_a_job_set_aside_by_a_plan_waits_and_is_resumed_by_one() -> None:
    core, script = parked()

    assert core.jobs[A].state is JobState.SUSPENDED
    assert core.jobs[A].remaining_s == 98.0, "nothing is lost"
    assert core.explain(A) is not None
    assert script.at(core, 5.0, lambda plan: plan.place(plan.jobs[A])) == [
        Resume(run("a"), held("n0", (0,)))
    ]
    validate(core)


def test_a_job_cancelled_while_it_is_suspended_is_stopped() -> None:
    core, _ = parked()

    assert core.handle(CancelRequested(5.0, A)) == [Stop(run("a"), "cancelled")]
    assert core.waiting.count == 0
    core.handle(Exited(6.0, run("a"), Outcome.STOPPED, 2.0))
    assert core.jobs[A].state is JobState.CANCELLED
    validate(core)


def test_a_job_cancelled_while_it_is_being_suspended_is_stopped_then() -> None:
    core = running()
    core.handle(SuspendRequested(2.0, A))

    assert core.handle(CancelRequested(3.0, A)) == []
    assert core.handle(Suspended(4.0, run("a"), 1.0)) == [Stop(run("a"), "cancelled")]
    core.handle(Exited(5.0, run("a"), Outcome.STOPPED, 1.0))
    assert core.jobs[A].state is JobState.CANCELLED
    validate(core)


def test_resuming_a_job_that_is_over_changes_nothing() -> None:
    core = core_with(fifo)
    core.handle(Submitted(0.0, A, spec(1)))
    core.handle(SuspendRequested(1.0, A), CancelRequested(2.0, A))

    core.handle(ResumeRequested(3.0, A))

    assert core.jobs[A].state is JobState.CANCELLED
    assert core.waiting.count == 0


def test_resuming_a_job_that_succeeded_while_it_was_being_suspended_changes_nothing() -> None:
    core = running()
    core.handle(SuspendRequested(2.0, A))
    core.handle(Exited(3.0, run("a"), Outcome.SUCCEEDED, 2.0))

    assert core.handle(ResumeRequested(4.0, A)) == []
    assert core.jobs[A].state is JobState.SUCCEEDED


def test_suspending_a_parked_job_that_is_being_cancelled_changes_nothing() -> None:
    core, _ = parked()
    core.handle(CancelRequested(5.0, A))

    assert core.handle(SuspendRequested(6.0, A)) == []
    core.handle(Exited(7.0, run("a"), Outcome.STOPPED))
    assert core.jobs[A].state is JobState.CANCELLED
    validate(core)


def test_resuming_a_parked_job_that_is_being_cancelled_changes_nothing() -> None:
    core, _ = parked()
    core.handle(SuspendRequested(5.0, A), CancelRequested(6.0, A))

    assert core.handle(ResumeRequested(7.0, A)) == []
    core.handle(Exited(8.0, run("a"), Outcome.STOPPED))
    assert core.waiting.count == 0
    validate(core)


def test_a_run_that_dies_while_suspended_waits_once() -> None:
    core, _ = parked()

    core.handle(Exited(5.0, run("a"), Outcome.LOST, 1.0))

    assert [waiting.id for waiting in core.waiting] == [A]
    assert core.jobs[A].state is JobState.QUEUED
    validate(core)


def test_a_resume_that_is_only_reserved_is_taken_back_on_cancel() -> None:
    core, script = parked()
    core.handle(Submitted(5.0, job("b"), spec(1)))
    script.at(core, 6.0, lambda plan: plan.place(plan.jobs[job("b")]))
    core.handle(Started(7.0, run("b")))
    script.at(
        core,
        8.0,
        lambda plan: plan.evict(plan.runs[run("b")], "a goes first"),
        lambda plan: plan.place(plan.jobs[A]),
    )
    assert core.runs[run("a")].after == {run("b")}

    assert core.handle(CancelRequested(9.0, A)) == [Stop(run("a"), "cancelled")]
    assert core.handle(Exited(10.0, run("b"), Outcome.STOPPED)) == []
    core.handle(Exited(11.0, run("a"), Outcome.STOPPED))
    assert core.jobs[A].state is JobState.CANCELLED
    validate(core)


def test_a_suspended_job_may_be_resumed_elsewhere() -> None:
    core, script = parked()
    core.handle(NodeLost(5.0, node("n0").id), NodeJoined(5.0, node("n1", 1)))

    assert script.at(core, 6.0, lambda plan: plan.place(plan.jobs[A])) == [
        Resume(run("a"), held("n1", (0,)))
    ]
    core.handle(Started(7.0, run("a")))
    assert core.jobs[A].attempts == 1, "it is the same attempt"
    validate(core)
