"""Lines of waiting jobs: their order, why they wait, and how long for what."""

from __future__ import annotations

from typing import Any

import pytest

from roost.core import (
    CancelRequested,
    Cause,
    Exited,
    Job,
    JobId,
    NodeJoined,
    NodeLost,
    Outcome,
    Plan,
    Queue,
    QueueChanged,
    Started,
    Submitted,
    Waiting,
    Woke,
)
from roost.core.reasons import lack
from roost.policies import policy
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, job, node, queue, run, spec
from roost.testing.checks import validate


def waiting_job(seq: int, gpus: float = 1, tenant: str = "q") -> Job:
    return Job(JobId(f"j{seq}"), seq, spec(gpus), Queue(queue(tenant)), 0.0, None)


def test_jobs_of_one_shape_stand_in_one_line() -> None:
    waiting = Waiting()
    for seq in range(6):
        waiting.join(waiting_job(seq, gpus=1 + seq % 2, tenant=f"q{seq}"), 0.0)

    assert len(waiting) == 6
    assert sorted(len(line.entries) for line in waiting.open) == [3, 3]
    assert [found.seq for found in waiting] == list(range(6))


def test_a_line_per_queue_is_formed_where_a_policy_asks_for_it() -> None:
    waiting = Waiting()
    for seq in range(6):
        waiting.join(waiting_job(seq, tenant=f"q{seq % 3}"), 0.0)

    waiting.order_by(lambda found: -found.seq, 1.0, by_queue=True)

    assert len(waiting.open) == 3
    assert [found.seq for found in waiting] == [5, 4, 3, 2, 1, 0]
    assert all(len({e[2].queue.spec.id for e in line.entries}) == 1 for line in waiting.open)


def test_many_that_come_at_once_stand_as_if_they_had_come_one_by_one() -> None:
    once, singly = Waiting(), Waiting()
    for waiting in (once, singly):
        waiting.order_by(lambda found: found.seq % 3, 0.0)
        waiting.join(waiting_job(9), 1.0)
    jobs = [waiting_job(seq, gpus=1 + seq % 2) for seq in range(9)]
    for late in jobs:
        late.queued_at = 0.5
    once.join_all(jobs, 2.0)
    assert {late.queued_at for late in jobs} == {0.5}
    for late in (waiting_job(seq, gpus=1 + seq % 2) for seq in range(9)):
        singly.join(late, 2.0)

    assert [found.seq for found in once] == [found.seq for found in singly]
    assert len(once) == len(singly) == 10
    assert [line.since for line in once.open] == [line.since for line in singly.open]
    for found, other in zip(once, singly, strict=True):
        assert once.waits(found, 4.0) == singly.waits(other, 4.0)


@pytest.mark.parametrize(
    "key", [lambda found: 1 / (found.seq - 2), lambda found: [1, "a"][found.seq % 2]]
)
def test_many_stand_in_order_of_arrival_where_the_key_cannot_be_used(key: Any) -> None:
    waiting = Waiting()
    waiting.key = key

    waiting.join_all([waiting_job(seq) for seq in (3, 1, 2)], 0.0)

    assert waiting.fault is not None
    assert [found.seq for found in waiting] == [1, 2, 3]


def test_those_of_equal_rank_go_in_order_of_arrival() -> None:
    waiting = Waiting()
    waiting.order_by(lambda found: found.saved_s, 0.0)
    for seq in (3, 1, 2):
        waiting.join(waiting_job(seq), 0.0)

    assert [found.seq for found in waiting] == [1, 2, 3]


def test_a_job_leaves_from_the_middle_of_its_line() -> None:
    waiting = Waiting()
    jobs = [waiting_job(seq) for seq in range(4)]
    for found in jobs:
        waiting.join(found, 0.0)

    waiting.leave(jobs[2], 1.0)

    assert [found.seq for found in waiting] == [0, 1, 3]
    assert jobs[2].waits == [0.0, 0.0, 0.0, 1.0]


def test_leaving_can_be_undone_within_the_instant() -> None:
    waiting = Waiting()
    one = waiting_job(0)
    waiting.join(one, 0.0)

    waiting.leave(one, 5.0)
    waiting.rejoin(one, 5.0)
    waiting.leave(one, 7.0)

    assert sum(one.waits) == 7.0
    assert len(waiting) == 0


