"""The rhythm of a training job, seen in its memory, and when it holds least.

A job that trains repeats itself: the autocorrelation of what it holds has peaks at the multiples of
its period. Alnair's profiler finds jobs so, by the lags above the 97.5 % line of a normal
distribution. Here the line is that of mere noise, 1.96 / sqrt(n), and no lower than a third.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from statistics import NormalDist, fmean, median

_LINE = NormalDist().inv_cdf(0.975)
_LEAST = 1 / 3
_LEAST_SAMPLES = 12
_LEAST_PEAKS = 2
_LOW = 0.1


def period(samples: Sequence[float]) -> int | None:
    """The period in samples; None where no rhythm can be seen."""
    count = len(samples)
    if count < _LEAST_SAMPLES:
        return None
    mean = fmean(samples)
    centred = [value - mean for value in samples]
    spread = sum(value * value for value in centred)
    if not spread:
        return None
    lags = [
        sum(a * b for a, b in zip(centred, centred[lag:], strict=False)) / spread
        for lag in range(count // 2 + 1)
    ]
    peaks = list(_peaks(lags, max(_LINE / count**0.5, _LEAST)))
    if len(peaks) < _LEAST_PEAKS:
        return None
    return round(median(later - earlier for earlier, later in pairwise([0, *peaks])))


def is_low(samples: Sequence[float], now: float) -> bool:
    """Whether what is held now is about the least that was seen."""
    low, high = min(samples), max(samples)
    return now <= low + _LOW * (high - low)


def _peaks(lags: Sequence[float], line: float) -> Iterator[int]:
    """The highest of each stretch of lags above a line, but of the one that begins at 0."""
    for above, stretch in groupby(range(len(lags)), lambda lag: lags[lag] > line):
        found = list(stretch)
        if above and found[0]:
            yield max(found, key=lags.__getitem__)
