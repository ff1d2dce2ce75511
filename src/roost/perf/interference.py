"""How fast a job goes beside others on its GPU: a model of pairs, from what was measured.

The part s of its speed alone that application i keeps beside j is taken as

    -log s = a_i b_j

with a_i for how sensitive i is and b_j for how heavy j is: a table of rank one. In logarithms of
both sides it is a sum, log a_i + log b_j, so that the best values under a normal prior (ridge
regression towards the mean of known tables) and their errors follow from one linear system. What
an application was seen to do alone, how busy it keeps its GPU and how much memory it holds, shifts
the prior of its a and b by weights of the same system: so something is known of one that was never
beside another. A pair that was measured also counts by itself. Of several neighbours the speeds are
multiplied.

What does not go with the rest is given less weight (Huber, 1964), and no application can say more
of a pair than a few measurements do: a job that invents its times spoils its own figures at most.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from roost.core.history import Profile
from roost.core.spec import ApplicationKey
from roost.perf.arrays import Reals

#: log(-log s) of the mean pair of Gavel's table (V100), what pairs lie off the model there, and
#: how far log a and log b of applications lie apart.
_MEAN, _MISFIT, _WIDTH = -0.95, 0.55, 0.55
#: How far a whole GPU more of use, or of memory, may shift log a and log b.
_SHIFT = 1.0
#: The relative error of one measured speed, and the most measurements that count.
_NOISE, _STEADY = 0.05, 16
#: A speed further off than that many times the misfit counts for less.
_HUBER = 2.0
#: Speeds beyond are taken as these: nothing at all, and none, cannot be told apart from little.
_SLOWEST, _FASTEST = 0.02, 0.98
#: How many applications are told apart; one more makes the system larger, for all.
_MOST = 200
#: Features of an application: the busy part of its time, and of the memory of a GPU.
_FEATURES = 2
_MEMORY_MIB = 16384.0


class PairSpeed(NamedTuple):
    """The part of its speed that a job keeps beside others, and the standard error of that."""

    speed: float
    error: float


class MeasuredPair(NamedTuple):
    """What an application was measured to keep beside another, and how often."""

    of: ApplicationKey
    beside: ApplicationKey
    speed: float
    seen: int


@dataclass(slots=True)
class Interference:
    """The model of pairs; made by ``interference`` or ``fitted``."""

    own: dict[tuple[ApplicationKey, ApplicationKey], PairSpeed] = field(default_factory=dict)
    place: dict[ApplicationKey, int] = field(default_factory=dict)
    features: dict[ApplicationKey, tuple[float, ...]] = field(default_factory=dict)
    best: Reals = field(default_factory=lambda: np.zeros(2 * _FEATURES))
    covariance: Reals = field(default_factory=lambda: np.eye(2 * _FEATURES) * _SHIFT**2)

    def beside(self, of: ApplicationKey, others: Iterable[ApplicationKey]) -> PairSpeed:
        """The speed of an application beside all of these."""
        speed, relative = 1.0, 0.0
        for other in others:
            one = self.pair(of, other)
            speed *= one.speed
            relative += (one.error / one.speed) ** 2
        return PairSpeed(speed, speed * math.sqrt(relative))

    def together(self, one: ApplicationKey, other: ApplicationKey) -> PairSpeed:
        """The sum of the speeds of two beside each other: above 1 they do more than by turns."""
        mine, its = self.pair(one, other), self.pair(other, one)
        return PairSpeed(mine.speed + its.speed, math.hypot(mine.error, its.error))

    def pair(self, of: ApplicationKey, other: ApplicationKey) -> PairSpeed:
        """The speed of an application beside another: as measured, and as the model has it."""
        guess, seen = self.predicted(of, other), self.own.get((of, other))
        if seen is None:
            return guess
        weight, sure = guess.error**-2, seen.error**-2
        speed = (weight * guess.speed + sure * seen.speed) / (weight + sure)
        return PairSpeed(speed, (weight + sure) ** -0.5)

    def predicted(self, of: ApplicationKey, other: ApplicationKey) -> PairSpeed:
        """The same as if the pair itself had not been measured."""
        row, unknown = self._row(of, other)
        y = _MEAN + float(row @ self.best)
        variance = float(row @ self.covariance @ row) + unknown * _WIDTH**2 + _MISFIT**2
        speed = math.exp(-math.exp(min(y, 3.0)))
        error = speed * math.exp(min(y, 3.0)) * math.sqrt(variance)
        return PairSpeed(max(speed, _SLOWEST), max(error, _NOISE))

    def _row(self, of: ApplicationKey, other: ApplicationKey) -> tuple[Reals, int]:
        """The coefficients of a pair, and how many of the two are not in the system."""
        row = np.zeros(len(self.best))
        many, nothing = len(self.place), (0.0,) * _FEATURES
        row[2 * many :] = (*self.features.get(of, nothing), *self.features.get(other, nothing))
        if (place := self.place.get(of)) is not None:
            row[place] = 1.0
        if (at := self.place.get(other)) is not None:
            row[many + at] = 1.0
        return row, (place is None) + (at is None)


def interference(profiles: Mapping[ApplicationKey, Profile]) -> Interference:
    """The model of what was measured of all applications."""
    features = {}
    for key, profile in profiles.items():
        if profile.busy.count or profile.memory_mib:
            busy = profile.busy.mean - 0.5 if profile.busy.count else 0.0
            memory = profile.memory_mib / _MEMORY_MIB - 0.5 if profile.memory_mib else 0.0
            features[key] = (busy, max(-0.5, min(memory, 2.0)))
    return fitted([*measured_pairs(profiles)], features)


def measured_pairs(profiles: Mapping[ApplicationKey, Profile]) -> Iterator[MeasuredPair]:
    """What was measured beside one other application, where it was measured alone, too."""
    for key, profile in profiles.items():
        for (setting, beside), mean in profile.observed.shared.items():
            alone = profile.observed.timings.get(setting)
            if len(beside) == 1 and alone is not None and alone.step.count:
                yield MeasuredPair(key, beside[0], alone.step.mean / mean.mean, mean.count)


def fitted(
    pairs: Collection[MeasuredPair],
    features: Mapping[ApplicationKey, tuple[float, ...]] | None = None,
) -> Interference:
    """The model of pairs that were measured; speeds that are no numbers do not count."""
    told = [one for one in pairs if 0 < one.speed < math.inf and one.seen > 0]
    names = dict.fromkeys(name for one in told for name in (one.of, one.beside))
    place = {name: number for number, name in enumerate([*names][-_MOST:])}
    told = [one for one in told if one.of in place and one.beside in place]
    found = Interference(
        {(one.of, one.beside): _own(one) for one in told}, place, dict(features or {})
    )
    many = len(place)
    width = np.concatenate([np.full(2 * many, _WIDTH), np.full(2 * _FEATURES, _SHIFT)])
    found.best, found.covariance = np.zeros(len(width)), np.diag(width**2)
    if told:
        rows = np.array([found._row(one.of, one.beside)[0] for one in told])  # noqa: SLF001
        _solve(found, rows, told)
    return found


def _solve(found: Interference, rows: Reals, told: Collection[MeasuredPair]) -> None:
    """Fit twice: what was far off the first time has less weight the second time."""
    y = np.array([_transformed(one.speed) for one in told]) - _MEAN
    ridge = np.linalg.inv(found.covariance)
    weights = np.array([1.0 / (_MISFIT**2 * (1.0 + 1.0 / one.seen)) for one in told])
    for _ in range(2):
        weighted = rows.T * weights
        found.covariance = np.linalg.inv(weighted @ rows + ridge)
        found.best = found.covariance @ (weighted @ y)
        off = np.abs(y - rows @ found.best) / _MISFIT
        weights = weights * np.minimum(1.0, _HUBER / np.maximum(off, _HUBER))


def _own(one: MeasuredPair) -> PairSpeed:
    """What a pair says by itself."""
    speed = min(max(one.speed, _SLOWEST), 1.0)
    return PairSpeed(speed, _NOISE / math.sqrt(min(one.seen, _STEADY)))


def _transformed(speed: float) -> float:
    return math.log(-math.log(min(max(speed, _SLOWEST), _FASTEST)))
