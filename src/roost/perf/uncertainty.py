"""How far a step model can be trusted, and what to expect where nothing was measured.

A fit knows only what its samples tell. Here, what known applications need to agree on gradients
(``Prior``) fills the gaps, so that a job that ran on one GPU alone is not expected to scale
perfectly. Each prediction gets a standard error (``Belief``): small near what was measured, wide
where only the prior speaks.

All is in logarithms: an error or a width of 0.1 is a tenth. The logarithms of the parameters are
taken as normal around their best values, with the curvature that samples and prior have there
together (Laplace's approximation).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from roost.perf.arrays import Numbers, Reals
from roost.perf.hybrid import Model, ReplicaSplit, paced
from roost.perf.kinds import Fit
from roost.perf.steps import StepModel

#: Positions in a vector of parameters.
_AC, _BC, _AN, _BN, _AR, _BR, _GAMMA = range(7)
#: How little is known beforehand of the two parts of computing, and of how it overlaps.
_COMPUTE_WIDTH, _GAMMA_WIDTH = 1.0, 0.35
#: Overlap where none was measured: the mean over the applications that Sia profiled.
_OVERLAP = 1.6
#: How far models of real applications are off their own samples, and how many samples that is
#: worth against those of the job itself.
_MISFIT, _MISFIT_WORTH = 0.08, 4.0


class LogNormal(NamedTuple):
    """Where a logarithm lies, and its standard deviation."""

    middle: float
    width: float


class Prior(NamedTuple):
    """What agreeing on gradients costs, before it is measured.

    ``near`` is the time of two workers in a node over that of computing, ``far`` across nodes over
    within one, ``growth`` what each further worker adds to that.
    """

    near: LogNormal
    far: LogNormal
    growth: LogNormal


#: The five applications that Sia profiled, over three kinds of GPUs.
PRIOR = Prior(
    near=LogNormal(math.log(0.09), 1.3),
    far=LogNormal(math.log(2.0), 1.2),
    growth=LogNormal(math.log(0.06), 1.2),
)


class Measurements(NamedTuple):
    """What a fit has seen: several workers in a node, several nodes, more than two workers there.

    ``compute_s`` is computing at the mean of the batches that it saw.
    """

    near: bool
    far: bool
    near_grows: bool
    far_grows: bool
    compute_s: float


def sights(fit: Fit) -> Measurements:
    """What a fit has seen."""
    near = [seen.workers for seen in fit.samples if seen.nodes == 1 < seen.workers]
    far = [seen.workers for seen in fit.samples if seen.nodes > 1]
    logs = [math.log(seen.local_batch) for seen in fit.samples]
    batch = math.exp(math.fsum(logs) / len(logs))
    grows = (max(near, default=0) > 2, max(far, default=0) > 2)  # noqa: PLR2004
    return Measurements(bool(near), bool(far), *grows, float(fit.model.compute_s(batch)))


def hedged(fit: Fit, prior: Prior = PRIOR) -> StepModel:
    """The model with what the prior expects in the place of what was never seen."""
    model, seen = fit.model, sights(fit)
    farther, growth = math.exp(prior.far.middle), math.exp(prior.growth.middle)
    ar = model.ar if seen.near else math.exp(prior.near.middle) * seen.compute_s
    an = model.an if seen.far else farther * ar
    if seen.far and not seen.near:
        ar = an / farther
    return replace(
        model,
        an=an,
        ar=ar,
        bn=model.bn if seen.far_grows else growth * an,
        br=model.br if seen.near_grows else growth * ar,
        gamma=model.gamma if seen.near or seen.far else _OVERLAP,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """A model, and how sure it is.

    ``axes`` are steps of one standard deviation from the logarithms of its parameters, each
    independent of the others; ``misfit`` is the error that stays even where they are known. With
    a ``shape`` the model is in slots, as a fit is; ``pace`` and ``error`` are in samples.
    """

    model: StepModel
    axes: Reals
    misfit: float
    shape: ReplicaSplit | None = None

    @property
    def pace(self) -> Model:
        """The model in samples per worker."""
        return paced(self.model, self.shape)

    def error(
        self,
        nodes: Numbers,
        workers: Numbers,
        local: Numbers,
        accumulation: Numbers | None = None,
    ) -> Reals:
        """The standard error of the logarithm of the time of a step, and so of goodput.

        A step may be preceded by rounds of ``accumulation``, which compute alone. Each axis is
        tried both ways and the larger change counts: a network turns from hidden to decisive
        within one deviation, so that slopes would say too little.
        """

        def log_s(model: StepModel) -> Reals:
            pace = paced(model, self.shape)
            seconds = pace.step_s(nodes, workers, local)
            rounds = 0.0 if accumulation is None else accumulation * pace.compute_s(local)
            return np.log(seconds + rounds)

        middle = log_s(self.model)
        squares = np.full_like(middle, self.misfit**2)
        for axis in self.axes:
            ways = (np.abs(log_s(_moved(self.model, way)) - middle) for way in (axis, -axis))
            squares += np.maximum(*ways) ** 2
        return np.sqrt(squares)


def _moved(model: StepModel, logs: Reals) -> StepModel:
    """The model with its parameters moved by so much in logarithms."""
    ac, bc, an, bn, ar, br, gamma = (np.array(astuple(model)) * np.exp(logs)).tolist()
    return StepModel(ac, bc, an, bn, ar, br, gamma)


@lru_cache(maxsize=4096)
def believe(fit: Fit, prior: Prior = PRIOR) -> Belief:
    """What samples and prior say together."""
    model = hedged(fit, prior)
    nodes, workers, local, step, sync = np.array(fit.samples, dtype=np.float64).T
    slopes = step_slopes(model, nodes, workers, local)
    misfit = _misfit(np.log(model.step_s(nodes, workers, local) / step), slopes)
    told = ~np.isnan(sync)
    rows = np.concatenate(
        [
            slopes / misfit,
            compute_slopes(model, local[told]) / misfit,
            _prior_rows(fit, model, prior),
        ]
    )
    sure, directions = np.linalg.eigh(rows.T @ rows)
    return Belief(model, (directions / np.sqrt(sure)).T, misfit, fit.shape)


def _misfit(errors: Reals, slopes: Reals) -> float:
    """How far times are off beyond what their parameters explain."""
    free = max(len(errors) - np.linalg.matrix_rank(slopes, tol=1e-3), 0)
    squares = _MISFIT_WORTH * _MISFIT**2 + errors.dot(errors)
    return math.sqrt(squares / (_MISFIT_WORTH + free))


def _prior_rows(fit: Fit, model: StepModel, prior: Prior) -> Reals:
    """What is known beforehand of each parameter, alone or beside another, over its width."""
    eye = np.eye(7)
    local = np.array([sample.local_batch for sample in fit.samples], dtype=np.float64)
    compute = compute_slopes(model, local).mean(axis=0)
    rows = [
        eye[_AC] / _COMPUTE_WIDTH,
        eye[_BC] / _COMPUTE_WIDTH,
        (eye[_AR] - compute) / prior.near.width,
        (eye[_AN] - eye[_AR]) / prior.far.width,
        (eye[_BR] - eye[_AR]) / prior.growth.width,
        (eye[_BN] - eye[_AN]) / prior.growth.width,
        eye[_GAMMA] / _GAMMA_WIDTH,
    ]
    return np.array(rows)


def compute_slopes(model: StepModel, local: Numbers) -> Reals:
    """By how much computing takes longer for each parameter, all in logarithms: a last axis."""
    share = np.asarray(model.ac / model.compute_s(np.asarray(local)))
    slopes = np.zeros((*share.shape, 7))
    slopes[..., _AC], slopes[..., _BC] = share, 1.0 - share
    return slopes


def step_slopes(model: StepModel, nodes: Numbers, workers: Numbers, local: Numbers) -> Reals:
    """By how much a step takes longer for each parameter, all in logarithms: a last axis."""
    nodes, workers, local = np.broadcast_arrays(nodes, workers, local)
    own, shared = model.compute_s(local), model.network_s(nodes, workers)
    gap = np.log(shared / own)
    ratio = np.exp(model.gamma * gap)
    rest = ratio / (1.0 + ratio)
    slopes = compute_slopes(model, local) * (1.0 - rest)[..., None]
    far, near = nodes > 1, (nodes == 1) & (workers > 1)
    flat_far, flat_near = model.an / shared, model.ar / shared
    slopes[..., _AN], slopes[..., _BN] = far * rest * flat_far, far * rest * (1.0 - flat_far)
    slopes[..., _AR], slopes[..., _BR] = near * rest * flat_near, near * rest * (1.0 - flat_near)
    slopes[..., _GAMMA] = rest * gap - np.log1p(ratio) / model.gamma
    return slopes
