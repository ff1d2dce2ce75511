"""Runs grow, shrink and move while they live; what they give up is waited for."""

from __future__ import annotations

from collections.abc import Callable

from roost.core import (
    Allocation,
    CancelRequested,
    Exited,
    GpuFailed,
    JobState,
    Launch,
    Level,
    Migrate,
    NodeSpec,
    Outcome,
    Plan,
    QueueChanged,
    Resize,
    Resized,
    Stop,
    Submitted,
    Suspend,
    Suspended,
    SuspendRequested,
    Woke,
)
from roost.testing.builders import core_with, held, job, node, part, queue, run, shared, spec
from roost.testing.checks import validate
from roost.testing.engine import FakeEngine
from roost.testing.policies import Scripted

A, B = job("a"), job("b")
ELASTIC = spec(1, 100.0, workers=(1, 2))

Step = Callable[[Plan], object]


class Cluster(FakeEngine):
    """An engine whose core does as it is told."""

    def __init__(self, *nodes: NodeSpec) -> None:
        self.script = Scripted()
        super().__init__(core_with(self.script, *nodes))

    def plan(self, *steps: Step) -> list[object]:
        """Make a plan of these steps, a second later."""
        self.script.steps = list(steps)
        return list(self.tell(Woke(self.now + 1.0)))


def place(name: str, workers: int | None = None) -> Step:
    return lambda plan: plan.place(plan.jobs[job(name)], workers)


def resize(name: str, workers: int) -> Step:
    return lambda plan: plan.resize(plan.runs[run(name)], workers)


def move(name: str, where: Allocation) -> Step:
    return lambda plan: plan.reshape(plan.runs[run(name)], where)


def test_a_run_grows_beside_where_it_is() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC))
    world.plan(place("a"))
    world.answer_all()
    both = Allocation((part("n0", (0,)), part("n0", (1,))))

    assert world.plan(resize("a", 2)) == [Resize(run("a"), both)]
    assert world.core.jobs[A].state is JobState.RESIZING
    validate(world.core)
    world.answer_all()
    assert world.core.jobs[A].state is JobState.RUNNING
    assert world.core.runs[run("a")].workers == 2
    assert world.core.runs[run("a")].rate == 2.0
    assert world.core.jobs[A].resizes == 1
    validate(world.core)


def test_a_run_shrinks_and_what_it_gives_up_is_waited_for() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC), Submitted(0.0, B, spec(1)))
    world.plan(place("a", 2))
    world.answer_all()

    assert world.plan(resize("a", 1), place("b")) == [Resize(run("a"), held("n0", (0,)))]
    assert world.core.runs[run("b")].after == {run("a")}
    validate(world.core)
    assert world.answer(run("a")) == [Launch(run("b"), spec(1), held("n0", (1,)))]
    validate(world.core)


def test_a_share_given_up_on_a_kept_device_is_waited_for() -> None:
    world = Cluster(node("n0", 1))
    half = spec(0.5, workers=(1, 2))
    world.tell(Submitted(0.0, A, half), Submitted(0.0, B, spec(0.5)))
    world.plan(place("a", 2))
    world.answer_all()

    assert world.plan(resize("a", 1), place("b")) == [Resize(run("a"), shared("n0", 0, 500))]
    assert world.answer(run("a")) == [Launch(run("b"), spec(0.5), shared("n0", 0, 500))]


def test_cpus_given_up_by_equal_parts_are_waited_for() -> None:
    world = Cluster(node("n0", 0, cpu_milli=2000))
    world.tell(
        Submitted(0.0, A, spec(0, workers=(1, 2), cpu_milli=1000)),
        Submitted(0.0, B, spec(0, cpu_milli=1000)),
    )
    world.plan(place("a"))
    world.answer_all()
    world.plan(resize("a", 2))
    world.answer_all()

    assert [type(action) for action in world.plan(resize("a", 1), place("b"))] == [Resize]
    assert [type(action) for action in world.answer(run("a"))] == [Launch]
    validate(world.core)


def test_a_run_moves_and_the_place_it_left_is_waited_for() -> None:
    world = Cluster(node("n0", 1), node("n1", 1))
    world.tell(Submitted(0.0, A, spec(1)), Submitted(0.0, B, spec(1)))
    world.plan(place("a"))
    world.answer_all()

    assert world.plan(move("a", held("n1", (0,))), place("b")) == [
        Migrate(run("a"), held("n1", (0,)))
    ]
    validate(world.core)
    assert world.answer(run("a")) == [Launch(run("b"), spec(1), held("n0", (0,)))]
    validate(world.core)


