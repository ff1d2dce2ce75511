"""Queues: limits, priorities, and changing them while jobs wait."""

from __future__ import annotations

from roost.core import (
    Cause,
    Exited,
    Launch,
    Outcome,
    QueueChanged,
    QueueId,
    Started,
    Submitted,
)
from roost.policies import policy
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, job, node, queue, run, spec
from roost.testing.checks import validate


def test_a_queue_stops_at_its_limit_and_others_pass() -> None:
    core = core_with(fifo, node("n0", 4))
    core.handle(QueueChanged(0.0, queue("small", limit_milli=1500)))

    core.handle(
        Submitted(1.0, job("a"), spec(1, queue="small")),
        Submitted(1.0, job("b"), spec(1, queue="small")),
        Submitted(1.0, job("c"), spec(1, queue="large")),
    )

    assert set(core.runs) == {run("a"), run("c")}
    explained = core.explain(job("b"))
    assert explained is not None
    assert explained.reason.cause is Cause.QUOTA
    validate(core)


def test_a_limit_is_free_again_when_a_run_ends() -> None:
    core = core_with(fifo, node("n0", 4))
    core.handle(QueueChanged(0.0, queue("small", limit_milli=1000)))
    core.handle(*(Submitted(1.0, job(name), spec(1, queue="small")) for name in "ab"))

    (launch,) = core.handle(Exited(2.0, run("a"), Outcome.SUCCEEDED))

    assert launch.run == run("b")
    assert core.queues[QueueId("small")].used_milli == 1000


def test_a_raised_limit_lets_waiting_jobs_start() -> None:
    core = core_with(fifo, node("n0", 4))
    core.handle(QueueChanged(0.0, queue("small", limit_milli=1000)))
    core.handle(*(Submitted(1.0, job(name), spec(1, queue="small")) for name in "abc"))

    assert len(core.handle(QueueChanged(2.0, queue("small", limit_milli=2000)))) == 1
    assert len(core.handle(QueueChanged(3.0, queue("small")))) == 1
    validate(core)


def test_a_lowered_limit_takes_nothing_away() -> None:
    core = core_with(fifo, node("n0", 4))
    core.handle(*(Submitted(1.0, job(name), spec(1, queue="small")) for name in "ab"))

    assert core.handle(QueueChanged(2.0, queue("small", limit_milli=1000))) == []
    assert core.handle(Submitted(3.0, job("c"), spec(1, queue="small"))) == []
    assert core.handle(Exited(4.0, run("a"), Outcome.SUCCEEDED)) == []
    assert len(core.handle(Exited(5.0, run("b"), Outcome.SUCCEEDED))) == 1


def test_what_a_queue_uses_is_counted_when_a_stop_is_decided() -> None:
    core = core_with(policy("srtf"), node("n0", 1))
    core.handle(QueueChanged(0.0, queue("q", limit_milli=1000)))
    core.handle(Submitted(1.0, job("long"), spec(1, 900.0, queue="q")))
    core.handle(Started(1.0, run("long")))
    core.handle(Submitted(2.0, job("other"), spec(1, 10.0, queue="r")))

    assert core.queues[QueueId("q")].used_milli == 0
    assert core.queues[QueueId("r")].used_milli == 1000
    validate(core)


def test_higher_priority_goes_first_and_then_who_came_first() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(QueueChanged(0.0, queue("vip", priority=1)))
    core.handle(Submitted(0.0, job("now"), spec(1)))
    core.handle(
        Submitted(1.0, job("plain"), spec(1)),
        Submitted(1.0, job("urgent"), spec(1, priority=9)),
        Submitted(1.0, job("guest"), spec(1, queue="vip")),
    )

    assert [waiting.id for waiting in core.waiting] == ["guest", "urgent", "plain"]


def test_a_queue_may_change_its_priority_while_its_jobs_wait() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("now"), spec(1)))
    core.handle(
        Submitted(1.0, job("plain"), spec(1)),
        Submitted(1.0, job("urgent"), spec(1, priority=9)),
        Submitted(1.0, job("other"), spec(1, queue="other")),
    )

    core.handle(QueueChanged(2.0, queue(priority=-3)))

    assert [waiting.id for waiting in core.waiting] == ["other", "urgent", "plain"]
    validate(core)


def test_every_queue_gets_its_slice_of_a_static_partition() -> None:
    core = core_with(policy("static"), node("n0", 4))
    core.handle(QueueChanged(0.0, queue("x", quota_milli=3000)), QueueChanged(0.0, queue("y")))

    actions = core.handle(*(Submitted(1.0, job(f"x{n}"), spec(1, queue="x")) for n in range(4)))
    actions += core.handle(*(Submitted(2.0, job(f"y{n}"), spec(1, queue="y")) for n in range(4)))

    assert [a.run.job for a in actions if isinstance(a, Launch)] == ["x0", "x1", "x2", "y0"]


def test_the_queue_with_the_smallest_dominant_share_goes_next() -> None:
    core = core_with(policy("drf"), node("n0", 8, cpu_milli=8000))
    cpus = [Submitted(1.0, job(f"c{n}"), spec(1, queue="c", cpu_milli=3000)) for n in range(4)]
    gpus = [Submitted(1.0, job(f"g{n}"), spec(2, queue="g", cpu_milli=500)) for n in range(4)]

    actions = core.handle(*cpus, *gpus)

    assert [a.run.job for a in actions] == ["c0", "g0", "g1", "c1", "g2"]
    validate(core)
