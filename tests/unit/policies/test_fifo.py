"""First come, first served: schedules worked out by hand. Times read (start, end)."""

from __future__ import annotations

from tests.oracles.played import cluster, job, play

from roost.policies.fifo import fifo
from roost.testing.builders import queue


def test_nobody_passes_the_head_of_the_line() -> None:
    # GPU 0: a a a a a a a a a a b b b b b c
    # GPU 1: . . . . . . . . . . b b b b b .     c would fit at 2, but b came first
    played = play(
        fifo, job("a", 0, 10), job("b", 1, 5, gpus=2), job("c", 2, 1), nodes=cluster(gpus=2)
    )

    assert played.times == {"a": (0, 10), "b": (10, 15), "c": (15, 16)}


def test_jobs_of_one_instant_go_in_the_order_of_the_workload() -> None:
    played = play(fifo, job("b", 0, 3), job("a", 0, 2), job("c", 0, 1), nodes=cluster(gpus=1))

    assert played.times == {"b": (0, 3), "a": (3, 5), "c": (5, 6)}


def test_a_job_that_ends_makes_room_for_one_that_arrives_at_that_instant() -> None:
    played = play(fifo, job("a", 0, 10), job("b", 10, 5), nodes=cluster(gpus=1))

    assert played.times == {"a": (0, 10), "b": (10, 15)}


def test_higher_priority_goes_first_but_stops_nobody() -> None:
    # 0-10 first; then high (came last), then mid, then low
    played = play(
        fifo,
        job("first", 0, 10),
        job("low", 1, 1, priority=-1),
        job("mid", 2, 1),
        job("high", 3, 1, priority=5),
        nodes=cluster(gpus=1),
    )

    assert played.times == {"first": (0, 10), "high": (10, 11), "mid": (11, 12), "low": (12, 13)}


def test_the_priority_of_a_queue_outweighs_that_of_a_job() -> None:
    played = play(
        fifo,
        job("first", 0, 10),
        job("keen", 1, 1, priority=9, queue="plain"),
        job("calm", 2, 1, queue="vip"),
        nodes=cluster(gpus=1),
        queues=[queue("plain"), queue("vip", priority=1)],
    )

    assert played.times == {"first": (0, 10), "calm": (10, 11), "keen": (11, 12)}


def test_a_queue_at_its_limit_holds_up_only_itself() -> None:
    # q may use 2 of 4 GPUs: q2 waits for q1 although 2 GPUs are idle; r passes.
    played = play(
        fifo,
        job("q1", 0, 10, gpus=2, queue="q"),
        job("q2", 1, 10, gpus=2, queue="q"),
        job("r", 2, 10, gpus=2, queue="r"),
        nodes=cluster(gpus=4),
        queues=[queue("q", limit_milli=2000)],
    )

    assert played.times == {"q1": (0, 10), "q2": (10, 20), "r": (2, 12)}


def test_a_queue_may_use_exactly_its_limit() -> None:
    played = play(
        fifo,
        job("a", 0, 10, gpus=2, queue="q"),
        job("b", 0, 10, gpus=1, queue="q"),
        nodes=cluster(gpus=4),
        queues=[queue("q", limit_milli=3000)],
    )

    assert played.times == {"a": (0, 10), "b": (0, 10)}


def test_inside_a_queue_at_its_limit_nobody_passes_either() -> None:
    # Limit 3: q1 uses 2; q2 asks for 2 more and is over; q3 asks for 1, would fit, came later.
    played = play(
        fifo,
        job("q1", 0, 10, gpus=2, queue="q"),
        job("q2", 1, 10, gpus=2, queue="q"),
        job("q3", 2, 10, gpus=1, queue="q"),
        nodes=cluster(gpus=8),
        queues=[queue("q", limit_milli=3000)],
    )

    assert played.times == {"q1": (0, 10), "q2": (10, 20), "q3": (10, 20)}


def test_a_gang_larger_than_a_node_waits_for_whole_nodes() -> None:
    # a holds 1 GPU of n0, b all of n1: 3 GPUs of n0 are idle, but w needs two whole nodes.
    played = play(
        fifo,
        job("a", 0, 10),
        job("b", 0, 5, gpus=4),
        job("w", 1, 3, workers=8),
        nodes=cluster(gpus=4, nodes=2),
    )

    assert played.times == {"a": (0, 10), "b": (0, 5), "w": (10, 13)}
