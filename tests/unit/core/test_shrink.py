"""Workers and devices are lost: an elastic job goes on with those that are left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roost.core import (
    Allocation,
    CancelRequested,
    Core,
    Exited,
    GpuFailed,
    GpuRestored,
    JobSpec,
    JobState,
    Launch,
    NodeJoined,
    NodeLost,
    Outcome,
    Resize,
    Resized,
    Shrank,
    Started,
    Stop,
    Submitted,
    SuspendRequested,
)
from roost.core.allocation import Part, survivors, without
from roost.policies.alnair import Alnair
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, held, job, node, part, role, run, shared, spec
from roost.testing.checks import validate
from roost.testing.engine import FakeEngine
from roost.testing.journal import check_journal
from roost.testing.policies import Scripted

N0, N1 = node("n0").id, node("n1").id


def elastic(low: int = 1, high: int = 4, gpus: float = 1) -> JobSpec:
    return spec(gpus, 800.0, workers=(low, high))


def running(wanted: JobSpec, *gpus: int) -> Core:
    """A core whose job ``a`` has been up with its most workers since time zero."""
    core = core_with(Alnair(), *(node(f"n{n}", count) for n, count in enumerate(gpus)))
    core.handle(Submitted(0.0, job("a"), wanted))
    core.handle(Started(0.0, run("a")))
    assert core.runs[run("a")].workers == wanted.workers.max
    return core


# -- a device or a node fails --------------------------------------------------------------------


def test_a_failed_gpu_shrinks_an_elastic_job_to_the_survivors() -> None:
    core = running(elastic(), 4)

    assert core.handle(GpuFailed(100.0, N0, 1)) == [Resize(run("a"), held("n0", (0, 2, 3), 3))]
    validate(core)
    assert core.jobs[job("a")].state is JobState.RESIZING
    assert core.jobs[job("a")].queue.used_milli == 3000
    core.handle(Resized(101.0, run("a")))
    validate(core)
    assert core.jobs[job("a")].state is JobState.RUNNING
    assert core.runs[run("a")].allocation == held("n0", (0, 2, 3), 3)
    assert core.runs[run("a")].rate == 3.0
    assert core.jobs[job("a")].attempts == 1


def test_a_lost_node_shrinks_a_gang_to_the_other_one() -> None:
    core = core_with(Alnair(), node("n0", 2), node("n1", 2), placer="pack")
    core.handle(Submitted(0.0, job("a"), elastic()), Started(0.0, run("a")))
    core.handle(Started(0.0, run("a")))

    assert core.handle(NodeLost(1.0, N0)) == [Resize(run("a"), held("n1", (0, 1), 2))]
    validate(core)
    core.handle(Resized(2.0, run("a")))
    validate(core)


def test_a_worker_with_several_devices_is_lost_with_any_of_them() -> None:
    core = running(elastic(1, 3, gpus=2), 6)

    assert core.handle(GpuFailed(1.0, N0, 3)) == [Resize(run("a"), held("n0", (0, 1, 4, 5), 2))]
    validate(core)


def test_with_fewer_than_the_least_workers_it_is_stopped() -> None:
    core = running(elastic(4, 5), 5)
    core.handle(GpuFailed(1.0, N0, 0), Resized(1.0, run("a")))

    assert core.handle(GpuFailed(2.0, N0, 1)) == [Stop(run("a"), "GPU 1 of node n0 failed")]
    validate(core)


def test_a_role_that_is_hit_ends_the_run() -> None:
    wanted = spec(1, workers=(1, 3), roles=(role("ps", 1, 1),))
    core = running(wanted, 4)

    assert core.handle(GpuFailed(1.0, N0, 3)) == [Stop(run("a"), "GPU 3 of node n0 failed")]
    validate(core)


def served(*parts: Part) -> Core:
    """A core whose job ``a`` is up there; one to three servers will do for it."""
    wanted = spec(1, workers=(1, 3), roles=(replace(role("ps", 1, 0), most=3),))
    script = Scripted()
    core = core_with(script, node("n0", 4), node("n1", 4))
    script.steps.append(lambda plan: plan.place_at(plan.jobs[job("a")], Allocation(parts)))
    core.handle(Submitted(0.0, job("a"), wanted))
    core.handle(Started(0.0, run("a")))
    return core


def test_more_servers_than_the_least_are_whole() -> None:
    core = served(part("n0", (0, 1), 2), part("n0", (), 3, kind="ps"))

    assert core.handle(GpuFailed(1.0, N0, 0)) == [
        Resize(run("a"), Allocation((part("n0", (1,), 1), part("n0", (), 3, kind="ps"))))
    ]
    validate(core)


def test_a_job_goes_on_with_the_servers_that_are_left_if_they_are_enough() -> None:
    kept = (part("n0", (0,), 1), part("n0", (), 1, kind="ps"))
    core = served(*kept, part("n1", (0,), 1), part("n1", (), 2, kind="ps"))

    assert core.handle(NodeLost(1.0, N1)) == [Resize(run("a"), Allocation(kept))]
    validate(core)


def test_a_job_without_its_least_servers_ends() -> None:
    core = served(part("n0", (0, 1), 2), part("n1", (), 2, kind="ps"))

    (action,) = core.handle(NodeLost(1.0, N1))

    assert isinstance(action, Stop)
    validate(core)


def test_a_role_on_another_device_stays() -> None:
    wanted = spec(1, workers=(1, 3), roles=(role("ps", 1, 1),))
    core = running(wanted, 4)

    (action,) = core.handle(GpuFailed(1.0, N0, 0))

    left = Allocation((part("n0", (1, 2), 2), part("n0", (3,), 1, kind="ps")))
    assert action == Resize(run("a"), left)
    validate(core)


def test_only_the_worker_on_a_failed_shared_device_is_lost() -> None:
    core = core_with(Alnair(), node("n0", 2))
    core.handle(Submitted(0.0, job("a"), elastic(1, 3, gpus=0.5)))
    core.handle(Started(0.0, run("a")))

    assert core.handle(GpuFailed(1.0, N0, 0)) == [Resize(run("a"), shared("n0", 1, 500))]
    validate(core)


def test_a_run_that_is_still_starting_is_stopped() -> None:
    core = core_with(Alnair(), node("n0", 4))
    core.handle(Submitted(0.0, job("a"), elastic()))

    assert core.handle(GpuFailed(1.0, N0, 0)) == [Stop(run("a"), "GPU 0 of node n0 failed")]


def test_a_failure_that_is_told_twice_counts_once() -> None:
    core = running(elastic(), 4)
    core.handle(GpuFailed(1.0, N0, 0))

    assert core.handle(GpuFailed(2.0, N0, 0)) == []
    validate(core)


def test_a_failure_of_what_should_be_left_ends_the_run() -> None:
    core = running(elastic(), 4)
    core.handle(GpuFailed(1.0, N0, 0))

    assert core.handle(GpuFailed(2.0, N0, 1)) == [Stop(run("a"), "GPU 1 of node n0 failed")]
    validate(core)
    core.handle(Exited(3.0, run("a"), Outcome.LOST))
    validate(core)


def test_a_node_that_is_left_anyway_may_be_lost_meanwhile() -> None:
    core = core_with(Alnair(), node("n0", 1), node("n1", 2), placer="pack")
    core.handle(Submitted(0.0, job("a"), elastic(1, 3)))
    core.handle(Started(0.0, run("a")))
    core.handle(GpuFailed(1.0, N0, 0))

    assert core.handle(NodeLost(2.0, N0)) == []
    validate(core)
    core.handle(Resized(3.0, run("a")))
    assert core.runs[run("a")].allocation == held("n1", (0, 1), 2)
    validate(core)


def test_a_run_that_is_over_at_once_is_not_asked_to_shrink() -> None:
    core = running(elastic(), 4)

    actions = core.handle(GpuFailed(1.0, N0, 0), Exited(1.0, run("a"), Outcome.LOST))

    assert [type(action) for action in actions] == [Launch]
    validate(core)


def test_a_repaired_device_is_not_used_before_it_was_left() -> None:
    core = running(elastic(), 4)
    core.handle(GpuFailed(1.0, N0, 0))

    assert core.handle(GpuRestored(2.0, N0, 0), Submitted(2.0, job("b"), spec(1))) == []
    validate(core)
    (launch,) = core.handle(Resized(3.0, run("a")))
    assert launch == Launch(run("b"), spec(1), held("n0", (0,)))


# -- a worker dies -------------------------------------------------------------------------------


def test_what_a_lost_worker_held_goes_to_those_who_wait() -> None:
    core = running(elastic(1, 2), 2)
    assert core.handle(Submitted(1.0, job("b"), spec(1))) == []

    assert core.handle(Shrank(2.0, run("a"), held("n0", (1,)))) == [
        Launch(run("b"), spec(1), held("n0", (0,)))
    ]
    assert core.runs[run("a")].allocation == held("n0", (1,))
    validate(core)


def test_a_smaller_run_is_slower_and_goes_on() -> None:
    core = running(elastic(), 4)

    core.handle(Shrank(100.0, run("a"), held("n0", (0, 3), 2), "worker 1 was killed"))

    a = core.runs[run("a")]
    assert (a.workers, a.rate, a.done_s) == (2, 2.0, 400.0)
    assert a.ends_at == 100.0 + 400.0 / 2
    assert core.jobs[job("a")].state is JobState.RUNNING
    assert core.jobs[job("a")].resizes == 1
    validate(core)


def test_below_its_least_workers_it_is_grown_back_as_soon_as_there_is_room() -> None:
    core = core_with(fifo, node("n0", 2))
    core.handle(Submitted(0.0, job("a"), spec(1, workers=2)))
    core.handle(Started(0.0, run("a")))

    assert core.handle(Shrank(1.0, run("a"), held("n0", (1,)))) == [
        Resize(run("a"), Allocation((part("n0", (1,)), part("n0", (0,)))))
    ]
    validate(core)


@pytest.mark.parametrize(
    "left",
    [
        held("n0", (0, 1, 2, 3), 4),
        held("n0", (0, 9), 2),
        held("n1", (0,)),
        Allocation(()),
        shared("n0", 0, 500),
        held("n0", range(4), 5),
    ],
    ids=["all", "a device it never had", "elsewhere", "nothing", "shares", "more workers"],
)
def test_what_is_no_smaller_part_of_what_it_held_is_old_news(left: Allocation) -> None:
    core = running(elastic(), 4)
    before = core.runs[run("a")].allocation

    assert core.handle(Shrank(1.0, run("a"), left)) == []
    assert core.runs[run("a")].allocation == before
    validate(core)


def test_a_run_in_motion_or_gone_has_not_shrunk() -> None:
    left = held("n0", (0,))
    core = running(elastic(), 4)
    assert core.handle(Shrank(1.0, run("a", 2), left)) == []
    core.handle(GpuFailed(1.0, N0, 3))
    assert core.handle(Shrank(2.0, run("a"), left)) == []
    assert core.runs[run("a")].workers == 4
    core.handle(CancelRequested(3.0, job("a")))
    assert core.handle(Shrank(4.0, run("a"), left)) == []
    validate(core)


def test_a_run_that_is_being_suspended_has_not_shrunk() -> None:
    core = running(elastic(), 4)
    core.handle(SuspendRequested(1.0, job("a")))

    assert core.handle(Shrank(2.0, run("a"), held("n0", (0,)))) == []
    validate(core)


def test_a_role_is_never_lost_so() -> None:
    core = running(spec(1, workers=(1, 3), roles=(role("ps", 1, 1),)), 4)

    assert core.handle(Shrank(1.0, run("a"), held("n0", (0, 1), 2))) == []
    assert core.runs[run("a")].workers == 3
    validate(core)


def test_a_journal_with_losses_folds_to_the_same_state() -> None:
    script = Scripted()
    engine = FakeEngine(core_with(script))
    engine.tell(NodeJoined(0.0, node("n0", 4)))
    script.steps.append(lambda plan: plan.place(plan.jobs[job("a")], 4))
    engine.tell(Submitted(0.0, job("a"), elastic()))
    engine.answer(run("a"))
    engine.tell(Shrank(1.0, run("a"), held("n0", (0, 1, 2), 3)))
    engine.tell(GpuFailed(2.0, N0, 0))
    engine.answer(run("a"))

    validate(engine.core)
    assert engine.core.runs[run("a")].allocation == held("n0", (1, 2), 2)
    check_journal(engine.journal, engine.core)


# -- parts of allocations ------------------------------------------------------------------------


def test_survivors_of_a_device_and_of_a_node() -> None:
    both = Allocation((part("n0", (0, 1, 2, 3), 2), part("n1", (0, 1), 1)))

    assert survivors(both, N0, 2) == Allocation((part("n0", (0, 1), 1), part("n1", (0, 1), 1)))
    assert survivors(both, N0, 7) == both
    assert survivors(both, N0) == Allocation((part("n1", (0, 1), 1),))
    assert survivors(both, N1, 0) == Allocation((part("n0", (0, 1, 2, 3), 2),))


def test_what_is_given_up() -> None:
    both = Allocation((part("n0", (0, 1, 2), 3), part("n0", (), 2, kind="ps")))
    kept = Allocation((part("n0", (2,)), part("n0", (), 2, kind="ps")))

    assert without(both, kept) == (part("n0", (0, 1), 2),)
    assert without(both, both) == ()
    assert without(kept, both) is None
    halves = shared("n0", 0, 250, workers=3)
    assert without(halves, shared("n0", 0, 250)) == shared("n0", 0, 250, workers=2).parts
    assert without(halves, shared("n0", 1, 250)) is None
