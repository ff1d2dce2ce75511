"""Shortest remaining time first: schedules worked out by hand. Times read (start, end)."""

from __future__ import annotations

import pytest
from tests.oracles.played import cluster, job, play

from roost.core import Costs
from roost.perf.speed import Speed
from roost.placement import placer
from roost.policies.srtf import Srtf
from roost.testing.builders import node


def test_the_example_of_every_textbook() -> None:
    # a b b b b d d d d d a a a a a a a c c c c c c c c c
    # 0 1 . . . 5 . . . . 10. . . . . . 17                26
    played = play(
        Srtf(), job("a", 0, 8), job("b", 1, 4), job("c", 2, 9), job("d", 3, 5), nodes=cluster(1)
    )

    assert played.times == {"a": (0, 17), "b": (1, 5), "c": (17, 26), "d": (5, 10)}
    assert played.began["a"] == [0, 10]
    assert played.rows["a"].preemptions == 1


def test_a_tie_disturbs_nobody() -> None:
    # At 5, a has 5 s left, as many as b needs.
    played = play(Srtf(), job("a", 0, 10), job("b", 5, 5), nodes=cluster(1))

    assert played.times == {"a": (0, 10), "b": (10, 15)}


@pytest.mark.parametrize(
    ("length", "times"),
    [
        # At 4, a has 6 s left and a restart would cost 3: it is worth 3 s of waiting.
        (4, {"a": (0, 10), "b": (10, 14)}),
        (3, {"a": (0, 10), "b": (10, 13)}),
        # b 4-6, a is launched again at 6, up at 9, and has 6 s left.
        (2, {"a": (0, 15), "b": (4, 6)}),
    ],
)
def test_the_gain_must_pay_for_the_restart(
    length: int, times: dict[str, tuple[float, float]]
) -> None:
    played = play(
        Srtf(),
        job("a", 0, 10, costs=Costs(restart_s=3)),
        job("b", 4, length),
        nodes=cluster(1),
    )

    assert played.times == times


def test_the_gain_must_pay_for_the_work_that_is_lost() -> None:
    # Without checkpoints a would lose its first 30 s: at 30 it has 70 left, worth 40. At 60 it has
    # 40 left and 60 to lose. So c (39 s) takes its place at 30, d (1 s) does not at 99 + 60 = 159.
    played = play(
        Srtf(),
        job("a", 0, 100, costs=Costs(checkpoint_every_s=float("inf"))),
        job("c", 30, 39),
        job("d", 159, 1),
        nodes=cluster(1),
    )

    # a begins again at 69 with all 100 s to do, at 159 it has 10 left and 90 to lose.
    assert played.times == {"a": (0, 169), "c": (30, 69), "d": (169, 170)}


def test_a_run_is_left_alone_for_its_minimum_time() -> None:
    played = play(Srtf(min_run_s=20), job("a", 0, 100), job("b", 1, 5), nodes=cluster(1))

    assert played.times == {"a": (0, 105), "b": (20, 25)}


def test_a_job_may_ask_for_a_minimum_time_of_its_own() -> None:
    played = play(
        Srtf(min_run_s=20), job("a", 0, 100, min_run_s=30), job("b", 1, 5), nodes=cluster(1)
    )

    assert played.times == {"a": (0, 105), "b": (30, 35)}


@pytest.mark.parametrize("name", ["first-fit", "consolidate", "pack", "spread", "topology"])
def test_the_end_of_the_minimum_time_is_noticed_whatever_the_placer(name: str) -> None:
    played = play(
        Srtf(min_run_s=100),
        job("a", 0, 1000),
        job("b", 10, 10),
        nodes=cluster(1),
        placer=placer(name),
    )

    assert played.times == {"a": (0, 1010), "b": (100, 110)}


def test_a_job_that_must_not_be_stopped_is_not() -> None:
    played = play(Srtf(), job("a", 0, 100, preemptible=False), job("b", 1, 5), nodes=cluster(1))

    assert played.times == {"a": (0, 100), "b": (100, 105)}


def test_a_gang_takes_the_places_of_several() -> None:
    # Both run 0-5 and 15-110.
    played = play(
        Srtf(), job("a", 0, 100), job("b", 0, 100), job("c", 5, 10, gpus=2), nodes=cluster(2)
    )

    assert played.times == {"a": (0, 110), "b": (0, 110), "c": (5, 15)}


def test_the_one_with_most_left_gives_way_and_nobody_else() -> None:
    played = play(Srtf(), job("a", 0, 50), job("b", 0, 100), job("c", 5, 10), nodes=cluster(2))

    assert played.times == {"a": (0, 50), "b": (0, 110), "c": (5, 15)}
    assert played.rows["a"].preemptions == 0


