"""Pools: for each kind of constraints, the nodes that meet them, kept up to date.

The core knows nothing of labels and taints; it knows named sets of nodes. Nodes come and change one
at a time, and only what they change is worked out again. What the core has yet to hear of is taken
with ``changes``: however often a pool changed since, it is there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from roost.core.spec import NodeId
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.constraints import Constraints, Matches, matcher
from roost.kubernetes.objects.nodes import NodeFacts, facts_of


class _Pool(NamedTuple):
    matches: Matches
    nodes: set[NodeId]


class Pools:
    """Every pool that somebody asked for, and the nodes in it."""

    def __init__(self) -> None:
        self._facts: dict[NodeId, NodeFacts] = {}
        self._pools: dict[str, _Pool] = {}
        self._barred: set[NodeId] = set()
        self._changed: dict[str, None] = {}  # a set that keeps its order

    def __len__(self) -> int:
        return len(self._pools)

    def __contains__(self, pool: str) -> bool:
        return pool in self._pools

    def names(self) -> AbstractSet[str]:
        """The names of all pools."""
        return self._pools.keys()

    def __getitem__(self, pool: str) -> frozenset[NodeId]:
        """The nodes of a pool."""
        return frozenset(self._pools[pool].nodes)

    def add(self, constraints: Constraints) -> str:
        """The name of the pool for these constraints, which is known from now on."""
        name = constraints.name
        if name not in self._pools:
            matches = matcher(constraints)
            nodes = {
                node
                for node, facts in self._facts.items()
                if node not in self._barred and matches(facts)
            }
            self._pools[name] = _Pool(matches, nodes)
            self._changed[name] = None
        return name

    def drop(self, pool: str) -> None:
        """Forget a pool that no job needs any more."""
        self._pools.pop(pool, None)
        self._changed.pop(pool, None)

    def see(self, node: Object) -> None:
        """A node is there, or is not what it was."""
        facts = facts_of(node)
        if self._facts.get(facts.name) != facts:
            self._facts[facts.name] = facts
            self._place(facts.name)

    def forget(self, node: NodeId) -> None:
        """A node is gone."""
        self._facts.pop(node, None)
        self._place(node)

    def bar(self, node: NodeId) -> None:
        """Keep a node out of all pools, known or not, until it is unbarred."""
        self._barred.add(node)
        self._place(node)

    def unbar(self, node: NodeId) -> None:
        """Let a node back into its pools."""
        self._barred.discard(node)
        self._place(node)

    def changes(self) -> Iterator[tuple[str, frozenset[NodeId]]]:
        """The pools that are not what they were when this was last asked; each is told once."""
        while self._changed:
            name = next(iter(self._changed))
            del self._changed[name]
            yield name, self[name]

    def _place(self, node: NodeId) -> None:
        facts = None if node in self._barred else self._facts.get(node)
        for name, pool in self._pools.items():
            belongs = facts is not None and pool.matches(facts)
            if belongs == (node in pool.nodes):
                continue
            (pool.nodes.add if belongs else pool.nodes.discard)(node)
            self._changed[name] = None
