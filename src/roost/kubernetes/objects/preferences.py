"""What makes one node better than another for a pod that could go to both.

Kubernetes gives points: for each reason from 0 to 100, relative to the other nodes, times a weight.
The weights are those that kube-scheduler has by default, so that preferences that contradict each
other are settled as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from roost.core.spec import NodeId

#: How much reasons weigh: labels of nodes, taints, pods that are there, and even spread.
AFFINITY, TAINTS, NEIGHBOURS, SPREAD = 2, 3, 2, 2

#: How good each node is; only differences mean anything.
NodePoints: TypeAlias = Mapping[NodeId, int]


def groups_of(points: NodePoints) -> tuple[frozenset[NodeId], ...]:
    """Nodes with equal points together, the best first, without the last of these groups."""
    return tuple(frozenset(nodes) for _, nodes in _ranked(points)[:-1])


def stored(points: NodePoints) -> tuple[tuple[int, tuple[NodeId, ...]], ...]:
    """Points as constraints keep them; empty if all nodes are equal."""
    ranked = _ranked(points)
    return tuple((many, tuple(sorted(nodes))) for many, nodes in ranked) if ranked[1:] else ()


def _ranked(points: NodePoints) -> list[tuple[int, list[NodeId]]]:
    by_points: dict[int, list[NodeId]] = {}
    for node, many in points.items():
        by_points.setdefault(many, []).append(node)
    return sorted(by_points.items(), reverse=True)
