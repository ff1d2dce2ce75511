"""Dominant resource fairness: who starts at once, worked out by hand. See also oracles/test_drf."""

from __future__ import annotations

from tests.oracles.played import Played, cluster, job, play

from roost.policies.drf import Drf
from roost.testing.builders import node, queue


def at_once(played: Played) -> list[str]:
    """The jobs that started at time 0."""
    return sorted(name for name, (start, _) in played.times.items() if start == 0)


def test_two_queues_share_alike() -> None:
    # a's four jobs came first; still two of each start, in order of arrival.
    jobs = [job(f"{q}{i}", 0, 10, queue=q) for q in "ab" for i in range(4)]
    played = play(Drf(), *jobs, nodes=cluster(4))

    assert at_once(played) == ["a0", "a1", "b0", "b1"]
    assert played.times["a2"] == played.times["b3"] == (10, 20)


def test_weights_count() -> None:
    jobs = [job(f"{q}{i}", 0, 10, queue=q) for q in "ab" for i in range(4)]
    played = play(Drf(), *jobs, nodes=cluster(4), queues=[queue("a"), queue("b", weight=3)])

    assert at_once(played) == ["a0", "b0", "b1", "b2"]


def test_the_scarcest_resource_of_each_queue_counts() -> None:
    # 8 GPUs, 16 CPUs. A job of a: 1 GPU (1/8), 1 CPU. A job of b: 1 GPU, 4 CPUs (1/4).
    # a0 1/8, b0 1/4, a1 1/4, tie: a2 3/8, b1 1/2, a3 1/2, tie: a4 5/8. b is next, but only
    # 16 - 5 - 8 = 3 CPUs are left; a5 takes the last GPU.
    jobs = [job(f"a{i}", 0, 10, cpu_milli=1000, queue="a") for i in range(8)]
    jobs += [job(f"b{i}", 0, 10, cpu_milli=4000, queue="b") for i in range(8)]
    played = play(Drf(), *jobs, nodes=[node("n0", 8, cpu_milli=16000)])

    assert at_once(played) == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"]


def test_a_job_that_does_not_fit_is_passed_by_a_smaller_one_of_its_queue() -> None:
    played = play(
        Drf(),
        job("big", 0, 10, gpus=4, queue="a"),
        job("huge", 0, 10, gpus=8, queue="a"),
        job("small", 0, 10, queue="a"),
        nodes=cluster(8),
    )

    assert played.times == {"big": (0, 10), "huge": (10, 20), "small": (0, 10)}


def test_nobody_is_stopped() -> None:
    played = play(
        Drf(), job("a0", 0, 10, gpus=4, queue="a"), job("b0", 1, 1, queue="b"), nodes=cluster(4)
    )

    assert played.times == {"a0": (0, 10), "b0": (10, 11)}


def test_the_queue_that_holds_less_goes_first_when_something_is_freed() -> None:
    # a holds 3, b holds 1. At 5 the short a job ends (a holds 2): b goes next, not a.
    played = play(
        Drf(),
        job("a0", 0, 5, queue="a"),
        job("a1", 0, 50, gpus=2, queue="a"),
        job("b0", 0, 50, queue="b"),
        job("a2", 1, 10, queue="a"),
        job("b1", 2, 10, queue="b"),
        nodes=cluster(4),
    )

    assert played.times["b1"] == (5, 15)
    assert played.times["a2"] == (15, 25)
