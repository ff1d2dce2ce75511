"""The function that folds each event. ``fold`` is the way in."""

from __future__ import annotations

from typing import assert_never

from roost.core.cluster_state import ClusterState
from roost.core.events import (
    Adopted,
    CancelRequested,
    Deleted,
    Event,
    Exited,
    GpuFailed,
    GpuRestored,
    MaintenanceCancelled,
    MaintenancePlanned,
    Measured,
    MigrateRequested,
    NodeChanged,
    NodeCordoned,
    NodeJoined,
    NodeLost,
    NodeUncordoned,
    PoolChanged,
    Progressed,
    Protected,
    QueueChanged,
    QueueDeleted,
    Resized,
    ResumeRequested,
    ScaleRequested,
    Shrank,
    Started,
    Submitted,
    Suspended,
    SuspendRequested,
    Woke,
)
from roost.core.folding import adoption, maintenance, nodes, reports, requests


def fold(state: ClusterState, event: Event) -> bool:  # noqa: C901, PLR0912 - one case per event
    """Fold one event; say whether it may change a decision."""
    match event:  # the most frequent ones first
        case Submitted():
            return requests.submitted(state, event)
        case Started():
            return reports.started(state, event)
        case Exited():
            return reports.exited(state, event)
        case Progressed():
            return reports.progressed(state, event)
        case Measured():
            return reports.measured(state, event)
        case Resized():
            return reports.resized(state, event)
        case Shrank():
            return reports.shrank(state, event)
        case Suspended():
            return reports.suspended(state, event)
        case Woke():
            return True
        case CancelRequested():
            return requests.cancel_requested(state, event)
        case SuspendRequested():
            return requests.suspend_requested(state, event)
        case ResumeRequested():
            return requests.resume_requested(state, event)
        case ScaleRequested():
            return requests.scale_requested(state, event)
        case MigrateRequested():
            return requests.migrate_requested(state, event)
        case Deleted():
            return requests.deleted(state, event)
        case Adopted():
            return adoption.adopted(state, event)
        case Protected():
            return adoption.protected(state, event)
        case NodeJoined():
            return nodes.node_joined(state, event)
        case NodeLost():
            return nodes.node_lost(state, event)
        case NodeChanged():
            return nodes.node_changed(state, event)
        case NodeCordoned():
            return nodes.node_cordoned(state, event)
        case NodeUncordoned():
            return nodes.node_uncordoned(state, event)
        case MaintenancePlanned():
            return maintenance.planned(state, event)
        case MaintenanceCancelled():
            return maintenance.cancelled(state, event)
        case PoolChanged():
            return nodes.pool_changed(state, event)
        case GpuFailed():
            return nodes.gpu_failed(state, event)
        case GpuRestored():
            return nodes.gpu_restored(state, event)
        case QueueChanged():
            return requests.queue_changed(state, event)
        case QueueDeleted():
            return requests.queue_deleted(state, event)
        case _:
            assert_never(event)
