"""Tiresias: schedules worked out by hand, on one GPU unless said otherwise."""

from __future__ import annotations

import pytest
from tests.oracles.played import cluster, finish, job, play, simulation

from roost.core import NodeId, NodeJoined, NodeLost
from roost.errors import InvalidSpec
from roost.policies.tiresias import Tiresias

SHORTS = [job(f"b{i}", 20 + 9 * i, 9) for i in range(9)]


def test_runs_are_demoted_exactly_at_the_limits() -> None:
    # a 0-100, demoted at 100 GPU-s: b 100-400. (b reaches 100 GPU-s at 200, but is then of a's
    # level, where runs keep their places; at 400 it reaches 300 GPU-s.) a 400-800: at 600 both are
    # of the last level. b 800-1000.
    played = play(
        Tiresias(limits=(100.0, 300.0), promote=0),
        job("a", 0, 500),
        job("b", 50, 500),
        nodes=cluster(1),
    )

    assert played.began == {"a": [0, 400], "b": [100, 800]}
    assert played.times == {"a": (0, 800), "b": (100, 1000)}


def test_limits_are_in_gpu_seconds() -> None:
    # a holds 4 GPUs and has had 100 GPU-s at 25.
    played = play(
        Tiresias(limits=(100.0,), promote=0),
        job("a", 0, 50, gpus=4),
        job("b", 10, 5),
        nodes=cluster(4),
    )

    assert played.times == {"a": (0, 55), "b": (25, 30)}


def test_a_newcomer_displaces_a_demoted_run_at_once() -> None:
    played = play(
        Tiresias(limits=(100.0,), promote=0),
        job("a", 0, 500),
        job("b", 150, 50),
        nodes=cluster(1),
    )

    assert played.times == {"a": (0, 550), "b": (150, 200)}


def test_a_newcomer_leaves_a_run_of_its_level_alone() -> None:
    played = play(
        Tiresias(limits=(100.0,), promote=0),
        job("a", 0, 100),
        job("b", 50, 50),
        nodes=cluster(1),
    )

    assert played.times == {"a": (0, 100), "b": (100, 150)}


def test_inside_a_level_it_is_first_come_first_served() -> None:
    # Each is demoted after 10 s. c (20-50) is of their level then and keeps its place; a and
    # b go on in order of arrival.
    played = play(
        Tiresias(limits=(10.0,), promote=0),
        *[job(name, 0, 30) for name in "abc"],
        nodes=cluster(1),
    )

    assert played.began == {"a": [0, 50], "b": [10, 70], "c": [20]}
    assert played.times == {"a": (0, 70), "b": (10, 90), "c": (20, 50)}


def test_levels_count_the_service_of_all_runs_of_a_job() -> None:
    # a has had 60 when its node is lost at 60; on n1 it reaches 100 after 40 s more, at 100.
    sim = simulation(
        Tiresias(limits=(100.0,), promote=0),
        [job("a", 0, 500), job("b", 70, 10)],
        cluster(1, nodes=2),
    )
    sim.world.schedule(NodeLost(60.0, NodeId("n0")))
    played = finish(sim)

    assert played.began["a"] == [0, 60, 110]
    assert played.times["b"] == (100, 110)


def test_a_job_that_waited_long_enough_starts_again_from_the_top() -> None:
    # a runs 0-20 and is displaced by b0, having run 20 s; promote=2: at 60 it has waited 40 s and
    # is promoted. b4 (56-65) is of its level and runs on. a 65-75: 10 more GPU-s, demoted again.
    # Then b5 to b8 until 111, long before a has waited twice its 30 s. a 111-181.
    played = play(Tiresias(limits=(10.0,), promote=2), job("a", 0, 100), *SHORTS, nodes=cluster(1))

    assert played.began["a"] == [0, 65, 111]
    assert played.times["a"] == (0, 181)
    assert played.times["b4"] == (56, 65)
    assert played.times["b5"] == (75, 84)


def test_without_promotion_a_demoted_job_waits_for_all_others() -> None:
    played = play(Tiresias(limits=(10.0,), promote=0), job("a", 0, 100), *SHORTS, nodes=cluster(1))

    assert played.began["a"] == [0, 101]


def test_a_promoted_job_displaces_a_demoted_run() -> None:
    # a 0-10, b 10-: both demoted, so b stays. a has run 10 s, promote=3: at 40 it starts from the
    # top and displaces b. It is demoted at 50, b (waiting, demoted) leaves it alone.
    # b had run 30 s when displaced at 40: starves at 40 + 90 = 130 and displaces a then.
    played = play(
        Tiresias(limits=(10.0,), promote=3), job("a", 0, 200), job("b", 0, 200), nodes=cluster(1)
    )

    assert played.began["a"][:2] == [0, 40]
    assert played.began["b"][:2] == [10, 130]


def test_a_job_whose_node_was_lost_is_promoted_like_any_other() -> None:
    # a runs 0-15 and is demoted at 10; its node is gone 15-20. b0 20-29, b1 29-38. At 30, a has
    # waited as long as it had run; at 38 it goes first.
    sim = simulation(Tiresias(limits=(10.0,), promote=1), [job("a", 0, 100), *SHORTS], cluster(1))
    sim.world.schedule(NodeLost(15.0, NodeId("n0")))
    sim.world.schedule(NodeJoined(20.0, cluster(1)[0]))

    assert finish(sim).began["a"][:2] == [0, 38]


@pytest.mark.parametrize("limits", [(), (0.0,), (-1.0, 5.0), (10.0, 10.0), (20.0, 10.0)])
def test_limits_that_do_not_ascend_are_refused(limits: tuple[float, ...]) -> None:
    with pytest.raises(InvalidSpec, match="limits must be positive and ascending"):
        Tiresias(limits=limits)


def test_a_newcomer_is_not_held_back_by_what_others_of_its_shape_could_not_have() -> None:
    # wide1 14-25, thin 25-31.7 (20 GPU-s), wide2 31.7-41.7 (60 GPU-s), thin again. At 50 thin has
    # had 45 GPU-s and is of the second level, wide1 and wide2 wait in the third; new is of their
    # shape, but of the first level, and takes the place of thin at once.
    played = play(
        Tiresias(limits=(20.0, 60.0)),
        job("wide1", 14, 59, workers=6),
        job("thin", 25, 30, workers=3),
        job("wide2", 31, 36, workers=6),
        job("new", 50, 12, workers=6),
        nodes=cluster(4, nodes=2),
    )

    assert played.began["new"][0] == 50


def test_a_newcomer_displaces_two_demoted_gangs_at_once() -> None:
    # At 60, c (64 GPU-s, third level) and d (40, second) hold a node each; e is new and needs both.
    played = play(
        Tiresias(limits=(20.0, 60.0)),
        job("a", 26, 31, workers=6),
        job("c", 34, 27, gpus=4),
        job("b", 40, 35, workers=6),
        job("d", 50, 53, gpus=4),
        job("e", 60, 38, workers=6),
        nodes=cluster(4, nodes=2),
    )

    assert played.began["c"][:2] == [34, 50]
    assert played.began["e"][0] == 60
