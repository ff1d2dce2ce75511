"""What can never run is refused before anything runs, and the message names it."""

from __future__ import annotations

import pytest
from tests.oracles.played import cluster, job, play

from roost.core import Level, NodeSpec
from roost.errors import InvalidSpec, RoostError
from roost.policies.fifo import fifo
from roost.testing.builders import node, queue
from roost.traces.workload import TraceJob


@pytest.mark.parametrize(
    ("asked", "nodes", "message"),
    [
        pytest.param(
            job("wide", 0, 1, workers=17),
            cluster(8, nodes=2),
            r"job 'wide' can never run: it asks for 17 GPUs.* 2 nodes",
            id="too many GPUs",
        ),
        pytest.param(
            job("fat", 0, 1, gpus=9),
            cluster(8, nodes=2),
            r"job 'fat' can never run: it asks for 9 GPUs",
            id="one worker larger than any node",
        ),
        pytest.param(
            job("picky", 0, 1, kinds=("h100",)),
            cluster(8),
            r"job 'picky' can never run: it asks for 1 GPUs of kind h100",
            id="no such kind",
        ),
        pytest.param(
            job("hungry", 0, 1, cpu_milli=9000),
            [node("n0", 8, cpu_milli=8000)],
            r"job 'hungry' can never run",
            id="more CPUs than a node has",
        ),
        pytest.param(
            job("close", 0, 1, workers=9, within=Level.NODE),
            cluster(8, nodes=2),
            r"job 'close' can never run",
            id="does not fit in the cell it asks for",
        ),
    ],
)
def test_an_impossible_job_is_refused(asked: TraceJob, nodes: list[NodeSpec], message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        play(fifo, job("fine", 0, 1), asked, nodes=nodes)


def test_a_job_above_its_queues_limit_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"job 'a' .* queue 'q' is limited to 2"):
        play(
            fifo,
            job("a", 0, 1, gpus=3, queue="q"),
            nodes=cluster(8),
            queues=[queue("q", limit_milli=2000)],
        )


def test_impossible_jobs_can_be_skipped() -> None:
    played = play(
        fifo,
        job("wide", 0, 1, workers=17),
        job("fine", 0, 1),
        nodes=cluster(8),
        skip_impossible=True,
    )

    assert played.times == {"fine": (0, 1)}


def test_but_not_all_of_them() -> None:
    with pytest.raises(InvalidSpec, match="no job of 'toy' can ever run"):
        play(fifo, job("wide", 0, 1, workers=17), nodes=cluster(8), skip_impossible=True)


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="'twin' appears twice in 'toy'"):
        play(fifo, job("twin", 0, 1), job("other", 0, 1), job("twin", 5, 1), nodes=cluster(1))


def test_an_empty_workload_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="workload 'toy' has no jobs"):
        play(fifo, nodes=cluster(1))


def test_a_cluster_without_nodes_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="the cluster has no nodes"):
        play(fifo, job("a", 0, 1), nodes=[])


def test_two_nodes_of_one_name_are_refused() -> None:
    with pytest.raises(RoostError, match="n0"):
        play(fifo, job("a", 0, 1), nodes=[*cluster(1), *cluster(1)])


@pytest.mark.parametrize("work_s", [-1.0, float("inf"), float("nan")])
def test_work_that_never_ends_is_refused(work_s: float) -> None:
    with pytest.raises(InvalidSpec, match="job a: work_s must be a finite number >= 0"):
        job("a", 0, work_s, declared=None)


def test_jobs_may_come_in_any_order() -> None:
    played = play(fifo, job("late", 10, 1), job("early", 5, 1), nodes=cluster(1))

    assert played.times == {"late": (10, 11), "early": (5, 6)}
