"""Speed of parameter-server training by its numbers of servers and workers, fitted online.

The two forms are those of Optimus (Peng et al., "Optimus: an efficient dynamic resource scheduler
for deep learning clusters", EuroSys 2018): with w workers, p servers and a total batch of B,

    asynchronous   f = w / (a + b w/p + c w + d p)
    synchronous    f = 1 / (a B/w + b + c w/p + d w + e p)        steps per second

Both are linear in their coefficients once turned over (w/f, 1/f), so that a non-negative least
squares fit finds them. Rows are weighted by 1/y: errors of measured times are relative ones. A job
without servers (all-reduce) is the synchronous form without its two terms in p.

These forms do not know where tasks stand. A *placed* model adds what they leave out: with workers
and servers spread evenly over k nodes, (w/k)(1 - 1/k) of the model's size passes through the card
of each of them, and for an asynchronous worker on its own 1 - 1/k of it. That is our addition.

A fit is trusted from 4 (asynchronous) or 5 distinct settings on. Below that the form of ``_PRIOR``
stands in, scaled to what was measured: two thirds computing, a quarter moving the model, the rest
overhead. The same shape, as light as a thousandth of a measurement, stays in every fit: it decides
only what the measurements leave open, such as the terms in p when p never changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from roost.core.observed import Observed
from roost.core.state import Job
from roost.perf.arrays import Reals

#: A number, or an array of them.
Amount: TypeAlias = float | npt.NDArray[np.float64] | npt.NDArray[np.int64]


class Mode(StrEnum):
    """How workers keep in step, which decides the form of the model."""

    SYNC = "sync"
    ASYNC = "async"
    ALL_REDUCE = "all-reduce"


class ServerSample(NamedTuple):
    """Steps per second as measured with so many servers and workers, and how often."""

    servers: int
    workers: int
    rate: float
    times: int = 1
    nodes: int = 1


#: Parts of the time of a step with one server and one worker, as assumed before a measurement.
_PRIOR: dict[Mode, tuple[float, ...]] = {
    Mode.ASYNC: (0.66, 0.24, 0.05, 0.05),
    Mode.SYNC: (0.66, 0.05, 0.24, 0.025, 0.025),
    Mode.ALL_REDUCE: (0.90, 0.05, 0.05),
}
#: Distinct settings from which on a fit is trusted.
ENOUGH: dict[Mode, int] = {Mode.ASYNC: 4, Mode.SYNC: 5, Mode.ALL_REDUCE: 3}
#: Where the light prior is asked for its opinion.
_CORNERS = ((1, 1), (1, 4), (4, 1), (4, 4), (8, 8), (2, 8))
_LIGHT = 1e-3
#: Terms in k, and how much of the time of a step each is assumed to be.
_ADDED = {Mode.ASYNC: 2, Mode.SYNC: 1, Mode.ALL_REDUCE: 1}
_ACROSS = 0.24
#: Measurements of one setting beyond which more of them tell nothing new: what is off then is the
#: form, not the measurement.
_MANY = 4
#: Of how many jobs and applications a fit is kept.
_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class ServerModel:
    """Coefficients of one of the forms; ``points`` counts the distinct settings behind them."""

    mode: Mode
    coefficients: tuple[float, ...]
    points: int
    placed: bool = False

    @property
    def trusted(self) -> bool:
        """Whether it rests on measurements rather than on what is assumed of such jobs."""
        return self.points >= ENOUGH[self.mode]

    def time_s(self, servers: Amount, workers: Amount, nodes: Amount = 1) -> Reals:
        """Seconds per step: of all workers together, or, asynchronous, of each on its own."""
        found: Reals = self._terms(servers, workers, nodes) @ np.array(self.coefficients)
        return found

    def rate(self, servers: Amount, workers: Amount, nodes: Amount = 1) -> Reals:
        """Steps per second; ``nodes`` matters to a placed model only."""
        workers = np.asarray(workers, dtype=np.float64)
        made = workers if self.mode is Mode.ASYNC else np.ones_like(workers)
        found: Reals = made / np.maximum(self.time_s(servers, workers, nodes), _TINY)
        return found

    def _terms(self, servers: Amount, workers: Amount, nodes: Amount) -> Reals:
        return _columns(self.mode, servers, workers, nodes if self.placed else None)


_TINY = 1e-12


def fit(samples: Iterable[ServerSample], mode: Mode, *, placed: bool = False) -> ServerModel | None:
    """The model that fits best; None when nothing was measured."""
    known = [sample for sample in samples if 0 < sample.rate < np.inf and sample.workers >= 1]
    if not known:
        return None
    servers, workers, rates, counts, nodes = np.array(known, dtype=np.float64).T
    times = (workers if mode is Mode.ASYNC else 1.0) / rates
    weights = np.sqrt(np.minimum(counts, _MANY)) / times
    columns = _columns(mode, servers, workers, nodes if placed else None)
    prior = _prior(mode, placed=placed)
    scale = _scale(columns @ prior, times, weights)
    points = len({(sample.servers, sample.workers) for sample in known})
    if points < ENOUGH[mode]:
        return ServerModel(mode, tuple((prior * scale).tolist()), points, placed)
    p, w = np.array(_CORNERS, dtype=np.float64).T
    corners = _columns(mode, p, w, np.ceil(w / 2) if placed else None)
    expected = corners @ prior * scale
    rows = np.vstack((columns * weights[:, None], corners * (_LIGHT / expected)[:, None]))
    goal = np.concatenate((times * weights, np.full(len(corners), _LIGHT)))
    found = _not_negative(rows, goal)
    return ServerModel(mode, tuple(found.tolist()), points, placed)


def _not_negative(rows: Reals, goal: Reals) -> Reals:
    """Non-negative least squares; columns are brought to one size first, and held a little."""
    from scipy.optimize import lsq_linear, nnls  # noqa: PLC0415 - slow to import

    sizes = np.linalg.norm(rows, axis=0)
    held = np.vstack((rows / sizes, _LIGHT * _LIGHT * np.eye(len(sizes))))
    goal = np.concatenate((goal, np.zeros(len(sizes))))
    try:
        found, _ = nnls(held, goal)
    except RuntimeError:  # it may go round in circles where columns are nearly alike
        found = lsq_linear(held, goal, bounds=(0.0, np.inf)).x
    scaled: Reals = found / sizes
    return scaled


def assumed(mode: Mode, rate: float = 1.0, *, placed: bool = False) -> ServerModel:
    """What is assumed of a job of which nothing is known but, perhaps, its speed at its least."""
    coefficients = _prior(mode, placed=placed) / rate
    return ServerModel(mode, tuple(coefficients.tolist()), 0, placed)


def _prior(mode: Mode, *, placed: bool) -> Reals:
    """What is assumed before a measurement; the terms in k are as large as that in w/p."""
    return np.array((*_PRIOR[mode], *((_ACROSS,) * _ADDED[mode] if placed else ())))


def _columns(mode: Mode, servers: Amount, workers: Amount, nodes: Amount | None = None) -> Reals:
    """The terms of a form, last axis, with B counted as 1; those in k if nodes are given."""
    found = _terms(mode, servers, workers)
    if nodes is None:
        return found
    w, k = np.broadcast_arrays(
        np.asarray(workers, dtype=np.float64), np.asarray(nodes, dtype=np.float64)
    )
    crosses = 1.0 - 1.0 / k
    added = [w / k * crosses, crosses] if mode is Mode.ASYNC else [w / k * crosses]
    shape = np.broadcast_shapes(found.shape[:-1], w.shape)
    columns = [np.broadcast_to(column, shape) for column in (*np.moveaxis(found, -1, 0), *added)]
    return np.stack(columns, axis=-1)


def _terms(mode: Mode, servers: Amount, workers: Amount) -> Reals:
    """The terms of Optimus' forms."""
    p, w = np.broadcast_arrays(
        np.asarray(servers, dtype=np.float64), np.asarray(workers, dtype=np.float64)
    )
    one = np.ones_like(w)
    if mode is Mode.ALL_REDUCE:
        return np.stack((1.0 / w, one, w), axis=-1)
    p = np.maximum(p, 1.0)
    if mode is Mode.ASYNC:
        return np.stack((one, w / p, w, p), axis=-1)
    return np.stack((1.0 / w, one, w / p, w, p), axis=-1)


