"""Shares of the spatial way: their memory stays on the GPU, so a suspended run keeps its place."""

from __future__ import annotations

import pytest

from roost.core import (
    CancelRequested,
    Core,
    Exited,
    GpuFailed,
    JobState,
    Launch,
    MigrateRequested,
    Outcome,
    Range,
    Resume,
    ResumeRequested,
    RunPhase,
    ScaleRequested,
    Started,
    Stop,
    Submitted,
    Suspend,
    Suspended,
    SuspendRequested,
    Way,
)
from roost.core.snapshot import dump, load
from roost.core.spec import CPU_SLOT
from roost.errors import Conflict
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, job, node, role, run, shared, spec
from roost.testing.checks import validate
from roost.testing.policies import Scripted

HALF = spec(0.5, 100.0, way=Way.SPATIAL)
PLACE = shared("n0", 0, 500)


def suspended(policy: Scripted | None = None) -> Core:
    """A core whose job ``a`` was suspended by its user after ten seconds."""
    script = policy or Scripted()
    core = core_with(script, node("n0", 1))
    script.steps.append(lambda plan: plan.place(plan.jobs[job("a")]))
    core.handle(Submitted(0.0, job("a"), HALF))
    core.handle(Started(0.0, run("a")))
    assert core.handle(SuspendRequested(10.0, job("a"))) == [
        Suspend(run("a"), "suspended by its user")
    ]
    validate(core)
    core.handle(Suspended(11.0, run("a"), 10.0))
    validate(core)
    return core


@pytest.fixture
def core() -> Core:
    return suspended()


def test_it_keeps_what_it_holds(core: Core) -> None:
    assert core.jobs[job("a")].state is JobState.SUSPENDED
    assert core.ledger.free_milli == 500
    assert core.jobs[job("a")].queue.used_milli == 500
    assert core.runs[run("a")].frozen
    assert not core.runs[run("a")].parked
    assert core.runs[run("a")].remaining_s(50.0) == float("inf")
    assert core.waiting.count == 0


def test_it_goes_on_at_once_and_where_it_was(core: Core) -> None:
    assert core.handle(ResumeRequested(50.0, job("a"))) == [Resume(run("a"), PLACE)]
    assert core.jobs[job("a")].state is JobState.STARTING
    validate(core)
    core.handle(Started(51.0, run("a")))
    validate(core)
    assert core.jobs[job("a")].state is JobState.RUNNING
    assert core.runs[run("a")].ends_at == 51.0 + 90.0
    assert core.jobs[job("a")].attained_gpu_s == pytest.approx(11 * 0.5)


def test_who_goes_on_before_it_stands_still_goes_on_then() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), HALF))
    core.handle(Started(0.0, run("a")))
    core.handle(SuspendRequested(1.0, job("a")))

    assert core.handle(ResumeRequested(2.0, job("a"))) == []
    assert core.handle(Suspended(3.0, run("a"), 1.0)) == [Resume(run("a"), PLACE)]
    assert core.handle(SuspendRequested(4.0, job("a"))) == []
    assert core.handle(Started(5.0, run("a"))) == [Suspend(run("a"), "suspended by its user")]
    validate(core)


def test_a_late_start_does_not_wake_it(core: Core) -> None:
    assert core.handle(Started(12.0, run("a"))) == []
    assert core.runs[run("a")].frozen


def test_a_policy_cannot_suspend_it() -> None:
    script = Scripted()
    core = core_with(script, node("n0", 1))
    script.steps.append(lambda plan: plan.place(plan.jobs[job("a")]))
    core.handle(Submitted(0.0, job("a"), HALF))
    core.handle(Started(0.0, run("a")))
    answers: list[bool] = []

    actions = script.at(
        core, 1.0, lambda plan: answers.append(plan.suspend(core.runs[run("a")], "no"))
    )

    assert (answers, actions) == ([False], [])
    assert script.at(core, 2.0, lambda plan: plan.evict(core.runs[run("a")], "go")) == [
        Stop(run("a"), "go")
    ]
    validate(core)


