"""How the place of a run changes its end: factors, the slowest device, resizes, neighbours."""

from __future__ import annotations

import pytest
from tests.oracles.played import Script, cluster, finish, job, play, simulation

from roost.core import Costs, Level, NodeId, NodeLost
from roost.perf.speed import Speed
from roost.placement import placer
from roost.policies.fifo import fifo
from roost.testing.builders import node

#: Slower by the cell that holds the gang; on one socket at full speed.
FAR = Speed(spread={Level.NODE: 0.8, Level.SWITCH: 0.5, Level.CLUSTER: 0.25})
TWO_SOCKETS = [node("n0", 4, sockets=2)]
RACKS = [node("n0", 2, switch="s0"), node("n1", 2, switch="s0"), node("n2", 2, switch="s1")]


@pytest.mark.parametrize(
    ("workers", "ends"),
    [
        pytest.param(1, 100, id="one GPU"),
        pytest.param(2, 100, id="one socket"),
        pytest.param(3, 125, id="both sockets"),
        pytest.param(4, 125, id="the whole node"),
    ],
)
def test_on_one_node_the_sockets_count(workers: int, ends: float) -> None:
    played = play(fifo, job("a", 0, 100, workers=workers), nodes=TWO_SOCKETS, speed=FAR)

    assert played.times == {"a": (0, ends)}


@pytest.mark.parametrize(
    ("workers", "ends"),
    [
        pytest.param(2, 100, id="one node"),
        pytest.param(4, 200, id="one switch"),
        pytest.param(6, 400, id="several switches"),
    ],
)
def test_across_nodes_the_switches_count(workers: int, ends: float) -> None:
    played = play(fifo, job("a", 0, 100, workers=workers), nodes=RACKS, speed=FAR)

    assert played.times == {"a": (0, ends)}


def test_a_job_that_moves_closer_together_goes_faster_from_there() -> None:
    # 25 GPU-s of work by 100 at a quarter of the speed over two switches (n1 and n2), when n2 is
    # lost; b has left n0 by then, so a goes on at half the speed: 75 s of work in 150 s.
    nodes = [node("n1", 2, switch="s0"), node("n2", 2, switch="s1"), node("n3", 2, switch="s0")]
    sim = simulation(fifo, [job("a", 0, 100, workers=4)], nodes, speed=FAR)
    sim.world.schedule(NodeLost(100.0, NodeId("n2")))

    assert finish(sim).times == {"a": (0, 250)}


@pytest.mark.parametrize(("kind", "ends"), [("fast", 50), ("slow", 200), ("plain", 100)])
def test_the_kind_of_gpu_counts(kind: str, ends: float) -> None:
    speed = Speed(kinds={"fast": 2.0, "slow": 0.5})
    played = play(fifo, job("a", 0, 100), nodes=[node("n0", 1, kind=kind)], speed=speed)

    assert played.times == {"a": (0, ends)}


def test_a_mixed_gang_goes_at_the_pace_of_its_slowest_device() -> None:
    nodes = [node("n0", 3, kind="fast"), node("n1", 1, kind="slow")]
    speed = Speed(kinds={"fast": 2.0, "slow": 0.5})
    played = play(
        fifo,
        job("mixed", 0, 100, workers=4),
        job("pure", 300, 100, workers=3),
        nodes=nodes,
        speed=speed,
        placer=placer("anywhere"),
    )

    assert played.times == {"mixed": (0, 200), "pure": (300, 350)}


def test_factors_multiply() -> None:
    # Twice as fast, at half the speed across nodes: 100 s.
    nodes = [node("n0", 1, kind="fast"), node("n1", 1, kind="fast")]
    speed = Speed(kinds={"fast": 2.0}, spread={Level.SWITCH: 0.5})
    played = play(fifo, job("a", 0, 100, workers=2), nodes=nodes, speed=speed)

    assert played.times == {"a": (0, 100)}


def test_checkpoints_slow_down_what_is_slow_already() -> None:
    # Half the speed, 4 s of work in 5.
    played = play(
        fifo,
        job("a", 0, 100, costs=Costs(20, checkpoint_s=5)),
        nodes=[node("n0", 1, kind="slow")],
        speed=Speed(kinds={"slow": 0.5}),
    )

    assert played.times == {"a": (0, 250)}


def test_lost_work_is_counted_in_gpu_seconds_not_in_work() -> None:
    # At half the speed, 15 s of work are done at 30 when all is lost: 30 GPU-s thrown away.
    nodes = [node("n0", 1, kind="slow"), node("n1", 1, kind="slow")]
    sim = simulation(
        fifo,
        [job("a", 0, 100, costs=Costs(checkpoint_every_s=float("inf")))],
        nodes,
        speed=Speed(kinds={"slow": 0.5}),
    )
    sim.world.schedule(NodeLost(30.0, NodeId("n0")))
    played = finish(sim)

    assert played.times == {"a": (0, 230)}
    assert played.rows["a"].lost_gpu_s == 30


