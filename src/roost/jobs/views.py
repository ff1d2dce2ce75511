"""Jobs, nodes and queues as every interface shows them: the core and the records become views.

The keys are those of ``roost.api``. The server decides which user may see what.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import Any, Literal

from roost.api.jobs import (
    ChangeView,
    ExplanationView,
    JobView,
    PlacementView,
    VerdictView,
    WorkersView,
)
from roost.api.nodes import DeviceJobView, DeviceView, NodeView, NoticeView, StateView, WindowView
from roost.api.queues import CellUseView, QueueView
from roost.api.schema import decode, encode
from roost.core import (
    WHOLE,
    Allocation,
    Core,
    Job,
    JobId,
    JobSpec,
    JobState,
    Node,
    QueueId,
    Run,
    snapshot,
)
from roost.core.cells import telling
from roost.core.node import Notice, Window, devices
from roost.jobs.changes import under_way
from roost.jobs.record import JobRecord
from roost.store.rows import JobRow, QueueRow


def row_of(core: Core, job: Job, record: JobRecord, seq: int) -> JobRow:
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
        kept_until=_kept_until(job, record),
    )


def _kept_until(job: Job, record: JobRecord) -> float | None:
    """Until when a job that is over asked to be kept."""
    if job.finished_at is None or (keep_s := record.file.keep) is None:
        return None
    return job.finished_at + keep_s


def view_of(core: Core, job: Job, record: JobRecord, seq: int) -> dict[str, Any]:
    """A job as every interface shows it, ready for JSON."""
    spec, run = job.spec, job.run
    cause, reason, starts_at = why(core, job, record)
    held = run.allocation if run is not None and not run.parked else Allocation(())
    view = JobView(
        id=job.id,
        name=record.name,
        user=record.user,
        unix=record.unix,
        queue=spec.queue,
        state=job.state.value,
        cause=cause,
        reason=reason,
        starts_at=starts_at,
        priority=spec.priority,
        promise=promise_of(core, job),
        labels=record.labels,
        application=spec.application,
        workers=WorkersView(spec.workers.min, spec.workers.max, held.workers),
        gpus=spec.gpus,
        gpus_held=held.gpu_milli / WHOLE,
        kinds=spec.resources.kinds,
        **sharing_of(core, spec, held),
        placement=placement_of(held),
        target=None if run is None or run.target is None else placement_of(run.target),
        attempt=job.attempts,
        failures=job.failures,
        platform_failures=record.platform_failures,
        preemptions=job.preemptions,
        resizes=job.resizes,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        ran_s=record.ran_s,
        gpu_s=job.attained_gpu_s if run is None else run.attained_gpu_s(core.now),
        running_since=None if run is None else run.started_at,
        not_before=job.not_before or None,
        progress=record.progress,
        saved=record.saved,
        step=record.step,
        loss=record.loss if record.loss is None or math.isfinite(record.loss) else None,
        **_observed(record),
        run_time_s=job.run_time_s,
        exit_code=record.exit_code,
        verdict=None if record.verdict is None else decode(VerdictView, record.verdict),
        held=job.held,
        cancelling=job.cancelling,
        cancelled_by=record.cancelled_by,
        elastic=spec.elastic,
        clone_of=record.clone_of,
        restored=record.restored,
        rerun_of=record.rerun_of,
        rev=seq,
    )
    return encode(view)


def promise_of(core: Core, job: Job) -> str:
    """By which promise of cells a job has its place; empty: by none."""
    return "" if core.ledger.cells is None else telling.promise_of(core.ledger.cells, job)


def sharing_of(core: Core, spec: JobSpec, held: Allocation) -> dict[str, Any]:
    """Which part of a GPU each worker has, how, and how much of its memory.

    The limit of the memory in MiB follows from the GPUs that are held; 0: unknown.
    """
    need = spec.resources
    limit = need.gpu_memory_mib
    if not limit and need.share_milli < WHOLE:
        sizes = [core.ledger.nodes[name].spec.gpu_memory_mib for name in held.nodes]
        limit = min(sizes, default=0) * need.share_milli // WHOLE
    shared = need.share_milli < WHOLE
    return {
        "share": need.share_milli / WHOLE,
        "way": need.way.value if shared else "",
        "qos": need.qos.value if shared else "",
        "memory_limit_mib": limit,
    }


def _observed(record: JobRecord) -> dict[str, Any]:
    """What a job says of its training."""
    step_s, batch = record.step_s, record.batch
    return {
        "step_s": step_s,
        "batch": batch,
        "samples_per_s": None if not step_s or batch is None else batch / step_s,
        "world": record.world,
        "memory_mib": record.memory_mib,
        "predicted_mib": record.predicted_mib,
        "noise": record.noise,
        "resizable": record.resizable,
        "busy": record.busy,
        "note": record.note,
        "restraint": record.restraint,
        "change": None if record.change is None else decode(ChangeView, record.change),
    }


def placement_of(allocation: Allocation) -> tuple[PlacementView, ...]:
    """Where a job runs."""
    return tuple(
        PlacementView(part.node, part.gpus, part.share_milli / WHOLE, part.workers, part.role)
        for part in allocation.parts
    )


def why(core: Core, job: Job, record: JobRecord) -> tuple[str, str, float | None]:
    """A cause token, a sentence and, where it was promised, when a job starts at the latest."""
    if job.state is JobState.FAILED:
        return "", str(record.verdict["phrase"]) if record.verdict else "", None
    if job.state.over:
        by = job.state is JobState.CANCELLED and record.cancelled_by
        return "", f"cancelled by {by}" if by else "", None
    run = job.run
    if run is not None and (said := _why_of_run(run, record)):
        return *said, None
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


def _why_of_run(run: Run, record: JobRecord) -> tuple[str, str] | None:
    """The same of a run that is on its way to somewhere, or cannot go there."""
    if run.leaves:
        return "leaving", f"is being stopped: {run.reason}"
    if run.after:
        return "reserved", "waits until others have left its place"
    if record.delay:
        return "server", record.delay
    if run.target is not None:
        return "", under_way(run)
    if run.frozen:
        return "held", "suspended where it is: its place and its GPU memory stay taken"
    return None


def over_view(row: JobRow) -> dict[str, Any]:
    """What there is to say of a job that is over."""
    view = decode(JobView, row.view)
    failed = view.verdict if row.state == "failed" else None
    return encode(
        ExplanationView(
            row.id,
            view.state,
            "over",
            failed.sentence if failed is not None else view.reason or row.state,
            since=row.finished_at,
            verdict=view.verdict,
        )
    )


def waiting_view(row: JobRow) -> dict[str, Any]:
    """What there is to say of a job that is not handed to the core."""
    view = decode(JobView, row.view)
    told = ExplanationView(row.id, view.state, view.cause, view.reason, since=row.submitted_at)
    return encode(told)


def _not_told(_job: JobId) -> float | None:
    return None


def node_view(
    node: Node,
    windows: Iterable[Window] = (),
    busy: Callable[[JobId], float | None] = _not_told,
) -> dict[str, Any]:
    """A node with its devices, the jobs on them, and its maintenance.

    ``busy``: the part of the time in which a job keeps its devices at work, where that is known.
    """
    spec = node.spec
    used: dict[int, list[DeviceJobView]] = {gpu: [] for gpu in range(spec.gpus)}
    for run in node.runs:
        for part in run.allocation.parts:
            for gpu in part.gpus if part.node == spec.id else ():
                used[gpu].append(DeviceJobView(run.job.id, part.share_milli / WHOLE))
    broken = set(devices(((1 << spec.gpus) - 1) & ~node.healthy))
    return encode(
        NodeView(
            id=spec.id,
            state=_node_state(node),
            kind=spec.kind,
            gpus=spec.gpus,
            gpus_free=node.shown_milli / WHOLE,
            gpus_failed=len(broken),
            gpu_memory_mib=spec.gpu_memory_mib,
            cpus=spec.cpu_milli / 1000,
            memory_mib=spec.memory_mib,
            runs=len(node.runs),
            notice=_notice_view(node.cordon),
            maintenance=tuple(WindowView(*one[1:]) for one in windows if one.node == node.id),
            devices=tuple(
                DeviceView(
                    gpu,
                    gpu not in broken,
                    _notice_view(node.notices.get(gpu)),
                    tuple(jobs),
                    _use([busy(JobId(job.job)) for job in jobs]),
                )
                for gpu, jobs in used.items()
            ),
        )
    )


def _use(parts: Iterable[float | None]) -> float | None:
    """How much of the time a device is at work, by what is known of the jobs on it."""
    known = [part for part in parts if part is not None]
    return round(min(1.0, sum(known)), 2) if known else None


def _notice_view(notice: Notice | None) -> NoticeView | None:
    return None if notice is None else NoticeView(*astuple(notice))


def _node_state(node: Node) -> Literal["up", "lost", "cordoned", "draining", "drained"]:
    if not node.here:
        return "lost"
    if node.draining:
        return "draining" if node.runs else "drained"
    return "up" if node.cordon is None else "cordoned"


def queue_views(core: Core, rows: Iterable[QueueRow]) -> list[dict[str, Any]]:
    """Queues with what they hold and how many wait."""
    waiting = _waiting(core)
    running = Counter(run.job.spec.queue for run in core.runs.values())
    used = {name: queue.used_milli for name, queue in core.queues.items()}
    views = (
        QueueView(
            id=row.id,
            quota=None if row.quota_milli is None else row.quota_milli / WHOLE,
            limit=None if row.limit_milli is None else row.limit_milli / WHOLE,
            weight=row.weight,
            priority=row.priority,
            submitters=row.submitters,
            cells=tuple(map(str, row.cells)),
            overflows=row.overflows,
            standing=_standing(core, QueueId(row.id)),
            gpus_used=used.get(QueueId(row.id), 0) / WHOLE,
            borrowed=_borrowed(row, used.get(QueueId(row.id), 0)),
            waiting=waiting[QueueId(row.id)],
            running=running[QueueId(row.id)],
        )
        for row in rows
    )
    return [encode(view) for view in views]


def _borrowed(row: QueueRow, used_milli: int) -> float:
    """What a queue holds beyond its quota; without one it has nothing to go beyond."""
    return 0.0 if row.quota_milli is None else max(0, used_milli - row.quota_milli) / WHOLE


def _standing(core: Core, queue: QueueId) -> tuple[CellUseView, ...]:
    cells = core.ledger.cells
    found = () if cells is None else telling.standing(cells, queue)
    return tuple(CellUseView(str(promise), *counts) for promise, *counts in found)


def _waiting(core: Core) -> Counter[QueueId]:
    """How many jobs wait in which queue; where there is one, nobody need be counted."""
    if len(core.queues) == 1:
        return Counter(dict.fromkeys(core.queues, core.waiting.count))
    return Counter(job.spec.queue for line in core.waiting.open for _, _, job in line.entries)


def state_view(core: Core, seq: int, policy: str, placer: str) -> dict[str, Any]:
    """Everything that a core knows, and its policy, for ``roost simulate --from``."""
    return encode(StateView(seq, policy, placer, snapshot.digest(core), snapshot.dump(core)))