def test_time_is_put_down_to_what_was_lacking_then() -> None:
    waiting = Waiting()
    one, two = waiting_job(0), waiting_job(1)
    waiting.join(one, 0.0)
    line = waiting.line_of(one)
    line.blame(Cause.CAPACITY, 0.0)
    waiting.join(two, 4.0)
    line.blame(Cause.FRAGMENTATION, 10.0)
    waiting.leave(one, 13.0)
    waiting.leave(two, 14.0)

    assert one.waits == [0.0, 3.0, 10.0, 0.0]
    assert two.waits == [0.0, 4.0, 6.0, 0.0]


def test_the_waits_of_a_job_add_up_over_all_its_waiting() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1)))
    core.handle(Submitted(2.0, job("b"), spec(1)))
    core.handle(Exited(10.0, run("a"), Outcome.SUCCEEDED))
    core.handle(Submitted(11.0, job("c"), spec(1)))
    core.handle(Exited(15.0, run("b"), Outcome.LOST))
    core.handle(Exited(20.0, run("b", 2), Outcome.SUCCEEDED))

    assert sum(core.jobs[job("a")].waits) == 0.0
    assert core.jobs[job("b")].waits == [0.0, 0.0, 8.0, 0.0], "it goes before c again at once"
    assert core.jobs[job("c")].waits == [0.0, 0.0, 9.0, 0.0]


def test_time_spent_reserved_counts_as_waiting() -> None:
    core = core_with(policy("srtf"), node("n0", 1))
    core.handle(Submitted(0.0, job("long"), spec(1, 900.0)))
    core.handle(Started(0.0, run("long")))
    core.handle(Submitted(1.0, job("short"), spec(1, 10.0)))
    assert core.runs[run("short")].after == {run("long")}
    core.handle(NodeLost(6.0, node("n0").id))
    core.handle(NodeJoined(7.0, node("n0", 1)))
    (launch,) = core.handle(Exited(9.0, run("long"), Outcome.LOST))

    assert launch.run == run("short")
    assert sum(core.jobs[job("short")].waits) == 8.0


def test_waits_survive_another_order_and_other_limits() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1)), Submitted(0.0, job("b"), spec(1)))

    core.policy = policy("drf")
    core.handle(Woke(3.0))
    core.handle(QueueChanged(5.0, queue(limit_milli=1000)))
    core.handle(Exited(9.0, run("a"), Outcome.SUCCEEDED))

    quota, fragmentation, capacity, turn = core.jobs[job("b")].waits
    assert (quota, fragmentation, turn) == (4.0, 0.0, 0.0)
    assert capacity == 5.0
    assert core.jobs[job("b")].queued_at == 0.0


def test_a_waiting_job_says_why_and_who_is_ahead() -> None:
    core = core_with(fifo, node("n0", 2), node("n1", 2))
    core.handle(Submitted(0.0, job("a"), spec(1)), Submitted(0.0, job("b"), spec(2)))
    core.handle(Submitted(0.0, job("c"), spec(2)), Submitted(0.0, job("d"), spec(1)))

    first, second = core.explain(job("c")), core.explain(job("d"))

    assert first is not None
    assert second is not None
    assert (first.reason.cause, first.ahead) == (Cause.CAPACITY, ())
    assert (second.reason.cause, second.ahead) == (Cause.TURN, ("c",))
    assert core.explain(job("a")) is None, "it does not wait"


