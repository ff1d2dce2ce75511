"""Step models by GPU kind: fitted where a job ran, carried over to kinds on which it did not.

A model is carried over by the ratio of what one GPU of each kind was seen to do beforehand
(``Training.alone``), as Sia (SOSP'23) does it. Jobs of one application teach each other: see
``job_models``. A job with a pipeline is fitted as ``hybrid`` has it. ``Estimates`` keeps the fits,
so that policies may ask as often as they like.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from roost.core.observed import Observed
from roost.core.spec import Training
from roost.core.state import Job
from roost.perf.goodput import BatchLimits
from roost.perf.hybrid import Model, ReplicaSplit, bounded, fit_hybrid, in_slots, paced
from roost.perf.steps import StepModel, StepSample, fit_steps

#: How many observed jobs and applications are remembered, and how many fits.
_REMEMBERED = 4096

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def samples(observed: Observed) -> dict[str, list[StepSample]]:
    """What was measured on each kind; settings with servers or of no known batch are left out."""
    found: dict[str, list[StepSample]] = {}
    for setting, timing in observed.timings.items():
        if setting.servers or setting.local_batch < 1 or not timing.step.count:
            continue
        step = timing.step.mean
        sync = 0.0 if setting.workers == 1 else math.nan
        if timing.sync.count:
            sync = min(timing.sync.mean, step)
        sample = StepSample(setting.nodes, setting.workers, setting.local_batch, step, sync)
        found.setdefault(setting.kind, []).append(sample)
    return found


def shape_of(training: Training | None, gpus: int) -> ReplicaSplit | None:
    """How a worker of so many GPUs is split; None: it has no pipeline."""
    if training is None or training.pipeline == 1:
        return None
    return ReplicaSplit(max(gpus // training.pipeline, 1), training.pipeline, training.micro)


class Fit(NamedTuple):
    """A model and the samples it was fitted to; with a shape, batches of both are in slots."""

    model: StepModel
    samples: tuple[StepSample, ...]
    shape: ReplicaSplit | None = None

    @property
    def pace(self) -> Model:
        """The model in samples per worker."""
        return paced(self.model, self.shape)

    def scaled(self, factor: float) -> Fit:
        """The same with all times multiplied."""
        if factor == 1.0:
            return self
        longer = tuple(
            seen._replace(step_s=factor * seen.step_s, sync_s=factor * seen.sync_s)
            for seen in self.samples
        )
        return Fit(self.model.scaled(factor), longer, self.shape)


class _Seen(NamedTuple):
    """What had been observed at a version of it, and the fits of that."""

    observed: Observed | None
    version: int
    samples: dict[str, tuple[StepSample, ...]]
    fits: dict[tuple[str, ReplicaSplit | None], Fit]


_NOTHING = _Seen(None, 0, {}, {})


class Estimates:
    """Fits, kept until something new was observed; those not asked for the longest go first."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._fits: dict[tuple[ReplicaSplit | None, tuple[StepSample, ...]], Fit] = {}
        # By identity, beside the observed themselves: so no other can come to have the same.
        self._known: dict[tuple[int, int, ReplicaSplit | None], _Known] = {}
        self._seen: dict[int, _Seen] = {}

    def fit(self, seen: Iterable[StepSample], shape: ReplicaSplit | None = None) -> Fit:
        """The model of these samples; jobs that saw the same, in one shape, share it."""
        key = shape, tuple(seen)
        fit = self._fits.pop(key, None)
        if fit is None:
            fit = _fit(*key)
        _keep(self._fits, key, fit, self._most)
        return fit

    def fits(
        self, own: Observed, shared: Observed | None = None, shape: ReplicaSplit | None = None
    ) -> Mapping[str, Fit]:
        """The fit of each kind on which something was measured.

        ``shared`` is what was seen of other jobs like this one. Where it has more settings than
        the job's ``own``, it counts, at the pace of the job itself in the settings of both.
        """
        key = (id(own), id(shared), shape)
        versions = (own.version, 0 if shared is None else shared.version)
        known = self._known.pop(key, None)
        if known is None or known.versions != versions:
            found = self._fit_all(own, shared, shape)
            known = _Known((own, shared), versions, MappingProxyType(found))
        _keep(self._known, key, known, self._most)
        return known.fits

    def fitted(self, observed: Observed) -> dict[str, StepModel]:
        """The model of each kind on which something was measured."""
        return {kind: fit.model for kind, fit in self.fits(observed).items()}

    def _fit_all(
        self, own: Observed, shared: Observed | None, shape: ReplicaSplit | None
    ) -> dict[str, Fit]:
        mine, theirs = self._look(own), _NOTHING if shared is None else self._look(shared)
        found = {}
        for kind in {**mine.samples, **theirs.samples}:
            few, many = mine.samples.get(kind, ()), theirs.samples.get(kind, ())
            if len(few) >= len(many):
                found[kind] = self._fit_seen(mine, kind, shape)
            else:
                found[kind] = self._fit_seen(theirs, kind, shape).scaled(_pace(few, many))
        return found

    def _look(self, observed: Observed) -> _Seen:
        """What was measured, looked at once for all jobs that share it."""
        seen = self._seen.pop(id(observed), None)
        if seen is None or seen.version != observed.version:
            found = {kind: tuple(some) for kind, some in samples(observed).items()}
            seen = _Seen(observed, observed.version, found, {})
        _keep(self._seen, id(observed), seen, self._most)
        return seen

    def _fit_seen(self, seen: _Seen, kind: str, shape: ReplicaSplit | None) -> Fit:
        fit = seen.fits.get((kind, shape))
        if fit is None:
            fit = seen.fits[kind, shape] = self.fit(seen.samples[kind], shape)
        return fit


