"""Conditions of Sia's benchmark other than its authors': to see how much a result depends on them.

All that is drawn depends on the seed and on the name of a job alone, so that policies meet the
same workload, and a change of one condition leaves what was drawn for the others as it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from roost.core.observed import Setting
from roost.core.spec import JobId
from roost.errors import InvalidSpec
from roost.sim.failures import Failures
from roost.traces.generate import Arrivals, Synthetic, generate
from roost.traces.sia import SiaJob


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is different.

    ``speed_error`` and ``epochs_error``: measured step times, and declared numbers of epochs, are
    off by up to that part either way. ``restart_s`` is what every restart costs (None: as it is).
    ``rigid`` is the share of jobs that keep the workers and the batch of the tuned job. ``load``
    times as many jobs come in the same time; ``arrivals`` redraws when (None: as recorded).
    """

    seed: int = 0
    speed_error: float = 0.0
    epochs_error: float = 0.0
    restart_s: float | None = None
    rigid: float = 0.0
    load: float = 1.0
    arrivals: Arrivals | None = None
    failures: Failures = field(default_factory=Failures)

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("speed_error", "epochs_error"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidSpec(f"{name} must be from 0 to below 1, got {getattr(self, name)}")
        if not 0 <= self.rigid <= 1:
            raise InvalidSpec(f"rigid must be a share from 0 to 1, got {self.rigid}")
        if not 0 < self.load < math.inf:
            raise InvalidSpec(f"load must be positive, got {self.load}")
        if self.restart_s is not None and not 0 <= self.restart_s < math.inf:
            raise InvalidSpec(f"restart_s must be a number of seconds >= 0, got {self.restart_s}")

    def rows(self, rows: Sequence[SiaJob]) -> list[SiaJob]:
        """The jobs of a workload at the times at which they come."""
        times = [row.submitted_at for row in rows]
        if self.arrivals is not None and len(rows) > 1:
            rate = (len(rows) - 1) / max(times[-1] - times[0], 1.0)
            drawn = Synthetic(jobs=len(rows), rate=rate, arrivals=self.arrivals, seed=self.seed)
            times = [times[0] + job.submitted_at for job in generate(drawn).jobs]
        return [
            row._replace(submitted_at=at / self.load) for row, at in zip(rows, times, strict=True)
        ]

    def stays(self, job: JobId) -> bool:
        """Whether a job keeps its workers and its batch."""
        return self.rigid > 0 and self._draw("rigid", job) < self.rigid

    def declared_epochs(self, job: JobId, epochs: float) -> float:
        """The number of epochs that a job's user declares."""
        if not self.epochs_error:
            return epochs
        return epochs * self._off(self.epochs_error, "epochs", job)

    def seen(self, job: JobId, setting: Setting) -> float:
        """What a job's measured times in a setting are multiplied with."""
        if not self.speed_error:
            return 1.0
        return self._off(self.speed_error, "speed", job, *setting)

    def _off(self, error: float, *about: object) -> float:
        return 1.0 + error * (2.0 * self._draw(*about) - 1.0)

    def _draw(self, *about: object) -> float:
        """A number from 0 to 1 that is always the same for the same thing."""
        return Random("/".join(map(str, (self.seed, *about)))).random()  # noqa: S311 - no secret


#: As the authors have it.
AS_PUBLISHED = Conditions()
