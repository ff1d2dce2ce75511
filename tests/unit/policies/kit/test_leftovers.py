"""Who is left over by the programs of Sia, Pollux and Themis starts where there is room."""

from __future__ import annotations

import math

import pytest
from tests.oracles.played import job, play

from roost.core import Policy, Submitted, Suspend, Woke
from roost.placement import placer
from roost.policies.pollux import Pollux
from roost.policies.sia import Sia
from roost.policies.themis import Themis
from roost.testing.builders import core_with, node, spec
from roost.testing.builders import job as name

ALL = pytest.mark.parametrize(
    "policy",
    [Sia(), Pollux(population=20, generations=20), Themis()],
    ids=["sia", "pollux", "themis"],
)
TWO_KINDS = [node("n0", 4, kind="x"), node("n1", 4, kind="y")]
#: Far more than the rounds that any of these need.
SOON = 2000.0


@ALL
def test_a_job_that_is_larger_than_any_kind_has_several_and_keeps_them(policy: Policy) -> None:
    played = play(policy, job("a", 0, 1300, workers=6), nodes=TWO_KINDS)
    assert played.rows["a"].runs == 1
    assert not [one for one in played.diary.actions if isinstance(one, Suspend)]


@ALL
def test_a_job_whose_cpus_are_on_two_nodes_is_on_both_beside_others(policy: Policy) -> None:
    nodes = [node(f"n{i}", 8, kind="x", cpu_milli=8000) for i in range(2)]
    other = job("other", 0, SOON, workers=1)
    picky = job("picky", 0, 100, workers=(4, 5), cpu_milli=4000)
    played = play(policy, other, picky, nodes=nodes, placer=placer("pack"))
    _, end = played.times["picky"]
    assert end is not None
    assert end < SOON


@ALL
def test_a_kind_of_nodes_that_are_too_small_is_not_waited_for(policy: Policy) -> None:
    sizes = {"a0": 2, "a1": 2, "b0": 4, "c0": 1}
    nodes = [node(one, gpus, kind=one[0]) for one, gpus in sizes.items()]
    other = job("other", 0, SOON, kinds=("c",))
    played = play(policy, other, job("wide", 0, 100, gpus=4), nodes=nodes)
    _, end = played.times["wide"]
    assert end is not None
    assert end < SOON


@ALL
def test_a_size_for_which_nodes_are_too_small_is_not_waited_for(policy: Policy) -> None:
    nodes = [node("n0", 4), node("n1", 2), node("n2", 2), node("n3", 2)]
    wide = job("wide", 0, 100, gpus=4, workers=(1, 2))
    played = play(policy, job("other", 0, SOON), wide, nodes=nodes)
    _, end = played.times["wide"]
    assert end is not None
    assert end < SOON


@ALL
def test_nobody_is_woken_while_nobody_can_start(policy: Policy) -> None:
    core = core_with(policy, node("n0", 4))
    core.handle(Submitted(0.0, name("large"), spec(1, workers=6)))
    core.handle(Woke(600.0))
    assert core.wake_at == math.inf
    core.handle(Submitted(610.0, name("small"), spec(1)))
    assert core.wake_at < math.inf or core.runs
