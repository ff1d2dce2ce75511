"""What the driver keeps of a job beside the core, and how a job is shown.

The core knows what a job needs and where it runs. What it is called, what it executes, how far it
says it is and why it failed stands here. One view of a job serves the API, the stream, the command
line and the portal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roost.core import WHOLE, Allocation, Core, Job, JobState, Range
from roost.jobfile import JobFile
from roost.jobfile.program import Program, RetryRule
from roost.store.rows import JobRow


@dataclass(slots=True)
class Record:
    """A job as it was submitted, and what is known of it that does not concern the core."""

    id: str
    file: JobFile
    user: str
    unix: str = ""
    request: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)
    progress: float | None = None
    saved: float | None = None
    step: int | None = None
    loss: float | None = None
    exit_code: int | None = None
    verdict: Mapping[str, Any] | None = None
    #: Seconds that its processes were up, without the run that goes on.
    ran_s: float = 0.0
    cancelled_by: str = ""
    #: Failures that were not the job's fault, and so not charged to its retries.
    platform_failures: int = 0
    #: When its progress was last put into the journal.
    told_at: float = 0.0

    @classmethod
    def of(cls, row: JobRow) -> Record:
        """The record of a job that the store remembers."""
        view = row.view
        return cls(
            row.id,
            JobFile.from_document(dict(row.document)),
            row.user,
            view.get("unix", ""),
            row.request,
            row.document,
            progress=view.get("progress"),
            saved=view.get("saved"),
            step=view.get("step"),
            loss=view.get("loss"),
            exit_code=view.get("exit_code"),
            verdict=view.get("verdict"),
            ran_s=view.get("ran_s", 0.0),
            cancelled_by=view.get("cancelled_by", ""),
            platform_failures=view.get("platform_failures", 0),
        )

    @property
    def program(self) -> Program:
        """What it executes."""
        return self.file.program()

    @property
    def retry(self) -> RetryRule | None:
        """When it is tried again, if its user said something about it."""
        return None if self.file.retrying is None else self.file.retry

    @property
    def workers(self) -> Range:
        """The sizes it was declared for."""
        return self.file.spec(self.user).workers


def row_of(core: Core, job: Job, record: Record, seq: int) -> JobRow:
    """A job as the store lists it."""
    view = view_of(core, job, record, seq)
    return JobRow(
        id=job.id,
        name=view["name"],
        user=record.user,
        queue=job.spec.queue,
        state=job.state.value,
        cause=view["cause"],
        priority=job.spec.priority,
        gpus=job.spec.gpus,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        request=record.request,
        labels=view["labels"],
        rev=seq,
        view=view,
        document=record.document,
    )


def view_of(core: Core, job: Job, record: Record, seq: int) -> dict[str, Any]:
    """A job as everybody sees it: the same keys in every interface."""
    spec, run = job.spec, job.run
    cause, reason, starts_at = why(core, job, record)
    held = run.allocation if run is not None and not run.parked else Allocation(())
    return {
        "id": job.id,
        "name": record.file.name,
        "user": record.user,
        "unix": record.unix,
        "queue": spec.queue,
        "state": job.state.value,
        "cause": cause,
        "reason": reason,
        "starts_at": starts_at,
        "priority": spec.priority,
        "labels": dict(record.file.labels),
        "application": spec.application,
        "workers": {"min": spec.workers.min, "max": spec.workers.max, "now": held.workers},
        "gpus": spec.gpus,
        "gpus_held": held.gpu_milli / WHOLE,
        "kinds": list(spec.resources.kinds),
        "placement": placement_of(held),
        "attempt": job.attempts,
        "failures": job.failures,
        "platform_failures": record.platform_failures,
        "preemptions": job.preemptions,
        "resizes": job.resizes,
        "submitted_at": job.submitted_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "ran_s": record.ran_s,
        "running_since": None if run is None else run.started_at,
        "not_before": job.not_before or None,
        "progress": record.progress,
        "saved": record.saved,
        "step": record.step,
        "loss": record.loss if record.loss is None or math.isfinite(record.loss) else None,
        "run_time_s": job.run_time_s,
        "exit_code": record.exit_code,
        "verdict": record.verdict,
        "held": job.held,
        "cancelling": job.cancelling,
        "cancelled_by": record.cancelled_by,
        "elastic": spec.elastic,
        "rev": seq,
    }


def placement_of(allocation: Allocation) -> list[dict[str, Any]]:
    """Where a job runs, for JSON."""
    return [
        {
            "node": part.node,
            "gpus": list(part.gpus),
            "share": part.share_milli / WHOLE,
            "workers": part.workers,
            "role": part.role,
        }
        for part in allocation.parts
    ]


def why(core: Core, job: Job, record: Record) -> tuple[str, str, float | None]:
    """A cause token, a sentence and, where it was promised, when a job starts at the latest."""
    if job.state is JobState.FAILED:
        return "", str(record.verdict["phrase"]) if record.verdict else "", None
    if job.state.over:
        by = job.state is JobState.CANCELLED and record.cancelled_by
        return "", f"cancelled by {by}" if by else "", None
    run = job.run
    if run is not None and run.stopping is not None:
        return "leaving", f"is being stopped: {run.stopping}", None
    if run is not None and run.after:
        return "reserved", "waits until others have left its place", None
    if job.held and (run is None or run.parked):
        return "held", "suspended by its user", None
    if job.not_before > core.now and run is None:
        phrase = record.verdict["phrase"] if record.verdict else "its last run failed"
        return "back-off", f"waits for its next try: {phrase}", job.not_before
    explained = core.explain(job.id, limit=0)
    if explained is None:
        return "", "", None
    reason = explained.reason
    return reason.cause.token, reason.text, reason.starts_at
