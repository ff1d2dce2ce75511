"""Priorities: who goes first, who makes room for whom, and who is left alone."""

from __future__ import annotations

from tests.oracles.played import cluster, job, play

from roost.core import (
    Allocation,
    Core,
    Launch,
    NodeSpec,
    PoolChanged,
    Protected,
    QueueChanged,
    Started,
    Stop,
    Submitted,
    Woke,
)
from roost.core.actions import Action
from roost.core.spec import JobId, JobSpec, NodeId
from roost.policies import policy
from roost.policies.priority import PriorityPolicy
from roost.testing.builders import core_with, node, part, queue, role, run, spec, started
from roost.testing.checks import validate


def submit(core: Core, at: float, **wanted: JobSpec) -> list[Action]:
    return core.handle(*(Submitted(at, JobId(name), asked) for name, asked in wanted.items()))


def busy(*nodes: NodeSpec, placer: str = "first-fit", **wanted: JobSpec) -> Core:
    """A core on which these jobs are up."""
    core = core_with(PriorityPolicy(), *nodes, placer=placer)
    started(core, submit(core, 0.0, **wanted), 0.0)
    return core


def stopped(actions: list[Action]) -> list[str]:
    return [action.run.job for action in actions if isinstance(action, Stop)]


def test_higher_priority_goes_first_then_arrival() -> None:
    played = play(
        policy("priority"),
        job("first", 0, 10, preemptible=False),
        job("low", 1, 10),
        job("lower", 2, 10, priority=-1),
        job("high", 3, 10, priority=5),
        job("late", 4, 10),
        nodes=cluster(1),
    )

    assert played.times == {
        "first": (0, 10),
        "high": (10, 20),
        "low": (20, 30),
        "late": (30, 40),
        "lower": (40, 50),
    }


def test_lower_priorities_make_room() -> None:
    played = play(
        policy("priority"),
        job("low", 0, 100),
        job("high", 20, 10, priority=1),
        nodes=cluster(1),
    )

    assert played.times == {"low": (0, 110), "high": (20, 30)}


def test_equals_never_make_room() -> None:
    played = play(policy("priority"), job("a", 0, 100), job("b", 20, 10), nodes=cluster(1))

    assert played.times == {"a": (0, 100), "b": (100, 110)}


def test_the_lowest_makes_room_and_of_equals_the_youngest() -> None:
    core = busy(node("n0", 3), old=spec(1), young=spec(1), better=spec(1, priority=1))

    assert stopped(submit(core, 1.0, high=spec(1, priority=2))) == ["young"]
    assert stopped(submit(core, 2.0, more=spec(2, priority=2))) == ["old", "better"]
    validate(core)


def test_the_queue_counts_before_the_job() -> None:
    core = busy(node("n0", 1), own=spec(1, priority=9))
    core.handle(QueueChanged(1.0, queue("vip", priority=1)))

    assert stopped(submit(core, 2.0, guest=spec(1, queue="vip"))) == ["own"]


def test_runs_of_a_queue_that_fell_make_room() -> None:
    core = busy(node("n0", 1), a=spec(1, queue="red"))
    submit(core, 1.0, b=spec(1, queue="blue"))

    assert core.handle(QueueChanged(2.0, queue("green", priority=-1))) == []
    assert stopped(core.handle(QueueChanged(3.0, queue("red", priority=-1)))) == ["a"]


def test_a_run_has_its_minimum_time() -> None:
    played = play(
        policy("priority:min_run_s=50"),
        job("low", 0, 100),
        job("high", 20, 10, priority=1),
        nodes=cluster(1),
    )

    assert played.times == {"low": (0, 110), "high": (50, 60)}


def test_a_run_with_cpus_has_its_minimum_time_too() -> None:
    core = busy(node("n0", 1, cpu_milli=1000), low=spec(1, cpu_milli=500, min_run_s=50.0))
    high = spec(1, cpu_milli=1000, priority=1)

    assert submit(core, 20.0, high=high) == []
    assert core.wake_at == 50.0
    assert core.handle(Woke(30.0)) == []
    assert stopped(core.handle(Woke(50.0))) == ["low"]