def test_pieces_that_do_not_make_a_whole_are_fragmentation() -> None:
    core = core_with(fifo, node("n0", 2), node("n1", 2))
    core.handle(*(Submitted(0.0, job(name), spec(1)) for name in "abcd"))
    core.handle(Exited(1.0, run("a"), Outcome.SUCCEEDED), Submitted(1.0, job("e"), spec(2)))
    scarce = core.explain(job("e"))
    core.handle(Exited(2.0, run("c"), Outcome.SUCCEEDED))
    scattered = core.explain(job("e"))

    assert scarce is not None
    assert scattered is not None
    assert scarce.reason.cause is Cause.CAPACITY
    assert scattered.reason.cause is Cause.FRAGMENTATION
    core.handle(Exited(5.0, run("b"), Outcome.SUCCEEDED))
    assert core.jobs[job("e")].waits == [0.0, 3.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("cause", "milli", "text"),
    [
        (Cause.CAPACITY, 1000, "no GPU is free"),
        (Cause.CAPACITY, 500, "less than 0.5 GPU is free"),
        (Cause.CAPACITY, 1500, "fewer than 1.5 GPUs are free"),
        (Cause.CAPACITY, 8000, "fewer than 8 GPUs are free"),
        (Cause.QUOTA, 1000, "its queue is at its limit; it asks for 1 GPU more"),
        (Cause.QUOTA, 0, "its queue is at its limit; it asks for 0 GPUs more"),
        (
            Cause.FRAGMENTATION,
            1000,
            "1 GPU is free, but not where such a gang fits with all it needs",
        ),
        (Cause.FRAGMENTATION, 0, "no node has free what it needs beside GPUs"),
        (Cause.TURN, 2000, "2 GPUs would be free for it, but others go first"),
        (Cause.TURN, 0, "there would be room for it, but others go first"),
    ],
)
def test_amounts_are_written_as_people_write_them(cause: Cause, milli: int, text: str) -> None:
    assert lack(cause, milli) == text


def test_only_what_is_of_use_counts_as_free() -> None:
    core = core_with(fifo, node("n0", 1, kind="old"), node("n1", 1, kind="new"))
    core.handle(*(Submitted(0.0, job(name), spec(1, kinds=("new",))) for name in "ab"))
    core.handle(Submitted(1.0, job("c"), spec(1, workers=2, kinds=("new", "newest"))))

    one, two = core.explain(job("b")), core.explain(job("c"))

    assert one is not None
    assert two is not None
    assert one.reason.text == "no GPU of kind new is free"
    assert two.reason.text == "fewer than 2 GPUs of kind new|newest are free"


@pytest.mark.parametrize("limit", [0, 1, 5, 50])
def test_only_so_many_of_those_ahead_are_named(limit: int) -> None:
    core = core_with(fifo)
    core.handle(*(Submitted(0.0, job(f"j{n}"), spec(1)) for n in range(10)))

    explained = core.explain(job("j9"), limit=limit)

    assert explained is not None
    assert explained.ahead == tuple(f"j{n}" for n in range(min(limit, 9)))


def test_a_reservation_says_when() -> None:
    core = core_with(policy("backfill"), node("n0", 2))
    core.handle(Submitted(0.0, job("a"), spec(1, 50.0)), Submitted(0.0, job("b"), spec(2, 10.0)))
    core.handle(Started(0.0, run("a")))
    core.handle(Submitted(1.0, job("c"), spec(1, 20.0)), Submitted(1.0, job("d"), spec(1, 60.0)))

    explained = core.explain(job("b"))

    assert explained is not None
    assert explained.reason.starts_at == 50.0
    assert run("c") in core.runs, "it ends before that"
    assert run("d") not in core.runs, "it would not"


def test_a_cpu_job_of_unknown_length_can_be_cancelled_under_srsf() -> None:
    core = core_with(policy("srsf"), node("n0", 0, cpu_milli=1000))
    core.handle(*(Submitted(0.0, job(f"j{n}"), spec(0, cpu_milli=1000)) for n in range(5)))

    core.handle(CancelRequested(1.0, job("j3")))

    assert [found.id for found in core.waiting] == ["j1", "j2", "j4"]
    validate(core)


def test_a_policy_may_change_its_keys_if_it_says_so() -> None:
    ranks = {job("a"): 1.0, job("b"): 2.0}

    def by_rank(found: Job) -> float:
        return ranks[found.id]

    def order(plan: Plan) -> None:
        plan.lines(by_rank)

    core = core_with(order)
    core.handle(Submitted(0.0, job("a"), spec(1)), Submitted(0.0, job("b"), spec(1)))
    core.waiting.rekey(core.jobs[job("b")], lambda found: ranks.update({found.id: 0.0}))
    assert [found.id for found in core.waiting] == ["b", "a"]
    core.waiting.rekey_all(lambda: ranks.update({job("a"): -1.0}))
    assert [found.id for found in core.waiting] == ["a", "b"]
    validate(core)
