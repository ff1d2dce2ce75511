"""What the world says of machines, folded into the state: nodes, devices, pools.

A run that a failure hits ends, or goes on with the workers that are left (``lifecycle``). Other
hardware and other pools disturb no run: they only matter to runs placed from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

from roost.core import lifecycle
from roost.core.allocation import Part, beyond
from roost.core.cluster_state import ClusterState
from roost.core.draining import why_it_leaves
from roost.core.events import (
    GpuFailed,
    GpuRestored,
    NodeChanged,
    NodeCordoned,
    NodeJoined,
    NodeLost,
    NodeUncordoned,
    PoolChanged,
)
from roost.core.extras import covers_extras
from roost.core.node import Node, Notice
from roost.core.spec import NodeSpec, Resources
from roost.core.state import Run, needs
from roost.core.transitions import MOVING, RunPhase
from roost.errors import Conflict


def node_joined(state: ClusterState, event: NodeJoined) -> bool:
    """Adds a node, or brings it back."""
    before = state.ledger.nodes.get(event.node.id)
    kind = None if before is None else before.spec.kind
    state.ledger.join(event.node)
    if kind not in (None, event.node.kind):
        state.regrow()  # quotas may be of one kind
    return True


def node_lost(state: ClusterState, event: NodeLost) -> bool:
    """Takes a node out of service, with what runs there."""
    lifecycle.lose(state, state.ledger.lose(event.node), event, f"node {event.node} was lost")
    return True


def node_changed(state: ClusterState, event: NodeChanged) -> bool:
    """Gives a node in service other hardware."""
    node, new = state.ledger.node(event.node.id), event.node
    if not node.here:
        raise Conflict(f"node {node.id} is not in service: it cannot change, only join")
    if node.spec == new:
        return False
    if not _grows(node.spec, new) and any(map(_in_motion, node.runs)):
        raise Conflict(f"node {node.id} cannot have less while runs there come or go")
    kind = node.spec.kind
    state.ledger.change(new, list(_booked(node)))
    if kind != new.kind:
        state.regrow()  # quotas may be of one kind
    return True


def node_cordoned(state: ClusterState, event: NodeCordoned) -> bool:
    """Lets nothing new begin on a node, and calls off what was to come there."""
    node = state.ledger.node(event.node)
    since = event.time if node.cordon is None else node.cordon.since
    notice = Notice(since, event.reason, event.user)
    if (node.cordon, node.draining) == (notice, event.drain):
        return False
    state.ledger.cordon(event.node, notice, drain=event.drain)
    for run in list(node.runs):
        _keep_off(state, run, node, event)
    return True


def _keep_off(state: ClusterState, run: Run, node: Node, event: NodeCordoned) -> None:
    """Let a run not come to a node that takes nothing new; one that works there is left alone."""
    if run.phase in (RunPhase.RESERVED, RunPhase.RECALLED):
        lifecycle.withdraw(state, run, event)
    elif run.phase is RunPhase.EXPECTING and run.target is not None:
        comes = any(part.node == node.id for part in beyond(run.target, run.allocation))
        if comes and run.leaving:  # its old place may be promised to others
            lifecycle.end(state, run, event, why_it_leaves(node))
        elif comes:
            lifecycle.call_off(state, run, event)
    elif event.drain and run.phase in (RunPhase.STARTING, RunPhase.RESUMING):
        lifecycle.end(state, run, event, why_it_leaves(node))


def node_uncordoned(state: ClusterState, event: NodeUncordoned) -> bool:
    """Lets runs begin on a node again."""
    before = state.ledger.node(event.node).cordon
    state.ledger.uncordon(event.node)
    return before is not None


def pool_changed(state: ClusterState, event: PoolChanged) -> bool:
    """Changes which nodes belong to a pool."""
    ledger = state.ledger
    if (
        ledger.members.get(event.pool) == event.nodes
        and ledger.preferred.get(event.pool, ()) == event.preferred
        and ledger.contingents.get(event.pool, ()) == event.contingents
    ):
        return False
    if event.nodes is None:
        ledger.drop_pool(event.pool)
    else:
        ledger.set_pool(event.pool, event.nodes, event.preferred, event.contingents)
    return True


def gpu_failed(state: ClusterState, event: GpuFailed) -> bool:
    """Takes a device out of service, with what runs on it."""
    notice = Notice(event.time, event.reason, event.user)
    node = state.ledger.set_health(event.node, event.gpu, healthy=False, notice=notice)
    what = f"was disabled by {event.user}" if event.user else "failed"
    reason = f": {event.reason}" if event.reason else ""
    why = f"GPU {event.gpu} of node {event.node} {what}{reason}"
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
    if not covers_extras(new.extras, old.extras):
        return False
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
