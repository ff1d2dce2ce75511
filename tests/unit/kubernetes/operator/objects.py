"""Objects as an API server has them, and a cluster of such without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roost import placement, policies
from roost.core import Action, Core, Woke
from roost.kubernetes.client.kinds import NODES, PODS, Object, ResourceKind
from roost.kubernetes.filters import NODE_FILTERS
from roost.kubernetes.operator.loop import pod_sources
from roost.kubernetes.operator.reconciler import Reconciler
from roost.kubernetes.operator.scope import NamespaceScope
from roost.kubernetes.operator.workload import SourceFactory

SPACE = "lab"


def node(name: str, gpus: int = 8, *, ready: bool = True, **spec: Any) -> Object:
    """A node."""
    status = "True" if ready else "False"
    offers = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {"allocatable": offers, "conditions": [{"type": "Ready", "status": status}]},
    }


def pod(name: str, gpus: int = 1, *, scheduler: str = "roost", **given: Any) -> Object:
    """A pod; ``node`` is where it is bound, ``phase`` how far it is."""
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "1"}
    spec = {"schedulerName": scheduler, "containers": [{"resources": {"limits": limits}}]}
    if "node" in given:
        spec["nodeName"] = given.pop("node")
    status = {"phase": given.pop("phase", "Pending")}
    spec |= given.pop("spec", {})
    metadata = {"name": name, "namespace": SPACE, "uid": given.pop("uid", f"uid-{name}")}
    return {"metadata": metadata | given, "spec": spec, "status": status}


def gang(name: str, size: int, **given: Any) -> list[Object]:
    """Pods that say that they belong together."""
    notes = {"roost.dev/group": name, "roost.dev/group-size": str(size)}
    return [pod(f"{name}-{n}", annotations=dict(notes), **given) for n in range(size)]


class Cluster:
    """A cluster of plain objects, folded into a core; nobody makes requests."""

    def __init__(
        self,
        *given: Object,
        sources: Sequence[SourceFactory] = (),
        objects: Mapping[ResourceKind, dict[tuple[str, str], Object]] | None = None,
        scope: NamespaceScope | None = None,
        placer: str = "consolidate",
    ) -> None:
        self.objects: dict[ResourceKind, dict[tuple[str, str], Object]] = {NODES: {}, PODS: {}}
        self.objects |= objects or {}
        for one in given:
            self.objects[_kind(one)][_key(one)] = one
        self.time = 1000.0
        self.reconciler = Reconciler(
            policies.policy("priority"),
            placement.placer(placer),
            lambda kind: self.objects.get(kind, {}),
            lambda: self.time,
            [*sources, *pod_sources()],
            filters=NODE_FILTERS,
            scope=scope,
        )
        self.reconciler.begin()
        while not self.reconciler.settled:
            self.reconciler.settle(100)

    @property
    def core(self) -> Core:
        """Its core."""
        return self.reconciler.core

    def decide(self) -> list[Action]:
        """Fold what is left and let the core decide; actions are performed, without requests."""
        self.core.fold(Woke(self.reconciler.now()))
        self.reconciler.settle(100)
        actions = self.core.handle()
        for action in actions:
            self.reconciler.workloads[action.run.job].perform(action)
        return actions

    def put(self, *objects: Object) -> None:
        """Objects came or changed."""
        for one in objects:
            kind, key = _kind(one), _key(one)
            old = self.objects[kind].get(key)
            self.objects[kind][key] = one
            self.reconciler.observe(kind, old, one)

    def remove(self, *objects: Object) -> None:
        """Objects are gone."""
        for one in objects:
            self.reconciler.observe(_kind(one), self.objects[_kind(one)].pop(_key(one)), None)


def _kind(one: Object) -> ResourceKind:
    return NODES if "allocatable" in one["status"] else PODS


def _key(one: Object) -> tuple[str, str]:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]
