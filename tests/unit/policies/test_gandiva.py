"""Gandiva: packing by trial, turns, moves towards fewer nodes, growing and shrinking."""

from __future__ import annotations

import pytest
from tests.oracles.played import cluster, job, play
from tests.unit.policies.test_harmony import Played

from roost.core import Evict, Place, Reshape, SetAside
from roost.errors import InvalidSpec
from roost.policies import policy
from roost.policies.gandiva import Gandiva


def test_a_good_pair_is_kept_and_a_bad_one_parts_after_its_trial() -> None:
    good = Played(("a", "lm", 0, 500), ("b", "gan", 10, 500), chosen=Gandiva())
    bad = Played(("a", "lm", 0, 2000), ("b", "lm", 200, 300), chosen=Gandiva())

    assert good.of(SetAside, Evict, Reshape) == []
    assert bad.of(SetAside) == [(260, "b")]


def test_without_packing_jobs_that_may_share_take_turns_like_all_others() -> None:
    played = Played(("a", "lm", 0, 300), ("b", "lm", 10, 300), chosen=Gandiva(pack=False))

    assert played.of(Place) != []
    assert played.rows["b"].started_at == 10


def test_more_jobs_than_fit_take_turns() -> None:
    played = play(Gandiva(), job("a", 0, 300), job("b", 0, 100), nodes=cluster(1))

    assert (played.times["b"][1] or 0) < 300


def test_a_run_moves_to_a_fuller_node_so_that_one_is_free() -> None:
    jobs = (job("a", 0, 100), job("b", 1, 900), job("c", 2, 900))
    gang = job("d", 500, 100, gpus=2)
    nodes = cluster(2, 2)

    still = play(Gandiva(move=False, quantum_s=5000), *jobs, gang, nodes=nodes)
    moved = play(Gandiva(quantum_s=5000), *jobs, gang, nodes=nodes)

    assert (still.times["d"][0] or 0) > 500
    assert moved.times["d"] == (500, 600)


def test_who_can_grow_has_what_is_idle_and_gives_it_back() -> None:
    grown = play(Gandiva(), job("a", 0, 400, workers=(1, 2)), job("b", 100, 50), nodes=cluster(2))
    stays = play(Gandiva(grow=False), job("a", 0, 400, workers=(1, 2)), nodes=cluster(2))

    assert grown.times["b"][0] == 100
    assert (grown.times["a"][1] or 0) < 400
    assert stays.times["a"] == (0, 400)


@pytest.mark.parametrize(
    "settings", ["quantum_s=0", "trial_s=0", "trial_s=inf", "most_loss=2", "most_loss=nan"]
)
def test_parameters_that_make_no_sense_are_refused(settings: str) -> None:
    with pytest.raises(InvalidSpec, match="must be"):
        policy(f"gandiva:{settings}")
