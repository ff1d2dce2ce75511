"""Prospects: what every size on every kind of GPU would bring a job, in seconds.

A job's pace in a setting is its rate there over its usual one: what it would have with an even
share of the cluster. Over a window of time a change to another setting first costs a restart and
then brings that pace; a job that ends within the window gives its GPUs back early. How much of its
work is left is known from its epochs or guessed from its age.

Rates come from models fitted to what was measured (``roost.perf``); where nothing was, from what
the user says of kinds, and from a rule of thumb for sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job
from roost.perf.arrays import Booleans, Reals
from roost.perf.goodput import tune
from roost.perf.hybrid import Model
from roost.perf.kinds import Estimates, job_models, limits, models
from roost.policies.kit.sizes import SizeTable

#: The cost of what cannot be.
IMPOSSIBLE = 1e12
#: Speed grows with such a power of the number of workers, until it is measured, and
#: across nodes it is so many times slower.
_GROWTH, _APART = 0.8, 1.5
#: A job of which nothing is known is taken to need that long, in seconds, and then its age again.
_NEW_S = 600.0
#: So much of an epoch tells how much work an epoch is.
_TOLD = 0.05
#: Rates are worked out anew when the noise of gradients has changed by a twentieth.
_NOISE_STEPS = 20.0
#: Nothing is slower than this part of the usual pace, as far as worth is concerned.
_STANDSTILL = 1e-3


@dataclass(slots=True)
class Prospects:
    """Rates, work left and costs of jobs; kept between decisions, and lost at a restart.

    ``library``: what was measured of an application's earlier jobs counts for its next one, and
    epochs tell how much is left. Without it a job is known by its own measurements and its age.
    """

    library: bool
    estimates: Estimates = field(default_factory=Estimates)
    _rates: dict[JobId, tuple[object, Reals]] = field(default_factory=dict)
    #: Work of an epoch by application.
    _epochs: dict[str, float] = field(default_factory=dict)

    def forget(self, plan: Plan) -> None:
        """Forget jobs that are over, when there are many of them."""
        if len(self._rates) > 2 * len(plan.jobs) + 1000:
            self._rates = {name: kept for name, kept in self._rates.items() if name in plan.jobs}

    # -- how fast ------------------------------------------------------------------------------

    def rates(self, job: Job, table: SizeTable) -> Reals:
        """Work per second in every column; 0 where the job cannot run."""
        seen = job.observed
        shared = job.profile.observed if self.library and job.profile is not None else None
        noise = seen.noise if seen is not None else None
        if noise is None and shared is not None:
            noise = shared.noises.get(0, shared.noise)
        key = (
            None if seen is None else seen.version,
            None if shared is None else shared.version,
            None if noise is None else round(math.log(noise) * _NOISE_STEPS),
            job.spec.workers,
            id(table),
        )
        kept = self._rates.get(job.id)
        if kept is not None and kept[0] == key:
            return kept[1]
        rates = self._modelled(job, table, noise)
        if rates is None:
            rates = _guessed(job, table)
        rates[~_possible(job, table)] = 0.0
        self._rates[job.id] = (key, rates)
        return rates

    def _modelled(self, job: Job, table: SizeTable, noise: float | None) -> Reals | None:
        """Rates by the models of a job that learns; None before there are any."""
        training, each = job.spec.training, max(job.spec.resources.gpus, 1)
        if training is not None and training.pipeline > 1 and not training.adaptive:
            noise = noise or 0.0  # pipelines seldom tell it, and a batch that stays needs none
        if training is None or noise is None:
            return None
        fitted = self._models(job, [kind.name for kind in table.kinds])
        if not fitted:
            return None
        rates = np.zeros(len(table.kind))
        for kind in table.kinds:
            bounds = limits(training, kind.name)
            workers = np.maximum(kind.gpus // each, 1)
            rates[kind.columns] = tune(fitted[kind.name], noise, bounds, kind.nodes, workers).rate
        return rates

    def _models(self, job: Job, kinds: Sequence[str]) -> dict[str, Model]:
        if self.library:
            return job_models(job, kinds, self.estimates)
        if job.observed is None:
            return {}
        spec = job.spec
        return models(job.observed, spec.training, kinds, self.estimates, spec.resources.gpus)

    # -- how long ------------------------------------------------------------------------------

    def left_s(self, job: Job, usual: float, now: float) -> float:
        """Seconds until a job is done at its usual rate."""
        work = self._work(job, now)
        if work is not None:
            return max(work, 0.0) / usual
        waited = math.fsum(job.waits) + (now - job.queued_at if job.waiting else 0.0)
        return max(now - job.submitted_at - waited, _NEW_S)

    def knows_end(self, job: Job, now: float) -> bool:
        """Whether it is known, and not guessed, how much work is left."""
        return self._work(job, now) is not None

    def _work(self, job: Job, now: float) -> float | None:
        """Work that is left; None: unknown."""
        done = job.saved_s if job.run is None else job.run.done(now)
        training, seen = job.spec.training, job.observed
        if training is None:
            return None if job.run_time_s is None else job.run_time_s - done
        if not (self.library and training.epochs):
            return None
        name = job.spec.application
        if seen is not None and seen.epochs > _TOLD and done > 0:
            self._epochs.setdefault(name, done / seen.epochs)
        epoch = self._epochs.get(name)
        return None if epoch is None else epoch * training.epochs - done


def usual_rate(rates: Reals, table: SizeTable, share: float) -> float:
    """The rate with an even share of the cluster on the best kind; 0: it can run nowhere."""
    small = rates[:-1][table.gpus[:-1] <= share]
    return float(small.max(initial=0.0)) or float(rates.max(initial=0.0))


def worth(pace: Reals, bend: float) -> Reals:
    """What a pace is worth: itself near 1, less and less beyond; ``bend`` 1 is a straight line."""
    pace = np.maximum(pace, _STANDSTILL)
    return 1.0 + (np.log(pace) if bend == 0 else (pace**bend - 1.0) / bend)


def _guessed(job: Job, table: SizeTable) -> Reals:
    """Rates before anything was measured."""
    spec = job.spec
    alone = dict(spec.training.alone) if spec.training is not None else dict(spec.rates)
    low, each = spec.workers.min, max(spec.resources.gpus, 1)
    rates = np.zeros(len(table.kind))
    for kind in table.kinds:
        workers = kind.gpus / each
        if spec.training is None and spec.elastic:
            growth = np.array([job.speed_up(max(int(count), 1), low) for count in workers])
        else:
            growth = (workers / low) ** _GROWTH / np.where(kind.nodes > 1, _APART, 1.0)
        rates[kind.columns] = alone.get(kind.name, 1.0) * growth
    return rates


def _possible(job: Job, table: SizeTable) -> Booleans:
    """The columns that a job can run in."""
    spec = job.spec
    (low, high), each = spec.workers, max(spec.resources.gpus, 1)
    found = (table.gpus >= low * each) & (table.gpus <= high * each) & (table.gpus % each == 0)
    if spec.resources.kinds:
        able = [kind.name in spec.resources.kinds for kind in table.kinds]
        found &= np.array([*able, True])[np.append(table.kind[:-1], len(able))]
    found[-1] = False
    return np.asarray(found)
