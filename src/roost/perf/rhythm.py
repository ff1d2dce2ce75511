"""The rhythm of a job, seen from outside: whether what it uses repeats itself, and how often.

A training repeats a step, and an epoch; what it uses (device, memory copies, power, CPU) repeats
with it. Looked at are the changes from sample to sample, not the samples: in them a random walk or
a ramp is mere noise, and a single step is a single blow. The autocorrelation of the changes has
peaks at the multiples of the period, blurred because no two steps take equally long.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["period"]

Floats = npt.NDArray[np.float64]

_LEAST_SAMPLES = 12
#: A period has at least so many samples, and is seen at least so many times.
_SHORTEST, _LEAST_TIMES = 3.0, 2.6
#: Steps differ by about so much in their length.
_JITTER = 0.06
#: The autocorrelation that a rhythm has at its period; by chance it is rarely as high in noise.
_LINE = 0.45
#: A long period begins with a blow: a change so many times the usual one.
_LONG, _BLOW = 8, 6.0
#: A shorter period is taken for the true one where it explains nearly as much as the best.
_NEARLY = 0.6


def period(samples: Sequence[float] | Floats) -> float | None:
    """The period in samples; None where no rhythm can be seen."""
    values = np.asarray(samples, dtype=float)
    if len(values) < _LEAST_SAMPLES or not np.isfinite(values).all():
        return None
    changes = np.diff(values)
    blows = bool(np.abs(changes).max() > _BLOW * np.median(np.abs(changes)))
    changes -= changes.mean()
    places = np.arange(len(values))
    levels = values - np.polyval(np.polyfit(places, values, 1), places)
    if float(changes @ changes) <= 1e-20 * float(values @ values):
        return None
    return _best(_autocorrelation(changes), _autocorrelation(levels), blows=blows)


def _autocorrelation(values: Floats) -> Floats:
    """By lag; each as if there were as many pairs as for lag 0."""
    count = len(values)
    size = 1 << (2 * count - 1).bit_length()
    power = np.abs(np.fft.rfft(values, size)) ** 2
    raw = np.fft.irfft(power, size)[:count] / float(values @ values)
    return np.asarray(raw * count / np.maximum(count - np.arange(count), 1))


def _best(changes: Floats, levels: Floats, *, blows: bool) -> float | None:
    longest = int(len(levels) / _LEAST_TIMES)
    lags = np.arange(int(_SHORTEST), longest + 1)
    both = np.array([_score(changes, levels, int(lag), blows=blows) for lag in lags])
    best = int(both.argmax())
    if both[best] < _LINE:
        return None
    first = next(at for at, one in enumerate(both) if one >= _NEARLY * both[best])
    peak = max(range(first, min(first + 3, len(both))), key=both.__getitem__)
    return _refined(changes, float(lags[peak]), longest)


def _score(changes: Floats, levels: Floats, lag: int, *, blows: bool) -> float:
    """How well everything repeats itself after so many samples, and after twice as many."""
    if lag >= _LONG and not blows:
        return 0.0
    found = []
    for times in (1, 2):
        wide = max(1, round(_JITTER * lag * times**0.5))
        part = slice(max(1, times * lag - wide), times * lag + wide + 1)
        # A dip goes down and up at once, so that the sum of its surroundings is nothing.
        change = max(float(changes[part].sum()), float(changes[times * lag]))
        level = float(levels[part].max(initial=0.0))
        found.append(min(change, 1.4 * level))
    return min(found[0], 1.3 * found[1])


def _refined(lags: Floats, lag: float, longest: int) -> float:
    """The same, from the last multiple that is still clear."""
    found = _around(lags, lag)[1]
    for times in (2, 3, 4):
        if times * found > longest:
            break
        score, centre = _around(lags, times * found)
        if score < _LINE:
            break
        found = centre / times
    return found


def _around(lags: Floats, lag: float) -> tuple[float, float]:
    """What is at a lag and beside it, as far as steps differ in length; and its middle."""
    wide = max(1, round(_JITTER * lag))
    low = max(1, round(lag) - wide)
    part = np.maximum(lags[low : round(lag) + wide + 1], 0.0)
    total = float(part.sum())
    if not total:
        return 0.0, lag
    return total, float(part @ np.arange(low, low + len(part))) / total