def test_a_run_grows_onto_devices_that_another_is_leaving() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC), Submitted(0.0, B, spec(1)))
    world.plan(place("a"), place("b"))
    world.answer_all()
    stop = Stop(run("b"), "a grows")

    assert world.plan(lambda plan: plan.evict(plan.runs[run("b")], "a grows"), resize("a", 2)) == [
        stop
    ]
    validate(world.core)
    assert [type(action) for action in world.answer(run("b"))] == [Resize]
    world.answer_all()
    validate(world.core)


def test_two_runs_of_one_node_may_shrink_at_once() -> None:
    world = Cluster(node("n0", 4, cpu_milli=4000))
    world.tell(Submitted(0.0, A, ELASTIC), Submitted(0.0, B, ELASTIC))
    world.plan(place("a", 2), place("b", 2))
    world.answer_all()

    world.plan(resize("a", 1), resize("b", 1))
    world.answer_all()

    assert [r.workers for r in world.core.runs.values()] == [1, 1]
    assert world.core.ledger.free_milli == 2000
    validate(world.core)


def test_runs_do_not_wait_for_each_other() -> None:
    world = Cluster(node("n0", 2), node("n1", 2))
    world.tell(Submitted(0.0, A, spec(1)), Submitted(0.0, B, spec(1)))
    world.plan(
        lambda plan: plan.place_at(plan.jobs[A], held("n0", (0,))),
        lambda plan: plan.place_at(plan.jobs[B], held("n1", (0,))),
    )
    world.answer_all()

    world.plan(move("a", held("n1", (1,))), move("b", held("n0", (0,))))
    world.answer_all()

    assert all(r.settled for r in world.core.runs.values())
    validate(world.core)


def test_runs_without_devices_do_not_wait_for_each_other() -> None:
    world = Cluster(node("n0", 0, cpu_milli=1000), node("n1", 0, cpu_milli=1000))
    small = spec(0, cpu_milli=500)
    world.tell(Submitted(0.0, A, small), Submitted(0.0, B, small))
    world.plan(
        lambda plan: plan.place_at(plan.jobs[A], held("n0")),
        lambda plan: plan.place_at(plan.jobs[B], held("n1")),
    )
    world.answer_all()

    world.plan(move("a", held("n1")), move("b", held("n0")))
    world.answer_all()

    assert all(r.settled for r in world.core.runs.values())
    validate(world.core)


def test_a_run_cancelled_while_it_grows_is_forgotten_everywhere() -> None:
    world = Cluster(node("n0", 1), node("n1", 1))
    world.tell(Submitted(0.0, A, ELASTIC))
    world.plan(place("a"))
    world.answer_all()
    world.plan(resize("a", 2))

    assert world.tell(CancelRequested(world.now, A)) == [Stop(run("a"), "cancelled")]
    validate(world.core)
    world.answer_all()
    assert [dict(node.runs) for node in world.core.ledger.order] == [{}, {}]
    validate(world.core)


def test_a_run_cancelled_while_its_growth_is_only_reserved_is_stopped() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC), Submitted(0.0, B, spec(1)))
    world.plan(place("a"), place("b"))
    world.answer_all()
    world.plan(lambda plan: plan.evict(plan.runs[run("b")], "a grows"), resize("a", 2))
    assert world.core.runs[run("a")].after == {run("b")}

    assert world.tell(CancelRequested(world.now, A)) == [Stop(run("a"), "cancelled")]
    validate(world.core)
    world.answer_all()
    assert world.core.jobs[A].state is JobState.CANCELLED
    assert world.core.ledger.free_milli == 2000
    validate(world.core)


def test_a_run_whose_new_gpu_fails_while_it_grows_is_stopped() -> None:
    world = Cluster(node("n0", 1), node("n1", 1))
    world.tell(Submitted(0.0, A, ELASTIC))
    world.plan(place("a"))
    world.answer_all()
    world.plan(resize("a", 2))

    assert world.tell(GpuFailed(world.now, node("n1").id, 0)) == [
        Stop(run("a"), "GPU 0 of node n1 failed")
    ]
    world.end(run("a"), Outcome.LOST, 0.0)
    assert world.core.ledger.free_milli == 1000
    validate(world.core)


def test_a_run_that_ends_while_it_shrinks_lets_the_others_go() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC), Submitted(0.0, B, spec(1)))
    world.plan(place("a", 2))
    world.answer_all()
    world.plan(resize("a", 1), place("b"))

    assert world.end(run("a"), Outcome.SUCCEEDED) == [Launch(run("b"), spec(1), held("n0", (1,)))]
    validate(world.core)


def test_a_job_suspended_while_it_resizes_keeps_its_devices_until_it_has_left() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC), Submitted(0.0, B, spec(2)))
    world.plan(place("a"))
    world.answer_all()
    world.plan(resize("a", 2))
    assert world.tell(SuspendRequested(world.now, A)) == []
    world.script.steps = [place("b")]

    assert world.answer(run("a")) == [Suspend(run("a"), "suspended by its user")]
    validate(world.core)
    assert [type(action) for action in world.answer(run("a"))] == [Launch]
    validate(world.core)


