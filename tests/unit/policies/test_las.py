"""Least attained service: schedules worked out by hand.

A run gives way to a waiting job once it has had *more than* a quantum (times its GPUs) above what
that job has had, and runs are compared anew once per quantum from the first decision on.
"""

from __future__ import annotations

from tests.oracles.played import cluster, job, play

from roost.policies.las import Las


def test_a_run_gives_way_when_it_is_more_than_a_quantum_ahead() -> None:
    # a: 0-200 (at 100 it is exactly one quantum ahead: not enough), then b to its end: at 300, 400
    # b is at most as far as a. a: 500-600.
    played = play(Las(quantum_s=100), job("a", 0, 300), job("b", 0, 300), nodes=cluster(1))

    assert played.times == {"a": (0, 600), "b": (200, 500)}
    assert played.began["a"] == [0, 500]


def test_a_newcomer_displaces_who_has_had_much_at_once() -> None:
    # At 250 a is 250 ahead. c 250-350, a 350-1100.
    played = play(Las(quantum_s=100), job("a", 0, 1000), job("c", 250, 100), nodes=cluster(1))

    assert played.times == {"a": (0, 1100), "c": (250, 350)}


def test_a_newcomer_waits_for_who_has_had_little() -> None:
    # At 90 a is less than a quantum ahead; it is compared again at 100 (100 ahead: not more than
    # a quantum) and at 200.
    played = play(Las(quantum_s=100), job("a", 0, 1000), job("c", 90, 10), nodes=cluster(1))

    assert played.times == {"a": (0, 1010), "c": (200, 210)}


def test_service_counts_gpus() -> None:
    # a holds 2 GPUs: at 100 it has had 200, a quantum's worth of 2 GPUs; at 200 it is 400 ahead.
    played = play(
        Las(quantum_s=100), job("a", 0, 300, gpus=2), job("b", 0, 50), nodes=cluster(gpus=2)
    )

    assert played.times == {"a": (0, 350), "b": (200, 250)}


def test_no_run_time_is_needed() -> None:
    played = play(
        Las(quantum_s=100),
        job("a", 0, 300, declared=None),
        job("b", 0, 300, declared=None),
        nodes=cluster(1),
    )

    assert played.times == {"a": (0, 600), "b": (200, 500)}


def test_the_one_with_least_service_goes_first() -> None:
    # At 400, a had 200 (0-200) and b had 200 (200-400) when c (20 s) displaced b; after c ends
    # at 420 the older of the equals goes on: a 420-520, b 520-620.
    played = play(
        Las(quantum_s=100),
        job("a", 0, 300),
        job("b", 0, 300),
        job("c", 400, 20),
        nodes=cluster(1),
    )

    assert played.times == {"a": (0, 520), "b": (200, 620), "c": (400, 420)}


def test_a_run_is_left_alone_for_its_minimum_time() -> None:
    # b could displace a at 200, but a is protected until 350.
    played = play(
        Las(quantum_s=100, min_run_s=350), job("a", 0, 1000), job("b", 0, 10), nodes=cluster(1)
    )

    assert played.times == {"a": (0, 1010), "b": (350, 360)}
