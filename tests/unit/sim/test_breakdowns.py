"""Nodes and GPUs that break: what happens to runs, and how often it happens."""

from __future__ import annotations

import math
from itertools import islice, pairwise
from statistics import fmean, stdev

import pytest
from tests.oracles.played import Played, cluster, finish, job, simulation

from roost.core import (
    Costs,
    Event,
    GpuFailed,
    GpuRestored,
    NodeId,
    NodeJoined,
    NodeLost,
    NodeSpec,
)
from roost.errors import InvalidSpec
from roost.placement import placer
from roost.policies.alnair import Alnair
from roost.policies.fifo import fifo
from roost.policies.srtf import Srtf
from roost.sim.failures import Breakdowns, Failures
from roost.testing.builders import node
from roost.traces.workload import TraceJob

N0, N1 = cluster(2, nodes=2)
(QUAD,) = cluster(4)
A, B = NodeId("n0"), NodeId("n1")


def when(*events: Event, jobs: list[TraceJob], nodes: list[NodeSpec]) -> Played:
    sim = simulation(fifo, jobs, nodes)
    for event in events:
        sim.world.schedule(event)
    return finish(sim)


# -- what happens ------------------------------------------------------------------------------


def test_a_job_on_a_lost_node_starts_again_elsewhere() -> None:
    # 60 of 100 s are saved at 75: 40 s are left on n1.
    played = when(
        NodeLost(75.0, A),
        jobs=[job("a", 0, 100, costs=Costs(checkpoint_every_s=20))],
        nodes=[N0, N1],
    )

    assert played.times == {"a": (0, 115)}
    assert played.diary.left == {"a": [(75, "lost"), (115, "succeeded")]}
    assert played.rows["a"].preemptions == 0


def test_with_nowhere_to_go_it_waits_until_the_node_is_back() -> None:
    played = when(NodeLost(30.0, A), NodeJoined(50.0, N0), jobs=[job("a", 0, 100)], nodes=[N0])

    assert played.times == {"a": (0, 120)}
    assert played.rows["a"].wait_capacity_s == 20


def test_a_lost_node_takes_nobody_else_with_it() -> None:
    played = when(
        NodeLost(30.0, A),
        jobs=[job("a", 0, 100, gpus=2), job("b", 0, 100, gpus=2)],
        nodes=[N0, N1],
    )

    assert played.times == {"a": (0, 170), "b": (0, 100)}  # a: 30 done, n1 is free at 100


def test_a_gang_dies_with_any_of_its_nodes() -> None:
    played = when(
        NodeLost(30.0, B),
        NodeJoined(40.0, N1),
        jobs=[job("gang", 0, 100, workers=4, costs=Costs(checkpoint_every_s=math.inf))],
        nodes=[N0, N1],
    )

    assert played.times == {"gang": (0, 140)}


def test_a_failed_gpu_stops_only_who_uses_it() -> None:
    played = when(
        GpuFailed(30.0, A, 0),
        jobs=[job("a", 0, 100, costs=Costs(checkpoint_every_s=math.inf)), job("b", 0, 100)],
        nodes=[N0],
    )

    assert played.times == {"a": (0, 200), "b": (0, 100)}  # a waits for the GPU of b


def test_a_restored_gpu_is_used_again() -> None:
    played = when(
        GpuFailed(30.0, A, 0),
        GpuRestored(45.0, A, 0),
        jobs=[job("a", 0, 100), job("b", 0, 100)],
        nodes=[N0],
    )

    assert played.times == {"a": (0, 115), "b": (0, 100)}


def test_all_who_share_a_failed_gpu_stop() -> None:
    played = when(
        GpuFailed(30.0, A, 0),
        jobs=[job("a", 0, 100, 0.5), job("b", 0, 100, 0.5)],
        nodes=[N0],
    )

    assert played.times == {"a": (0, 100), "b": (0, 100)}  # both go on at once, on GPU 1
    assert [row.runs for row in played.results.jobs] == [2, 2]


def test_a_failed_gpu_takes_part_of_a_node_out_of_service() -> None:
    played = when(
        GpuFailed(5.0, A, 1),
        GpuRestored(60.0, A, 1),
        jobs=[job("a", 10, 10, gpus=2)],
        nodes=[N0],
    )

    assert played.times == {"a": (60, 70)}
    series = played.results.series
    assert dict(zip(series.time, series.capacity, strict=True))[10] == 1


def test_what_is_lost_during_a_restart_is_just_time() -> None:
    # Up again at 40 after the first loss, but lost again at 35: up at 45 on n0.
    played = when(
        NodeLost(30.0, A),
        NodeJoined(32.0, N0),
        NodeLost(35.0, B),
        jobs=[job("a", 0, 100, costs=Costs(restart_s=10))],
        nodes=[N0, N1],
    )

    assert played.began == {"a": [0, 45]}
    assert played.times == {"a": (0, 115)}


def test_a_failure_does_not_use_up_retries() -> None:
    played = when(
        NodeLost(10.0, A),
        NodeLost(20.0, B),
        NodeJoined(30.0, N0),
        jobs=[job("a", 0, 100, max_retries=0)],
        nodes=[N0, N1],
    )

    assert played.rows["a"].outcome == "succeeded"


def test_an_elastic_job_goes_on_with_the_workers_that_are_left() -> None:
    # 4 workers for 30 s: 120 s done. GPU 1 fails: 3 workers from 35 on (5 s to change), 180 s left.
    sim = simulation(
        Alnair(), [job("e", 0, 300, workers=(1, 4), costs=Costs(math.inf, resize_s=5.0))], [QUAD]
    )
    sim.world.schedule(GpuFailed(30.0, A, 1))
    played = finish(sim)

    assert played.times == {"e": (0, 35 + 60)}
    assert played.rows["e"].runs == 1, "it is not started again"
    assert played.rows["e"].resizes == 1
    assert played.rows["e"].lost_gpu_s == 5 * 3
    assert math.isclose(sim.world.gauges.allocated, 0.0)


