"""Queues that promise or borrow nothing, and why: parents in a circle, and leads to nowhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

from roost import placement, policies
from roost.core import Core, QueueChanged
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, QUEUES
from roost.kubernetes.jobs.queue_status import promise
from roost.kubernetes.operator.queues import DEFAULT, target_of
from roost.kubernetes.operator.status import Obstacle


async def queue_faults(api: Api) -> AsyncIterator[tuple[str, str]]:
    """Each queue that is not as it was meant, and what to do."""
    core = Core(policies.policy("priority"), placement.placer("topology"))
    clusters, _ = await api.list(CLUSTER_QUEUES)
    for found in clusters:
        spec = promise(found)
        if isinstance(spec, Obstacle):
            yield f"clusterqueue {found['metadata']['name']}", f"{spec.sentence}; correct it"
        else:
            core.fold(QueueChanged(0.0, spec))
    for queue in core.queues.values():
        if queue.account is not None and queue.account.fault:
            why = queue.account.fault
            yield f"clusterqueue {queue.spec.id}", f"it borrows nothing: {why}; correct its parent"
    names = {DEFAULT, *(found["metadata"]["name"] for found in clusters)}
    for found in (await api.list(QUEUES))[0]:
        meta, target = found["metadata"], target_of(found)
        if target not in names:
            yield (
                f"queue {meta['namespace']}/{meta['name']}",
                f"leads to ClusterQueue {target!r}, which does not exist: make it",
            )