def test_nobody_who_waits_for_minimum_times_is_forgotten() -> None:
    core = busy(
        node("n0", 1, cpu_milli=1000),
        node("n1", 1, cpu_milli=1000),
        a=spec(1, cpu_milli=1000, min_run_s=50.0),
        b=spec(1, cpu_milli=1000, min_run_s=80.0),
    )
    core.handle(*(PoolChanged(1.0, name, frozenset({NodeId(name)})) for name in ("n0", "n1")))
    high = {name: spec(1, cpu_milli=1000, priority=1, pool=name) for name in ("n0", "n1")}

    assert submit(core, 2.0, **high) == []
    assert stopped(core.handle(Woke(50.0))) == ["a"]
    assert core.wake_at == 80.0
    assert stopped(core.handle(Woke(80.0))) == ["b"]


def test_a_run_that_is_starting_makes_room_once_it_is_up() -> None:
    core = core_with(PriorityPolicy(), node("n0", 1, cpu_milli=1000))
    submit(core, 0.0, low=spec(1, cpu_milli=500))

    assert submit(core, 1.0, high=spec(1, cpu_milli=1000, priority=1)) == []
    assert core.handle(Woke(2.0)) == []
    assert stopped(core.handle(Started(3.0, run("low")))) == ["low"]


def test_a_protected_run_with_cpus_makes_room_when_it_may_again() -> None:
    core = busy(node("n0", 1, cpu_milli=1000), low=spec(1, cpu_milli=500))
    core.handle(Protected(1.0, JobId("low"), "its budget allows nothing"))

    assert submit(core, 2.0, high=spec(1, cpu_milli=1000, priority=1)) == []
    assert core.handle(Woke(3.0)) == []
    assert stopped(core.handle(Protected(4.0, JobId("low"), ""))) == ["low"]


def test_a_protected_run_is_left_alone_until_it_is_not() -> None:
    core = busy(node("n0", 1), low=spec(1))
    core.handle(Protected(1.0, JobId("low"), "its budget allows nothing"))

    assert submit(core, 2.0, high=spec(1, priority=1)) == []
    assert core.handle(Protected(3.0, JobId("low"), "it is still so")) == []
    assert stopped(core.handle(Protected(4.0, JobId("low"), ""))) == ["low"]


def test_room_is_made_in_the_pool_that_is_asked_for() -> None:
    core = busy(node("n0", 1), node("n1", 1), a=spec(1), b=spec(1))
    core.handle(PoolChanged(1.0, "p", frozenset({node("n0").id})))

    # b is younger, but not where it would help.
    assert stopped(submit(core, 2.0, high=spec(1, priority=1, pool="p"))) == ["a"]
    assert stopped(submit(core, 3.0, more=spec(1, priority=1, pool="q"))) == []
    validate(core)


def test_room_is_made_on_one_node_for_a_worker_with_cpus() -> None:
    nodes = [node(f"n{index}", 4, cpu_milli=8000) for index in range(3)]
    small = {f"s{index}": spec(1, cpu_milli=2000) for index in range(12)}
    core = busy(*nodes, placer="spread", **small)
    on = {name: core.jobs[JobId(name)].run for name in small}

    gone = stopped(submit(core, 1.0, big=spec(4, cpu_milli=8000, priority=1)))

    assert len(gone) == 4
    assert len({r.allocation.nodes for name, r in on.items() if r and name in gone}) == 1
    validate(core)


def test_nobody_goes_who_is_not_in_the_way() -> None:
    core = busy(
        node("n0", 4, cpu_milli=8000),
        gpu=spec(3, cpu_milli=1000, priority=1),
        idle=spec(0, cpu_milli=1000),
        hog=spec(0, cpu_milli=5000),
    )

    assert stopped(submit(core, 1.0, high=spec(1, cpu_milli=4000, priority=2))) == ["hog"]
    validate(core)


def test_a_gang_with_roles_finds_room_over_several_nodes() -> None:
    nodes = [node(f"n{index}", 2, cpu_milli=8000) for index in range(3)]
    small = {f"s{index}": spec(1, cpu_milli=4000) for index in range(6)}
    core = busy(*nodes, placer="pack", **small)
    master = role("master", 1, 2, cpu_milli=8000)
    gang = spec(2, workers=1, cpu_milli=8000, roles=(master,), priority=1)

    gone = stopped(submit(core, 1.0, gang=gang))

    assert len(gone) == 4
    validate(core)