def test_a_job_that_must_stay_on_one_node_does_not_grow_onto_another() -> None:
    world = Cluster(node("n0", 1), node("n1", 1))
    world.tell(Submitted(0.0, A, spec(1, workers=(1, 2), within=Level.NODE)))
    world.plan(place("a"))
    world.answer_all()

    assert world.plan(resize("a", 2)) == []
    validate(world.core)


def test_a_job_that_must_stay_on_one_socket_grows_there() -> None:
    world = Cluster(node("n0", 4, sockets=2))
    world.tell(Submitted(0.0, A, spec(1, workers=(1, 3), within=Level.SOCKET)))
    world.plan(place("a"))
    world.answer_all()

    assert world.plan(resize("a", 3)) == []
    assert [type(action) for action in world.plan(resize("a", 2))] == [Resize]
    world.answer_all()
    validate(world.core)


def test_a_job_without_gpus_that_must_stay_on_one_socket_grows() -> None:
    world = Cluster(node("n0", 0, cpu_milli=2000), node("n1", 0, cpu_milli=2000))
    world.tell(Submitted(0.0, A, spec(0, workers=(1, 3), cpu_milli=1000, within=Level.SOCKET)))
    world.plan(place("a"))
    world.answer_all()

    assert world.plan(resize("a", 3)) == []
    assert [type(action) for action in world.plan(resize("a", 2))] == [Resize]
    world.answer_all()
    validate(world.core)


def test_a_run_may_shrink_while_its_queue_is_over_its_limit() -> None:
    world = Cluster(node("n0", 4))
    world.tell(Submitted(0.0, A, spec(1, workers=(1, 4))))
    world.plan(place("a", 4))
    world.answer_all()
    world.tell(QueueChanged(world.now, queue(limit_milli=2000)))

    assert world.plan(resize("a", 3)) == [Resize(run("a"), held("n0", (0, 1, 2), 3))]
    world.answer_all()
    assert world.plan(resize("a", 4)) == [], "but not grow"
    validate(world.core, limits=False)


def test_a_run_in_motion_is_left_alone() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC))
    world.plan(place("a"))
    refused: list[object] = []

    def disturb(plan: Plan) -> None:
        a = plan.runs[run("a")]
        refused.extend([plan.resize(a, 2), plan.evict(a, "x"), plan.suspend(a, "x")])
        refused.append(plan.reshape(a, held("n0", (1,))))

    world.plan(disturb)
    assert refused == [False] * 4, "it is starting"
    world.answer_all()
    world.plan(resize("a", 2), disturb)
    assert refused == [False] * 8, "it is resizing"
    world.answer_all()
    world.plan(lambda plan: plan.evict(plan.runs[run("a")], "x"), disturb)
    assert refused == [False] * 12, "it is leaving"


def test_a_resize_may_be_taken_back_before_it_is_decided() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC))
    world.plan(place("a"))
    world.answer_all()

    def try_and_go_back(plan: Plan) -> None:
        mark = plan.mark()
        assert plan.resize(plan.runs[run("a")], 2)
        plan.undo(mark)

    assert world.plan(try_and_go_back) == []
    assert world.core.ledger.free_milli == 1000
    validate(world.core)


def test_a_late_resized_is_ignored() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC))
    world.plan(place("a"))
    world.answer_all()

    assert world.tell(Resized(world.now, run("a"))) == []
    assert world.core.jobs[A].resizes == 0


def test_progress_is_kept_through_a_resize() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC))
    world.plan(place("a"))
    world.answer_all()
    start = world.now
    world.plan(resize("a", 2))
    world.answer(run("a"), after_s=9.0)
    a = world.core.runs[run("a")]

    assert a.done(world.now) == world.now - start
    assert a.done(world.now + 5.0) == world.now - start + 10.0
    world.tell(Exited(world.now + 5.0, run("a"), Outcome.SUCCEEDED, 100.0))
    assert world.core.jobs[A].attained_gpu_s == (10.0 + 2 * 5.0)


def test_a_suspended_run_comes_back_with_its_least_workers() -> None:
    world = Cluster(node("n0", 2))
    world.tell(Submitted(0.0, A, ELASTIC))
    world.plan(place("a", 2))
    world.answer_all()
    world.plan(lambda plan: plan.suspend(plan.runs[run("a")], "later"))
    world.tell(Suspended(world.now, run("a"), 3.0))
    world.processes[run("a")].asked.clear()

    world.plan(place("a"))

    assert world.core.runs[run("a")].workers == 1
    validate(world.core)
