"""What the world says of machines, folded into the state: nodes, devices, pools.

A run that a failure hits ends, or goes on with the workers that are left (``lifecycle``). Other
hardware and other pools disturb no run: they only matter to runs placed from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

from roost.core import lifecycle
from roost.core.allocation import Part
from roost.core.cluster_state import ClusterState
from roost.core.events import (
    GpuFailed,
    GpuRestored,
    NodeChanged,
    NodeJoined,
    NodeLost,
    PoolChanged,
)
from roost.core.node import Node
from roost.core.spec import NodeSpec, Resources
from roost.core.state import Run, needs
from roost.core.transitions import MOVING
from roost.errors import Conflict


def node_joined(state: ClusterState, event: NodeJoined) -> bool:
    """Adds a node, or brings it back."""
    state.ledger.join(event.node)
    return True


def node_lost(state: ClusterState, event: NodeLost) -> bool:
    """Takes a node out of service, with what runs there."""
    lifecycle.lose(state, state.ledger.lose(event.node), event, f"node {event.node} was lost")
    return True


def node_changed(state: ClusterState, event: NodeChanged) -> bool:
    """Gives a node in service other hardware."""
    node, new = state.ledger.node(event.node.id), event.node
    if not node.up:
        raise Conflict(f"node {node.id} is not in service: it cannot change, only join")
    if node.spec == new:
        return False
    if not _grows(node.spec, new) and any(map(_in_motion, node.runs)):
        raise Conflict(f"node {node.id} cannot have less while runs there come or go")
    state.ledger.change(new, list(_booked(node)))
    return True


def pool_changed(state: ClusterState, event: PoolChanged) -> bool:
    """Changes which nodes belong to a pool."""
    if state.ledger.members.get(event.pool) == event.nodes:
        return False
    if event.nodes is None:
        state.ledger.drop_pool(event.pool)
    else:
        state.ledger.set_pool(event.pool, event.nodes)
    return True


def gpu_failed(state: ClusterState, event: GpuFailed) -> bool:
    """Takes a device out of service, with what runs on it."""
    node = state.ledger.set_health(event.node, event.gpu, healthy=False)
    why = f"GPU {event.gpu} of node {event.node} failed"
    lifecycle.lose(state, node, event, why, event.gpu)
    return True


def gpu_restored(state: ClusterState, event: GpuRestored) -> bool:
    """Puts a device back into service."""
    state.ledger.set_health(event.node, event.gpu, healthy=True)
    return True


def _grows(old: NodeSpec, new: NodeSpec) -> bool:
    """Whether a node has as much as before of everything; what is not counted is without end."""
    pairs = (
        (old.cpu_milli, new.cpu_milli),
        (old.memory_mib, new.memory_mib),
        (old.gpu_memory_mib, new.gpu_memory_mib),
        (old.workers, new.workers),
    )
    return new.gpus >= old.gpus and all(not now or 0 < before <= now for before, now in pairs)


def _in_motion(run: Run) -> bool:
    """Whether a run uses less or more than the books say, until it has done what it was asked."""
    return run.phase in MOVING


def _booked(node: Node) -> Iterator[tuple[Part, Resources]]:
    """What runs hold of a node in the books, and what a worker of each part needs."""
    for run in node.runs:
        if run.booked:
            for part in (run.target or run.allocation).parts:
                if part.node == node.id:
                    yield part, needs(run.job, part)
