"""What trainings look like from outside, and what is no training.

A sample is what was used on average since the last one, as drivers tell it. No two steps of a
training take equally long: their lengths differ by 5 %; and whatever is measured has 3 % of noise.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["NOISES", "WAVES", "noise", "wave"]

Floats = npt.NDArray[np.float64]

WAVES = ("saw", "square", "dip")
NOISES = ("flat", "constant", "walk", "ramp", "requests", "step")
_JITTER, _NOISE = 0.05, 0.03
#: The part of a period that a dip takes: loading a batch, writing a checkpoint.
_DIP = 0.15
#: So many moments make a sample.
_MOMENTS = 10


def wave(kind: str, period: float, count: int, chance: np.random.Generator) -> Floats:
    """A training: saw, square or dip."""
    starts = [-chance.random() * period]
    while starts[-1] < count:
        starts.append(starts[-1] + period * (1 + _JITTER * chance.standard_normal()))
    edges = np.array(starts)
    moments = (np.arange(count * _MOMENTS) + 0.5) / _MOMENTS
    step = np.searchsorted(edges, moments, side="right") - 1
    phase = (moments - edges[step]) / (edges[step + 1] - edges[step])
    shape = {"saw": phase, "square": phase < 0.5, "dip": phase > _DIP}[kind]  # noqa: PLR2004 - half
    samples = shape.astype(float).reshape(count, _MOMENTS).mean(axis=1)
    return np.asarray(samples + _NOISE * chance.standard_normal(count))


def noise(kind: str, count: int, chance: np.random.Generator) -> Floats:
    """No training: nothing in it repeats itself."""
    blur = _NOISE * chance.standard_normal(count)
    match kind:
        case "constant":
            return np.full(count, 0.7)
        case "walk":
            return np.asarray(np.cumsum(chance.standard_normal(count)) * 0.05)
        case "ramp":
            return np.linspace(0.0, 1.0, count) + blur
        case "requests":
            return _requests(count, chance) + blur
        case "step":
            return (np.arange(count) > chance.integers(count // 5, 4 * count // 5)) + blur
        case _:
            return 0.5 + blur


def _requests(count: int, chance: np.random.Generator) -> Floats:
    """People ask for something now and then; each answer takes a while."""
    load = np.zeros(count)
    for at in np.flatnonzero(chance.random(count) < chance.uniform(0.05, 0.4)):
        load[at : at + 1 + chance.integers(3)] += chance.exponential(0.5)
    return np.minimum(load, 1.0)
