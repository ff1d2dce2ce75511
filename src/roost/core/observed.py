"""What was observed of a job, or of all jobs of an application, while it trained.

Models of speed and of convergence are fitted to this (``roost.perf``); here are only the figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from roost.core.events import Measured
from roost.core.spec import ApplicationKey

#: How many settings, and how many epochs, are remembered of a job or an application.
_SETTINGS = 1000
_EPOCHS = 1000
#: From so many measurements on, a new one counts as much as the last of them did.
_STEADY = 100


class Setting(NamedTuple):
    """Where and how a step was done."""

    kind: str
    nodes: int
    workers: int
    local_batch: int
    servers: int = 0


@dataclass(slots=True)
class Mean:
    """A running mean; once it is steady it follows slow changes."""

    count: int = 0
    mean: float = 0.0

    def add(self, value: float) -> None:
        """Count one more value."""
        self.count += 1
        self.mean += (value - self.mean) / min(self.count, _STEADY)


@dataclass(slots=True)
class Timing:
    """Seconds of a step, and of bringing the gradients together in it."""

    step: Mean = field(default_factory=Mean)
    sync: Mean = field(default_factory=Mean)


class Company(NamedTuple):
    """Where and how a step was done, and the applications of the runs beside it."""

    setting: Setting
    beside: tuple[ApplicationKey, ...]


@dataclass(slots=True)
class Observed:
    """Step times by setting, gradient noise and loss by whole epochs, epochs done so far.

    ``timings`` are those of runs that had their devices to themselves, ``shared`` those of others.

    ``version`` grows when a setting is new, or its mean has become twice as sure: code that fits a
    model to the timings need not do it again before.
    """

    timings: dict[Setting, Timing] = field(default_factory=dict)
    noise: float | None = None
    noises: dict[int, float] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    epochs: float = 0.0
    version: int = 0
    shared: dict[Company, Mean] = field(default_factory=dict)

    def add(self, seen: Measured) -> None:
        """Learn from a measurement."""
        if seen.epochs is not None and 0 <= seen.epochs < math.inf:
            self.epochs = seen.epochs
        if 0 < seen.step_s < math.inf:
            self._time(seen)
        epoch = int(self.epochs)
        if seen.noise is not None and 0 < seen.noise < math.inf:
            self.noise = seen.noise
            _keep(self.noises, epoch, seen.noise)
        if seen.loss is not None and math.isfinite(seen.loss):
            _keep(self.losses, epoch, seen.loss)

    def _time(self, seen: Measured) -> None:
        setting = Setting(seen.kind, seen.nodes, seen.workers, seen.local_batch, seen.servers)
        if seen.beside:
            self._time_beside(Company(setting, seen.beside), seen.step_s)
            return
        timing = self.timings.get(setting)
        if timing is None:
            if len(self.timings) >= _SETTINGS:
                return
            timing = self.timings[setting] = Timing()
        timing.step.add(seen.step_s)
        if seen.sync_s is not None and 0 <= seen.sync_s <= seen.step_s:
            timing.sync.add(seen.sync_s)
        self._grow(timing.step)

    def _time_beside(self, company: Company, step_s: float) -> None:
        mean = self.shared.get(company)
        if mean is None:
            if len(self.shared) >= _SETTINGS:
                return
            mean = self.shared[company] = Mean()
        mean.add(step_s)
        self._grow(mean)

    def _grow(self, mean: Mean) -> None:
        if mean.count & (mean.count - 1) == 0:
            self.version += 1


def _keep(by_epoch: dict[int, float], epoch: int, value: float) -> None:
    if epoch in by_epoch or len(by_epoch) < _EPOCHS:
        by_epoch[epoch] = value
