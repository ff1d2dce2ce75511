"""Step times: how long one step of a data-parallel job takes, by where and how it runs.

The model is that of Pollux (OSDI'21) as Sia (SOSP'23) uses it. Computing takes ``ac + bc * local``
seconds; agreeing on gradients takes ``an + bn * (workers - 2)`` across nodes, ``ar + br *
(workers - 2)`` within one, and nothing for one worker alone. The two overlap in part: ``gamma`` 1
adds them up, a large one lets the longer hide the other.

``fit_steps`` finds the seven numbers from what was measured on one kind of GPU. What was never
measured stays at next to nothing, so the model hopes for the best: after one worker alone it
expects perfect scaling. ``roost.perf.uncertainty`` says how far such hopes can be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple, overload

import numpy as np

from roost.perf.arrays import Numbers, Reals

#: The least a parameter can be, and what those are held at of which nothing was seen.
LEAST = 1e-8
#: Mean errors of less than a thousandth are as good as none.
_ROUND = 1e-3
#: Less than this in an earlier model is no hint where to search.
_UNKNOWN = 1e-6
#: The most a parameter can be: hours for one step.
_MOST = 1e4
#: Across nodes it takes at least so much longer than within one, until it was measured.
_FARTHER = 1.1
#: What pulls gamma towards 1, and growth with the number of workers towards 0.
_GAMMA_PULL, _GROWTH_PULL = 1e-3, 1e-2
_GAMMA_MOST = 10.0
#: A search ends where the error is that flat, when a move gains no more than that, or after so
#: many tries. No move goes farther than by e squared.
_FLAT, _ENOUGH, _TRIES, _STRIDE = 1e-5, 1e-6, 60, 2.0
#: The shape of a pull that keeps two logarithms from going apart.
_APART = np.array([[1.0, -1.0], [-1.0, 1.0]])
#: Positions in a vector of parameters.
_AC, _BC, _AN, _BN, _AR, _BR, _GAMMA = range(7)


def _reals(numbers: float | Numbers) -> Reals:
    return np.asarray(numbers, dtype=np.float64)


class StepSample(NamedTuple):
    """What was measured in one setting: seconds of a step, and those of it lost to agreeing."""

    nodes: int
    workers: int
    local_batch: int
    step_s: float
    sync_s: float


@dataclass(frozen=True, slots=True)
class StepModel:
    """The time of a step: ``c`` computing, ``n`` across nodes, ``r`` within one node."""

    ac: float
    bc: float
    an: float
    bn: float
    ar: float
    br: float
    gamma: float

    @overload
    def compute_s(self, local: float) -> float: ...
    @overload
    def compute_s(self, local: Numbers) -> Reals: ...
    def compute_s(self, local: float | Numbers) -> float | Reals:
        """Seconds to compute gradients of so many samples on one GPU."""
        return self.ac + self.bc * _reals(local)

    @overload
    def network_s(self, nodes: float, workers: float) -> float: ...
    @overload
    def network_s(self, nodes: Numbers, workers: Numbers) -> Reals: ...
    def network_s(self, nodes: float | Numbers, workers: float | Numbers) -> float | Reals:
        """Seconds to agree on gradients, were nothing hidden behind computing."""
        size = _reals(workers)
        more = np.maximum(size - 2.0, 0.0)
        near = np.where(size > 1, self.ar + self.br * more, LEAST)
        return np.where(_reals(nodes) > 1, self.an + self.bn * more, near)[()]

    @overload
    def overlapped_s(self, compute_s: float, network_s: float) -> float: ...
    @overload
    def overlapped_s(self, compute_s: Reals, network_s: Reals) -> Reals: ...
    def overlapped_s(self, compute_s: float | Reals, network_s: float | Reals) -> float | Reals:
        """Seconds of a step in which computing and agreeing overlap."""
        longer: Reals = np.maximum(compute_s, network_s)
        shorter: Reals = np.minimum(compute_s, network_s)
        return longer * (1.0 + (shorter / longer) ** self.gamma) ** (1.0 / self.gamma)

    @overload
    def step_s(self, nodes: float, workers: float, local: float) -> float: ...
    @overload
    def step_s(self, nodes: Numbers, workers: Numbers, local: Numbers) -> Reals: ...
    def step_s(
        self, nodes: float | Numbers, workers: float | Numbers, local: float | Numbers
    ) -> float | Reals:
        """Seconds of a whole step."""
        network = self.network_s(_reals(nodes), _reals(workers))
        return self.overlapped_s(self.compute_s(_reals(local)), network)

    def scaled(self, factor: float) -> StepModel:
        """The same job on GPUs that take ``factor`` times as long for everything."""
        if factor == 1.0:
            return self
        ac, bc, an, bn, ar, br = (factor * time for time in astuple(self)[:-1])
        return StepModel(ac, bc, an, bn, ar, br, self.gamma)


#: Where a search begins of which no sample tells better.
START = StepModel(0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)


class Look(NamedTuple):
    """The error at one place, with its slope and curvature in the logarithms of parameters."""

    error: float
    slope: Reals
    curve: Reals


class Objective:
    """The error of a model over samples.

    It is the root mean square of the logarithmic error of computing times, plus that of step times,
    plus the pulls on gamma and on growth. A sample with a ``sync_s`` that is not a number says
    nothing of computing times.
    """

    def __init__(self, samples: Sequence[StepSample]) -> None:
        nodes, workers, self.local, step, self.sync = np.array(samples, dtype=np.float64).T
        self.count = len(step)
        self.spread, self.many = nodes > 1, workers > 2  # noqa: PLR2004
        self.near = ~self.spread & (workers > 1)
        told = ~np.isnan(self.sync)
        self.compute = np.maximum(np.where(told, step - self.sync, step), LEAST)
        self._told = np.concatenate([told, np.ones(self.count)])
        self._tellers = np.maximum([told.sum(), self.count], 1)
        self._half = np.repeat([0, 1], self.count)
        self._halves = np.eye(2)[:, self._half]
        self._target = np.log(np.concatenate([self.compute, step]))
        self._terms = self._design(np.maximum(workers - 2.0, LEAST))
        self._idle = np.concatenate([np.zeros(self.count), np.where(workers > 1, 0.0, LEAST)])

    def _design(self, more: Reals) -> Reals:
        """What the six times are multiplied with: computing on the left, network on the right."""
        terms = np.zeros((6, 2 * self.count))
        own, shared = terms[:, : self.count], terms[:, self.count :]
        own[_AC], own[_BC] = 1.0, self.local
        shared[_AN], shared[_BN] = self.spread, self.spread * more
        shared[_AR], shared[_BR] = self.near, self.near * more
        return terms

    def __call__(self, p: Reals) -> Look:
        """Look at the error where the parameters are ``p``.

        A step is ``own * (1 + (shared / own) ** gamma) ** (1 / gamma)``, the logarithm of which
        grows with that of the network by ``rest`` and with that of computing by ``1 - rest``.
        """
        n, gamma = self.count, p[_GAMMA]
        times = p[:_GAMMA] @ self._terms + self._idle
        logs = np.log(times)
        gap = logs[n:] - logs[:n]
        ratio = np.exp(gamma * gap)
        beyond = np.log(ratio + 1.0) / gamma
        rest = ratio / (ratio + 1.0)
        errors = logs - self._target
        errors[n:] += beyond - gap
        errors *= self._told
        slopes = np.empty((7, 2 * n))
        slopes[:_GAMMA] = self._terms * p[:_GAMMA, None]
        slopes[:_GAMMA] /= times
        slopes[:_GAMMA, n:] *= rest
        slopes[:2, n:] = slopes[:2, :n] * (1.0 - rest)
        slopes[_GAMMA, :n], slopes[_GAMMA, n:] = 0.0, rest * gap - beyond
        return _pulled(p, *self._squares(errors, slopes))

    def _squares(self, errors: Reals, slopes: Reals) -> tuple[float, Reals, Reals]:
        """The two root mean squares together, with the slope and curvature of their sum.

        Their corners at 0 are rounded off by ``_ROUND``: no search gets along a sharp edge. The
        curvature is that of Gauss and Newton, without that of the errors themselves.
        """
        halves = errors[: self.count], errors[self.count :]
        squares = np.array([half.dot(half) for half in halves]) / self._tellers
        rms = np.sqrt(squares + _ROUND * _ROUND)
        weighted = slopes * (self._told / (self._tellers * rms)[self._half])
        each = weighted @ (errors * self._halves).T
        curve = weighted @ slopes.T - (each / rms) @ each.T
        return float(rms.sum()) - 2 * _ROUND, each.sum(axis=1), curve


def _pulled(p: Reals, error: float, slope: Reals, curve: Reals) -> Look:
    """The error with the pulls on gamma and on growth."""
    gamma = float(p[_GAMMA])
    error += _GAMMA_PULL * (gamma - 1) ** 2
    slope[_GAMMA] += 2 * _GAMMA_PULL * (gamma - 1) * gamma
    curve[_GAMMA, _GAMMA] += 2 * _GAMMA_PULL * (2 * gamma - 1) * gamma
    for alpha, beta in ((_AN, _BN), (_AR, _BR)):
        growth = _GROWTH_PULL * float(p[beta] / p[alpha]) ** 2
        error += growth
        slope[alpha] -= 2 * growth
        slope[beta] += 2 * growth
        curve[alpha : beta + 1, alpha : beta + 1] += 4 * growth * _APART
    return Look(error, slope, curve)


def fit_steps(samples: Sequence[StepSample], start: StepModel | None = None) -> StepModel:
    """Find the model that errs least on ``samples``, searching from ``start`` if it is given.

    Without a ``start`` the model depends on the samples alone, not on what was fitted before.
    """
    objective = Objective(samples)
    low, high = _bounds(objective)
    p = _guess(objective)
    if start is not None:
        known = np.array(astuple(start))
        p = np.where(known > _UNKNOWN, known, p)
    ac, bc, an, bn, ar, br, gamma = _search(objective, p.clip(low, high), low, high).tolist()
    if not objective.spread.any():
        an, bn = max(an, _FARTHER * ar), max(bn, _FARTHER * br)
    return StepModel(ac, bc, an, bn, ar, br, gamma)


def _search(objective: Objective, p: Reals, low: Reals, high: Reals) -> Reals:
    """Where the error is least: Levenberg's and Marquardt's way, over logarithms, within bounds.

    It takes a quarter of the looks that L-BFGS-B takes over the parameters themselves, and is led
    astray far less often.
    """
    look, damping = objective(p), 1e-3
    for _ in range(_TRIES):
        free = np.flatnonzero(np.where(look.slope > 0, p > low, p < high))
        slope, curve = look.slope[free], look.curve[free][:, free]
        if not len(free) or np.abs(slope).max() < _FLAT:
            break
        diagonal = np.einsum("ii->i", curve)
        diagonal += damping * (diagonal + 1e-3)
        move = np.linalg.solve(curve, slope)
        there = p.copy()
        there[free] *= np.exp(-np.minimum(np.maximum(move, -_STRIDE), _STRIDE))
        there = np.minimum(np.maximum(there, low), high)
        seen = objective(there)
        gained = look.error - seen.error
        if gained > 0:
            p, look, damping = there, seen, max(damping / 4, 1e-6)
        else:
            damping *= 5
        if 0 < gained < _ENOUGH:
            break
    return p


def _bounds(seen: Objective) -> tuple[Reals, Reals]:
    """The least and the most of each parameter; one of which nothing was seen is pinned."""
    low = np.array([LEAST] * 6 + [1.0])
    high = np.array([_MOST] * 6 + [_GAMMA_MOST])
    if (seen.local == seen.local[0]).all():
        low[_AC] = high[_AC] = seen.compute.mean() / 2
    if not seen.spread.any():
        high[[_AN, _BN]] = LEAST
    if not seen.near.any():
        high[[_AR, _BR]] = LEAST
    if not seen.many.any():
        high[[_BN, _BR]] = LEAST
    return low, high


def _guess(seen: Objective) -> Reals:
    """A first guess: a line through computing times, and a network as slow as agreeing was."""
    guess = np.array(astuple(START))
    guess[:2] = _line(seen.local, seen.compute)
    lost = np.where(np.isnan(seen.sync), seen.compute / 10, np.maximum(seen.sync, 1e-5))
    for alpha, where in ((_AN, seen.spread), (_AR, seen.near)):
        if where.any():
            guess[alpha] = lost[where].mean()
            guess[alpha + 1] = guess[alpha] / 50
    return guess


def _line(local: Reals, compute: Reals) -> tuple[float, float]:
    """The line with the least relative errors, kept from being flat or from beginning at 0."""
    weight, slope = 1.0 / compute, local / compute
    a, b, c = weight.dot(weight), weight.dot(slope), slope.dot(slope)
    det, mean = a * c - b * b, float(compute.mean())
    if det <= 1e-9 * a * c:
        return mean / 2, mean / 2 / float(local.mean())
    at_0 = (c * weight.sum() - b * slope.sum()) / det
    each = (a * slope.sum() - b * weight.sum()) / det
    return max(float(at_0), mean / 20), max(float(each), mean / 20 / float(local.mean()))
