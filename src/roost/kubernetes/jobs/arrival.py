"""What the core hears of a Job that it does not know: that it is new, waits again, or runs."""

from __future__ import annotations

from roost.core import Adopted, Event, JobId, JobSpec, Submitted
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs.recovery import PodRun, StatusSummary
from roost.kubernetes.jobs.request import is_held, submitted_at


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
    """A Job whose pods tell of a run that goes on."""
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
