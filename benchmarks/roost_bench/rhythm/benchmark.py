"""How often the right period is found, and how often one where there is none."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from roost.perf.rhythm import period
from roost_bench.rhythm.signals import NOISES, WAVES, noise, wave

__all__ = ["RhythmFigure", "measure"]

_SAMPLES = 120
_PERIODS = (4.0, 40.0)
_WITHIN = 0.1
_LONG, _TIMES = 600, 50
_RIGHT = {"saw": 95.0, "square": 95.0, "dip": 80.0}
_FALSE, _MS = 1.0, 2.0


@dataclass(frozen=True, slots=True)
class RhythmFigure:
    """A value, its goal, and whether it is met."""

    name: str
    value: float
    unit: str
    goal: float
    passed: bool


def measure(seed: int, each: int) -> list[RhythmFigure]:
    """The figures of so many signals of each kind."""
    chance = np.random.default_rng(seed)
    found = []
    for kind in WAVES:
        right = 100.0 * sum(_right(kind, chance) for _ in range(each)) / each
        goal = _RIGHT[kind]
        figure = RhythmFigure(f"right: {kind}", round(right, 2), "%", goal, right >= goal)
        found.append(figure)
    alarms = {kind: [_false(kind, chance) for _ in range(each)] for kind in NOISES}
    alarms["all"] = [one for kind in NOISES for one in alarms[kind]]
    for name, seen in alarms.items():
        wrong = 100.0 * float(np.mean(seen))
        # Of one kind there are too few to tell 1 % from 2 %: the goal is for all of them.
        goal = _FALSE if name == "all" else 100.0
        found.append(RhythmFigure(f"false: {name}", round(wrong, 2), "%", goal, wrong <= goal))
    took = _milliseconds(chance)
    return [*found, RhythmFigure("600 samples", round(took, 3), "ms", _MS, took < _MS)]


def _right(kind: str, chance: np.random.Generator) -> bool:
    truth = chance.uniform(*_PERIODS)
    found = period(wave(kind, truth, _SAMPLES, chance))
    return found is not None and abs(found / truth - 1.0) <= _WITHIN


def _false(kind: str, chance: np.random.Generator) -> bool:
    return period(noise(kind, _SAMPLES, chance)) is not None


def _milliseconds(chance: np.random.Generator) -> float:
    samples = wave("saw", 31.0, _LONG, chance)
    began = time.process_time()
    for _ in range(_TIMES):
        period(samples)
    return 1e3 * (time.process_time() - began) / _TIMES