def test_growing_and_shrinking_under_way() -> None:
    # 1 worker 0-100 (100 done), 4 workers 100-150 (300), 2 workers: 700 / 2 = 350 s.
    played = play(
        Script({(100.0, "e"): 4, (150.0, "e"): 2}),
        job("e", 0, 1000, workers=(1, 4)),
        nodes=cluster(4),
    )

    assert played.times == {"e": (0, 500)}
    assert played.rows["e"].resizes == 2
    assert played.rows["e"].service_gpu_s == 100 * 1 + 50 * 4 + 350 * 2


def test_work_stops_during_a_resize() -> None:
    # 100 done at 100, stops until 110, then 4 workers: 900 / 4 = 225 s.
    played = play(
        Script({(100.0, "e"): 4}),
        job("e", 0, 1000, workers=(1, 4), costs=Costs(resize_s=10)),
        nodes=cluster(4),
    )

    assert played.times == {"e": (0, 335)}
    assert played.rows["e"].lost_gpu_s == 40


def test_speed_need_not_grow_with_the_workers() -> None:
    # Four times the workers, twice the speed.
    played = play(
        Script({(0.0, "e"): 4}),
        job("e", 0, 100, workers=(1, 4)),
        nodes=cluster(4),
        speed=Speed(scaling=0.5),
    )

    assert played.times == {"e": (0, 50)}


def test_neighbours_slow_each_other_down_while_they_are_together() -> None:
    # a alone 0-20; both at half the speed until b is done, 80 s later (60 of a's 100 done).
    played = play(
        fifo,
        job("a", 0, 100, 0.5),
        job("b", 20, 40, 0.5),
        nodes=cluster(1),
        speed=Speed(interference=0.5),
    )

    assert played.times == {"a": (0, 140), "b": (20, 100)}


def test_every_further_neighbour_counts() -> None:
    # Three on one GPU: each at a quarter of its speed.
    jobs = [job(name, 0, 25, 0.25) for name in "abc"]
    played = play(fifo, *jobs, nodes=cluster(1), speed=Speed(interference=0.5))

    assert set(played.times.values()) == {(0, 100)}


def test_whole_gpus_have_no_neighbours() -> None:
    jobs = [job(name, 0, 100) for name in "ab"]
    played = play(fifo, *jobs, nodes=cluster(2), speed=Speed(interference=0.5))

    assert set(played.times.values()) == {(0, 100)}


def test_a_neighbour_that_is_killed_is_felt_no_more() -> None:
    # a has a worker on each node, b sits beside it on n0, c on n1. n0 is lost at 50 with a and b;
    # a is first in line for two devices and never gets them again. c has done 25 s and goes on
    # alone.
    sim = simulation(
        fifo,
        [job("a", 0, 500, 0.6, workers=2), job("b", 0, 100, 0.4), job("c", 0, 100, 0.4)],
        cluster(1, nodes=2),
        speed=Speed(interference=0.5),
    )
    sim.world.schedule(NodeLost(50.0, NodeId("n0")))

    assert finish(sim).times == {"a": (0, None), "b": (0, None), "c": (0, 125)}


def test_a_neighbour_that_shrinks_away_is_felt_no_more() -> None:
    # e has a worker on each GPU, f1 sits beside the first, f2 beside the second. At 50, when both
    # have done 24.5 s, e gives up its second worker: f2 needs 75.5 s more, f1 151.
    played = play(
        Script({(0.0, "e"): 2, (50.0, "e"): 1}),
        job("e", 0, 1000, 0.6, workers=(1, 2)),
        job("f1", 1, 100, 0.4),
        job("f2", 1, 100, 0.4),
        nodes=cluster(2),
        speed=Speed(interference=0.5),
    )

    assert played.times["f1"] == (1, 201)
    assert played.times["f2"] == (1, 125.5)


def test_a_neighbour_that_is_suspended_is_felt_no_more() -> None:
    # a steps aside at 40, for good: b has done 20 s and needs 80 s more.
    played = play(
        Script(aside=frozenset({(40.0, "a")}), back={"a": 500.0}),
        job("a", 0, 100, 0.5),
        job("b", 0, 100, 0.5),
        nodes=cluster(1),
        speed=Speed(interference=0.5),
    )

    assert played.times == {"a": (0, 580), "b": (0, 120)}