def test_a_policy_can_evict_it_while_it_stands_still() -> None:
    script = Scripted()
    core = suspended(script)

    assert script.at(core, 20.0, lambda plan: plan.evict(core.runs[run("a")], "for b")) == [
        Stop(run("a"), "for b")
    ]
    assert core.ledger.free_milli == 1000
    validate(core)
    core.handle(Exited(21.0, run("a"), Outcome.STOPPED, 5.0))
    validate(core)
    assert core.jobs[job("a")].state is JobState.SUSPENDED
    script.steps.append(lambda plan: plan.place(plan.jobs[job("a")]))
    (launch,) = core.handle(ResumeRequested(22.0, job("a")))
    assert isinstance(launch, Launch)


def test_cancelled_it_is_stopped(core: Core) -> None:
    assert core.handle(CancelRequested(20.0, job("a"))) == [Stop(run("a"), "cancelled")]
    validate(core)
    core.handle(Exited(21.0, run("a"), Outcome.STOPPED))
    assert core.jobs[job("a")].state is JobState.CANCELLED
    assert core.ledger.free_milli == 1000
    validate(core)


def test_cancelled_while_it_is_being_suspended_it_is_stopped() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), HALF))
    core.handle(Started(0.0, run("a")))
    core.handle(SuspendRequested(1.0, job("a")))

    assert core.handle(CancelRequested(2.0, job("a"))) == [Stop(run("a"), "cancelled")]
    assert core.runs[run("a")].phase is RunPhase.STOPPING
    validate(core)
    assert core.handle(Suspended(3.0, run("a"), 1.0)) == []
    validate(core)
    core.handle(Exited(4.0, run("a"), Outcome.STOPPED))
    validate(core)


def test_its_device_may_fail(core: Core) -> None:
    assert core.handle(GpuFailed(20.0, node("n0").id, 0)) == [
        Stop(run("a"), "GPU 0 of node n0 failed")
    ]
    core.handle(Exited(21.0, run("a"), Outcome.LOST))
    assert core.jobs[job("a")].state is JobState.SUSPENDED
    validate(core)


def test_it_cannot_be_moved_but_scaled_for_later(core: Core) -> None:
    with pytest.raises(Conflict, match="suspended"):
        core.handle(MigrateRequested(20.0, job("a")))
    core.handle(ScaleRequested(20.0, job("a"), Range(2, 2)))
    assert core.runs[run("a")].ends_at == float("inf")
    validate(core)


def test_a_snapshot_brings_it_back_as_it_stands(core: Core) -> None:
    again = load(dump(core), Scripted(), fifo)  # type: ignore[arg-type]

    assert dump(again) == dump(core)
    assert again.runs[run("a")].frozen
    assert again.handle(ResumeRequested(50.0, job("a"))) == [Resume(run("a"), PLACE)]
    validate(again)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (spec(0.5, way=Way.TEMPORAL), "gpu"),
        (spec(1, way=Way.SPATIAL), "gpu"),
        (spec(0.5, way=Way.SPATIAL), CPU_SLOT),
    ],
    ids=["temporal", "whole", "no GPU"],
)
def test_all_others_leave_their_devices(wanted: object, kind: str) -> None:
    core = core_with(fifo, node("n0", 1, kind=kind))
    core.handle(Submitted(0.0, job("a"), wanted))  # type: ignore[arg-type]
    core.handle(Started(0.0, run("a")))
    core.handle(SuspendRequested(1.0, job("a")))
    core.handle(Suspended(2.0, run("a"), 1.0))

    assert core.runs[run("a")].parked
    assert core.ledger.free_milli == 1000
    validate(core)


def test_a_role_is_enough_to_pin_a_run() -> None:
    wanted = spec(1, roles=(role("ps", 1, 0.5, way=Way.SPATIAL),))
    core = core_with(fifo, node("n0", 2))
    core.handle(Submitted(0.0, job("a"), wanted))
    core.handle(Started(0.0, run("a")))
    core.handle(SuspendRequested(1.0, job("a")))
    core.handle(Suspended(2.0, run("a"), 1.0))

    assert core.runs[run("a")].frozen
    assert core.ledger.free_milli == 500
    validate(core)
