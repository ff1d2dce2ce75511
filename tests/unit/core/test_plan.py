"""The plan: a policy can be poor, but not wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from roost.core import (
    Allocation,
    Core,
    Launch,
    Part,
    Place,
    Plan,
    PoolChanged,
    QueueChanged,
    QueueId,
    Started,
    Submitted,
)
from roost.errors import Fatal
from roost.testing.builders import core_with, held, job, node, part, queue, role, run, spec
from roost.testing.checks import validate
from roost.testing.policies import Scripted

A, B = job("a"), job("b")


@pytest.fixture
def script() -> Scripted:
    return Scripted()


@pytest.fixture
def core(script: Scripted) -> Core:
    core = core_with(script, node("n0", 4))
    core.handle(Submitted(0.0, A, spec(1)), Submitted(0.0, B, spec(1, workers=(2, 3))))
    return core


def test_a_job_is_placed_once(core: Core, script: Scripted) -> None:
    placed: list[bool] = []

    actions = script.at(
        core,
        1.0,
        lambda plan: placed.append(plan.place(plan.jobs[A])),
        lambda plan: placed.append(plan.place(plan.jobs[A])),
    )

    assert placed == [True, False]
    assert [action.run for action in actions] == [run("a")]
    assert [waiting.id for waiting in core.waiting] == [B]
    validate(core)


def test_a_running_job_is_not_placed_again(core: Core, script: Scripted) -> None:
    script.at(core, 1.0, lambda plan: plan.place(plan.jobs[A]))
    core.handle(Started(1.0, run("a")))

    with pytest.raises(Fatal):
        script.at(core, 2.0, lambda plan: plan.place_at(plan.jobs[A], held("n0", (3,))))


@pytest.mark.parametrize(
    "where",
    [
        held("n0", (0,)),
        held("n0", (0, 1, 2, 3), 4),
        Allocation(()),
    ],
    ids=["too few", "too many", "none"],
)
def test_half_a_gang_is_not_placed(core: Core, script: Scripted, where: Allocation) -> None:
    with pytest.raises(Fatal):
        script.at(core, 1.0, lambda plan: plan.place_at(plan.jobs[B], where))


def test_a_gang_is_not_placed_without_its_roles(core: Core, script: Scripted) -> None:
    core.handle(Submitted(1.0, job("c"), spec(1, roles=(role("ps", 2),))))
    alone = held("n0", (0,))
    with_one = Allocation((*alone.parts, part("n0", kind="ps")))

    for where in (alone, with_one):
        with pytest.raises(Fatal):
            script.at(core, 2.0, partial(_place_at, where))


def _place_at(where: Allocation, plan: Plan) -> None:
    plan.place_at(plan.jobs[job("c")], where)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (held("n0", (0, 1)), "outside of pool p"),
        (held("n1", (0, 1)), "it is a b"),
        (held("n2", (0,)), "not what a worker"),
        (Allocation((part("n2", (0, 1), share_milli=500),)), "not what a worker"),
    ],
    ids=["another pool", "another kind", "too few devices", "half of them"],
)
def test_a_job_gets_the_devices_that_it_asks_for(
    script: Scripted, where: Allocation, why: str
) -> None:
    kinds = {"n0": "a", "n1": "b", "n2": "a"}
    core = core_with(script, *(node(name, 4, kind=kind) for name, kind in kinds.items()))
    core.handle(PoolChanged(0.0, "p", frozenset({node("n1").id, node("n2").id})))
    core.handle(Submitted(0.0, job("c"), spec(2, kinds=("a",), pool="p")))

    with pytest.raises(Fatal, match=why):
        script.at(core, 1.0, partial(_place_at, where))
    validate(core)


def test_a_run_neither_moves_to_a_node_that_is_not_for_it_nor_must_leave_one(
    script: Scripted,
) -> None:
    core = core_with(script, node("n0", 4), node("n1", 4))
    core.handle(PoolChanged(0.0, "p", frozenset({node("n0").id})))
    core.handle(Submitted(0.0, job("c"), spec(1, workers=(1, 2), pool="p")))
    script.at(core, 1.0, partial(_place_at, held("n0", (0, 1), 2)))
    core.handle(Started(1.0, run("c")))
    done: list[bool] = []

    def reshape(where: Allocation, plan: Plan) -> None:
        done.append(plan.reshape(plan.runs[run("c")], where))

    script.at(core, 2.0, partial(reshape, held("n1", (0, 1), 2)))
    core.handle(PoolChanged(3.0, "p", frozenset()))
    script.at(core, 4.0, partial(reshape, held("n0", (1,))))

    assert done == [False, True]
    validate(core)


def test_a_queue_is_not_taken_over_its_limit(core: Core, script: Scripted) -> None:
    core.handle(QueueChanged(1.0, queue(limit_milli=1000)))
    placed: list[bool] = []

    script.at(core, 2.0, lambda plan: placed.append(plan.place(plan.jobs[B])))
    assert placed == [False]
    with pytest.raises(Fatal):
        script.at(core, 3.0, lambda plan: plan.place_at(plan.jobs[B], held("n0", (0, 1), 2)))


def test_devices_that_are_not_free_are_refused(core: Core, script: Scripted) -> None:
    script.at(core, 1.0, lambda plan: plan.place_at(plan.jobs[A], held("n0", (0,))))

    with pytest.raises(Fatal, match="not free"):
        script.at(core, 2.0, lambda plan: plan.place_at(plan.jobs[B], held("n0", (0, 1), 2)))


def test_sizes_outside_of_what_was_asked_for_are_refused(core: Core, script: Scripted) -> None:
    with pytest.raises(Fatal, match=r"2\.\.3"):
        script.at(core, 1.0, lambda plan: plan.place(plan.jobs[B], 4))
    script.at(core, 2.0, lambda plan: plan.place(plan.jobs[B], 3))
    core.handle(Started(2.0, run("b")))
    with pytest.raises(Fatal, match=r"2\.\.3"):
        script.at(core, 3.0, lambda plan: plan.resize(plan.runs[run("b")], 1))


def test_everything_can_be_undone(core: Core, script: Scripted) -> None:
    script.at(core, 1.0, lambda plan: plan.place(plan.jobs[B], 3))
    core.handle(Started(1.0, run("b")))

    def try_everything(plan: Plan) -> None:
        tries: list[Callable[[], bool]] = [
            lambda: plan.place(plan.jobs[A]),
            lambda: plan.resize(plan.runs[run("b")], 2),
            lambda: plan.evict(plan.runs[run("b")], "x"),
            lambda: plan.suspend(plan.runs[run("b")], "x"),
        ]
        for attempt in tries:
            mark = plan.mark()
            assert attempt()
            plan.undo(mark)
        assert plan.decisions == []

    assert script.at(core, 2.0, try_everything) == []
    assert core.ledger.free_milli == 1000
    assert core.queues[QueueId("default")].used_milli == 3000
    assert core.jobs[A].waiting
    validate(core)


def test_undoing_goes_back_to_the_mark_and_no_further(core: Core, script: Scripted) -> None:
    def place_and_think_again(plan: Plan) -> None:
        plan.place(plan.jobs[A])
        mark = plan.mark()
        plan.place(plan.jobs[B])
        plan.undo(mark)

    (launch,) = script.at(core, 1.0, place_and_think_again)

    assert launch.run == run("a")
    assert [type(decision) for decision in core.decisions] == [Place]
    validate(core)


def test_a_probe_changes_nothing(core: Core, script: Scripted) -> None:
    found: list[tuple[Part, ...] | None] = []

    assert script.at(core, 1.0, lambda plan: found.append(plan.probe(plan.jobs[A]))) == []
    assert found == [held("n0", (0,)).parts]
    assert core.ledger.free_milli == 4000


def test_a_wake_is_asked_for_and_forgotten_once_it_came(core: Core, script: Scripted) -> None:
    script.at(core, 1.0, lambda plan: plan.wake(9.0), lambda plan: plan.wake(5.0))
    assert core.wake_at == 5.0
    script.at(core, 2.0)
    assert core.wake_at == 5.0, "it still stands"
    script.at(core, 5.0)
    assert core.wake_at == float("inf")


def test_an_elastic_job_may_start_larger(core: Core, script: Scripted) -> None:
    assert script.at(core, 1.0, lambda plan: plan.place(plan.jobs[B], 3)) == [
        Launch(run("b"), spec(1, workers=(2, 3)), held("n0", (0, 1, 2), 3))
    ]
    assert core.runs[run("b")].rate == 1.5
