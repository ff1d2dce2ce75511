"""Users scale, move and forget jobs; failed jobs are tried again later, or never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roost.core import (
    Allocation,
    CancelRequested,
    Core,
    Deleted,
    Exited,
    JobState,
    Launch,
    Migrate,
    MigrateRequested,
    NodeId,
    Outcome,
    Range,
    Resize,
    Resized,
    ResumeRequested,
    ScaleRequested,
    Started,
    Submitted,
    SuspendRequested,
    Woke,
)
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, held, job, node, part, role, run, spec
from roost.testing.policies import Scripted

A, B = job("a"), job("b")


def running(workers: int | tuple[int, int] = 1, gpus: int = 4) -> Core:
    core = core_with(fifo, node("n0", gpus))
    core.handle(Submitted(0.0, A, spec(1, 100.0, workers=workers, max_retries=2)))
    core.handle(Started(1.0, run("a")))
    return core


def test_a_running_job_grows_because_its_user_wants_it() -> None:
    core = running((1, 4))

    (grow,) = core.handle(ScaleRequested(2.0, A, Range(3, 3)))

    assert isinstance(grow, Resize)
    assert grow.allocation.workers == 3
    core.handle(Resized(3.0, run("a")))
    assert core.jobs[A].run.workers == 3  # type: ignore[union-attr]
    assert not core.out_of_range or core.handle(Woke(4.0)) == []


def test_work_done_and_work_left_mean_the_same_after_scaling() -> None:
    core = running((1, 4))
    core.handle(ScaleRequested(41.0, A, Range(2, 2)))
    core.handle(Resized(41.0, run("a")))

    a = core.jobs[A]

    assert a.run is not None
    # 40 of 100 s are done with one worker; the other 60 take 30 with two.
    assert a.run.remaining_s(41.0) == pytest.approx(30.0)
    assert a.run_time_s == 50.0


def test_growth_waits_for_room_and_shrinking_does_not() -> None:
    core = running((1, 4), gpus=2)
    core.handle(Submitted(1.0, B, spec(1)))
    core.handle(Started(2.0, run("b")))

    assert core.handle(ScaleRequested(3.0, A, Range(2, 2))) == []
    (grow,) = core.handle(Exited(4.0, run("b"), Outcome.SUCCEEDED))
    assert isinstance(grow, Resize)
    core.handle(Resized(5.0, run("a")))
    (shrink,) = core.handle(ScaleRequested(6.0, A, Range(1, 1)))
    assert isinstance(shrink, Resize)
    assert shrink.allocation.workers == 1


def test_a_waiting_job_is_scaled_before_it_starts() -> None:
    core = running(1, gpus=2)
    core.handle(Submitted(1.0, B, spec(1, workers=2)))
    assert core.jobs[B].state is JobState.QUEUED

    (launch,) = core.handle(ScaleRequested(2.0, B, Range(1, 1)))

    assert isinstance(launch, Launch)
    assert launch.spec.workers == Range(1, 1)


def test_an_impossible_size_is_refused_and_changes_nothing() -> None:
    core = running((1, 4))

    with pytest.raises(InvalidSpec, match="min <= max"):
        core.handle(ScaleRequested(2.0, A, Range(3, 1)))

    assert core.jobs[A].spec.workers == Range(1, 4)


def test_a_running_job_moves_to_other_devices() -> None:
    core = running()

    assert core.handle(MigrateRequested(2.0, A)) == [Migrate(run("a"), held("n0", (1,)))]


def test_a_job_moves_to_the_node_that_was_named() -> None:
    core = core_with(fifo, node("n0", 2), node("n1", 2))
    core.handle(Submitted(0.0, A, spec(1)))
    core.handle(Started(1.0, run("a")))

    assert core.handle(MigrateRequested(2.0, A, NodeId("n1"))) == [
        Migrate(run("a"), held("n1", (0,)))
    ]


def test_a_job_moves_with_as_many_servers_as_it_has() -> None:
    script = Scripted()
    core = core_with(script, node("n0", 2), node("n1", 2))
    here = Allocation((part("n0", (0,)), part("n0", (), 3, kind="ps")))
    script.steps.append(lambda plan: plan.place_at(plan.jobs[A], here))
    core.handle(Submitted(0.0, A, spec(1, roles=(replace(role("ps", 1, 0), most=4),))))
    core.handle(Started(1.0, run("a")))

    (action,) = core.handle(MigrateRequested(2.0, A, NodeId("n1")))

    assert isinstance(action, Migrate)
    assert action.allocation.nodes == (NodeId("n1"),)
    assert action.allocation.count("ps") == 3


def test_a_job_that_cannot_move_stays() -> None:
    core = running(gpus=1)

    assert core.handle(MigrateRequested(2.0, A)) == []
    assert core.jobs[A].state is JobState.RUNNING


def test_only_running_jobs_move_and_only_to_nodes_that_are_there() -> None:
    core = running(gpus=1)
    core.handle(Submitted(1.0, B, spec(1)))

    with pytest.raises(Conflict, match="queued"):
        core.handle(MigrateRequested(2.0, B))
    with pytest.raises(NotFound, match="n7"):
        core.handle(MigrateRequested(2.0, A, NodeId("n7")))


def test_a_job_that_is_over_can_be_forgotten_and_its_number_is_not_given_again() -> None:
    core = running()
    with pytest.raises(Conflict, match="cancel it first"):
        core.handle(Deleted(2.0, A))
    core.handle(Exited(3.0, run("a"), Outcome.SUCCEEDED))

    core.handle(Deleted(4.0, A))
    core.handle(Submitted(5.0, B, spec(1)))

    assert list(core.jobs) == [B]
    assert core.jobs[B].seq == 1


def test_a_failed_job_waits_before_its_next_try() -> None:
    core = running()

    assert core.handle(Exited(10.0, run("a"), Outcome.FAILED, delay_s=30.0)) == []
    assert core.jobs[A].state is JobState.QUEUED
    assert core.wake_at == 40.0
    assert core.handle(Woke(39.0)) == []
    assert core.handle(Woke(40.0)) == [
        Launch(run("a", 2), core.jobs[A].spec, held("n0", (0,))),
    ]


def test_a_final_failure_is_not_tried_again() -> None:
    core = running()

    core.handle(Exited(10.0, run("a"), Outcome.FAILED, final=True))

    assert core.jobs[A].state is JobState.FAILED


def test_a_job_that_backs_off_can_be_cancelled_held_and_let_go() -> None:
    core = running()
    core.handle(Exited(10.0, run("a"), Outcome.FAILED, delay_s=30.0))

    core.handle(SuspendRequested(11.0, A))
    assert core.jobs[A].state is JobState.SUSPENDED
    assert core.handle(Woke(50.0)) == []
    (launch,) = core.handle(ResumeRequested(51.0, A))
    assert isinstance(launch, Launch)

    core.handle(Started(52.0, run("a", 2)))
    core.handle(Exited(60.0, run("a", 2), Outcome.FAILED, delay_s=30.0))
    core.handle(SuspendRequested(61.0, A))
    core.handle(ResumeRequested(62.0, A))
    assert core.jobs[A].state is JobState.QUEUED
    core.handle(CancelRequested(63.0, A))
    assert core.jobs[A].state is JobState.CANCELLED
    assert core.handle(Woke(100.0)) == []