def _scale(shape: Reals, times: Reals, weights: Reals) -> float:
    """By how much a shape is to be multiplied to meet measured times."""
    return float((shape * times * weights**2).sum() / ((shape * weights) ** 2).sum())


# -- from what was observed of jobs ----------------------------------------------------------------


def mode_of(job: Job) -> Mode:
    """How a job keeps in step, as far as its measurements tell.

    A synchronous job cuts its batch up, so that a worker's part shrinks as workers grow in number;
    an asynchronous one lets each worker take whole batches.
    """
    if not job.spec.roles:
        return Mode.ALL_REDUCE
    training, observed = job.spec.training, observed_of(job)
    if training is None or observed is None:
        return Mode.SYNC
    alone = [s for s in observed.timings if s.servers and s.workers > 1 and s.local_batch]
    whole = sum(setting.local_batch >= training.batch for setting in alone)
    return Mode.ASYNC if alone and 2 * whole > len(alone) else Mode.SYNC


def observed_of(job: Job) -> Observed | None:
    """What was observed of a job's application, else of the job itself."""
    profile = job.profile
    if profile is not None and profile.observed.timings:
        return profile.observed
    return job.observed


def samples_of(observed: Observed, batch: int, *, servers: bool) -> list[ServerSample]:
    """Speeds in steps of ``batch`` samples, at each setting that was measured."""
    found = []
    for setting, timing in observed.timings.items():
        if bool(setting.servers) is not servers or not timing.step.count or not timing.step.mean:
            continue
        part = setting.workers * setting.local_batch / batch if setting.local_batch else 1.0
        rate = part / timing.step.mean
        found.append(
            ServerSample(setting.servers, setting.workers, rate, timing.step.count, setting.nodes)
        )
    return found


