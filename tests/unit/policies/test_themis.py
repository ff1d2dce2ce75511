"""Themis: leases and auctions worked out by hand."""

from __future__ import annotations

import pytest
from tests.oracles.played import job, play
from tests.unit.policies.test_gavel import TWO_KINDS, Table, rated, start

from roost.core import Submitted, Suspend, Woke
from roost.errors import InvalidSpec
from roost.policies.themis import Themis
from roost.testing.builders import core_with, node, queue, spec
from roost.testing.builders import job as name


def test_who_comes_to_free_gpus_starts_at_once() -> None:
    played = play(Themis(), job("a", 5, 100), job("b", 7, 100), nodes=[node("n0", 2)])
    assert played.times == {"a": (5, 105), "b": (7, 107)}


def test_a_lease_is_kept_until_it_is_over() -> None:
    played = play(Themis(), job("a", 0, 5000), job("b", 10, 100), nodes=[node("n0", 1)])
    assert played.times["b"][0] == 600, "b is worse off, and gains more"
    assert played.times["a"] == (0, 5100)


def test_those_who_suffer_most_are_served_first() -> None:
    # Both would take as long; b has waited since before c came.
    played = play(
        Themis(fairness=1.0),
        job("a", 0, 1000),
        job("b", 0, 300),
        job("c", 500, 300),
        nodes=[node("n0", 1)],
    )
    assert start(played, "b") < start(played, "c")


def test_a_free_fast_gpu_is_taken_when_the_lease_is_over() -> None:
    played = play(
        Themis(),
        rated(job("a", 0, 2000), new=4, old=0.5),
        rated(job("b", 0, 6000), new=2, old=1),
        nodes=TWO_KINDS,
        speed=Table(),
    )
    assert played.times["a"] == (0, 500)
    # b does 600 on the old kind until its lease is over, and the rest at 2 per second.
    assert played.times["b"] == (0, 600 + 5400 / 2)


def test_who_does_not_care_leaves_the_fast_gpu_to_others() -> None:
    played = play(
        Themis(),
        rated(job("a", 0, 500), new=1, old=1),
        rated(job("b", 0, 2000), new=4, old=1),
        nodes=TWO_KINDS,
        speed=Table(),
    )
    assert played.times == {"a": (0, 500), "b": (0, 500)}


def test_nobody_is_stopped_for_nobody() -> None:
    played = play(Themis(), job("a", 0, 5000), job("b", 0, 4000), nodes=[node("n0", 2)])
    assert not [one for one in played.diary.actions if isinstance(one, Suspend)]


def test_elastic_jobs_bid_for_more() -> None:
    played = play(Themis(), job("a", 0, 1000, workers=(1, 4)), nodes=[node("n0", 4)])
    assert played.times == {"a": (0, 250)}


def test_limits_of_queues_are_respected() -> None:
    played = play(
        Themis(),
        job("a", 0, 500, queue="red"),
        job("b", 0, 500, queue="red"),
        nodes=[node("n0", 3)],
        queues=(queue("red", limit_milli=1000),),
    )
    assert sorted(start(played, one) for one in "ab") == [0, 500]


def test_nobody_bids_for_more_than_its_queue_may_have() -> None:
    # In the middle of the auction a size beyond the limit would win, and then be refused.
    played = play(
        Themis(),
        job("a", 0, 500, workers=(1, 4), queue="red"),
        job("other", 0, 5000),
        nodes=[node("n0", 8)],
        queues=(queue("red", limit_milli=2000),),
    )
    assert start(played, "a") == 0


def test_who_waits_is_told_why() -> None:
    core = core_with(Themis(), node("n0", 1))
    core.handle(Submitted(0.0, name("a"), spec(1)), Woke(0.0))
    core.handle(Submitted(1.0, name("b"), spec(1)))
    found = core.explain(name("b"))
    assert found is not None
    assert "leases" in found.reason.text


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="from 0 to 1"):
        Themis(fairness=1.5)
    with pytest.raises(InvalidSpec, match="at least a second"):
        Themis(lease_s=0)
