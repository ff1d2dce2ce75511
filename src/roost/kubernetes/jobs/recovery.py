"""What a new leader finds of a Job: its status, the pods of its runs, and what that tells the core.

The status says how often the job ran and failed, up to what the last leader wrote down. Pods say
what was done since. An attempt is known to have ended when the status says that the job waits
again; else the pods of the last attempt are a run that goes on, or that ended unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from roost.core import WORKER, Adopted, Allocation, Event, JobId, JobSpec, JobState, Submitted
from roost.core.allocation import seats
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs.blueprint import GENERATION, TOKEN, JobOwner, RunSeats
from roost.kubernetes.jobs.request import is_held, submitted_at
from roost.kubernetes.objects.pods import ATTEMPT, PLAN, decode_plan

_AT_REST = frozenset({JobState.QUEUED, JobState.SUSPENDED})


class StatusSummary(NamedTuple):
    """What the status of a Job remembers."""

    state: JobState | None
    attempts: int = 0
    failures: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    not_before: float = 0.0
    #: Work that its last checkpoint keeps, in seconds.
    saved_s: float = 0.0

    @property
    def over(self) -> bool:
        """Whether the job has ended for good."""
        return self.state is not None and self.state.over


class PodRun(NamedTuple):
    """The pods of a run that is not known to have ended."""

    attempt: int
    generation: int
    allocation: Allocation
    crew: RunSeats
    pods: tuple[Object, ...]
    digest: str
    #: Whether the status says that all were up.
    was_up: bool


def summary_of(found: Object) -> StatusSummary:
    """What the status remembers; nothing for a new object, or where it makes no sense."""
    status = found.get("status") or {}
    view = status.get("view") or {}
    try:
        state = JobState(status["state"]) if status.get("state") else None
    except ValueError:
        state = None
    total, saved = view.get("run_time_s"), view.get("saved")
    return StatusSummary(
        state,
        _count(status.get("attempt")),
        _count(status.get("failures")),
        _number(view.get("started_at")),
        _number(view.get("finished_at")),
        _number(view.get("not_before")) or 0.0,
        (_number(total) or 0.0) * (_number(saved) or 0.0),
    )


def run_of(owner: JobOwner, past: StatusSummary, pods: Iterable[Object]) -> PodRun | None:
    """The run that pods tell of, if it is not known to have ended."""
    mine = [pod for pod in pods if owner.owns(pod)]
    latest = max(map(_start, mine), default=(0, 0))
    attempt, generation = latest
    ended = past.over or (past.state in _AT_REST and attempt <= past.attempts)
    if not attempt or attempt < past.attempts or ended:
        return None
    of_it = tuple(pod for pod in mine if _start(pod) == latest)
    allocation = _allocation(of_it)
    if allocation is None:
        return None
    up = past.state in (JobState.RUNNING, JobState.RESIZING) and past.attempts == attempt
    digest = next(filter(None, (_notes(pod).get(TOKEN) for pod in of_it)), "")
    return PodRun(attempt, generation, allocation, crew_of(allocation), of_it, digest, up)


def kept_of(found: Object) -> str:
    """What the last leader wrote down of the members of a run; empty if nothing."""
    return str((found.get("status") or {}).get("members") or "")


def crew_of(allocation: Allocation) -> RunSeats:
    """The workers of a run as it begins: numbered as they sit."""
    found = tuple(seats(allocation))
    members = tuple(str(seat.index) for seat in found if seat.role == WORKER)
    return RunSeats(found, members)


def _allocation(pods: Iterable[Object]) -> Allocation | None:
    for pod in pods:
        try:
            return decode_plan(_notes(pod).get(PLAN) or "")
        except InvalidSpec:
            continue
    return None


def _start(pod: Object) -> tuple[int, int]:
    labels = pod["metadata"].get("labels") or {}
    return _count(labels.get(ATTEMPT)), max(1, _count(labels.get(GENERATION)))


def _notes(pod: Object) -> Mapping[str, Any]:
    return pod["metadata"].get("annotations") or {}


def _count(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def waiting_event(  # noqa: PLR0913 - what is known of it, from four places
    job: JobId, spec: JobSpec, found: Object, past: StatusSummary, attempts: int, now: float
) -> Event:
    """A Job that has no run, though it may have had some."""
    if past.state is None and not attempts and not is_held(found):
        return Submitted(now, job, spec)
    return Adopted(
        now,
        job,
        spec,
        attempts=attempts,
        failures=past.failures,
        done_s=past.saved_s,
        submitted_at=min(submitted_at(found) or now, now),
        started_at=past.started_at,
        held=is_held(found),
        not_before=past.not_before,
    )


def adopted_event(  # noqa: PLR0913 - as above
    job: JobId, spec: JobSpec, found: Object, past: StatusSummary, run: PodRun, now: float
) -> Event:
    """A Job with pods of a run that goes on."""
    return Adopted(
        now,
        job,
        spec,
        run.allocation,
        running=run.was_up,
        attempts=run.attempt,
        failures=past.failures,
        done_s=past.saved_s,
        submitted_at=min(submitted_at(found) or now, now),
        started_at=past.started_at,
    )
