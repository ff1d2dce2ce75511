"""The nodes of a cluster, as the core has to hear of them.

A node that is cordoned, tainted or not ready stays in service for what runs there, and leaves the
pools, so that nothing new goes to it. It is lost when its object is gone, when it was declared
out of service, or when it has not been ready for ``lost_s``.

A node with books that do not add up (another scheduler was faster) is *closed*: out of all pools
until the workloads that have no room there found some.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from roost.core import (
    Core,
    Event,
    JobId,
    NodeChanged,
    NodeId,
    NodeJoined,
    NodeLost,
    NodeSpec,
    PoolChanged,
)
from roost.core.transitions import MOVING
from roost.errors import InvalidSpec, RoostError
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.constraints import Pools
from roost.kubernetes.objects.nodes import is_ready, node_spec
from roost.kubernetes.operator.scope import OTHERS, NamespaceScope

_log = logging.getLogger(__name__)

#: A node that is not ready for so long is lost with everything on it.
LOST_S = 300.0
#: Why a node is closed that has other hardware than what is in use there.
_HARDWARE = "hardware"
#: How that is called of which filters have so much on a node for one workload alone.
CLAIMED = "devices claimed by "
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class ClusterNodes:
    """Turns changes of node objects into events, and keeps the pools."""

    def __init__(
        self,
        core: Core,
        pools: Pools,
        lost_s: float = LOST_S,
        scope: NamespaceScope | None = None,
    ) -> None:
        self._core, self._pools, self._lost_s = core, pools, lost_s
        self._scope = scope or NamespaceScope()
        #: Nodes of which nobody says what pods that are not seen take there.
        self.unknown: dict[NodeId, str] = {}
        self.objects: dict[NodeId, Object] = {}
        self._dirty: dict[NodeId, None] = {}
        #: Nodes that are not ready, and since when.
        self._unready: dict[NodeId, float] = {}
        #: Closed nodes, and the workloads that closed them.
        self._closed: dict[NodeId, set[str]] = {}
        #: What is counted for a workload alone, by name; and the same by node.
        self._counts: dict[JobId, dict[str, Mapping[NodeId, int]]] = {}
        self._counted: dict[NodeId, dict[str, int]] = {}
        #: Nodes that are to have less of it as soon as that can be.
        self._late: dict[NodeId, None] = {}

    @property
    def dirty(self) -> bool:
        """Whether the core has not heard of everything yet."""
        return bool(self._dirty)

    def changed(self, old: Object | None, new: Object | None) -> None:
        """A node came, changed or is gone."""
        found = new or old
        if found is None or (new is not None and old is not None and not _differs(old, new)):
            return
        name = NodeId(found["metadata"]["name"])
        if new is None:
            self.objects.pop(name, None)
        else:
            self.objects[name] = new
        self._dirty[name] = None

    def is_gone(self, node: str) -> bool:
        """Whether no kubelet is left there that could end a pod."""
        found = self.objects.get(NodeId(node))
        return found is None or _is_out_of_service(found)

    def close(self, node: NodeId, because: str) -> None:
        """Let nothing new go to a node until ``reopen``."""
        self._closed.setdefault(node, set()).add(because)
        self._pools.bar(node)

    def reopen(self, node: NodeId, because: str) -> None:
        """One reason less to keep a node."""
        reasons = self._closed.get(node)
        if reasons is None:
            return
        reasons.discard(because)
        if not reasons:
            del self._closed[node]
            self._pools.unbar(node)

    @property
    def closed(self) -> int:
        """How many nodes are closed now."""
        return len(self._closed)

    def count(self, job: JobId, name: str, amounts: Mapping[NodeId, int]) -> None:
        """Let a workload have so much of something on each node, in place of what it had."""
        before = self._counts.get(job, {}).get(name, {})
        if before == amounts:
            return
        self._counts.setdefault(job, {})[name] = amounts
        for node in before.keys() | amounts.keys():
            amount = amounts.get(node, 0)
            if amount == before.get(node, 0):
                continue
            known = self._counted.setdefault(node, {})
            known.pop(name, None)
            if amount:
                known[name] = amount
            self._dirty[node] = None

    def forget_counts(self, job: JobId) -> None:
        """A workload is no more."""
        for name in list(self._counts.get(job, ())):
            self.count(job, name, {})
        self._counts.pop(job, None)

    def events(self, now: float) -> Iterator[Event]:
        """What the core has to hear of nodes; each before its pools."""
        dirty, self._dirty = self._dirty, {}
        for name in dirty:
            try:
                yield from self._of(name, now)
            except InvalidSpec as error:
                _log.warning("node %s cannot be used: %s", name, error)
                yield from self._lost(name, now)

    def pools(self, now: float) -> Iterator[Event]:
        """Pools that are not what they were."""
        for pool, nodes in self._pools.changes():
            pools = self._pools
            yield PoolChanged(now, pool, nodes, pools.preferred(pool), pools.contingents(pool))

    def keep_only(self, pools: AbstractSet[str], now: float) -> Iterator[Event]:
        """Forget all other pools; the next workload that asks for one makes it anew."""
        for pool in self._pools.names() - pools:
            self._pools.drop(pool)
            yield PoolChanged(now, pool, None)

    def refused(self, event: Event, error: RoostError) -> None:
        """The core does not take a change of a node now: it is asked again at the next one."""
        if isinstance(event, NodeChanged | NodeJoined):
            _log.warning("node %s: %s", event.node.id, error)
            self.close(event.node.id, _HARDWARE)

    def look(self, now: float) -> float | None:
        """Note nodes that were not ready for too long; says when to look again."""
        for name, reasons in self._closed.items():
            if _HARDWARE in reasons:
                self._dirty[name] = None
        self._dirty |= self._late
        self._late = {}
        due = {name: since + self._lost_s for name, since in self._unready.items()}
        for name, at in due.items():
            if at <= now and self._is_up(name):
                self._dirty[name] = None
        return min((at for at in due.values() if at > now), default=None)

    def _of(self, name: NodeId, now: float) -> Iterator[Event]:
        found = self.objects.get(name)
        if found is None:
            self._pools.forget(name)
            self._unready.pop(name, None)
            self._closed.pop(name, None)
            self._counted.pop(name, None)
            self._pools.unbar(name)
            self.unknown.pop(name, None)
            yield from self._lost(name, now)
            return
        try:
            found = self._scope.of_node(found)
        except InvalidSpec as error:
            self._leave_alone(name, error)
            return
        self.unknown.pop(name, None)
        self._pools.see(found)
        if is_ready(found):
            self._unready.pop(name, None)
        else:
            since = self._unready.setdefault(name, now)
            if now - since >= self._lost_s:
                yield from self._lost(name, now)
                return
        if _is_out_of_service(found):
            yield from self._lost(name, now)
            return
        spec = node_spec(found)
        if counted := self._counts_on(name):
            spec = replace(spec, extras=tuple(sorted((*spec.extras, *counted.items()))))
        yield from self._present(spec, now)

    def _counts_on(self, name: NodeId) -> dict[str, int]:
        """What is counted on a node for workloads; it has not less while runs come or go there."""
        counted = dict(self._counted.get(name, ()))
        known = self._core.ledger.nodes.get(name)
        if known is None or not known.here or not any(r.phase in MOVING for r in known.runs):
            return counted
        for extra, amount in known.spec.extras:
            if extra.startswith(CLAIMED) and counted.get(extra, 0) < amount:
                counted[extra] = amount
                self._late[name] = None
        return counted

    def _leave_alone(self, name: NodeId, error: InvalidSpec) -> None:
        """Let nothing go there; what runs there from before stays."""
        if self.unknown.get(name) != str(error):
            _log.warning("node %s is not used: %s", name, error)
            self.unknown[name] = str(error)
        self._pools.forget(name)
        self._unready.pop(name, None)

    def _present(self, spec: NodeSpec, now: float) -> Iterator[Event]:
        self.reopen(spec.id, _HARDWARE)  # unless ``refused`` is called again
        known = self._core.ledger.nodes.get(spec.id)
        if known is None or not known.here:
            yield NodeJoined(now, spec)
        elif known.spec != spec:
            yield NodeChanged(now, spec)

    def _lost(self, name: NodeId, now: float) -> Iterator[Event]:
        if self._is_up(name):
            yield NodeLost(now, name)

    def _is_up(self, name: NodeId) -> bool:
        known = self._core.ledger.nodes.get(name)
        return known is not None and known.here


def _differs(old: Object, new: Object) -> bool:
    """Whether more than the heartbeat of a node changed."""
    before, after = old["metadata"], new["metadata"]
    if before.get("labels") != after.get("labels") or "deletionTimestamp" in after:
        return True
    if _others(before) != _others(after):
        return True
    if old.get("spec") != new.get("spec"):
        return True
    allocatable = (obj.get("status", {}).get("allocatable") for obj in (old, new))
    return len({repr(each) for each in allocatable}) > 1 or is_ready(old) != is_ready(new)


def _others(meta: Object) -> object:
    return (meta.get("annotations") or {}).get(OTHERS)


def _is_out_of_service(node: Object) -> bool:
    taints = node.get("spec", {}).get("taints") or ()
    return any(taint.get("key") == _OUT_OF_SERVICE for taint in taints)
