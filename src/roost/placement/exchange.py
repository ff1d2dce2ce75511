"""Nodes of an arrangement in exchange for others that are as good and that a job likes better.

What a job prefers comes after all that a placer weighs: here nodes are only replaced by their like.
"""

from __future__ import annotations

from typing import TypeAlias

from roost.core.ledger import Ledger
from roost.core.node import Node
from roost.core.spec import Level, Resources

#: Nodes and how many workers each takes.
Arrangement: TypeAlias = list[tuple[Node, int]]


def exchanged(
    ledger: Ledger, need: Resources, chosen: Arrangement, groups: tuple[int, ...]
) -> Arrangement:
    """The same arrangement with every node replaced by the most preferred one of its like.

    ``groups`` are the nodes that are preferred, the best first.
    """
    taken = 0
    for node, _ in chosen:
        taken |= node.bit
    found: Arrangement = []
    for node, count in chosen:
        free = ledger.candidates(need) & ~taken & _likes(ledger, node)
        better = _better(ledger, need, (node, count), free, groups)
        taken |= better.bit
        found.append((better, count))
    return found


def _better(
    ledger: Ledger, need: Resources, held: tuple[Node, int], free: int, groups: tuple[int, ...]
) -> Node:
    """The most preferred of these nodes that can take what is on one, or that one."""
    node, count = held
    for group in groups:
        if group & node.bit:
            break
        for other in ledger.select(free & group):
            if other.spec.gpus == node.spec.gpus and ledger.room(other, need) >= count:
                return other
    return node


def _likes(ledger: Ledger, node: Node) -> int:
    """Nodes of the same switch with as many free devices."""
    levels, free = ledger.at_least, node.shown
    more = levels[free + 1] if free + 1 < len(levels) else 0
    nodes = (levels[free] if free else ledger.up) & ~more
    return nodes & ledger.switches.get(node.spec.domain(Level.SWITCH), 0)