def _fit(shape: ReplicaSplit | None, seen: tuple[StepSample, ...]) -> Fit:
    if shape is None:
        return Fit(fit_steps(seen), seen)
    return Fit(fit_hybrid(shape, seen).model, tuple(in_slots(shape, seen)), shape)


@dataclass(frozen=True, slots=True)
class _Known:
    observed: tuple[Observed, Observed | None]
    versions: tuple[int, int]
    fits: Mapping[str, Fit]


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Put a value last in line; the first in line go when there are too many."""
    kept[key] = value
    while len(kept) > most:
        del kept[next(iter(kept))]


def _pace(mine: Sequence[StepSample], theirs: Sequence[StepSample]) -> float:
    """How much longer my steps take than theirs in the settings of both, in the geometric mean."""
    known = {sample[:3]: sample.step_s for sample in theirs}
    ratios = [math.log(sample.step_s / known[sample[:3]]) for sample in mine if sample[:3] in known]
    return math.exp(math.fsum(ratios) / len(ratios)) if ratios else 1.0


def models(
    observed: Observed,
    training: Training | None,
    kinds: Sequence[str],
    estimates: Estimates,
    gpus: int = 1,
) -> dict[str, Model]:
    """A model for each of ``kinds``, from what was observed of one job or one application.

    Empty when nothing was. A kind without measurements takes the model of the first of ``kinds``
    that has some. ``gpus`` are those of a worker.
    """
    fits = estimates.fits(observed, shape=shape_of(training, gpus))
    return _carried(fits, training, kinds)


def job_models(job: Job, kinds: Sequence[str], estimates: Estimates) -> dict[str, Model]:
    """A model for each of ``kinds``, from the job itself and from others of its application.

    Empty when nothing was measured.
    """
    return _carried(job_fits(job, estimates), job.spec.training, kinds)


def job_fits(job: Job, estimates: Estimates) -> Mapping[str, Fit]:
    """The fits by kind of what was seen of the job itself, and of others of its application."""
    shared = None if job.profile is None else job.profile.observed
    own = job.observed or shared
    if own is None:
        return {}
    split = shape_of(job.spec.training, job.spec.resources.gpus)
    return estimates.fits(own, None if own is shared else shared, split)


def _carried(
    fits: Mapping[str, Fit], training: Training | None, kinds: Sequence[str]
) -> dict[str, Model]:
    """The fitted models, and the first of them in the place of those that are missing."""
    found: dict[str, Model] = {}
    for kind in kinds:
        origin = source(fits, kinds, kind)
        if origin is not None:
            found[kind] = fits[origin].pace.scaled(slower(training, kind, origin))
    return found


def source(fits: Mapping[str, Fit], kinds: Sequence[str], kind: str) -> str | None:
    """The kind whose model serves for ``kind``: itself, or the first of ``kinds`` that has one."""
    return kind if kind in fits else next((other for other in kinds if other in fits), None)


def slower(training: Training | None, kind: str, than: str) -> float:
    """How many times as long a kind takes as another; as long where it is unknown."""
    alone = {} if training is None else dict(training.alone)
    own, other = alone.get(kind), alone.get(than)
    return other / own if own and other else 1.0


def limits(training: Training, kind: str) -> BatchLimits:
    """The batches that a job may use on a kind."""
    most = max(training.batch, training.batch_max)
    found = BatchLimits(training.batch, most, training.local_min, training.most_local(kind))
    return found if training.pipeline == 1 else bounded(found, training.micro)
