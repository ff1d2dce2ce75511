"""Static partition: schedules worked out by hand."""

from __future__ import annotations

from tests.oracles.played import cluster, job, play

from roost.policies.static import StaticPartition
from roost.testing.builders import queue

HALVES = [queue("a"), queue("b")]


def test_a_queue_never_borrows() -> None:
    # b has no job at all, still a uses only its 2 of 4 GPUs.
    jobs = [job(f"a{i}", 0, 10, queue="a") for i in range(4)]
    played = play(StaticPartition(), *jobs, nodes=cluster(4), queues=HALVES)

    assert played.times == {"a0": (0, 10), "a1": (0, 10), "a2": (10, 20), "a3": (10, 20)}


def test_a_queue_always_finds_its_slice_free() -> None:
    jobs = [job(f"a{i}", 0, 100, queue="a") for i in range(8)]
    played = play(
        StaticPartition(),
        *jobs,
        job("b0", 5, 1, gpus=2, queue="b"),
        nodes=cluster(4),
        queues=HALVES,
    )

    assert played.times["b0"] == (5, 6)


def test_quotas_come_first_and_weights_share_the_rest() -> None:
    # 8 GPUs: a has 2 by quota; b and c share the other 6 by weight, 4 and 2.
    jobs = [job(f"{name}{i}", 0, 10, queue=name) for name in "abc" for i in range(8)]
    played = play(
        StaticPartition(),
        *jobs,
        nodes=cluster(8),
        queues=[queue("a", quota_milli=2000), queue("b", weight=2), queue("c")],
    )

    at_once = [name for name, (start, _) in played.times.items() if start == 0]
    assert sorted(at_once) == ["a0", "a1", "b0", "b1", "b2", "b3", "c0", "c1"]


def test_inside_a_slice_nobody_passes_the_head() -> None:
    # a has 2 GPUs: wide needs both and waits for a0; small came later and waits for wide.
    played = play(
        StaticPartition(),
        job("a0", 0, 10, queue="a"),
        job("wide", 1, 10, gpus=2, queue="a"),
        job("small", 2, 10, queue="a"),
        nodes=cluster(4),
        queues=HALVES,
    )

    assert played.times == {"a0": (0, 10), "wide": (10, 20), "small": (20, 30)}


def test_nobody_is_stopped() -> None:
    played = play(
        StaticPartition(),
        job("a0", 0, 10, gpus=2, queue="a"),
        job("a1", 1, 1, gpus=2, queue="a", priority=9),
        nodes=cluster(4),
        queues=HALVES,
    )

    assert played.times == {"a0": (0, 10), "a1": (10, 11)}


def test_a_slice_is_not_lost_to_rounding() -> None:
    # 0.1 + 0.2 + 0.3 is a little more than 0.6, yet a's slice is 1 of 6 GPUs.
    played = play(
        StaticPartition(),
        job("a", 0, 10, queue="a"),
        nodes=cluster(6),
        queues=[queue("a", weight=0.1), queue("b", weight=0.2), queue("c", weight=0.3)],
    )

    assert played.times == {"a": (0, 10)}


def test_queues_that_only_the_workload_names_have_slices_too() -> None:
    jobs = [job(f"a{i}", 0, 10, queue="a") for i in range(4)]
    played = play(StaticPartition(), *jobs, job("b", 5, 10, queue="b"), nodes=cluster(4))

    assert played.times == {
        "a0": (0, 10),
        "a1": (0, 10),
        "a2": (10, 20),
        "a3": (10, 20),
        "b": (5, 15),
    }
