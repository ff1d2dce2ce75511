"""The lines of the event log for a batch: which user did what, and how jobs changed their state.

The journal keeps events and decisions for the core; these lines are for people. They are written in
the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from roost.core import (
    WHOLE,
    Action,
    Adopted,
    CancelRequested,
    Core,
    Decision,
    Deleted,
    Event,
    Evict,
    Exited,
    GpuFailed,
    GpuRestored,
    Job,
    JobId,
    JobState,
    MaintenanceCancelled,
    MaintenancePlanned,
    Measured,
    MigrateRequested,
    NodeChanged,
    NodeCordoned,
    NodeJoined,
    NodeLost,
    NodeSpec,
    NodeUncordoned,
    Outcome,
    Progressed,
    Protected,
    QueueChanged,
    Reclaim,
    Reshape,
    Resized,
    ResumeRequested,
    Run,
    ScaleRequested,
    SetAside,
    Shrank,
    Started,
    Submitted,
    Suspended,
    SuspendRequested,
)
from roost.jobs.changes import ChangeTracker, JobChange, under_way, where
from roost.jobs.record import JobRecord
from roost.store.rows import EventRow

#: What people do; all else Roost does itself.
_ASKED = frozenset({"submitted", "request", "queue", "deleted"})
_ITSELF = "roost"


class HistoryLine(NamedTuple):
    """One line before it has its place in the log."""

    kind: str
    job: str = ""
    node: str = ""
    old: str = ""
    new: str = ""
    text: str = ""


def touched(core: Core, events: Iterable[Event], actions: Iterable[Action]) -> dict[JobId, None]:
    """Jobs that the batch was about which a core has just handled, in order."""
    found: dict[JobId, None] = dict.fromkeys(core.withdrawn)
    for event in events:
        match event:
            case (
                Started()
                | Progressed()
                | Measured()
                | Resized()
                | Shrank()
                | Suspended()
                | Exited()
            ):
                found[event.run.job] = None
            case (
                Submitted()
                | Adopted()
                | Protected()
                | CancelRequested()
                | SuspendRequested()
                | ResumeRequested()
                | ScaleRequested()
                | MigrateRequested()
                | Deleted()
            ):
                found[event.job] = None
            case _:
                pass
    for decision in core.decisions:
        found[decision.job] = None
    for action in actions:
        found[action.run.job] = None
    return found


class HistoryWriter:
    """Remembers the state in which every open job was last seen, and tells what changed."""

    def __init__(self, core: Core) -> None:
        self._seen: dict[JobId, JobState] = {
            job.id: job.state for job in core.jobs.values() if not job.state.over
        }
        self._changes = ChangeTracker(core)

    def lines(
        self,
        core: Core,
        events: Iterable[Event],
        decisions: Iterable[Decision],
        jobs: Iterable[JobId],
        records: Mapping[JobId, JobRecord],
    ) -> Iterator[HistoryLine]:
        """What to say about a batch that the core has just handled."""
        jobs, events = list(jobs), list(events)
        reasons: dict[JobId, str] = {}
        changes = self._changes.told(core, events, records)
        self._changes.look(core, jobs)
        for event in events:
            if isinstance(event, Exited):
                reasons[event.run.job] = _ending(event, records.get(event.run.job))
            yield from _told(event, records)
        for decision in decisions:
            if text := _decided(decision):
                yield HistoryLine("decision", decision.job, text=text)
        for job_id in jobs:
            job = core.jobs.get(job_id)
            old = self._seen.get(job_id)
            moved = job is not None and job.state is not old
            change = changes.get(job_id)
            text = reasons.get(job_id) or (_arrival(core, job, change) if job and moved else "")
            if change is not None and change.text not in text and change.tells:
                yield HistoryLine("change", job_id, text=change.text)
            if job is None or not moved:
                if job is not None and text:  # such as a worker that dies while it is suspended
                    yield HistoryLine("change", job_id, text=text)
                continue
            yield HistoryLine(
                "state",
                job_id,
                old=old.value if old is not None else "",
                new=job.state.value,
                text=text,
            )
            if job.state.over:
                self._seen.pop(job_id, None)
            else:
                self._seen[job_id] = job.state


def rows(
    lines: Iterable[HistoryLine],
    seq: int,
    time: float,
    actor: str,
    records: Mapping[JobId, JobRecord],
) -> list[EventRow]:
    """Lines with their place in the log."""
    found = []
    for n, line in enumerate(lines):
        record = records.get(JobId(line.job)) if line.job else None
        user = record.user if record is not None else ""
        found.append(
            EventRow(
                seq=seq,
                n=n,
                time=time,
                actor=actor if line.kind in _ASKED else _ITSELF,
                job=line.job,
                user=user,
                node=line.node,
                kind=line.kind,
                old=line.old,
                new=line.new,
                text=line.text,
            )
        )
    return found


def _decided(decision: Decision) -> str:
    """What a policy did to a run, and why; empty where there is nothing to say."""
    match decision:
        case Evict():
            return f"stopped: {decision.reason}"
        case SetAside():
            return f"suspended: {decision.reason}"
        case Reclaim(claims=()):
            return "keeps its place only as long as others let it: its queue's promise is used up"
        case Reclaim():
            return "has its place by a promise to its queue"
        case Reshape(reason=reason) if reason:
            return f"changes {reason}"
        case _:
            return ""


def _told(event: Event, records: Mapping[JobId, JobRecord]) -> Iterator[HistoryLine]:  # noqa: C901, PLR0912 - one case per event
    """What is said of an event itself."""
    match event:
        case Submitted():
            yield HistoryLine("submitted", event.job, text=_asks(event, records.get(event.job)))
        case Adopted():
            held = event.allocation
            on = f"with attempt {event.attempts} on {where(held)}" if held else "without a run"
            yield HistoryLine("adopted", event.job, text=f"was here already, {on}")
        case Protected():
            text = f"must not be evicted: {event.why}" if event.why else "may be evicted again"
            yield HistoryLine("protected", event.job, text=text)
        case CancelRequested():
            yield HistoryLine("request", event.job, text="asks to cancel it")
        case SuspendRequested() if over := _over_budget(records.get(event.job)):
            yield HistoryLine("budget", event.job, text=over)
        case SuspendRequested():
            yield HistoryLine("request", event.job, text="asks to suspend it")
        case ResumeRequested():
            yield HistoryLine("request", event.job, text="asks to resume it")
        case ScaleRequested():
            yield HistoryLine("request", event.job, text=f"asks to scale it to {event.workers}")
        case MigrateRequested():
            to = f" to {event.node}" if event.node else ""
            yield HistoryLine("request", event.job, text=f"asks to move it{to}")
        case NodeJoined():
            yield HistoryLine("node", node=event.node.id, new="up", text=_devices(event.node))
        case NodeChanged():
            yield HistoryLine("node", node=event.node.id, text=f"has {_devices(event.node)} now")
        case NodeLost():
            yield HistoryLine("node", node=event.node, old="up", new="lost")
        case NodeCordoned():
            yield HistoryLine("node", node=event.node, text=_cordoned(event))
        case MaintenancePlanned():
            lasts = event.ends_at - event.starts_at
            why = f": {event.reason}" if event.reason else ""
            by = f" by {event.user}" if event.user else ""
            text = f"maintenance planned{by}, {lasts:.0f} s from {event.starts_at:.0f} on{why}"
            yield HistoryLine("node", node=event.node, text=text)
        case MaintenanceCancelled():
            yield HistoryLine("node", node=event.node, text="maintenance cancelled")
        case NodeUncordoned():
            yield HistoryLine("node", node=event.node, text="is used again")
        case GpuFailed():
            yield HistoryLine("node", node=event.node, text=_disabled(event))
        case GpuRestored():
            yield HistoryLine("node", node=event.node, text=f"GPU {event.gpu} is used again")
        case QueueChanged():
            yield HistoryLine("queue", text=f"queue {event.queue.id} was set")
        case _:
            return


def _over_budget(record: JobRecord | None) -> str:
    return "" if record is None else record.over_budget


def _cordoned(event: NodeCordoned) -> str:
    what = "is being drained" if event.drain else "is cordoned: it takes nothing new"
    by = f" by {event.user}" if event.user else ""
    return f"{what}{by}{f': {event.reason}' if event.reason else ''}"


def _disabled(event: GpuFailed) -> str:
    by = f", disabled by {event.user}" if event.user else ""
    return f"GPU {event.gpu} is not used any more{by}{f': {event.reason}' if event.reason else ''}"


def _asks(event: Submitted, record: JobRecord | None) -> str:
    milli = event.spec.gpu_milli(event.spec.workers.min)
    asks = f"asks for {_gpus(milli)} in queue {event.spec.queue}"
    return f"{asks}, starts from {record.clone_of}" if record and record.clone_of else asks


def _devices(node: NodeSpec) -> str:
    return f"{node.gpus} x {node.kind}"


def _gpus(milli: int) -> str:
    return f"{milli / WHOLE:g} GPU{'' if milli == WHOLE else 's'}"


def _ending(event: Exited, record: JobRecord | None) -> str:
    failed = event.outcome in (Outcome.FAILED, Outcome.LOST)
    if failed and record is not None and record.verdict is not None:
        return str(record.verdict.get("sentence") or record.verdict.get("phrase") or "")
    return {
        Outcome.LOST: "its run was lost",
        Outcome.STOPPED: "its run was stopped",
    }.get(event.outcome, "")


def _arrival(core: Core, job: Job, change: JobChange | None) -> str:
    """Why a job is in the state it is in now."""
    run = job.run
    match job.state:
        case JobState.STARTING if run is not None:
            later = " once others have left" if run.after else ""
            return f"placed on {where(run.allocation)}{later}"
        case JobState.RUNNING if run is not None:
            return _running(run, change)
        case JobState.SUSPENDED if change is not None and change.tells:
            return change.text
        case JobState.RESIZING if run is not None and run.target is not None:
            return under_way(run)
        case JobState.QUEUED:
            explained = core.explain(job.id, limit=0)
            return explained.reason.text if explained is not None else ""
        case _:
            return ""


def _running(run: Run, change: JobChange | None) -> str:
    up = "1 worker is up" if run.workers == 1 else f"{run.workers} workers are up"
    on = f"{up} on {_gpus(run.gpu_milli)}"
    if change is None or not change.tells:
        return on
    return change.text if change.kind in ("resize", "migrate") else f"{change.text}: {on}"
