"""Why a pool has no node, in words: what keeps each node out of it, counted.

Of several things that keep a node out, the first that ``constraints`` looks at is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from roost.core.reasons import NO_MATCH
from roost.kubernetes.objects.constraints import Constraints, selects, tolerated
from roost.kubernetes.objects.nodes import NodeFacts

_MOST, _LONGEST = 3, 100
_CLOSED = "not ready or closed"


def mismatch(constraints: Constraints, nodes: Iterable[NodeFacts]) -> str:
    """Why none of these nodes will do."""
    found = Counter(_obstacle(constraints, node) for node in nodes)
    if not found:
        return "the cluster has no nodes"
    told = [f"{what} ({_nodes(count)})" for what, count in found.most_common(_MOST)]
    left = found.total() - sum(count for _, count in found.most_common(_MOST))
    more = f", other obstacles ({_nodes(left)})" if left else ""
    return f"{NO_MATCH}: {', '.join(told)}{more}"


def _obstacle(asked: Constraints, node: NodeFacts) -> str:
    if not node.usable:
        return _CLOSED
    if node.name in asked.shunned:
        return "avoided for now, after failures"
    return (
        _device_obstacle(asked.devices, node)
        or _taint_obstacle(asked, node)
        or _lack(asked, node)
        or _label_obstacle(asked, node)
        or _CLOSED  # barred, whatever it is like
    )


def _taint_obstacle(asked: Constraints, node: NodeFacts) -> str:
    for taint in node.taints:
        if not tolerated(taint, asked.tolerations):
            mark = f"{taint.key}={taint.value}" if taint.value else taint.key
            return f"taint {_short(f'{mark}:{taint.effect}')} not tolerated"
    return ""


def _lack(asked: Constraints, node: NodeFacts) -> str:
    for name, least in asked.offers:
        if node.offers.get(name, 0) < least:
            return f"no {_short(name)}" if least == 1 else f"fewer than {least:,} {_short(name)}"
    return ""


def _label_obstacle(asked: Constraints, node: NodeFacts) -> str:
    for key, value in asked.selector:
        if node.labels.get(key) != value:
            return f"label {_short(f'{key}={value}')} missing"
    return "" if selects(asked)(node) else "node affinity not met"


def _device_obstacle(devices: str, node: NodeFacts) -> str:
    if devices == "whole" and not node.whole:
        return "GPUs given out in shares only"
    if devices in ("split", "sized") and not node.split:
        return "no GPUs given out in shares"
    return "memory of its GPUs unknown" if devices == "sized" and not node.sized else ""


def _nodes(count: int) -> str:
    return f"{count:,} node{'' if count == 1 else 's'}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
