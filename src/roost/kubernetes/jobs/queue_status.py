"""ClusterQueues and Queues: what they promise to the core, and what they say of themselves.

Their statuses are counted from the core's jobs, now and then, and written where they changed. Gangs
count in the Queue of their namespace that leads to the ClusterQueue they are in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from roost.core import WHOLE, JobId, QueueChanged, QueueDeleted, QueueId, QueueSpec
from roost.core.quota import GPU
from roost.core.quota_tree import amount_text
from roost.errors import RoostError
from roost.jobs.record import JobRecord
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, QUEUES, Object, ResourceKind
from roost.kubernetes.crds import queue_spec
from roost.kubernetes.jobs import cell_promises
from roost.kubernetes.operator.queues import queue_of, target_of
from roost.kubernetes.operator.status import Condition, LastStatus, Obstacle, conditions_of, word
from roost.kubernetes.operator.workload import OperatorContext

_Place = tuple[str, str]


class QueueReport(NamedTuple):
    """A queue, and what it should say."""

    kind: ResourceKind
    queue: Object
    status: dict[str, Any]


def stale_queues(context: OperatorContext, records: Mapping[JobId, JobRecord]) -> list[QueueReport]:
    """Queues that do not say what they should."""
    used, waiting, running = _counts(context, records)
    ours = _reached(context)
    found = []
    for kind in (QUEUES, CLUSTER_QUEUES):
        for place, queue in context.objects(kind).items():
            if kind is CLUSTER_QUEUES and ours is not None and place[1] not in ours:
                continue
            before = queue.get("status") or {}
            status = {
                "used": used[place] / WHOLE,
                "waiting": waiting[place],
                "running": running[place],
                "observedGeneration": _generation(queue),
                "conditions": _conditions(context, kind, queue),
            }
            if kind is CLUSTER_QUEUES:
                status |= _loans(context, QueueId(place[1])) | _cells(context, queue)
            if any(before.get(name) != value for name, value in status.items()):
                found.append(QueueReport(kind, queue, status))
    return found


def _reached(context: OperatorContext) -> set[str] | None:
    """ClusterQueues that namespaces which are served lead to, and those above; None: all.

    The others are another operator's to count: two would contradict each other for ever.
    """
    if not context.scope.namespaces:
        return None
    every = context.objects(CLUSTER_QUEUES)
    open_ = {str(target_of(queue)) for queue in context.objects(QUEUES).values()}
    reached: set[str] = set()
    while open_:
        name = open_.pop()
        queue = every.get(("", name))
        if queue is None or name in reached:
            continue
        reached.add(name)
        parent = (queue.get("spec") or {}).get("parent")
        open_ |= {str(parent)} if parent else set()
    return reached


def _loans(context: OperatorContext, name: QueueId) -> dict[str, Any]:
    """What a queue has borrowed and lent: its GPUs, and each resource that is counted."""
    queue = context.core.queues.get(name)
    holdings = [] if queue is None or queue.account is None else queue.account.holdings()
    gpus = next((one for one in holdings if one.resource == GPU), None)
    return {
        "borrowed": 0 if gpus is None else gpus.borrowed / WHOLE,
        "lent": 0 if gpus is None else gpus.lent / WHOLE,
        "resources": [
            {
                "resource": one.resource,
                "nominal": amount_text(one.resource, one.quota),
                "used": amount_text(one.resource, one.used),
                "borrowed": amount_text(one.resource, one.borrowed),
                "lent": amount_text(one.resource, one.lent),
            }
            for one in holdings
        ],
    }


def _cells(context: OperatorContext, queue: Object) -> dict[str, Any]:
    """How it stands with its cells, if it is to have some or had some."""
    wanted = promise(queue)
    told = isinstance(wanted, QueueSpec) and bool(wanted.cells)
    if not told and "cells" not in (queue.get("status") or {}):
        return {}
    found = cell_promises.cell_statuses(context.core, wanted) if told else []  # type: ignore[arg-type]
    return {"cells": found}


def unpromised(context: OperatorContext) -> Iterator[QueueChanged]:
    """What to tell the core again: queues with cells that it has not taken."""
    for queue in context.objects(CLUSTER_QUEUES).values():
        wanted = promise(queue)
        if isinstance(wanted, QueueSpec) and cell_promises.is_open(context.core, wanted):
            yield from cell_promises.changes(context.core, wanted, context.now())


async def write_report(context: OperatorContext, told: QueueReport) -> None:
    """Write down what a queue should say."""
    kind, meta = told.kind, told.queue["metadata"]
    body = {"metadata": {"uid": meta["uid"]}, "status": told.status}
    await context.binder.write(
        lambda: context.api.patch(
            kind, meta["name"], body, meta.get("namespace") or "", sub="status"
        )
    )


def _counts(
    context: OperatorContext, records: Mapping[JobId, JobRecord]
) -> tuple[Counter[_Place], Counter[_Place], Counter[_Place]]:
    """GPUs in use, jobs that wait and jobs that run, by namespace and name of their queues."""
    used: Counter[_Place] = Counter()
    waiting: Counter[_Place] = Counter()
    running: Counter[_Place] = Counter()
    ways = {
        (namespace, target_of(queue)): name
        for (namespace, name), queue in sorted(context.objects(QUEUES).items(), reverse=True)
    }
    for job in context.core.jobs.values():
        record, namespace = records.get(job.id), job.id.partition(".")[0]
        own = record.file.queue if record is not None else ways.get((namespace, job.spec.queue))
        run = job.run
        holds = run is not None and not run.parked
        for place in _places(str(job.spec.queue), namespace, own):
            waiting[place] += job.waiting
            running[place] += holds
            used[place] += run.gpu_milli if run is not None and holds else 0
    return used, waiting, running


def _places(queue: str, namespace: str, own: str | None) -> Iterator[_Place]:
    yield "", queue
    if own is not None:
        yield namespace, own


def _conditions(context: OperatorContext, kind: ResourceKind, queue: Object) -> list[Object]:
    """Whether jobs can wait in it, since when, and why not."""
    meta = queue["metadata"]
    leads = kind is QUEUES
    found = queue_of(context, meta["namespace"], meta["name"]) if leads else promise(queue)
    if isinstance(found, QueueSpec):
        known = context.core.queues.get(found.id)
        if known is not None and known.account is not None and known.account.fault:
            found = Obstacle("invalid-parent", f"it borrows nothing: {known.account.fault}")
    ready = Condition("Ready", holds=True, reason="Ready")
    if isinstance(found, Obstacle):
        reason, message = word(found.cause), found.sentence
        ready = Condition("Ready", holds=False, reason=reason, message=message)
    conditions = [ready]
    if not leads and isinstance(found, QueueSpec) and found.cells:
        conditions.append(cell_promises.condition(context.core, found))
    said = LastStatus(queue.get("status") or {}, _generation(queue), "")
    return conditions_of(conditions, said, context.now())


def _generation(queue: Object) -> int:
    return int(queue["metadata"].get("generation") or 0)


def promise(found: Object) -> QueueSpec | Obstacle:
    """What a ClusterQueue promises, or why that cannot be."""
    try:
        return queue_spec(found)
    except (RoostError, ValueError, TypeError, KeyError, AttributeError) as error:
        return Obstacle("invalid-queue", str(error))


def events_of(
    context: OperatorContext, old: Object | None, new: Object | None, now: float
) -> Iterator[QueueChanged | QueueDeleted]:
    """What a changed ClusterQueue is to the core."""
    if new is None:
        name = QueueId(old["metadata"]["name"]) if old is not None else QueueId("")
        used = any(
            job.spec.queue == name and not job.state.over for job in context.core.jobs.values()
        )
        if name in context.core.queues:
            # Jobs that are in it go on; it only has nothing more to promise.
            yield QueueChanged(now, QueueSpec(name)) if used else QueueDeleted(now, name)
        return
    found = promise(new)
    if isinstance(found, Obstacle):
        context.write_event(new, "Invalid", found.sentence, warning=True)
        return
    yield from cell_promises.changes(context.core, found, now)
