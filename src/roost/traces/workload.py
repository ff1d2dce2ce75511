"""A workload: jobs as a trace recorded them, with the truth that only the simulator may see."""

from __future__ import annotations

from dataclasses import dataclass, field

from roost.core.events import Outcome
from roost.core.spec import JobId, JobSpec, NodeSpec
from roost.errors import InvalidSpec

#: How a recorded job can have ended.
ENDS = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED)


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One recorded job.

    ``work_s`` is its true run time with ``spec.workers.min`` workers on the reference GPU;
    ``outcome`` how it ended there (a *cancelled* one was killed by its user after that much work).
    ``fails_at_s`` lists the points, in seconds of work, where an attempt failed and was retried.
    """

    id: JobId
    submitted_at: float
    spec: JobSpec
    work_s: float
    outcome: Outcome = Outcome.SUCCEEDED
    fails_at_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse times that are negative, infinite or not numbers, and ends that are none."""
        if self.outcome not in ENDS:
            msg = f"job {self.id}: outcome must be one of {', '.join(ENDS)}, got {self.outcome}"
            raise InvalidSpec(msg)
        for name, value in (("submitted_at", self.submitted_at), ("work_s", self.work_s)):
            if not 0 <= value < float("inf"):
                msg = f"job {self.id}: {name} must be a finite number >= 0, got {value}"
                raise InvalidSpec(msg)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was skipped, and why."""

    line: int
    column: str
    why: str


@dataclass(slots=True)
class Workload:
    """Jobs in order of submission, and the cluster they ran on where the trace tells it."""

    name: str
    jobs: list[TraceJob]
    nodes: tuple[NodeSpec, ...] = ()
    skipped: list[BadRow] = field(default_factory=list)
