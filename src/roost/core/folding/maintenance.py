"""Maintenance of nodes, folded into the state: it is planned, begins, ends or is cancelled.

Time arrives with events: whatever event comes at or after the beginning of a window drains its
node, and whatever comes at or after its end lets the node be used again.
"""

from __future__ import annotations

import math

from roost.core.cluster_state import ClusterState
from roost.core.events import (
    MaintenanceCancelled,
    MaintenancePlanned,
    NodeCordoned,
    NodeUncordoned,
)
from roost.core.folding import nodes
from roost.core.node import Notice, Window
from roost.errors import Conflict, InvalidSpec, NotFound


def planned(state: ClusterState, event: MaintenancePlanned) -> bool:
    """Notes when a node is to be empty."""
    state.ledger.node(event.node)
    if not (math.isfinite(event.starts_at) and math.isfinite(event.ends_at)):
        raise InvalidSpec("maintenance has a beginning and an end")
    if event.ends_at <= max(event.starts_at, event.time):
        raise InvalidSpec("maintenance must end after it begins, and not in the past")
    for window in state.ledger.windows:
        meets = window.starts_at < event.ends_at and event.starts_at < window.ends_at
        if window.node == event.node and meets:
            raise Conflict(f"node {event.node} has other maintenance at that time: cancel it first")
    window = Window(event.node, event.starts_at, event.ends_at, event.reason, event.user)
    state.ledger.set_windows([*state.ledger.windows, window])
    return True


def cancelled(state: ClusterState, event: MaintenanceCancelled) -> bool:
    """Forgets a window; a node that is drained for it is used again."""
    for window in state.ledger.windows:
        if (window.node, window.starts_at) == (event.node, event.starts_at):
            _forget(state, window, event.time)
            return True
    raise NotFound(f"node {event.node} has no maintenance that starts then")


def pass_time(state: ClusterState) -> bool:
    """Begin and end what is due; whether something was."""
    now, due = state.now, False
    for window in list(state.ledger.windows):
        if window.ends_at <= now:
            due = True
            _forget(state, window, now)
        elif window.starts_at <= now and not window.begun:
            due = True
            others = [one for one in state.ledger.windows if one is not window]
            state.ledger.set_windows([*others, window._replace(begun=True)])
            if state.ledger.nodes[window.node].cordon is None:  # else someone took it out already
                drain = NodeCordoned(now, window.node, *_notice(window), drain=True)
                nodes.node_cordoned(state, drain)
    return due


def _forget(state: ClusterState, window: Window, now: float) -> None:
    state.ledger.set_windows([one for one in state.ledger.windows if one is not window])
    cordon = state.ledger.nodes[window.node].cordon
    ours = isinstance(cordon, Notice) and (cordon.reason, cordon.user) == _notice(window)
    if window.begun and ours:
        nodes.node_uncordoned(state, NodeUncordoned(now, window.node))


def _notice(window: Window) -> tuple[str, str]:
    reason = f": {window.reason}" if window.reason else ""
    return f"maintenance{reason}", window.user
