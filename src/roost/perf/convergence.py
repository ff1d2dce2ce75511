"""When a training will have converged, from the losses it has reported so far.

Losses of stochastic gradient descent fall about as l(k) = 1/(a k + b) + c with a, b, c >= 0 after k
epochs (Optimus, EuroSys 2018). A fit takes the points in three thirds and counts each third four
times as much as the one before, since the end of the curve is what is asked for. For a given floor
c the rest is a weighted line through 1/(l - c), so the floor alone is searched, on a grid that is
refined twice. Points far from the curve by the spread of all others count less, or not at all.

A training has converged once the fitted loss, relative to the largest one seen, falls by
``threshold`` or less over ``window`` epochs. No job is believed to need more than ``cap`` epochs;
where there is no fit yet, or a job goes on beyond that, it is given ``more``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from roost.perf.arrays import Reals

#: Points from which on a curve is fitted.
ENOUGH = 3
_THIRD = 4.0
_GRID = 32
_REFINEMENTS = 2
_REWEIGHTINGS = 2
#: Beyond so many standard deviations a point is an outlier (Tukey's biweight).
_FAR = 4.685
_TO_SIGMA = 1.4826
_SMALL = 1e-9
#: Noise of a loss, relative to the largest, that few points may have hidden by chance.
_ROUGH = 0.02


@dataclass(frozen=True, slots=True)
class Rule:
    """When a training counts as converged, and what is assumed where that is unknown."""

    threshold: float = 0.05
    window: float = 10.0
    cap: float = 100.0
    more: float = 20.0


RULE = Rule()


class Remaining(NamedTuple):
    """Epochs that are left, and the standard deviation of that; ``fitted``: a curve says so."""

    epochs: float
    spread: float
    fitted: bool


@dataclass(frozen=True, slots=True)
class LossCurve:
    """l(k) = scale * (1/(a k + b) + c), and the points behind it: k, l / scale, their weights."""

    a: float
    b: float
    c: float
    scale: float = 1.0
    points: Reals = field(default_factory=lambda: np.zeros((3, 0)), compare=False, repr=False)

    def loss(self, epochs: float | Reals) -> Reals:
        """The loss after so many epochs."""
        curve = 1.0 / np.maximum(self.a * np.asarray(epochs) + self.b, _SMALL) + self.c
        found: Reals = self.scale * curve
        return found

    def converges_at(self, rule: Rule = RULE) -> float:
        """The epoch from which on the loss falls no more than the rule's threshold."""
        return _converges_at(self.a, self.b, rule)

    def spread(self, rule: Rule = RULE) -> float:
        """The standard deviation of that epoch, to first order in the coefficients."""
        at = self.converges_at(rule)
        covariance, _ = self.doubt()
        slope = np.zeros(3)
        for which, value in enumerate((self.a, self.b)):
            step = max(1e-4 * value, 1e-6)
            moved = [self.a, self.b]
            moved[which] += step
            slope[which] = (_converges_at(moved[0], moved[1], rule) - at) / step
        return math.sqrt(max(float(slope @ covariance @ slope), 0.0))

    def doubt(self) -> tuple[Reals, float]:
        """The covariance of (a, b, c) to first order, and the standard deviation of a loss."""
        k, l, w = self.points[:, self.points[2] > 0]  # noqa: E741 - as in the formula
        slope = -1.0 / np.maximum(self.a * k + self.b, _SMALL) ** 2
        jacobian = np.stack((k * slope, slope, np.ones_like(k)), axis=1)
        off = l - _curve(k, self.a, self.b, self.c)
        noise = max(math.sqrt(float((off**2).sum()) / max(1, len(k) - 3)), _ROUGH / max(1, len(k)))
        inner = np.linalg.pinv(jacobian.T @ (jacobian * w[:, None]))
        around = jacobian.T @ (jacobian * (w**2)[:, None])  # all are as noisy, whatever they count
        return inner @ around @ inner * noise**2, noise


def fit_loss(losses: Mapping[int, float] | Mapping[float, float]) -> LossCurve | None:
    """The curve through losses by epoch; None with too few points, or when they do not fall."""
    if len(losses) < ENOUGH:
        return None
    points = sorted(losses.items())
    k = np.array([at for at, _ in points], dtype=np.float64)
    l = np.array([loss for _, loss in points], dtype=np.float64)  # noqa: E741 - as in the formula
    scale = float(l.max())
    if not 0 < scale < math.inf or np.ptp(k) <= 0:
        return None
    plausible = _plausible(k, l / scale)
    scale = float((l * plausible).max())
    l = l / scale  # noqa: E741
    by_age = _THIRD ** np.floor(np.arange(len(k)) * 3 / len(k))
    weights = by_age * plausible
    a, b, c = _search(k, l, weights)
    for _ in range(_REWEIGHTINGS):
        off = l - _curve(k, a, b, c)
        sigma = _TO_SIGMA * _middle(np.abs(off))
        if sigma < _SMALL:
            break
        weights = by_age * np.clip(1 - (off / (_FAR * sigma)) ** 2, 0.0, 1.0) ** 2
        if (weights > 0).sum() < ENOUGH:
            break
        a, b, c = _search(k, l, weights)
    if a <= 0:
        return None
    return LossCurve(a, b, c, scale, np.stack((k, l, weights)))


