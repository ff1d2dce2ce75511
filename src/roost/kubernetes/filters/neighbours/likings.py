"""How good nodes are because of the pods there: points, relative to the other nodes.

The formulas are kube-scheduler's, for where preferences contradict each other its order is the one
that users know.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from roost.core import NodeId
from roost.kubernetes.filters.neighbours.census import Domain
from roost.kubernetes.objects.neighbours import Spread
from roost.kubernetes.objects.nodes import NodeFacts
from roost.kubernetes.objects.preferences import NEIGHBOURS, SPREAD

_HOST_NAME = "kubernetes.io/hostname"


def by_neighbours(nodes: Sequence[NodeFacts], domains: Mapping[Domain, int]) -> dict[NodeId, int]:
    """Points for being in domains that are liked, from 0 for the worst to all for the best."""
    keys = {key for key, _ in domains}
    raw = {
        node.name: sum(domains.get((key, node.labels[key]), 0) for key in keys & node.labels.keys())
        for node in nodes
    }
    least, most = min(raw.values(), default=0), max(raw.values(), default=0)
    if least == most:
        return {}
    return {
        name: NEIGHBOURS * (100 * (many - least) // (most - least)) for name, many in raw.items()
    }


def by_spread(
    nodes: Sequence[NodeFacts], spreads: Sequence[tuple[Spread, Counter[str]]]
) -> dict[NodeId, int]:
    """Points for domains with few pods; a node outside of a topology gets none.

    The more domains there are, the more a pod in one of them counts:
    sum over spreads of pods * ln(domains + 2) + (max_skew - 1).
    """
    inside = [node for node in nodes if all(one.key in node.labels for one, _ in spreads)]
    raw: Counter[NodeId] = Counter()
    for spread, counts in spreads:
        key = spread.key
        domains = {node.labels[key] for node in inside}
        size = len(inside) if key == _HOST_NAME else len(domains)
        weight = math.log(size + 2)
        many = {name: round(counts[name] * weight + spread.max_skew - 1) for name in domains}
        for node in inside:
            raw[node.name] += many[node.labels[key]]
    most, least = max(raw.values(), default=0), min(raw.values(), default=0)
    found = {node.name: 0 for node in nodes}
    for name, value in raw.items():
        found[name] = SPREAD * (100 * (most + least - value) // most if most else 100)
    return found
