"""Which of the core's queues a Job or a gang waits in.

A Queue of a namespace leads to a ClusterQueue, which the core knows: to have a Queue is the
permission to use its ClusterQueue. The queue ``default`` needs no object: all users that may
submit may submit to it.
"""

from __future__ import annotations

from roost.core import QueueId
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, QUEUES, Object
from roost.kubernetes.operator.status import Obstacle
from roost.kubernetes.operator.workload import OperatorContext

DEFAULT = QueueId("default")
_UNKNOWN = "unknown-queue"


def queue_of(context: OperatorContext, namespace: str, name: str) -> QueueId | Obstacle:
    """The core's queue behind a queue of a namespace, or why there is none."""
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
