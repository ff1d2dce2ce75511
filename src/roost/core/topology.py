"""How far apart the devices of an allocation are."""

from __future__ import annotations

from collections.abc import Mapping

from roost.core.allocation import Allocation
from roost.core.spec import DOMAINS, Level, NodeId, NodeSpec


def span(allocation: Allocation, nodes: Mapping[NodeId, NodeSpec]) -> Level:
    """The smallest kind of cell that holds all devices of an allocation."""
    parts = [part for part in allocation.parts if part.gpus]
    if not parts:
        return Level.GPU
    first = nodes[parts[0].node]
    if any(part.node != first.id for part in parts):
        specs = [nodes[part.node] for part in parts]
        for level in DOMAINS:
            if first.is_within(level) and len({spec.domain(level) for spec in specs}) == 1:
                return level
        return Level.CLUSTER
    gpus = {gpu for part in parts for gpu in part.gpus}
    if len(gpus) == 1:
        return Level.GPU
    sockets = {first.socket_of(gpu) for gpu in gpus}
    return Level.SOCKET if len(sockets) == 1 else Level.NODE
