"""Max-min fair share with preemption: schedules by hand. See also oracles/test_shares."""

from __future__ import annotations

from collections.abc import Iterable

from tests.oracles.played import Played, cluster, job, play

from roost.policies.fair import FairShare
from roost.testing.builders import queue
from roost.traces.workload import TraceJob


def several(count: int, name: str, at: float, work_s: float) -> Iterable[TraceJob]:
    return (job(f"{name}{i}", at, work_s, queue=name) for i in range(count))


def running_at(played: Played, now: float, name: str) -> list[str]:
    """Jobs of a queue that some run held GPUs for just after ``now``."""
    found = []
    for row in played.results.jobs:
        began = played.began.get(row.id, [])
        left = [at for at, _ in played.diary.left.get(row.id, [])]
        if row.queue == name and any(
            start <= now < end for start, end in zip(began, left, strict=True)
        ):
            found.append(row.id)
    return sorted(found)


def test_a_queue_takes_back_its_share_and_not_more() -> None:
    # a borrowed all 4 GPUs. At 10, b wants 4 and is entitled to 2: the youngest two of a go.
    # At 100, a0 and a1 end; a holds nothing then and is served first: a2, a3 100-190 (they had
    # saved 10 s). b0, b1 10-110; b2, b3 110-210.
    played = play(
        FairShare(), *several(4, "a", 0, 100), *several(4, "b", 10, 100), nodes=cluster(4)
    )

    assert played.times == {
        "a0": (0, 100),
        "a1": (0, 100),
        "a2": (0, 190),
        "a3": (0, 190),
        "b0": (10, 110),
        "b1": (10, 110),
        "b2": (110, 210),
        "b3": (110, 210),
    }
    assert played.began["a2"] == played.began["a3"] == [0, 100]


def test_what_nobody_else_wants_may_be_borrowed() -> None:
    played = play(FairShare(), *several(4, "a", 0, 10), nodes=cluster(4), queues=[queue("b")])

    assert set(played.times.values()) == {(0, 10)}


def test_weights_set_the_shares() -> None:
    # 8 GPUs, weights 3 and 1: b gets 2 of them back.
    played = play(
        FairShare(),
        *several(8, "a", 0, 100),
        *several(8, "b", 10, 100),
        nodes=cluster(8),
        queues=[queue("a", weight=3), queue("b", weight=1)],
    )

    assert len(running_at(played, 50, "a")) == 6
    assert len(running_at(played, 50, "b")) == 2


def test_what_a_modest_queue_leaves_is_dealt_to_the_others() -> None:
    # 9 GPUs, a holds all. b wants 1, c wants 9: 1 for b, and (9 - 1) / 2 = 4 each for a and c.
    played = play(
        FairShare(),
        *several(9, "a", 0, 100),
        *several(1, "b", 10, 100),
        *several(9, "c", 10, 100),
        nodes=cluster(9),
    )

    assert [len(running_at(played, 50, name)) for name in "abc"] == [4, 1, 4]


def test_a_gang_above_its_queues_share_waits_for_idle_gpus() -> None:
    # b is entitled to 2 of 4 GPUs; a gang of 3 would take more than that by force.
    played = play(
        FairShare(), *several(4, "a", 0, 100), job("b", 10, 10, gpus=3, queue="b"), nodes=cluster(4)
    )

    assert played.times["b"] == (100, 110)
    assert played.results.preemptions == 0


def test_a_queue_is_not_pushed_below_its_share() -> None:
    # a holds one gang of 3 of the 4 GPUs, b is entitled to 2. Stopping the gang would leave a with
    # nothing, so b's second job waits.
    played = play(
        FairShare(),
        job("a", 0, 100, gpus=3, queue="a"),
        job("a-more", 1, 100, gpus=3, queue="a"),
        *several(2, "b", 10, 10),
        nodes=cluster(4),
    )

    assert played.times["b0"] == (10, 20)
    assert played.times["b1"] == (20, 30)
    assert played.results.preemptions == 0


def test_runs_are_left_alone_for_a_minimum_time() -> None:
    played = play(
        FairShare(min_run_s=100),
        *several(2, "a", 0, 1000),
        *several(1, "b", 10, 10),
        nodes=cluster(2),
    )

    assert played.times == {"a0": (0, 1000), "a1": (0, 1010), "b0": (100, 110)}


def test_what_must_not_be_stopped_is_not() -> None:
    played = play(
        FairShare(),
        job("a0", 0, 100, queue="a"),
        job("a1", 0, 100, queue="a", preemptible=False),
        job("b", 10, 10, queue="b"),
        nodes=cluster(2),
    )

    assert played.times == {"a0": (0, 110), "a1": (0, 100), "b": (10, 20)}


def test_a_share_is_not_lost_to_rounding() -> None:
    # 0.1 + 0.2 + 0.3 is a little more than 0.6, yet a is entitled to 1 of the 6 GPUs.
    played = play(
        FairShare(),
        *several(6, "c", 0, 1000),
        *several(6, "b", 5, 1000),
        *several(3, "a", 10, 100),
        nodes=cluster(6),
        queues=[queue("a", weight=0.1), queue("b", weight=0.2), queue("c", weight=0.3)],
    )

    assert [len(running_at(played, 50, name)) for name in "abc"] == [1, 2, 3]


def test_what_a_limit_forbids_one_queue_is_dealt_to_the_others() -> None:
    # 8 GPUs, c holds all. a may use 2 at most; b and c share the other 6.
    played = play(
        FairShare(),
        *several(8, "c", 0, 1000),
        *several(8, "b", 5, 1000),
        *several(4, "a", 5, 1000),
        nodes=cluster(8),
        queues=[queue("a", limit_milli=2000), queue("b"), queue("c")],
    )

    assert [len(running_at(played, 50, name)) for name in "abc"] == [2, 3, 3]


def test_nobody_makes_room_for_who_does_not_preempt() -> None:
    played = play(
        FairShare(),
        *several(2, "a", 0, 100),
        job("b", 10, 10, queue="b", preempts=False),
        nodes=cluster(2),
    )

    assert played.times["b"] == (100, 110)
    assert played.results.preemptions == 0
