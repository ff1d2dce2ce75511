"""The outlook of a job: its speed at every size, and the work it has left.

Speeds come from what was observed of the job or of its application (``perf.servers``), work from
the epochs its user declared, else from its losses (``perf.convergence``), else from what earlier
jobs of its application took; without any of these, an hour with its least is assumed.
Errors can be put in on purpose, to see how much a policy depends on being right: each speed, and
each amount of work, is then off by up to that part, up or down, the same way every time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from roost.core.spec import JobId, NodeId, NodeSpec, Range, Resources
from roost.core.state import Job
from roost.perf.arrays import Integers, Reals
from roost.perf.convergence import RULE, Rule, fit_loss, remaining
from roost.perf.servers import Fits, ServerModel
from roost.placement.even import Portion, fewest
from roost.policies.kit.parameter_servers.gains import (
    LEAPS,
    STEPS,
    Demand,
    Gains,
    Size,
    Vector,
)

#: Seconds that a job is assumed to need with its least, where nothing is known.
UNKNOWN_S = 3600.0
#: Work that a job is taken to have left though by all estimates it should be done.
_SOON = 0.01
#: A curve is fitted again when there are this many times more losses than at the last time.
_MORE = 1.1
_WORST = 0.05
#: Of so many jobs is remembered what was worked out before those that are over are forgotten.
_MANY = 1000

_Grid: TypeAlias = Sequence[Sequence[float]]
_NOTHING: Vector = (0, 0, 0)


@dataclass(slots=True)
class Outlook:
    """Estimates of all jobs, kept between decisions. They may vanish: all can be worked out again.

    ``speed_error`` and ``epochs_error`` are parts of 1, drawn anew for each ``seed``. ``leaps``:
    gains are also told of several workers and servers at once, as models that know of nodes need.
    """

    rule: Rule = RULE
    speed_error: float = 0.0
    epochs_error: float = 0.0
    seed: int = 0
    leaps: bool = False
    fits: Fits = field(default_factory=Fits)
    #: A node like most of those that there are; only models that know of nodes need it.
    node: NodeSpec | None = None
    _spans: dict[object, Integers] = field(default_factory=dict)
    _grids: dict[object, tuple[ServerModel, Gains]] = field(default_factory=dict)
    _ends: dict[JobId, tuple[int, float]] = field(default_factory=dict)

    def demand(self, job: Job, now: float, fixed: Size | None = None) -> Demand:
        """What a job can have, what it makes of it, and what it has left to do."""
        spec = job.spec
        low, high = bounds(job)
        server = vector(spec.roles[0].resources) if spec.roles else _NOTHING
        if spec.training is None:
            gains = Gains(self._in_proportion(job, low, high))
            work = self._wrong(job, _seconds_left(job, now))
        else:
            model = self.fits.of(job)
            gains = self._modelled(job, model, low, high)
            work = self._wrong(job, self._steps_left(job, model, now, gains.times[0][0]))
        return Demand(low, high, vector(spec.resources), server, gains, work, fixed)

    def forget(self, jobs: Mapping[JobId, Job]) -> None:
        """Forget what was worked out for jobs that are over."""
        kept: tuple[MutableMapping[Any, Any], ...] = (self._ends, self._grids)
        for known in kept:
            if len(known) > _MANY:
                for name in [name for name in known if _over(name, jobs)]:
                    del known[name]

    # -- speed ---------------------------------------------------------------------------------

    def _modelled(self, job: Job, model: ServerModel, low: Size, high: Size) -> Gains:
        """Seconds per step by servers and workers."""
        spec = job.spec
        same = bool(spec.application) and not self.speed_error
        key = (spec.user, spec.application, low, high) if same else job.id
        kept = self._grids.get(key)
        if kept is None or kept[0] is not model:
            servers = np.arange(low.servers, high.servers + 1)[:, None]
            workers = np.arange(low.workers, high.workers + 1)[None, :]
            nodes = self._span(job, low, high) if model.placed else 1
            rates = model.rate(servers, workers, nodes)
            rates = rates * self._off(job, (servers.size, workers.size))
            gains = Gains((1.0 / rates).tolist(), LEAPS if model.placed or self.leaps else STEPS)
            kept = self._grids[key] = model, gains
        return kept[1]

    def _span(self, job: Job, low: Size, high: Size) -> Integers:
        """The fewest nodes that hold so many servers and workers."""
        spec, node = job.spec, self.node
        server = spec.roles[0].resources if spec.roles else spec.resources
        key = (node and replace(node, id=NodeId("")), spec.resources, server, low, high)
        found = self._spans.get(key)
        if found is None:
            servers = range(low.servers, high.servers + 1)
            workers = range(low.workers, high.workers + 1)
            spans = [
                [
                    fewest(node, spec.resources, server, Portion(w, p)) if node else 1
                    for w in workers
                ]
                for p in servers
            ]
            found = self._spans[key] = np.maximum(np.array(spans, dtype=np.int64), 1)
        return found

    def _in_proportion(self, job: Job, low: Size, high: Size) -> _Grid:
        """Seconds per second of work at its least, as measured by size, else in proportion."""
        shape = (1, high.workers - low.workers + 1)
        off = self._off(job, shape)[0]
        row = [
            1.0 / (job.speed_up(workers, low.workers) * error)
            for workers, error in zip(range(low.workers, high.workers + 1), off, strict=True)
        ]
        return [row] * (high.servers - low.servers + 1)

    def _off(self, job: Job, shape: tuple[int, int]) -> Reals:
        if not self.speed_error:
            return np.ones(shape)
        chance = np.random.Generator(np.random.PCG64([self.seed, job.seq, 1]))
        return np.maximum(1 + self.speed_error * chance.uniform(-1, 1, shape), _WORST)

    # -- work ----------------------------------------------------------------------------------

    def _steps_left(self, job: Job, model: ServerModel, now: float, least_s: float) -> float:
        """Steps that are left, by all that is known."""
        unknown = UNKNOWN_S / least_s
        if not model.points:
            return unknown  # its speed is a mere shape, so that steps mean nothing yet
        done = job.run.done(now) if job.run is not None else job.saved_s
        epochs = job.observed.epochs if job.observed is not None else 0.0
        training = job.spec.training
        if epochs > 0 and done > 0 and training is not None:
            ends_at = training.epochs or self._ends_at(job, epochs)
            if ends_at > 0:
                return max(ends_at - epochs, _SOON) * done / epochs
        if job.run_time_s is not None:
            return max(job.run_time_s - done, _SOON * job.run_time_s)
        return unknown

    def _ends_at(self, job: Job, epochs: float) -> float:
        """The epoch at which, by its losses, a job will have converged; 0: they say nothing."""
        losses = job.observed.losses if job.observed is not None else {}
        count, ends_at = self._ends.get(job.id, (0, 0.0))
        if len(losses) >= max(3, _MORE * count) or (ends_at and epochs >= ends_at):
            count, curve = len(losses), fit_loss(losses)
            ends_at = 0.0 if curve is None else min(curve.converges_at(self.rule), self.rule.cap)
            if ends_at <= epochs:  # there is no curve, or it said too little
                ends_at = epochs + remaining(losses, epochs, self.rule).epochs
            self._ends[job.id] = count, ends_at
        return ends_at

    def _wrong(self, job: Job, work: float) -> float:
        if not self.epochs_error:
            return work
        chance = np.random.Generator(np.random.PCG64([self.seed, job.seq, 2]))
        return work * max(1 + self.epochs_error * float(chance.uniform(-1, 1)), _WORST)


def _over(name: object, jobs: Mapping[JobId, Job]) -> bool:
    """Whether something is kept under the name of a job that is over; others are applications."""
    if not isinstance(name, str):
        return False
    job = jobs.get(JobId(name))
    return job is None or job.state.over


def bounds(job: Job) -> tuple[Size, Size]:
    """The least and the most of servers and workers that a job can have."""
    spec = job.spec
    servers = spec.roles[0].sizes if spec.roles else Range(0, 0)
    return Size(servers.min, spec.workers.min), Size(servers.max, spec.workers.max)


def vector(need: Resources) -> Vector:
    """What one worker takes."""
    return need.gpu_milli, need.cpu_milli, need.memory_mib


def _seconds_left(job: Job, now: float) -> float:
    """Work left of a job that counts it in seconds with its least workers."""
    left = job.run.work_left_s(now) if job.run is not None else job.remaining_s
    return UNKNOWN_S if math.isinf(left) else max(left, 1.0)