def test_where_room_cannot_be_made_nobody_goes() -> None:
    core = busy(node("n0", 2, cpu_milli=4000), a=spec(1, cpu_milli=1000), b=spec(0, cpu_milli=500))
    started(core, submit(core, 1.0, top=spec(1, cpu_milli=1000, priority=9)), 1.0)

    assert submit(core, 2.0, high=spec(2, cpu_milli=100, priority=1)) == []
    assert core.explain(JobId("high")) is not None


def test_a_small_one_passes_a_large_one_that_does_not_fit() -> None:
    core = busy(node("n0", 2), a=spec(1))

    actions = submit(core, 1.0, large=spec(2), small=spec(1))

    assert actions == [
        Launch(run("small"), spec(1), Allocation((part("n0", (1,)),)), actions[0].cause)
    ]


def test_nobody_makes_room_for_who_does_not_preempt() -> None:
    core = busy(node(gpus=1), low=spec(1))
    assert submit(core, 1.0, high=spec(1, priority=5, preempts=False)) == []
    assert stopped(submit(core, 2.0, higher=spec(1, priority=9))) == ["low"]


def test_who_does_not_preempt_holds_up_nobody_who_does() -> None:
    # Equal shapes, and the one that would not disturb anybody goes first: they stand apart.
    core = busy(node(gpus=1), low=spec(1))
    submit(core, 1.0, gentle=spec(1, priority=9, preempts=False))
    assert stopped(submit(core, 2.0, firm=spec(1, priority=5))) == ["low"]
    validate(core)


def test_who_does_not_preempt_still_goes_before_lower_priorities() -> None:
    played = play(
        policy("priority"),
        job("first", 0, 10),
        job("low", 1, 10),
        job("gentle", 2, 10, priority=5, preempts=False),
        nodes=cluster(1),
    )
    assert played.times == {"first": (0, 10), "gentle": (10, 20), "low": (20, 30)}


def shared(**quotas: int) -> Core:
    """A core with 16 GPUs and queues with these quotas in whole GPUs."""
    core = core_with(PriorityPolicy(), node("n0", 8), node("n1", 8))
    for name, gpus in quotas.items():
        core.handle(QueueChanged(0.0, queue(name, quota_milli=1000 * gpus)))
    return core


def test_a_queue_gets_its_quota_back_from_one_that_borrowed() -> None:
    core = shared(a=8, b=8)
    for name in ("a1", "a2"):
        started(core, submit(core, 0.0, **{name: spec(8, queue="a")}), 0.0)
    actions = submit(core, 10.0, b1=spec(8, queue="b"))

    assert stopped(actions) == ["a2"]
    assert core.jobs[JobId("b1")].run is not None
    validate(core)
    # What it borrowed is lost, what it was promised is not: nothing more of b gets in.
    assert stopped(submit(core, 20.0, b2=spec(8, queue="b", priority=100))) == []


def test_a_promise_is_stronger_than_a_priority() -> None:
    core = shared(a=8)
    started(core, submit(core, 0.0, high=spec(8, queue="other", priority=50)), 0.0)
    started(core, submit(core, 0.0, low=spec(8, queue="a")), 0.0)

    assert stopped(submit(core, 10.0, higher=spec(8, queue="other", priority=99))) == ["high"]
    assert core.jobs[JobId("low")].run is not None


def test_within_a_queue_the_quota_goes_to_the_highest_priority() -> None:
    core = shared(a=8)
    started(core, submit(core, 0.0, other=spec(8, queue="b", priority=5)), 0.0)
    started(core, submit(core, 0.0, low=spec(8, queue="a")), 0.0)

    assert stopped(submit(core, 10.0, high=spec(8, queue="a", priority=1))) == ["low"]


def test_quotas_that_cannot_be_kept_disturb_nobody() -> None:
    core = shared(a=16, b=16)
    for name in ("a1", "a2"):
        started(core, submit(core, 0.0, **{name: spec(8, queue="a")}), 0.0)

    assert stopped(submit(core, 10.0, b1=spec(8, queue="b"))) == []
    assert stopped(core.handle(Woke(20.0))) == []
