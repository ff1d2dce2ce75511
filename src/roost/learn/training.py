"""The recipe ``es`` of ``roost learn dl2``: from a world and a seed to a network, with its curve.

With estimates the network begins as a correction of nothing, which is the rule of ``lookahead``.
With DL2's own inputs it begins with imitation of that rule. Evolution goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from roost.errors import InvalidSpec
from roost.learn.deciders import Leaper, Walker
from roost.learn.evolve import Evolution, Generation, Ground
from roost.learn.imitate import imitate
from roost.learn.slots import Decider, Played, SlotWorld, Trace
from roost.policies.kit.networks import Network
from roost.policies.kit.parameter_servers.learned import NAMES, Inputs

#: Traces by what they are for; no two of them have a seed in common.
_TRAINING, _SELECTION, _LESSONS = 1, 2, 3
_WIDTH = {Inputs.ESTIMATES: 16, Inputs.OWN: 32}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How long to train, from which seed, for which inputs; ``imitation`` counts updates."""

    inputs: Inputs = Inputs.ESTIMATES
    seed: int = 0
    seconds: float = 300.0
    generations: int | None = None
    traces: int = 3
    selection: int = 6
    imitation: int = 6000
    jobs: int = 60

    def __post_init__(self) -> None:
        """Refuse training without an end."""
        if not 0 < self.seconds < np.inf or (self.generations is not None and self.generations < 0):
            raise InvalidSpec("training takes some seconds, or a number of generations")
        if min(self.traces, self.selection, self.jobs) < 1 or self.imitation < 0 or self.seed < 0:
            raise InvalidSpec("training needs traces with jobs, and a seed >= 0")


@dataclass(slots=True)
class Trained:
    """A network, and how it came about."""

    network: Network
    curve: list[Generation] = field(default_factory=list)


def train(
    worlds: Sequence[SlotWorld], recipe: Recipe, said: Callable[[Generation], None] | None = None
) -> Trained:
    """Train one network for these worlds, which have the same sorts; seconds are those of a CPU."""
    began = time.process_time()
    network = _begin(worlds, recipe)
    found = Trained(network)

    def go_on(generation: Generation) -> bool:
        told = generation._replace(cpu_s=time.process_time() - began)
        found.curve.append(told)
        if said is not None:
            said(told)
        if recipe.generations is not None:
            return generation.number < recipe.generations
        return told.cpu_s < recipe.seconds

    def draw(number: int) -> list[Trace]:
        return _traces(worlds[0], recipe, (_TRAINING, number), recipe.traces)

    selection = _traces(worlds[0], recipe, (_SELECTION, 0), recipe.selection)
    sigma = 0.1 if recipe.inputs is Inputs.ESTIMATES else 0.03

    def play(networks: Sequence[Network], traces: Sequence[Trace]) -> list[list[Played]]:
        return played_by(worlds, networks, traces)

    found.network = Evolution(sigma=sigma, rate=sigma / 2).run(
        network, Ground(play, draw, selection), recipe.seed, go_on
    )
    return found


def played_by(
    worlds: Sequence[SlotWorld], networks: Sequence[Network], traces: Sequence[Trace]
) -> list[list[Played]]:
    """What each network makes of each trace in each world, all side by side."""
    found: list[list[Played]] = [[] for _ in networks]
    for world in worlds:
        played = world.play([*traces] * len(networks), decider(world, networks, len(traces)))
        for at in range(len(networks)):
            found[at] += played[at * len(traces) : (at + 1) * len(traces)]
    return found


def decider(world: SlotWorld, networks: Sequence[Network], clusters: int) -> Decider:
    """Networks as they decide, each for so many clusters."""
    if networks[0].kind == Inputs.ESTIMATES:
        return Leaper(world, networks, clusters)
    return Walker(world, networks, clusters)


def _begin(worlds: Sequence[SlotWorld], recipe: Recipe) -> Network:
    own = recipe.inputs is Inputs.OWN
    sorts = [sort.name for sort in worlds[0].sorts if sort.name] if own else []
    names = NAMES[recipe.inputs]
    chance = np.random.Generator(np.random.PCG64([recipe.seed, 21]))
    rows = len(names) + len(sorts)
    hidden = chance.standard_normal((rows, _WIDTH[recipe.inputs])) / np.sqrt(len(names))
    network = Network.begin(recipe.inputs, names, sorts, hidden)
    if own:
        network = network.with_numbers(
            np.concatenate(
                (
                    network.numbers[: -_WIDTH[recipe.inputs] - 1],
                    0.1 * chance.standard_normal(_WIDTH[recipe.inputs]),
                    [0.0],
                )
            )
        )
        lessons = _traces(worlds[0], recipe, (_LESSONS, 0), recipe.selection)
        network = imitate(network, worlds[0], lessons, recipe.imitation, recipe.seed)
    return network


def _traces(world: SlotWorld, recipe: Recipe, key: tuple[int, int], count: int) -> list[Trace]:
    return [world.draw((recipe.seed, *key, at), recipe.jobs) for at in range(count)]
