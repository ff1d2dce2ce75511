"""Which of the core's queues a Job or a gang waits in.

A Queue of a namespace leads to a ClusterQueue, which the core knows: to have a Queue is the
permission to use its ClusterQueue. A LocalQueue of Kueue does the same. The queue ``default`` needs
no object: all users that may submit may submit to it.

A name in Roost's own words is that of a Queue, or of a LocalQueue where there is no such Queue; a
name in Kueue's label is that of a LocalQueue, or of a Queue where there is no such LocalQueue.
"""

from __future__ import annotations

from roost.core import QueueId
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, QUEUES, Object
from roost.kubernetes.kueue.admission import (
    Admission,
    QueueWish,
    admission_of,
    names_local_queue,
    priority_of,
)
from roost.kubernetes.operator.status import Obstacle
from roost.kubernetes.operator.workload import OperatorContext

DEFAULT = QueueId("default")
_UNKNOWN = "unknown-queue"


def admitted(
    context: OperatorContext, namespace: str, wish: QueueWish, *, stands: bool = False
) -> Admission | Obstacle:
    """The queue that a workload asks for, and what that says of it, or why it may not be there.

    ``stands``: it runs already, and goes on.
    """
    if wish.roost and wish.kueue and wish.roost != wish.kueue:
        sentence = f"it names two queues: Roost's {wish.roost!r} and Kueue's {wish.kueue!r}"
        return Obstacle("contradictory-queues", sentence)
    name = wish.roost or wish.kueue or DEFAULT
    is_local = names_local_queue(context, namespace, name)
    is_own = (namespace, name) in context.objects(QUEUES)
    if is_local and not (is_own and wish.roost):
        found = admission_of(context, namespace, name, stands=stands)
    elif wish.kueue and not is_own:
        sentence = f"there is no LocalQueue {name!r} in namespace {namespace!r}"
        return Obstacle(_UNKNOWN, sentence)
    else:
        queue = queue_of(context, namespace, name)
        found = queue if isinstance(queue, Obstacle) else Admission(queue)
    if isinstance(found, Obstacle) or not wish.priority_class:
        return found
    priority = priority_of(context, wish.priority_class)
    if isinstance(priority, Obstacle):
        return found if stands else priority
    return found._replace(priority=priority)


def queue_of(context: OperatorContext, namespace: str, name: str) -> QueueId | Obstacle:
    """The core's queue behind a Queue of a namespace, or why there is none."""
    found = context.objects(QUEUES).get((namespace, name))
    if found is None:
        if name == DEFAULT:
            return DEFAULT
        there = sorted(own for space, own in context.objects(QUEUES) if space == namespace)
        choice = f"; there is {', '.join(there[:5])}" if there else ""
        return Obstacle(_UNKNOWN, f"there is no Queue {name!r} in namespace {namespace!r}{choice}")
    target = target_of(found)
    if target != DEFAULT and ("", target) not in context.objects(CLUSTER_QUEUES):
        return Obstacle(
            _UNKNOWN, f"Queue {name!r} leads to ClusterQueue {target!r}, which does not exist"
        )
    return target


def target_of(queue: Object) -> QueueId:
    """The ClusterQueue that a Queue leads to."""
    return QueueId(str((queue.get("spec") or {}).get("clusterQueue") or queue["metadata"]["name"]))