def test_an_elastic_job_survives_the_loss_of_one_of_its_nodes() -> None:
    sim = simulation(
        Alnair(), [job("e", 0, 400, workers=(1, 4))], [N0, N1], placer=placer("anywhere")
    )
    sim.world.schedule(NodeLost(50.0, B))
    played = finish(sim)

    assert played.times == {"e": (0, 50 + 100)}
    assert played.rows["e"].runs == 1


def test_below_its_least_workers_an_elastic_job_starts_again() -> None:
    sim = simulation(Alnair(), [job("e", 0, 400, workers=(4, 5))], [QUAD])
    for event in (GpuFailed(50.0, A, 1), GpuRestored(60.0, A, 1)):
        sim.world.schedule(event)
    played = finish(sim)

    assert played.diary.left["e"][0] == (50, "lost")
    assert played.rows["e"].runs == 2


def test_a_job_that_changes_size_when_it_is_hit_dies() -> None:
    costs = Costs(resize_s=20.0)
    sim = simulation(
        Alnair(calm_s=0),
        [job("e", 0, 4000, workers=(1, 4), costs=costs), job("n", 10, 1000, gpus=2)],
        [QUAD],
    )
    sim.world.schedule(GpuFailed(15.0, A, 0))
    sim.world.schedule(GpuRestored(16.0, A, 0))
    played = finish(sim)

    assert (15, "lost") in played.diary.left["e"]


# -- how often ---------------------------------------------------------------------------------


def gaps(source: Breakdowns, count: int) -> tuple[list[float], list[float]]:
    """Times up and times down."""
    times = [0.0, *(event.time for event in islice(source, 2 * count))]
    lengths = [later - earlier for earlier, later in pairwise(times)]
    return lengths[::2], lengths[1::2]


@pytest.mark.parametrize("gpu", [None, 3])
def test_times_up_and_down_are_exponential_with_the_means_asked_for(gpu: int | None) -> None:
    """With 4000 samples the mean and the deviation are within 5 % of the true mean.

    The standard error of the mean is 1.6 % of it, that of the deviation 2.2 %; the seed is fixed.
    """
    up, down = gaps(Breakdowns(node("n0"), gpu, 1000.0, 50.0, seed=1), 4000)

    assert fmean(up) == pytest.approx(1000, rel=0.05)
    assert stdev(up) == pytest.approx(1000, rel=0.07)
    assert fmean(down) == pytest.approx(50, rel=0.05)
    assert stdev(down) == pytest.approx(50, rel=0.07)


def test_failures_and_repairs_alternate() -> None:
    whole = list(islice(Breakdowns(N0, None, 10.0, 1.0, seed=0), 6))
    device = list(islice(Breakdowns(N0, 1, 10.0, 1.0, seed=0), 6))

    assert [type(event) for event in whole] == [NodeLost, NodeJoined] * 3
    assert [type(event) for event in device] == [GpuFailed, GpuRestored] * 3
    assert whole == sorted(whole, key=lambda event: event.time)


def test_every_node_and_gpu_has_a_stream_of_its_own() -> None:
    failures = Failures(node_mtbf_s=100.0, gpu_mtbf_s=100.0)
    few = failures.sources([N1], seed=7)
    many = failures.sources([N0, N1], seed=7)

    assert len(few) == 3
    assert len(many) == 6
    firsts = [next(source) for source in many]
    assert [next(source) for source in few] == firsts[3:]
    assert len({event.time for event in firsts}) == 6


def test_another_seed_gives_other_times() -> None:
    first, second = (next(Breakdowns(N0, None, 100.0, 1.0, seed=seed)) for seed in (1, 2))

    assert first.time != second.time


def test_the_share_of_time_in_service_is_mtbf_over_mtbf_plus_mttr() -> None:
    """8 nodes over 400 cycles each; the standard error is about 0.2 %, the bound 1 %."""
    sim = simulation(
        fifo,
        [job("long", 0, 400_000)],
        [node(f"n{i}", 1) for i in range(8)],
        failures=Failures(node_mtbf_s=900.0, node_mttr_s=100.0),
        seed=3,
    )
    series = sim.run(until=400_000).series
    lengths = [later - earlier for earlier, later in pairwise(series.time)]
    capacity = sum(c * t for c, t in zip(series.capacity, lengths, strict=False)) / sum(lengths)

    assert capacity / 8 == pytest.approx(0.9, abs=0.01)


def test_a_run_with_failures_ends_when_all_jobs_are_over() -> None:
    sim = simulation(
        Srtf(),
        [job(f"j{i}", 10 * i, 100 + 7 * i, costs=Costs(checkpoint_every_s=30)) for i in range(20)],
        cluster(2, nodes=2),
        failures=Failures(node_mtbf_s=200.0, node_mttr_s=20.0, gpu_mtbf_s=300.0, gpu_mttr_s=20.0),
    )
    results = sim.run()

    assert sim.over
    assert {row.outcome for row in results.jobs} == {"succeeded"}
    assert max(row.runs for row in results.jobs) > 1
    assert sim.now == max(row.finished_at or 0 for row in results.jobs)


@pytest.mark.parametrize("field", ["node_mtbf_s", "node_mttr_s", "gpu_mtbf_s", "gpu_mttr_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_times_that_are_not_positive_are_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidSpec, match=f"{field} must be a positive number of seconds"):
        Failures(**{field: value})
