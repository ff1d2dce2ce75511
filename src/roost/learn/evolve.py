"""Evolution strategies on the mean completion time itself (Salimans et al., 2017).

In every generation the network is moved a little in random directions, forwards and backwards, and
each of these candidates plays the same new traces. Ranks of what they reach, not values, say which
way to go. Other traces, which no candidate plays, choose the network that is kept; the one at the
beginning takes part in that, so that training cannot do harm there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from roost.learn.slots import Played, Trace
from roost.perf.arrays import Reals
from roost.policies.kit.networks import Network

#: Plays the same traces with each of several networks: a list of outcomes for each network.
Player: TypeAlias = Callable[[Sequence[Network], Sequence[Trace]], list[list[Played]]]
#: New traces of a generation.
Draw: TypeAlias = Callable[[int], list[Trace]]

#: After so many generations in which all candidates did the same, there is no more to be learnt.
_SILENT = 3


class Generation(NamedTuple):
    """How training goes: mean completion times in slots, of candidates and of the one in hand.

    ``best`` is that of the network that is kept so far, on the traces of the selection.
    """

    number: int
    cpu_s: float
    candidates: float
    chosen: float
    best: float


class Ground(NamedTuple):
    """Where candidates are tried: how they play, new traces by generation, those of selection."""

    play: Player
    draw: Draw
    selection: Sequence[Trace]


@dataclass(frozen=True, slots=True)
class Evolution:
    """How to search: ``pairs`` of candidates, ``sigma`` away; the step's ``rate`` and ``decay``."""

    pairs: int = 12
    sigma: float = 0.1
    rate: float = 0.05
    decay: float = 2e-4
    #: The network is tried on the traces of the selection in every so many generations.
    every: int = 2

    def run(
        self,
        network: Network,
        ground: Ground,
        seed: int,
        go_on: Callable[[Generation], bool],
    ) -> Network:
        """Search until ``go_on`` says no, and return the best one found."""
        play, draw, selection = ground
        chance = np.random.Generator(np.random.PCG64([seed, 20]))
        numbers = network.numbers
        kept, best = network, mean_of(play([network], selection)[0])
        chosen, number, silent = best, 0, 0
        mean, square = np.zeros_like(numbers), np.zeros_like(numbers)
        candidates = best
        while go_on(Generation(number, 0.0, candidates, chosen, best)):
            number += 1
            away = chance.standard_normal((self.pairs, len(numbers)))
            moves = np.concatenate((away, -away)) * self.sigma
            tried = [network.with_numbers(numbers + move) for move in moves]
            played = play(tried, draw(number))
            losses = np.array([np.mean([math.log(one.mean) for one in each]) for each in played])
            candidates = float(np.mean([mean_of(each) for each in played]))
            slope = (_ranks(losses) @ moves) / (len(moves) * self.sigma**2) + self.decay * numbers
            mean = 0.9 * mean + 0.1 * slope
            square = 0.99 * square + 0.01 * slope**2
            right = mean / (1 - 0.9**number), square / (1 - 0.99**number)
            numbers = numbers - self.rate * right[0] / (np.sqrt(right[1]) + 1e-8)
            silent = 0 if np.ptp(losses) > 0 else silent + 1
            if silent == _SILENT:
                break  # there is room for all at their best: nothing to be learnt
            if number % self.every == 0:
                now = network.with_numbers(numbers)
                chosen = mean_of(play([now], selection)[0])
                if chosen < best:
                    kept, best = now, chosen
        return kept


def mean_of(played: Sequence[Played]) -> float:
    """The mean completion time over traces."""
    return float(np.mean([one.mean for one in played]))


def _ranks(losses: Reals) -> Reals:
    """From -1/2 for the best to 1/2 for the worst; equals share theirs, and so say nothing."""
    order = np.argsort(losses, kind="stable")
    found = np.empty(len(losses))
    found[order] = np.arange(len(losses)) / (len(losses) - 1) - 0.5
    for value in np.unique(losses):
        same = losses == value
        found[same] = found[same].mean()
    return found
