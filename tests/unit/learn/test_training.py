"""Training: the same again with the same seed, never worse than at the beginning, and of use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from roost.errors import InvalidSpec
from roost.learn.comparison import compare, draw_tests
from roost.learn.deciders import Leaper
from roost.learn.evolve import Evolution, Generation, Ground
from roost.learn.slots import Played, SlotWorld, Trace
from roost.learn.sorts import Sort, draw_sorts
from roost.learn.training import Recipe, decider, played_by, train
from roost.policies.kit.networks import Network
from roost.policies.kit.parameter_servers.learned import Inputs

QUICK = Recipe(generations=2, traces=1, selection=2, imitation=400, jobs=12)


def world(nodes: int = 3) -> SlotWorld:
    sorts = draw_sorts(3, 4)
    named = [Sort(f"net-{at}", one.speeds, one.length, one.gpu) for at, one in enumerate(sorts)]
    return SlotWorld(named, nodes)


@pytest.mark.parametrize("inputs", list(Inputs))
def test_the_same_seed_gives_the_same_network(inputs: Inputs) -> None:
    recipe = Recipe(inputs, 5, generations=1, traces=1, selection=1, imitation=20, jobs=6)
    one, same = (train([world(32)], recipe).network for _ in range(2))

    assert one.data() == same.data()


def test_what_is_kept_is_no_worse_than_the_beginning() -> None:
    said: list[Generation] = []
    found = train([world()], QUICK, said.append)

    assert [one.number for one in found.curve] == [0, 1, 2]
    assert found.curve == said
    assert found.curve[-1].best <= found.curve[0].best


def test_a_network_that_corrects_nothing_decides_as_the_rule() -> None:
    here = world()
    begun = Network.begin("estimates", ["x"] * 7, (), np.ones((7, 4)))
    traces = [here.draw((seed,), 12) for seed in range(2)]
    (mine,) = played_by([here], [begun], traces)

    for one, other in zip(mine, here.play(traces, Leaper(here)), strict=True):
        assert one.times == pytest.approx(other.times)


def test_imitation_comes_near_to_its_teacher_where_there_is_room() -> None:
    """The network sees no speeds, and remembers them by the names of the sorts."""
    here = world(96)
    recipe = Recipe(Inputs.OWN, generations=0, selection=2, imitation=3000, jobs=12)
    network = train([here], recipe).network
    tests = draw_tests(here, 0, 3, 12)
    rows = {row.policy: row for row in compare(here, tests, {"own": decider(here, [network], 3)})}

    assert rows["lookahead"].to_floor == pytest.approx(1.0, abs=0.02)
    assert rows["own"].to_lookahead < 1.15
    assert rows["own"].mean_jct < rows["drf"].mean_jct


def test_networks_side_by_side_are_as_one_by_one() -> None:
    here = world()
    recipe = Recipe(Inputs.OWN, generations=0, selection=1, imitation=50, jobs=6)
    networks = [train([here], replace(recipe, seed=seed)).network for seed in (0, 1)]
    traces = [here.draw((seed,), recipe.jobs) for seed in range(2)]
    together = played_by([here], networks, traces)

    for network, found in zip(networks, together, strict=True):
        (alone,) = played_by([here], [network], traces)
        for one, other in zip(alone, found, strict=True):
            assert one.times == pytest.approx(other.times)


def test_evolution_finds_the_best_of_a_bowl() -> None:
    """A loss that is least where all numbers are 1."""
    begun = Network.begin("x", ["a"], (), np.zeros((1, 1)))

    def play(networks: list[Network], _: list[Trace]) -> list[list[Played]]:
        far = [1.0 + float(((one.numbers - 1.0) ** 2).sum()) for one in networks]
        return [[Played(np.array([each]), each)] for each in far]

    ground = Ground(play, lambda _: [], [])  # type: ignore[arg-type]
    found = Evolution(sigma=0.1, rate=0.05).run(begun, ground, 0, lambda one: one.number < 100)

    assert found.numbers == pytest.approx(np.ones(4), abs=0.3)


def test_evolution_ends_where_nothing_is_to_be_learnt() -> None:
    begun = Network.begin("x", ["a"], (), np.zeros((1, 1)))
    same = [Played(np.array([1.0]), 1.0)]
    said: list[int] = []

    def go_on(one: Generation) -> bool:
        said.append(one.number)
        return True

    ground = Ground(lambda networks, _: [same] * len(networks), lambda _: [], [])
    assert Evolution().run(begun, ground, 0, go_on).data() == begun.data()
    assert said == [0, 1, 2]


@pytest.mark.parametrize("settings", [{"seconds": 0.0}, {"generations": -1}, {"traces": 0}])
def test_training_without_an_end_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidSpec):
        Recipe(**settings)  # type: ignore[arg-type]
