"""Shortest remaining service (time x GPUs) first: schedules worked out by hand."""

from __future__ import annotations

from tests.oracles.played import cluster, job, play

from roost.core import Costs, Level
from roost.perf.speed import Speed
from roost.policies.srsf import Srsf


def test_waiting_jobs_go_by_time_times_gpus() -> None:
    # x until 10; then a (1 x 10 = 10) before b (4 x 5 = 20), though b is shorter.
    played = play(
        Srsf(),
        job("x", 0, 1, gpus=4),
        job("b", 0, 5, gpus=4),
        job("a", 0, 10),
        nodes=cluster(gpus=4),
    )

    assert played.times == {"x": (0, 1), "a": (1, 11), "b": (11, 16)}


def test_a_shorter_but_wider_run_gives_way() -> None:
    # At 1, a has 9 s x 4 GPUs = 36 left, b asks for 30 x 1. SRTF would have left a alone.
    played = play(Srsf(), job("a", 0, 10, gpus=4), job("b", 1, 30), nodes=cluster(gpus=4))

    assert played.times == {"a": (0, 40), "b": (1, 31)}
    assert played.began["a"] == [0, 31]


def test_a_tie_disturbs_nobody() -> None:
    # At 5, a has 5 x 2 = 10 GPU-seconds left, as many as b asks for.
    played = play(Srsf(), job("a", 0, 10, gpus=2), job("b", 5, 10), nodes=cluster(gpus=2))

    assert played.times == {"a": (0, 10), "b": (10, 20)}


def test_the_gain_must_pay_for_the_restart_on_all_gpus() -> None:
    # At 2, a has 8 s left less 3 for the restart, on 2 GPUs: 10. b (11) waits, c (9) does not.
    costs = Costs(restart_s=3)
    waits = play(Srsf(), job("a", 0, 10, 2, costs=costs), job("b", 2, 11), nodes=cluster(gpus=2))
    goes = play(Srsf(), job("a", 0, 10, 2, costs=costs), job("c", 2, 9), nodes=cluster(gpus=2))

    assert waits.times == {"a": (0, 10), "b": (10, 21)}
    assert goes.times == {"a": (0, 22), "c": (2, 11)}  # up again at 14, 8 s left


def test_a_run_is_left_alone_for_its_minimum_time() -> None:
    played = play(Srsf(min_run_s=7), job("a", 0, 100), job("b", 1, 5), nodes=cluster(gpus=1))

    assert played.times == {"a": (0, 105), "b": (7, 12)}


def test_across_nodes_equals_do_not_displace_each_other() -> None:
    # Both gangs span two nodes and go at half the speed.
    played = play(
        Srsf(),
        job("a", 0, 60, workers=4),
        job("b", 1, 60, workers=4),
        nodes=cluster(2, nodes=2),
        speed=Speed(spread={Level.SWITCH: 0.5}),
    )

    assert played.times == {"a": (0, 120), "b": (120, 240)}
