"""What finished jobs tell about those to come."""

from __future__ import annotations

from collections import deque

from roost.core.spec import JobSpec
from roost.core.state import Job

#: How many jobs are remembered.
_MEMORY = 20_000


class History:
    """The service of jobs that are over, and the work of those that succeeded."""

    def __init__(self) -> None:
        #: GPU-seconds that each of the last jobs held, oldest first.
        self.service: deque[float] = deque(maxlen=_MEMORY)
        #: How many jobs of a user's application succeeded, and the work they took in all.
        self._succeeded: dict[tuple[str, str], tuple[int, float]] = {}

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
