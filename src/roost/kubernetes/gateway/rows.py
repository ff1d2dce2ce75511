"""Objects of a cluster as the rows of lists: Jobs, Queues and what was said of Jobs.

The operator puts the whole view of a job into its status. A Job that no operator has looked at yet
is shown as waiting, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from roost.api.jobs import JobView
from roost.api.schema import decode, encode
from roost.core.spec import JobId, QueueSpec
from roost.errors import Conflict, NotFound, RoostError
from roost.jobs.record import JobRecord
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.crds import job_file, queue_spec
from roost.kubernetes.jobs.request import REQUEST, USER, id_of, submitted_at
from roost.kubernetes.operator.status import moment
from roost.store.rows import EventRow, JobRow, QueueRow

if TYPE_CHECKING:
    from roost.core.plan import Plan

#: How to ask for the pods of others that Roost places; those of its own Jobs carry the label.
PLACED_BY_ROOST, OTHERS = "spec.schedulerName=roost", "!roost.dev/job"
#: The label under which a row that is of no Job says what it is of.
KIND = "roost.dev/kind"
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
    # Of a Job that kubectl made nobody is known but its namespace.
    user = record.user or job["metadata"]["namespace"]
    view |= {"user": view.get("user") or user}
    return JobRow(
        id=record.id,
        name=name,
        user=user,
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


class EventJobs(NamedTuple):
    """What Events are about: the uid of each Job there is, by its id, and the gang of a pod."""

    jobs: Mapping[JobId, str]
    gang_of_pod: Callable[[str], str | None] = lambda _: None


def _about(event: Object, subjects: EventJobs) -> str | None:
    """The job that an Event is about; None if it is another's, or of an earlier one of its name."""
    about = event.get("regarding") or {}
    if about.get("kind") == "Pod":
        return subjects.gang_of_pod(about.get("uid", ""))
    if about.get("kind") != "Job" or not str(about.get("apiVersion", "")).startswith("roost.dev/"):
        return None
    job = id_of(about["namespace"], about["name"])
    uid = about.get("uid", "")
    return job if not uid or subjects.jobs.get(job, uid) == uid else None


def event_row(event: Object, seq: int, n: int, subjects: EventJobs) -> EventRow | None:
    """An Event about a job as a line of the log; None if it is about something else."""
    job = _about(event, subjects)
    if job is None:
        return None
    return EventRow(
        seq,
        n,
        _at(event),
        actor=_actor(event),
        job=job,
        kind=event.get("reason") or "",  # its action is the same for all of them
        text=event.get("note") or "",
    )


def _actor(event: Object) -> str:
    """The program that says so: of pods a kubelet may speak, too."""
    source = event.get("deprecatedSource") or {}
    name = str(event.get("reportingController") or source.get("component") or _OPERATOR)
    return _OPERATOR if name.startswith("roost.dev/") else name


def _at(event: Object) -> float:
    return moment(event.get("eventTime")) or submitted_at(event)


def readable_rows(jobs: Iterable[Object], rev: int) -> list[JobRow]:
    """Jobs as lists show them; one that cannot be read is left out, and its status says why."""
    rows = []
    for job in jobs:
        with suppress(RoostError):
            rows.append(job_row(job, rev))
    return rows


def event_rows(events: Iterable[Object], seq: int, subjects: EventJobs) -> list[EventRow]:
    """Events about jobs as lines of the log, in order of time: a server lists them by name.

    What all pods of a gang are told is one line.
    """
    rows: list[EventRow] = []
    last: dict[str, tuple[str, str]] = {}
    for n, event in enumerate(sorted(events, key=_at)):
        row = event_row(event, seq, n, subjects)
        if row is not None and last.get(row.job) != (row.kind, row.text):
            last[row.job] = row.kind, row.text
            rows.append(row)
    return rows


def check_own(row: JobRow) -> JobRow:
    """A row of a Job of Roost's; raises Conflict for a gang of others, which it only places."""
    if KIND in row.labels and not row.document:
        raise Conflict(
            f"{row.id} is placed by Roost and belongs to {row.labels[KIND]} {row.name} of "
            f"namespace {row.user}: look at it and change it with kubectl"
        )
    return row


def job_document(row: JobRow) -> Mapping[str, Any]:
    """The job file of a Job; raises NotFound for a gang of others, which has none."""
    try:
        return check_own(row).document
    except Conflict as error:
        raise NotFound(str(error)) from None


def queue_row(cluster_queue: Object) -> QueueRow:
    """A ClusterQueue as lists show it; who may submit is who may create Jobs beside a Queue."""
    return spec_row(queue_spec(cluster_queue))


def spec_row(spec: QueueSpec) -> QueueRow:
    """A queue of the core as lists show it."""
    return QueueRow(
        spec.id,
        spec.quota_milli,
        spec.limit_milli,
        spec.weight,
        spec.priority,
        cells=spec.cells,
        overflows=spec.overflows,
    )
