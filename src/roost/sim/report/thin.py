"""Fewer points that look the same: long series, distributions and lists of jobs, cut to size.

Pure functions on numbers; which of them go into the page is decided in ``contents``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

MAX_STEPS = 1500
BINS = MAX_STEPS // 3
MAX_QUANTILES = 400


def thin_steps(
    time: Sequence[float], columns: dict[str, Sequence[float]], end: float
) -> tuple[Floats, dict[str, dict[str, Floats]]]:
    """Keep a step function as it is up to ``MAX_STEPS`` steps, and summarise it per bin beyond.

    A bin has the time-weighted mean, and the least and greatest value in it, so peaks survive.
    Returns the times of the steps and, per column, ``{"v": …}`` or ``{"v": …, "lo": …, "hi": …}``.
    """
    at = np.array(time, dtype=np.float64)
    last = np.append(at[1:] > at[:-1], True) if at.size else np.zeros(0, dtype=bool)
    at = at[last]
    kept = {name: np.array(values, dtype=np.float64)[last] for name, values in columns.items()}
    if at.size <= MAX_STEPS:
        return at, {name: {"v": values} for name, values in kept.items()}
    edges = np.linspace(at[0], max(end, at[-1]), BINS + 1)
    return edges[:-1], {name: _binned(at, values, edges) for name, values in kept.items()}


def _binned(at: Floats, values: Floats, edges: Floats) -> dict[str, Floats]:
    until = np.append(at, edges[-1])
    sums = np.concatenate(([0.0], np.cumsum(values * np.diff(until))))
    means = np.diff(np.interp(edges, until, sums)) / np.diff(edges)
    # Steps that hold somewhere in a bin: the one carried into it up to the last that begins in it.
    first = np.searchsorted(at, edges[:-1], side="right") - 1
    after = np.searchsorted(at, edges[1:], side="left")
    spans = np.stack([first, np.maximum(after, first + 1)], axis=1).ravel()
    padded = np.append(values, values[-1])
    low, high = (reduce.reduceat(padded, spans)[::2] for reduce in (np.minimum, np.maximum))
    return {"v": means, "lo": low, "hi": high}


def quantiles(values: Floats) -> tuple[Floats, Floats]:
    """Points of an empirical distribution: all values, or an even choice with finer tails.

    Returns the values in order, and for each the fraction of all values that are not above it.
    """
    ordered = np.sort(values)
    n = ordered.size
    if n <= MAX_QUANTILES:
        ranks = np.arange(1, n + 1)
    else:
        tail = np.linspace(0, 0.01, MAX_QUANTILES // 8)
        inner = np.linspace(0.01, 0.99, MAX_QUANTILES - 2 * tail.size)
        ranks = np.unique(np.ceil(np.concatenate([tail, inner, 1 - tail]) * n).clip(1, n))
    index = ranks.astype(np.int64) - 1
    return ordered[index], ranks / max(n, 1)


def pick(worst: Floats, *, most: int, longest: int) -> tuple[list[int], int]:
    """Choose rows to show: all, or the ``longest`` ones and every k-th of the others.

    Returns their indices in order, and k (1 when nothing is left out).
    """
    n = worst.size
    if n <= most:
        return list(range(n)), 1
    by_value = np.argsort(-worst, kind="stable")
    others = np.sort(by_value[longest:])
    every = -(-others.size // longest)
    chosen = np.concatenate([by_value[:longest], others[::every]])
    return np.sort(chosen).tolist(), every


def compact(values: Iterable[float | None], digits: int = 6) -> list[float | None]:
    """Round to ``digits`` significant digits, and write whole numbers without a point."""
    return [None if value is None else _short(float(f"{value:.{digits}g}")) for value in values]


def _short(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value
