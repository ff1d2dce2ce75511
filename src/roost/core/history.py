"""What jobs told about those to come: how long they took, how fast they go, what disturbs them.

Estimates are kept by user and application, the name under which a user runs the same thing again;
of jobs without one nothing is kept. They rest on what was measured alone: where nothing was,
there is no estimate, and what the user declared counts.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from roost.core.events import Measured
from roost.core.observed import Mean, Observed
from roost.core.spec import ApplicationKey, JobSpec
from roost.core.state import Job

#: How many jobs are remembered, how many applications, and how many sizes of each.
_MEMORY = 20_000
_APPLICATIONS = 2_000
_SIZES = 200

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(slots=True)
class Profile:
    """What was measured of an application: step times by workers and share, memory, noise.

    ``memory_mib`` is the most device memory that a worker was seen to hold (0: unknown),
    ``noise`` the gradient noise scale in samples, as of last, ``busy`` the part of the time in
    which devices were at work. ``observed`` has the timings of all its jobs by setting.
    """

    steps: dict[tuple[int, int], Mean] = field(default_factory=dict)
    memory_mib: int = 0
    noise: float | None = None
    busy: Mean = field(default_factory=Mean)
    observed: Observed = field(default_factory=Observed)

    def step_s(self, workers: int, share_milli: int) -> float | None:
        """Seconds that a step takes with so many workers; None if not measured."""
        found = self.steps.get((workers, share_milli))
        return None if found is None else found.mean

    def rate(self, workers: int, share_milli: int) -> float | None:
        """Speed relative to the least workers that were seen with such a share."""
        least = min((size for size, share in self.steps if share == share_milli), default=0)
        base, own = self.step_s(least, share_milli), self.step_s(workers, share_milli)
        return None if base is None or own is None else base / own


class Spending(StrEnum):
    """What time is spent on when a job is disturbed; the names are those of ``Spent``."""

    START = "start"
    RESIZE = "resize"
    PAUSE = "pause"
    SUSPEND = "suspend"
    RESUME = "resume"


@dataclass(slots=True)
class Spent:
    """Seconds that it took to start, resize, suspend and resume jobs of an application.

    All but ``pause`` count from the order to its effect; ``pause`` is how long the training stood
    still for a change of size.
    """

    start: Mean = field(default_factory=Mean)
    resize: Mean = field(default_factory=Mean)
    pause: Mean = field(default_factory=Mean)
    suspend: Mean = field(default_factory=Mean)
    resume: Mean = field(default_factory=Mean)


class History:
    """The service of jobs that are over, the work of those that succeeded, and measurements."""

    def __init__(self) -> None:
        #: GPU-seconds that each of the last jobs held, oldest first.
        self.service: deque[float] = deque(maxlen=_MEMORY)
        #: What was measured, by user and application; the one that was silent longest comes first.
        self.profiles: dict[ApplicationKey, Profile] = {}
        self.costs: dict[ApplicationKey, Spent] = {}
        #: How many jobs of a user's application succeeded, and the work they took in all.
        self._succeeded: dict[ApplicationKey, tuple[int, float]] = {}

    def add(self, job: Job, *, succeeded: bool) -> None:
        """Learn from a job that is over."""
        if job.attained_gpu_s:
            self.service.append(job.attained_gpu_s)
        if succeeded and job.spec.application:
            whose = (job.spec.user, job.spec.application)
            count, total = self._succeeded.get(whose, (0, 0.0))
            self._succeeded[whose] = (count + 1, total + job.saved_s)

    def expected_s(self, spec: JobSpec) -> float | None:
        """The declared run time or, failing that, the mean of its user's application so far."""
        if spec.run_time_s is not None or not spec.application:
            return spec.run_time_s
        past = self._succeeded.get((spec.user, spec.application))
        return None if past is None else past[1] / past[0]

    def measure(self, spec: JobSpec, seen: Measured) -> None:
        """Learn from what was observed of a run."""
        timed = 0 < seen.step_s < math.inf
        told = any(value is not None for value in (seen.busy, seen.noise, seen.epochs, seen.loss))
        if not spec.application or seen.workers < 1 or not (timed or told):
            return
        profile = _fresh(self.profiles, (spec.user, spec.application), Profile(), _APPLICATIONS)
        if timed:
            size = (seen.workers, spec.resources.share_milli)
            _fresh(profile.steps, size, Mean(), _SIZES).add(seen.step_s)
        if seen.busy is not None and 0 <= seen.busy <= 1:
            profile.busy.add(seen.busy)
        profile.memory_mib = max(profile.memory_mib, seen.memory_mib)
        if seen.noise is not None:
            profile.noise = seen.noise
        profile.observed.add(seen)

    def spend(self, spec: JobSpec, what: Spending, seconds: float | None) -> None:
        """Learn what it took to disturb a job; None: not measured."""
        if seconds is None or not spec.application or not 0 <= seconds < math.inf:
            return
        spent = _fresh(self.costs, (spec.user, spec.application), Spent(), _APPLICATIONS)
        mean: Mean = getattr(spent, what.value)
        mean.add(seconds)


def _fresh(records: dict[_Key, _Value], key: _Key, new: _Value, most: int) -> _Value:
    """The record of an application or a size, now last in line to be forgotten."""
    record = records.pop(key, new)
    records[key] = record
    if len(records) > most:
        del records[next(iter(records))]
    return record
