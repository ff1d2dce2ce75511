"""A core folded from the objects of a cluster, to answer questions: nothing is decided by it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from roost.core import Core
from roost.jobs.views import node_view, queue_views
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    JOBS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Object,
    ResourceKind,
)
from roost.kubernetes.gangs.discovery import GangSource
from roost.kubernetes.gateway.rows import queue_row, spec_row
from roost.kubernetes.jobs.controller import JobController
from roost.kubernetes.kueue.promises import is_of_kueue
from roost.kubernetes.kueue.source import KueueQueues
from roost.kubernetes.operator.announcement import Announcement
from roost.kubernetes.operator.loop import pod_sources
from roost.kubernetes.operator.reconciler import fold
from roost.kubernetes.operator.workload import SourceFactory
from roost.store.rows import QueueRow

Listed: TypeAlias = Mapping[ResourceKind, Iterable[Object]]

#: Kinds that tell what is where; and those that tell besides which gangs wait.
PLACED = (NODES, PODS, JOBS, QUEUES, CLUSTER_QUEUES, PRIORITY_CLASSES)
WAITING = tuple(dict.fromkeys((*PLACED, *GangSource.kinds, *KueueQueues.kinds)))


def workload_sources() -> list[SourceFactory]:
    """The same sources as the operator's."""
    return [SourceFactory(JobController.kinds, JobController), *pod_sources()]


def nodes(found: Listed) -> list[dict[str, Any]]:
    """All nodes with their devices and what is on them."""
    return [node_view(node) for node in _core(found).ledger.order]


def queues(found: Listed) -> list[dict[str, Any]]:
    """All queues with what they hold and what waits."""
    return all_queues(_core(found), found[CLUSTER_QUEUES])


def all_queues(core: Core, cluster_queues: Iterable[Object]) -> list[dict[str, Any]]:
    """Roost's queues, and Kueue's as the core has them."""
    of_kueue = [queue.spec for name, queue in core.queues.items() if is_of_kueue(name)]
    return queue_views(core, [*queue_rows(cluster_queues), *map(spec_row, of_kueue)])


def queue_rows(cluster_queues: Iterable[Object]) -> list[QueueRow]:
    """The queues that there are; without any, the one that needs no object."""
    return [queue_row(queue) for queue in cluster_queues] or [QueueRow("default")]


def _core(found: Listed) -> Core:
    policy, placer = Announcement().made()  # nothing is decided: any will do
    return fold(found, policy, placer, time.time(), workload_sources())
