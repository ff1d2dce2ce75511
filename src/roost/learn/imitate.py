"""Imitation: a network that walks begins by learning what the rule of ``lookahead`` makes of steps.

DL2 begins with the decisions of a simple scheduler, too. Here the teacher sees the speeds of the
training sorts, which the network does not: it has to remember them by the names of the sorts. A
step is worth what the best leap that it is a part of is worth, in log speed for each task, times
how much the job counts; a step that is a part of no leap is worth -1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from roost.learn.deciders import POWER, Leaper, Walker
from roost.learn.slots import LEAST, SlotView, SlotWorld, Trace
from roost.learn.sorts import MOST
from roost.perf.arrays import Integers, Reals
from roost.policies.kit.networks import Network
from roost.policies.kit.parameter_servers.gains import Size
from roost.policies.kit.parameter_servers.leaps import ranks
from roost.policies.kit.parameter_servers.learned import WALK, step_rows

_BATCH = 512
_RATE, _SMALL = 3e-3, 1e-8
_MEAN, _SQUARE = 0.9, 0.999
#: What a step is worth that leads nowhere; a step that leads somewhere is worth this at least.
_NOWHERE, _SOMEWHERE = -1.0, 0.5
#: Both at once are preferred where both are a part of the same leap.
_BOTH = 0.2


class _Lessons(NamedTuple):
    """Rows of inputs, and what the teacher says of each."""

    rows: Reals
    worth: Reals


def imitate(
    network: Network, world: SlotWorld, traces: list[Trace], updates: int, seed: int
) -> Network:
    """The network after so many updates by Adam (Kingma and Ba, 2015) towards the teacher."""
    chance = np.random.Generator(np.random.PCG64([seed, 19]))
    lessons = _lessons(network, world, traces, chance)
    numbers = network.numbers
    mean, square = np.zeros_like(numbers), np.zeros_like(numbers)
    for update in range(1, updates + 1):
        drawn = chance.integers(len(lessons.worth), size=_BATCH)
        slope = _slope(network, lessons.rows[drawn], lessons.worth[drawn])
        mean = _MEAN * mean + (1 - _MEAN) * slope
        square = _SQUARE * square + (1 - _SQUARE) * slope**2
        rate = _RATE * (1 - update / (updates + 1))
        step = mean / (1 - _MEAN**update) / (np.sqrt(square / (1 - _SQUARE**update)) + _SMALL)
        numbers = numbers - rate * step
        network = network.with_numbers(numbers)
    return network


def _slope(network: Network, rows: Reals, worth: Reals) -> Reals:
    """The gradient of the mean squared error."""
    inner = np.tanh(rows @ network.hidden + network.biases)
    off = 2 * (inner @ network.out + network.offset - worth) / len(worth)
    back = off[:, None] * network.out * (1 - inner**2)
    return np.concatenate(
        ((rows.T @ back).ravel(), back.sum(axis=0), inner.T @ off, [float(off.sum())])
    )


def _lessons(
    network: Network, world: SlotWorld, traces: list[Trace], chance: np.random.Generator
) -> _Lessons:
    """Jobs as they are when the teacher decides, each at a size out of the hat, and every step."""
    worths = np.array([_worths(world, sort) for sort in range(len(world.sorts))])
    rows, worth = [], []
    leaper, walker = Leaper(world), Walker(world, [network])

    def watch(view: SlotView) -> Integers:
        sizes = leaper(view)
        jobs = walker.walkers(network, view)
        wanted = (chance.random((len(view.jobs), 2)) * (world.ends[view.sorts] + 2)).astype(int)
        anywhere = chance.integers(1, MOST + 1, size=(len(view.jobs), 2))
        near = chance.random((len(view.jobs), 1)) < 0.7  # noqa: PLR2004 - mostly where walks lead
        size = np.clip(np.where(near, wanted, anywhere), 1, MOST)
        count = np.concatenate(
            [ranks(view.left[own] / world.best[view.sorts[own]]) for _, own in view.each()]
        )
        for at, step in enumerate(WALK):
            rows.append(step_rows(network, jobs, size, step))
            value = worths[view.sorts, at, size[:, 0] - 1, size[:, 1] - 1]
            worth.append(np.where(value > 0, _worth(value, count**POWER), _NOWHERE))
        return sizes

    world.play(traces, watch)
    return _Lessons(np.concatenate(rows), np.concatenate(worth))


def _worth(value: Reals, count: Reals) -> Reals:
    worth: Reals = _SOMEWHERE + 2 * np.sqrt(value * count)
    return worth


def _worths(world: SlotWorld, sort: int) -> Reals:
    """What each step is worth from each size: the best leap it is a part of, for each task."""
    demand = world.demand(sort, world.log_gains[sort], 1.0)
    found = np.zeros((len(WALK), MOST, MOST))
    most = max(world.capacity[0], 1) * (world.tasks / world.gpus)
    for p in range(1, MOST + 1):
        for w in range(1, MOST + 1):
            for leap in demand.steps(Size(p, w), world.capacity):
                for at, step in enumerate(WALK):
                    if step.servers <= leap.size.servers and step.workers <= leap.size.workers:
                        worth = leap.gain / most + (_BOTH**2 if step == LEAST else 0.0)
                        found[at, p - 1, w - 1] = max(found[at, p - 1, w - 1], worth)
    return found
