"""Goodput: how fast a job learns, which is its speed times what a step of such a batch is worth.

A step over a larger batch teaches more, but less per sample; how much less is told by the gradient
noise scale (McCandlish et al. 2018; Pollux, OSDI'21). ``tune`` finds the batch that learns fastest
for each of many sizes of a job at once. Rates are in steps at the batch for which the job was
tuned, per second: the unit in which the work of such jobs is counted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol, overload

import numpy as np

from roost.perf.arrays import Booleans, Integers, Numbers, Reals

#: How many totals are tried between the least and the most.
_TOTALS = 50
#: What rounding up forgives of a number that is whole but for its last digits.
_SLACK = 1e-8
#: More noise than this is as good as infinite: twice the batch is worth twice the steps.
_NOISE_MOST = 1e15


class StepTimer(Protocol):
    """How long it takes to compute, and to do a step: a ``StepModel``, or what stands for one."""

    def compute_s(self, local: Numbers) -> Reals:
        """Seconds to compute gradients of so many samples on one GPU."""

    def step_s(self, nodes: Numbers, workers: Numbers, local: Numbers) -> Reals:
        """Seconds of a whole step."""


class BatchLimits(NamedTuple):
    """The batches a job may use: in all, and on one GPU at once.

    A job with a ``batch_max`` of no more than its ``batch`` stays at ``batch``. Beyond its own
    batch, one worker alone needs ``lone_rounds``: from one batch it cannot tell the noise of its
    gradients, of which larger batches depend.
    """

    batch: int
    batch_max: int
    local_min: int
    local_max: int
    lone_rounds: int = 2


class Tuned(NamedTuple):
    """The best batch for each size: samples per GPU at once, further rounds of them, and in all.

    ``rate`` is in steps at the tuned batch per second, and 0 where the job cannot run at all; the
    rest means nothing there.
    """

    local: Integers
    accumulation: Integers
    total: Integers
    rate: Reals


@overload
def gain(total: float, batch: float, noise: float) -> float: ...
@overload
def gain(total: Numbers, batch: float, noise: float) -> Reals: ...
def gain(total: float | Numbers, batch: float, noise: float) -> float | Reals:
    """What a step over ``total`` samples is worth, in steps over ``batch``."""
    noise = min(max(noise, 0.0), _NOISE_MOST)
    return (batch + noise) / (noise * batch / np.asarray(total, dtype=np.float64) + batch)


def tune(
    model: StepTimer, noise: float, limits: BatchLimits, nodes: Numbers, workers: Numbers
) -> Tuned:
    """Find the batch that learns fastest for each size of ``nodes`` and ``workers``."""
    sizes = np.asarray(workers, dtype=np.int64)
    grid = _grid(limits, sizes.tobytes())
    seconds = model.step_s(np.asarray(nodes).reshape(-1, 1), sizes.reshape(-1, 1), grid.local)
    rates = _rates(seconds + grid.accumulation * model.compute_s(grid.local), noise, limits, grid)
    best = rates.argmax(axis=1) + grid.rows
    local, accumulation, total, rate = (
        values.take(best).reshape(sizes.shape)
        for values in (grid.local, grid.accumulation, grid.total, rates)
    )
    return Tuned(local, accumulation, total, rate)


class _Grid(NamedTuple):
    """Batches to try: a row for each size of a job, which begins at ``rows`` in flat order."""

    local: Integers
    accumulation: Integers
    total: Integers
    possible: Booleans
    rows: Integers


def _rates(seconds: Reals, noise: float, limits: BatchLimits, grid: _Grid) -> Reals:
    """Steps at the tuned batch per second; 0 where that is impossible."""
    worth = gain(grid.total, limits.batch, noise) if _adaptive(limits) else 1.0
    return np.where(grid.possible, worth / seconds, 0.0)


@lru_cache(maxsize=512)
def _grid(limits: BatchLimits, workers: bytes) -> _Grid:
    """The batches that are tried for these numbers of workers: policies ask for the same often."""
    size = np.frombuffer(workers, dtype=np.int64).reshape(-1, 1)
    share = _totals(limits, size) / np.maximum(size, 1)
    rounds = np.ceil(share / limits.local_max - _SLACK)
    lone = (size == 1) & (share > limits.batch + _SLACK)
    rounds = np.maximum(rounds, np.where(lone, limits.lone_rounds, 1)).astype(np.int64)
    local = np.ceil(share / rounds - _SLACK).astype(np.int64)
    if _adaptive(limits):
        local = np.minimum(local, limits.batch_max // np.maximum(size * rounds, 1))
    return _split(limits, size, local, rounds - 1)


def _totals(limits: BatchLimits, size: Integers) -> Reals:
    """Totals to try, evenly spaced in their logarithm; one alone for a batch that stays."""
    if not _adaptive(limits):
        return np.full(size.shape, float(limits.batch))
    least = np.maximum(limits.batch, limits.local_min * size).astype(np.float64)
    return least * (limits.batch_max / least) ** np.linspace(0.0, 1.0, _TOTALS)


def _split(limits: BatchLimits, size: Integers, local: Integers, accumulation: Integers) -> _Grid:
    """Batches of ``local`` samples on each GPU at once, and whether they are allowed."""
    total = size * local * (accumulation + 1)
    possible = (size >= 1) & (local >= limits.local_min) & (local <= limits.local_max)
    if _adaptive(limits):
        possible &= total <= limits.batch_max
        total = np.maximum(total, 1)
    else:
        # Rounding up to whole samples fills the last round with a few more; they teach nothing.
        possible &= size * limits.local_min <= limits.batch
        total = np.full(total.shape, limits.batch, dtype=np.int64)
    columns = local.shape[-1] if local.ndim else 1
    return _Grid(local, accumulation, total, possible, np.arange(0, local.size, columns))


def _adaptive(limits: BatchLimits) -> bool:
    """Whether the batch may be another than the one for which the job was tuned."""
    return limits.batch_max > limits.batch
