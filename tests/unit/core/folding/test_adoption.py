"""Jobs that the world knows already, and jobs that must not be evicted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roost.core import (
    Adopted,
    Allocation,
    CancelRequested,
    Core,
    Deleted,
    Exited,
    GpuFailed,
    GpuRestored,
    JobState,
    Launch,
    NodeLost,
    Outcome,
    Plan,
    Progressed,
    Protected,
    QueueChanged,
    Resize,
    Started,
    Stop,
    Submitted,
    Suspend,
    SuspendRequested,
    Woke,
)
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.policies import policy
from roost.testing.builders import (
    core_with,
    held,
    job,
    node,
    part,
    queue,
    role,
    run,
    shared,
    spec,
    started,
)
from roost.testing.checks import validate
from roost.testing.journal import differ, snapshot
from roost.testing.policies import Scripted

A, B, C = job("a"), job("b"), job("c")
WHY = "its budget allows nothing"


def fresh(*nodes: str, gpus: int = 4) -> Core:
    return core_with(policy("fifo"), *(node(name, gpus) for name in nodes or ("n0",)))


# -- adopted -------------------------------------------------------------------------------------


def test_a_running_job_is_taken_over_as_it_stands() -> None:
    core = fresh()
    core.handle(Woke(100.0))

    asked = core.handle(
        Adopted(
            100.0,
            A,
            spec(2, 500.0),
            held("n0", (1, 2)),
            attempts=3,
            failures=1,
            done_s=70.0,
            submitted_at=10.0,
            started_at=40.0,
        )
    )

    assert asked == []
    known = core.jobs[A]
    assert (known.state, known.attempts, known.failures) == (JobState.RUNNING, 3, 1)
    assert (known.submitted_at, known.started_at) == (10.0, 40.0)
    assert known.attained_gpu_s == 120.0
    assert core.runs[run("a", 3)].done(110.0) == 80.0
    assert core.runs[run("a", 3)].ends_at == 530.0
    assert core.ledger.node(node("n0").id).free == 0b1001
    validate(core)


def test_its_reports_count_from_then_on() -> None:
    core = fresh()
    core.handle(Adopted(1.0, A, spec(2), held("n0", (0, 1)), attempts=2))
    core.handle(Progressed(2.0, run("a", 2), 5.0, 1.0))

    core.handle(Exited(3.0, run("a", 1), Outcome.FAILED))
    assert core.jobs[A].state is JobState.RUNNING
    core.handle(Exited(4.0, run("a", 2), Outcome.SUCCEEDED, 7.0))

    assert core.jobs[A].state is JobState.SUCCEEDED
    assert core.ledger.free_milli == 4000
    validate(core)


def test_a_run_that_was_ordered_is_waited_for_and_not_ordered_again() -> None:
    core = fresh()

    asked = core.handle(Adopted(1.0, A, spec(2), held("n0", (0, 1)), running=False, attempts=1))

    assert asked == []
    assert core.jobs[A].state is JobState.STARTING
    validate(core)
    assert core.handle(Started(5.0, run("a"))) == []
    assert (core.jobs[A].state, core.jobs[A].started_at) == (JobState.RUNNING, 5.0)
    validate(core)


def test_a_waiting_job_waits_and_is_started_with_its_next_attempt() -> None:
    core = fresh()

    (launch,) = core.handle(Adopted(1.0, A, spec(1), attempts=2, done_s=30.0))

    assert isinstance(launch, Launch)
    assert launch.run == run("a", 3)
    assert core.runs[run("a", 3)].done_s == 30.0


def test_a_job_that_backs_off_is_tried_when_its_time_has_come() -> None:
    core = fresh()

    assert core.handle(Adopted(1.0, A, spec(1), attempts=1, not_before=50.0)) == []
    assert core.wake_at == 50.0
    validate(core)
    assert [action.run for action in core.handle(Woke(50.0))] == [run("a", 2)]


def test_a_suspended_job_stays_so() -> None:
    core = fresh()

    assert core.handle(Adopted(1.0, A, spec(1), held=True)) == []
    assert core.jobs[A].state is JobState.SUSPENDED
    validate(core)


def test_a_run_whose_user_wants_it_aside_is_suspended() -> None:
    core = fresh()

    (asked,) = core.handle(Adopted(1.0, A, spec(1), held("n0", (0,)), attempts=1, held=True))

    assert isinstance(asked, Suspend)
    validate(core)


def test_older_ones_go_first_in_the_order_in_which_they_are_told() -> None:
    core = fresh(gpus=1)
    core.handle(Adopted(0.0, C, spec(1), held("n0", (0,)), attempts=1))
    core.handle(Adopted(1.0, A, spec(1), submitted_at=-5.0), Adopted(1.0, B, spec(1)))

    (launch,) = core.handle(Exited(2.0, run("c"), Outcome.SUCCEEDED))

    assert launch.run.job == A


def test_gangs_with_roles_and_shares_are_taken_over() -> None:
    core = fresh()
    gang = spec(0.5, workers=2, roles=(role("ps", 1, 1),))
    parts = (*shared("n0", 0, 500, workers=2).parts, part("n0", (3,), kind="ps"))

    core.handle(Adopted(1.0, A, gang, Allocation(parts), attempts=1))

    assert core.jobs[A].state is JobState.RUNNING
    validate(core)


def test_one_of_another_size_than_its_user_wants_is_resized() -> None:
    core = core_with(policy("fifo"), node("n0", 4))

    (asked,) = core.handle(
        Adopted(1.0, A, spec(1, workers=(2, 4)), held("n0", (0,), workers=1), attempts=1)
    )

    assert isinstance(asked, Resize)
    assert asked.allocation.workers == 2
    validate(core)


def test_a_job_that_is_over_may_come_again() -> None:
    core = fresh()
    core.handle(Submitted(0.0, A, spec(1)))
    core.handle(CancelRequested(1.0, A), Exited(1.0, run("a"), Outcome.STOPPED))

    core.handle(Adopted(2.0, A, spec(1), held("n0", (0,)), attempts=1))

    assert core.jobs[A].state is JobState.RUNNING
    validate(core)
    core.handle(Exited(3.0, run("a"), Outcome.SUCCEEDED), Deleted(3.0, A))
    validate(core)


def test_a_queue_may_hold_more_than_its_limit_and_gets_no_more() -> None:
    core = fresh()
    core.handle(QueueChanged(0.0, queue("red", limit_milli=1000)))
    core.handle(Adopted(1.0, A, spec(2, queue="red"), held("n0", (0, 1)), attempts=1))

    assert core.handle(Submitted(2.0, B, spec(1, queue="red"))) == []
    validate(core, limits=False)


@pytest.mark.parametrize(
    ("wanted", "allocation", "why"),
    [
        (spec(1), held("n0", (0,)), "GPU 0 of node n0 is not free"),
        (spec(1), held("n9", (0,)), "there is no node n9"),
        (spec(1), held("down", (0,)), "node down is not in service"),
        (spec(1), held("n0", (7,)), "node n0 has no GPU 7"),
        (spec(1), held("n0", (3,)), "GPU 3 of node n0 is not free"),
        (spec(2), held("n0", (1,)), "has 1 GPUs, not 2"),
        (spec(2), held("n0", (1, 1)), "has 2 GPUs, not 2"),
        (spec(0.5), held("n0", (1,)), "is not what its workers ask for"),
        (spec(0.75), shared("n0", 2, 750), "has 500 milli-GPUs"),
        (spec(1, roles=(role("ps"),)), held("n0", (1,)), "needs 1 workers of role 'ps'"),
        (spec(1), Allocation((part("n0", (1,), kind="ps"),)), "it has no role 'ps'"),
        (spec(1), Allocation(()), "none of its workers has a place"),
        (spec(0, cpu_milli=9000), held("n0"), "node n0 has 8000 milli-CPUs left"),
        (spec(0, memory_mib=900), held("n0"), "node n0 has 800 MiB of memory left"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    wanted: object, allocation: Allocation, why: str
) -> None:
    core = core_with(policy("fifo"), node("n0", 4, cpu_milli=8000, memory_mib=800), node("down", 1))
    core.handle(NodeLost(0.0, node("down").id), GpuFailed(0.0, node("n0").id, 3))
    core.handle(Adopted(0.0, B, spec(1), held("n0", (0,)), attempts=1))
    core.handle(Adopted(0.0, C, spec(0.5), shared("n0", 2, 500), attempts=1))
    before, releases = snapshot(core), core.ledger.releases

    with pytest.raises(Conflict, match=why):
        core.handle(Adopted(0.0, A, wanted, allocation, attempts=1))  # type: ignore[arg-type]

    assert not differ(before, snapshot(core))
    assert core.ledger.releases == releases
    validate(core)


def test_a_gang_is_refused_whole() -> None:
    core = fresh("n0", "n1")
    core.handle(Adopted(0.0, B, spec(1), held("n1", (0,)), attempts=1))
    before = snapshot(core)
    gang = Allocation((part("n0", (0,)), part("n1", (0,))))

    with pytest.raises(Conflict):
        core.handle(Adopted(0.0, A, spec(1, workers=2), gang, attempts=1))

    assert not differ(before, snapshot(core))


def test_a_job_that_is_known_is_refused() -> None:
    core = fresh()
    core.handle(Submitted(0.0, A, spec(1)))

    with pytest.raises(Conflict, match="exists already"):
        core.handle(Adopted(1.0, A, spec(1)))


def test_what_somebody_has_yet_to_leave_is_refused() -> None:
    core = fresh()
    core.handle(Adopted(0.0, B, spec(1), held("n0", (0,)), attempts=1), CancelRequested(0.0, B))

    with pytest.raises(Conflict, match="b#1 has yet to leave it"):
        core.handle(Adopted(1.0, A, spec(1), held("n0", (0,)), attempts=1))


def test_a_run_is_some_attempt() -> None:
    with pytest.raises(InvalidSpec, match="attempt 0"):
        Adopted(1.0, A, spec(1), held("n0", (0,)))


# -- protected -----------------------------------------------------------------------------------


def test_whoever_asks_a_protected_run_is_not_evicted() -> None:
    script = Scripted()
    core = core_with(script, node("n0", 2))
    core.handle(Submitted(0.0, A, spec(1)))
    started(core, script.at(core, 0.0, lambda plan: plan.place(plan.jobs[A])), 0.0)
    core.handle(Protected(1.0, A, WHY))
    answers: list[bool] = []

    def disturb(plan: Plan) -> None:
        answers.append(plan.evict(plan.runs[run("a")], "to make room"))
        answers.append(plan.suspend(plan.runs[run("a")], "to make room"))

    assert script.at(core, 2.0, disturb) == []
    assert answers == [False, False]
    assert not core.jobs[A].preemptible

    core.handle(Protected(3.0, A, ""))
    assert core.jobs[A].preemptible
    assert len(script.at(core, 4.0, lambda plan: plan.evict(plan.runs[run("a")], "now"))) == 1


def test_its_user_may_still_end_it_or_set_it_aside() -> None:
    core = fresh()
    started(core, core.handle(Submitted(0.0, A, spec(1)), Submitted(0.0, B, spec(1))), 0.0)
    core.handle(Protected(1.0, A, WHY), Protected(1.0, B, WHY))

    assert isinstance(core.handle(CancelRequested(2.0, A))[0], Stop)
    assert isinstance(core.handle(SuspendRequested(2.0, B))[0], Suspend)


def test_who_is_not_known_is_not_protected() -> None:
    with pytest.raises(NotFound):
        fresh().handle(Protected(0.0, A, WHY))


def leaving(core: Core) -> None:
    """Let a, who is up on all of n0, be asked to leave for b."""
    started(core, core.handle(Submitted(0.0, A, spec(4))), 0.0)
    (stop,) = core.handle(Submitted(1.0, B, spec(2, priority=1)))
    assert isinstance(stop, Stop)
    assert core.runs[run("b")].after == {run("a")}


def test_a_run_that_was_asked_to_leave_stays_once_it_is_protected() -> None:
    core = core_with(policy("priority"), node("n0", 4))
    leaving(core)

    assert core.handle(Protected(2.0, A, WHY)) == []

    assert core.runs.keys() == {run("a")}
    assert (core.jobs[A].state, core.jobs[B].state) == (JobState.RUNNING, JobState.QUEUED)
    assert core.withdrawn == [B]
    assert core.ledger.free_milli == 0
    validate(core)


def test_those_who_waited_for_it_go_elsewhere() -> None:
    core = core_with(policy("priority"), node("n0", 4), node("n1", 1))
    leaving(core)
    core.handle(QueueChanged(1.0, queue("red")))
    core.handle(Submitted(1.0, C, spec(1)))

    core.handle(Protected(2.0, A, WHY))
    validate(core)
    core.handle(Protected(3.0, A, ""))

    assert core.runs[run("a")].reason == "makes room for b"
    validate(core)


def test_its_user_may_have_suspended_it_meanwhile() -> None:
    core = core_with(policy("priority"), node("n0", 4))
    leaving(core)
    core.handle(SuspendRequested(2.0, A))

    asked = core.handle(Protected(3.0, A, WHY))

    assert isinstance(asked[0], Suspend)
    validate(core)


def test_a_run_that_its_user_or_a_failure_ends_does_not_stay() -> None:
    core = core_with(policy("priority"), node("n0", 1), node("n1", 1))
    started(core, core.handle(Submitted(0.0, A, spec(1)), Submitted(0.0, B, spec(1))), 0.0)
    core.handle(CancelRequested(1.0, A), NodeLost(1.0, node("n1").id))

    core.handle(Protected(2.0, A, WHY), Protected(2.0, B, WHY))

    assert all(r.leaves for r in core.runs.values())
    validate(core)


def test_a_run_that_a_failure_hit_while_it_grew_does_not_stay() -> None:
    script = Scripted()
    core = core_with(script, node("n0", 1), node("n1", 1))
    core.handle(Submitted(0.0, A, spec(1, workers=(1, 2))))
    started(core, script.at(core, 0.0, lambda plan: plan.place(plan.jobs[A])), 0.0)
    script.at(core, 1.0, lambda plan: plan.resize(plan.runs[run("a")], 2))
    core.handle(GpuFailed(2.0, node("n1").id, 0))

    core.handle(GpuRestored(3.0, node("n1").id, 0), Protected(3.0, A, WHY))

    assert core.runs[run("a")].leaves
    validate(core)


def test_a_run_that_waited_to_grow_there_stays_as_it_is() -> None:
    script = Scripted()
    core = core_with(script, node("n0", 2))
    wanted = spec(1, workers=(1, 2))
    core.handle(Submitted(0.0, A, spec(1)), Submitted(0.0, B, wanted))
    place = script.at(core, 0.0, *(lambda p, name=name: p.place(p.jobs[name]) for name in (A, B)))
    started(core, place, 0.0)
    script.at(
        core,
        1.0,
        lambda plan: plan.evict(plan.runs[run("a")], "makes room"),
        lambda plan: plan.resize(plan.runs[run("b")], 2),
    )
    assert core.jobs[B].state is JobState.RESIZING

    assert core.handle(Protected(2.0, A, WHY)) == []

    assert {j.state for j in core.jobs.values()} == {JobState.RUNNING}
    assert core.runs[run("b")].workers == 1
    validate(core)


def test_protection_outlives_a_run_and_a_restart() -> None:
    core = fresh()
    core.handle(Submitted(0.0, A, replace(spec(1), max_retries=1)))
    core.handle(Protected(1.0, A, WHY))
    core.handle(Started(1.0, run("a")), Exited(2.0, run("a"), Outcome.FAILED))

    assert core.jobs[A].protected == WHY
