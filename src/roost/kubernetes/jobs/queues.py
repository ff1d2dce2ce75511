"""What ClusterQueues promise, told to the core; ``queue_status`` has what queues say back."""

from __future__ import annotations

from roost.core import QueueChanged, QueueDeleted, QueueId, QueueSpec
from roost.errors import RoostError
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.crds import queue_spec
from roost.kubernetes.operator.status import Obstacle
from roost.kubernetes.operator.workload import OperatorContext


def promise(found: Object) -> QueueSpec | Obstacle:
    """What a ClusterQueue promises, or why that cannot be."""
    try:
        return queue_spec(found)
    except (RoostError, ValueError, TypeError) as error:
        return Obstacle("invalid-queue", str(error))


def event_of(
    context: OperatorContext, old: Object | None, new: Object | None, now: float
) -> QueueChanged | QueueDeleted | None:
    """What a changed ClusterQueue is to the core."""
    if new is None:
        name = QueueId(old["metadata"]["name"]) if old is not None else QueueId("")
        used = any(
            job.spec.queue == name and not job.state.over for job in context.core.jobs.values()
        )
        if name not in context.core.queues:
            return None
        # Jobs that are in it go on; it only has nothing more to promise.
        return QueueChanged(now, QueueSpec(name)) if used else QueueDeleted(now, name)
    found = promise(new)
    if isinstance(found, Obstacle):
        context.write_event(new, "Invalid", found.sentence, warning=True)
        return None
    known = context.core.queues.get(found.id)
    return None if known is not None and known.spec == found else QueueChanged(now, found)
