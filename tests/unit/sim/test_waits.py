"""Where queueing delay comes from: hand-made cases, and sums that must come out even.

Quota: the job's queue is at its limit. Fragmentation: enough is free, in the wrong places.
Capacity: not enough is free. Turn: it would fit, but others go first.
"""

from __future__ import annotations

import random

import pytest
from tests.oracles.played import cluster, job, play, simulation

from roost.core import Costs
from roost.policies import names, policy
from roost.policies.alnair import Alnair
from roost.policies.backfill import Easy
from roost.policies.fifo import fifo
from roost.policies.sjf import sjf
from roost.policies.srtf import Srtf
from roost.sim.results import JobResult
from roost.testing.builders import node, queue


def split(row: JobResult) -> dict[str, float]:
    """The causes for which a job waited, and how long."""
    waits = {
        "quota": row.wait_quota_s,
        "fragmentation": row.wait_fragmentation_s,
        "capacity": row.wait_capacity_s,
        "turn": row.wait_turn_s,
    }
    return {cause: wait for cause, wait in waits.items() if wait}


def test_a_job_that_starts_at_once_has_not_waited() -> None:
    assert split(play(fifo, job("a", 3, 10), nodes=cluster(1)).rows["a"]) == {}


def test_a_full_cluster_lacks_capacity() -> None:
    played = play(fifo, job("a", 0, 100), job("b", 10, 5), nodes=cluster(1))

    assert split(played.rows["b"]) == {"capacity": 90}


def test_room_in_pieces_is_fragmentation() -> None:
    # One GPU is free on each node; c needs two on one.
    played = play(
        fifo,
        job("a", 0, 100, gpus=3),
        job("b", 0, 100, gpus=3),
        job("c", 10, 5, gpus=2),
        nodes=cluster(4, nodes=2),
    )

    assert split(played.rows["c"]) == {"fragmentation": 90}


def test_free_gpus_of_another_kind_are_no_room() -> None:
    nodes = [node("n0", 1, kind="h100"), node("n1", 8, kind="t4")]
    played = play(
        sjf, job("a", 0, 100, kinds=("h100",)), job("b", 10, 5, kinds=("h100",)), nodes=nodes
    )

    assert split(played.rows["b"]) == {"capacity": 90}


def test_a_queue_at_its_limit_lacks_quota() -> None:
    played = play(
        sjf,
        job("a", 0, 100, queue="q"),
        job("b", 10, 5, queue="q"),
        nodes=cluster(8),
        queues=[queue("q", limit_milli=1000)],
    )

    assert split(played.rows["b"]) == {"quota": 90}


def test_quota_remains_the_cause_while_another_job_is_first_in_line() -> None:
    # q2 is over its queue's limit until 100, whatever big waits for.
    played = play(
        fifo,
        job("q1", 0, 100, gpus=2, queue="q"),
        job("q2", 1, 10, gpus=2, queue="q"),
        job("big", 2, 10, gpus=8, queue="r"),
        nodes=cluster(8),
        queues=[queue("q", limit_milli=2000)],
    )

    assert split(played.rows["q2"]) == {"quota": 99}


def test_behind_the_first_in_line_it_is_not_ones_turn() -> None:
    # a leaves 2 GPUs free; big waits for all 8, and small behind it. From 100 on big has them all.
    played = play(
        fifo,
        job("a", 0, 100, gpus=6),
        job("big", 0, 10, gpus=8),
        job("small", 0, 10),
        nodes=cluster(8),
    )

    assert split(played.rows["big"]) == {"capacity": 100}
    assert split(played.rows["small"]) == {"turn": 100, "capacity": 10}


def test_in_the_way_of_a_reservation_it_is_not_ones_turn() -> None:
    # 1 of 4 GPUs is free until 10, but d would delay b; then b has them all until 15.
    played = play(
        Easy(),
        job("a", 0, 10, gpus=3),
        job("b", 1, 5, gpus=4),
        job("d", 2, 9),
        nodes=cluster(4),
    )

    assert split(played.rows["b"]) == {"capacity": 9}
    assert split(played.rows["d"]) == {"turn": 8, "capacity": 5}


def test_the_cause_changes_with_what_is_free() -> None:
    # d and e take the last GPU of each node from 1 to 51; then 2 are free, in pieces, until 100.
    played = play(
        sjf,
        job("a", 0, 100, gpus=3),
        job("b", 0, 100, gpus=3),
        job("c", 1, 10, gpus=2),
        job("d", 1, 50),
        job("e", 1, 50),
        nodes=cluster(4, nodes=2),
    )

    assert split(played.rows["c"]) == {"capacity": 50, "fragmentation": 49}


def test_waits_of_all_runs_count() -> None:
    # a waits 5-15 while b runs.
    played = play(Srtf(), job("a", 0, 100), job("b", 5, 10), nodes=cluster(1))

    assert split(played.rows["a"]) == {"capacity": 10}
    assert split(played.rows["b"]) == {}


def test_waiting_for_others_to_leave_counts() -> None:
    # n gets its place at 70, but e needs until 80 to give it up.
    played = play(
        Alnair(calm_s=60),
        job("e", 0, 800, workers=(1, 8), costs=Costs(resize_s=10)),
        job("n", 70, 10, gpus=6),
        nodes=cluster(8),
    )

    assert played.times["n"] == (80, 90)
    assert split(played.rows["n"]) == {"capacity": 10}


def test_a_job_that_still_waits_has_waited_until_now() -> None:
    sim = simulation(fifo, [job("a", 0, 100), job("b", 1, 10), job("c", 50, 10)], cluster(1))
    rows = {row.id: row for row in sim.run(until=60).jobs}

    assert rows["b"].wait_capacity_s >= 49  # the last thing that happened was at 50
    assert split({row.id: row for row in sim.run().jobs}["b"]) == {"capacity": 99}


@pytest.mark.parametrize("name", names())
def test_waits_add_up_to_the_time_without_a_run(name: str) -> None:
    chance = random.Random(name)
    jobs = [
        job(
            f"j{i}",
            chance.randrange(300),
            chance.randrange(1, 60),
            workers=chance.choice([1, 1, 2] if name == "static" else [1, 1, 2, 4, 6]),
            queue=chance.choice("abc"),
        )
        for i in range(60)
    ]
    jobs.sort(key=lambda job: job.submitted_at)
    played = play(
        policy(name),
        *jobs,
        nodes=cluster(4, nodes=2),
        queues=[queue("a", limit_milli=6000), queue("b"), queue("c")],
    )

    for row in played.results.jobs:
        left = [at for at, _ in played.diary.left[row.id]]
        began = played.began[row.id]
        waited = sum(
            start - end for start, end in zip(began, [row.submitted_at, *left], strict=False)
        )
        assert sum(split(row).values()) == waited
    assert sum(sum(split(row).values()) for row in played.results.jobs) > 0