def test_no_gang_is_broken_up_for_a_job_that_would_not_fit_even_so() -> None:
    # c needs a whole node of 2. On n0 sits a (5 s left at 5, shorter than c), on n1 b.
    # Only clearing n1 helps; b goes, although a and b together would free 2 GPUs as well.
    played = play(
        Srtf(),
        job("a", 0, 10, gpus=2),
        job("b", 0, 100),
        job("c", 5, 20, gpus=2),
        nodes=cluster(2, nodes=2),
    )

    assert played.times == {"a": (0, 10), "b": (0, 105), "c": (5, 25)}
    assert played.began["b"] == [0, 10]


def test_a_run_that_was_still_starting_is_looked_at_once_it_is_up() -> None:
    # m stops l at 10; l is launched again at 20 and up at 120. s came at 50 and takes its place
    # then: l has 990 s left and would lose 100. s 120-130; l launched at 130, up at 230.
    played = play(
        Srtf(),
        job("l", 0, 1000, costs=Costs(restart_s=100)),
        job("m", 10, 10),
        job("s", 50, 10),
        nodes=cluster(1),
    )

    assert played.times == {"l": (0, 1220), "m": (10, 20), "s": (120, 130)}


@pytest.mark.parametrize(
    ("length", "times"),
    [
        # At 90, l has 910 s left; a stop costs half a period on average: it is worth 860.
        (860, {"l": (0, 1000), "s": (1000, 1860)}),
        # s 90-949. l had not saved anything yet and begins again.
        (859, {"l": (0, 1949), "s": (90, 949)}),
    ],
)
def test_the_gain_must_pay_for_half_a_checkpoint_period(
    length: int, times: dict[str, tuple[float, float]]
) -> None:
    played = play(
        Srtf(),
        job("l", 0, 1000, costs=Costs(checkpoint_every_s=100)),
        job("s", 90, length),
        nodes=cluster(1),
    )

    assert played.times == times


def test_room_is_made_where_cpus_are_short() -> None:
    played = play(
        Srtf(),
        job("a", 0, 1000, cpu_milli=4000),
        job("b", 10, 10, cpu_milli=4000),
        nodes=[node("n0", 8, cpu_milli=4000)],
    )

    assert played.times == {"a": (0, 1010), "b": (10, 20)}


@pytest.mark.parametrize("costs", [Costs(), Costs(checkpoint_every_s=float("inf"))])
def test_on_a_slow_gpu_equals_do_not_displace_each_other(costs: Costs) -> None:
    # At 1, a has 59.5 s of work left and b 60; that both go at half the speed changes nothing.
    played = play(
        Srtf(),
        job("a", 0, 60, costs=costs),
        job("b", 1, 60, costs=costs),
        nodes=[node("n0", 1, kind="slow")],
        speed=Speed(kinds={"slow": 0.5}),
    )

    assert played.times == {"a": (0, 120), "b": (120, 240)}


def test_checkpoints_that_cost_time_do_not_make_equals_displace_each_other() -> None:
    costs = Costs(checkpoint_every_s=600, checkpoint_s=60)
    played = play(
        Srtf(), job("a", 0, 6000, costs=costs), job("b", 1, 6000, costs=costs), nodes=cluster(1)
    )

    assert played.times == {"a": (0, 6600), "b": (6600, 13200)}


@pytest.mark.parametrize("name", ["first-fit", "pack"])
def test_a_starting_run_is_not_forgotten_when_something_else_happens_meanwhile(name: str) -> None:
    # As above: s waits for l to be up at 120; that x comes at 60 changes nothing for it.
    played = play(
        Srtf(),
        job("l", 0, 1000, costs=Costs(restart_s=100)),
        job("m", 10, 10),
        job("s", 50, 10),
        job("x", 60, 5000),
        nodes=cluster(1),
        placer=placer(name),
    )

    assert played.times["s"] == (120, 130)


def test_the_one_with_most_left_gives_way_also_long_after_it_was_last_looked_at() -> None:
    # At 53: a has 25 s left, b 15, c 32: c makes room for d.
    played = play(
        Srtf(),
        job("a", 29, 49, gpus=4),
        job("b", 34, 34),
        job("x", 39, 54),
        job("c", 45, 40, gpus=3),
        job("d", 53, 11),
        nodes=cluster(4, nodes=2),
    )

    assert played.times["a"] == (29, 78)
    assert played.began["c"] == [45, 64]
