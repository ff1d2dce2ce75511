"""Objects of a cluster as the rows of lists: Jobs, Queues and what was said of Jobs.

The operator puts the whole view of a job into its status. A Job that no operator has looked at yet
is shown as waiting, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from roost.api.jobs import JobView
from roost.api.schema import decode, encode
from roost.core.spec import JobId
from roost.errors import RoostError
from roost.jobs.record import JobRecord
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.crds import job_file, queue_spec
from roost.kubernetes.jobs.request import REQUEST, USER, id_of, submitted_at
from roost.kubernetes.operator.status import moment
from roost.store.rows import EventRow, JobRow, QueueRow

if TYPE_CHECKING:
    from roost.core.plan import Plan

#: A user's name of a job; its object has a name of its own.
NAME = "roost.dev/name"
_UNSEEN = "no operator has looked at it yet: is it running?"
_OPERATOR = "roost"


def job_id(job: Object) -> JobId:
    """What a Job is called: its namespace and its name."""
    return id_of(job["metadata"]["namespace"], job["metadata"]["name"])


def place_of(job: str) -> tuple[str, str]:
    """The namespace and the name in an id."""
    namespace, _, name = job.partition(".")
    return namespace, name


def record_of(job: Object) -> JobRecord:
    """A Job as the driver would remember it; raises JobFileErrors."""
    file = job_file(job)
    noted: Mapping[str, str] = job["metadata"].get("annotations") or {}
    return JobRecord(
        job_id(job),
        file,
        noted.get(USER, ""),
        request=noted.get(REQUEST, ""),
        document=file.document(),
    )


def job_row(job: Object, rev: int) -> JobRow:
    """A Job as lists show it: as the operator says, or as one that no operator has looked at."""
    record = record_of(job)
    view = (job.get("status") or {}).get("view") or {}
    if "workers" not in view:  # the core does not know it, or no operator has looked at it
        view = {**_unseen(job, record, rev), **view}
    noted: Mapping[str, str] = job["metadata"].get("annotations") or {}
    name = noted.get(NAME, record.file.name)
    # An operator of another version may have written other keys.
    view = encode(decode(JobView, {**view, "name": name, "rev": rev}))
    spec = record.file.spec(record.user)
    return JobRow(
        id=record.id,
        name=name,
        user=record.user,
        queue=spec.queue,
        state=view["state"],
        cause=view.get("cause") or "",
        priority=spec.priority,
        gpus=spec.gpus,
        submitted_at=submitted_at(job),
        started_at=view.get("started_at"),
        finished_at=view.get("finished_at"),
        request=record.request,
        labels=dict(record.file.labels),
        rev=rev,
        view=view,
        document=record.document,
    )


def _unseen(job: Object, record: JobRecord, rev: int) -> dict[str, Any]:
    """The view of a job that has just been handed in, and that no operator has looked at."""
    # The core and its placers take longer to load than a list of jobs to read.
    from roost import placement  # noqa: PLC0415
    from roost.core import Core, Submitted  # noqa: PLC0415
    from roost.jobs.views import view_of  # noqa: PLC0415

    core = Core(_no_policy, placement.placer("consolidate"))
    core.fold(Submitted(submitted_at(job), JobId(record.id), record.file.spec(record.user)))
    view = view_of(core, core.jobs[JobId(record.id)], record, rev)
    return {**view, "cause": "unseen", "reason": _UNSEEN}


def _no_policy(plan: Plan) -> None:
    """Decide nothing."""


def event_row(event: Object, seq: int, n: int) -> EventRow | None:
    """An Event about a Job as a line of the log; None if it is about something else."""
    about = event.get("regarding") or {}
    if about.get("kind") != "Job" or not str(about.get("apiVersion", "")).startswith("roost.dev/"):
        return None
    return EventRow(
        seq,
        n,
        moment(event.get("eventTime")) or submitted_at(event),
        actor=_OPERATOR,
        job=f"{about['namespace']}.{about['name']}",
        kind=event.get("reason") or "",  # its action is the same for all of them
        text=event.get("note") or "",
    )


def readable_rows(jobs: Iterable[Object], rev: int) -> list[JobRow]:
    """Jobs as lists show them; one that cannot be read is left out, and its status says why."""
    rows = []
    for job in jobs:
        with suppress(RoostError):
            rows.append(job_row(job, rev))
    return rows


def event_rows(events: Iterable[Object], seq: int) -> list[EventRow]:
    """Events about Jobs as lines of the log, numbered as they come."""
    rows = [event_row(event, seq, n) for n, event in enumerate(events)]
    return [row for row in rows if row is not None]


def queue_row(cluster_queue: Object) -> QueueRow:
    """A ClusterQueue as lists show it; who may submit is who may create Jobs beside a Queue."""
    spec = queue_spec(cluster_queue)
    return QueueRow(spec.id, spec.quota_milli, spec.limit_milli, spec.weight, spec.priority)