def remaining(losses: Mapping[int, float], done: float, rule: Rule = RULE) -> Remaining:
    """Epochs that are left after ``done`` of them."""
    curve = fit_loss(losses)
    if curve is not None:
        ends_at = min(max(curve.converges_at(rule), 0.0), rule.cap)
        spread = min(curve.spread(rule), rule.cap)
        if ends_at > done:
            return Remaining(ends_at - done, spread, fitted=True)
        if done < rule.cap:  # it is late, by as much as the estimate is unsure
            return Remaining(min(max(spread, 1.0), rule.more), spread, fitted=True)
    return Remaining(rule.more, rule.more, fitted=False)


def _converges_at(a: float, b: float, rule: Rule) -> float:
    """The k with l(k - window) - l(k) = threshold, by the formula for quadratic equations.

    With x = a (k - window) + b and s = a window: 1/x - 1/(x + s) = threshold.
    """
    s = a * rule.window
    if s <= 0:
        return 0.0
    x = (math.sqrt(s * s + 4 * s / rule.threshold) - s) / 2
    return (x - b) / a + rule.window


def _curve(k: Reals, a: float, b: float, c: float) -> Reals:
    found: Reals = 1.0 / np.maximum(a * k + b, _SMALL) + c
    return found


def _plausible(k: Reals, l: Reals) -> Reals:  # noqa: E741 - as in the formula
    """1, or 0 for a point that sticks out from the points around it."""
    padded = np.concatenate((l[:1], l[:1], l, l[-1:], l[-1:]))
    around = np.sort(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)[:, 2]
    off = np.abs(l - around)
    usual = _TO_SIGMA * _middle(off) + 0.05
    found = (off <= _FAR * usual).astype(np.float64)
    found[k == k[0]] = 1.0  # the first one may well be far above its neighbours
    return found if found.sum() >= ENOUGH else np.ones_like(l)


def _middle(values: Reals) -> float:
    """The median, or the larger of the two in the middle."""
    return float(np.sort(values)[len(values) // 2])


def _search(k: Reals, l: Reals, weights: Reals) -> tuple[float, float, float]:  # noqa: E741
    """The best floor and the line that goes with it."""
    low, high = 0.0, max(float(l.min()) - _SMALL, 0.0)
    best = (math.inf, 0.0, 1.0, 0.0)
    for _ in range(_REFINEMENTS):
        floors = np.linspace(low, high, _GRID)
        a, b, errors = _lines(k, l, weights, floors)
        at = int(np.argmin(errors))
        best = min(best, (float(errors[at]), float(a[at]), float(b[at]), float(floors[at])))
        width = (high - low) / (_GRID - 1)
        low, high = max(low, floors[at] - width), min(high, floors[at] + width)
    return best[1:]


def _lines(k: Reals, l: Reals, weights: Reals, floors: Reals) -> tuple[Reals, Reals, Reals]:  # noqa: E741
    """For each floor: a and b of the weighted line through 1/(l - c), and the error in l."""
    above = np.maximum(l - floors[:, None], 1e-3)
    w = weights * above**4  # the error of 1/(l - c) grows with its square
    powers = np.stack((np.ones_like(k), k, k * k), axis=1)
    total, first, second = (w @ powers).T
    sum_y, sum_ky = ((w / above) @ powers[:, :2]).T
    bottom = total * second - first**2
    with np.errstate(all="ignore"):
        a = np.where(bottom > 0, (total * sum_ky - first * sum_y) / bottom, 0.0)
        b = (sum_y - a * first) / total
        steep = np.where(second > 0, sum_ky / second, 0.0)
    flat, through = a < 0, (a >= 0) & (b < 0)
    b = np.where(flat, sum_y / total, np.where(through, 0.0, b))
    a = np.where(flat, 0.0, np.where(through, steep, a))
    fitted = 1.0 / np.maximum(a[:, None] * k + b[:, None], _SMALL) + floors[:, None]
    return a, b, (fitted - l) ** 2 @ weights