@dataclass(slots=True)
class Fits:
    """Models by application (or job), refitted when something new was observed.

    It belongs in ``plan.memo``: it is a cache and may vanish. ``placed`` models know of nodes.
    """

    placed: bool = False
    models: dict[object, tuple[int, Mode, ServerModel | None]] = field(default_factory=dict)
    _assumed: dict[Mode, ServerModel] = field(default_factory=dict)

    def of(self, job: Job) -> ServerModel:
        """The model of a job; what is assumed of such jobs where nothing was measured."""
        observed, mode = observed_of(job), mode_of(job)
        found = None
        if observed is not None:
            owner = (job.spec.user, job.spec.application) if job.spec.application else job.id
            kept = self.models.get(owner)
            if kept is None or kept[:2] != (observed.version, mode):
                if len(self.models) > _KEPT:
                    self.models.clear()
                kept = observed.version, mode, _fitted(job, observed, mode, placed=self.placed)
                self.models[owner] = kept
            found = kept[2]
        if found is None:
            found = self._assumed.get(mode) or assumed(mode, placed=self.placed)
            self._assumed[mode] = found
        return found


def _fitted(job: Job, observed: Observed, mode: Mode, *, placed: bool) -> ServerModel | None:
    batch = job.spec.training.batch if job.spec.training is not None else 1
    samples = samples_of(observed, batch, servers=mode is not Mode.ALL_REDUCE)
    return fit(samples, mode, placed=placed)
