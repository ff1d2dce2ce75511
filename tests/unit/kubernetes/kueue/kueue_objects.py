"""Objects of Kueue, and a cluster that has some."""

from __future__ import annotations

from typing import Any

from tests.unit.kubernetes.operator.objects import SPACE, Cluster, pod

from roost.kubernetes.client.kinds import (
    KUEUE_CLUSTER_QUEUES,
    KUEUE_COHORTS,
    KUEUE_FLAVORS,
    KUEUE_LOCAL_QUEUES,
    KUEUE_PRIORITY_CLASSES,
    NODES,
    Object,
    ResourceKind,
)

GPUS = "nvidia.com/gpu"
CLUSTER_QUEUE, LOCAL_QUEUE = KUEUE_CLUSTER_QUEUES[0], KUEUE_LOCAL_QUEUES[0]
FLAVOR, COHORT, CLASS = KUEUE_FLAVORS[0], KUEUE_COHORTS[0], KUEUE_PRIORITY_CLASSES[0]
ANY = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


def promise(nominal: object, borrowing: object = None, lending: object = None) -> Object:
    """What a flavour promises of one resource."""
    given = {"nominalQuota": nominal, "borrowingLimit": borrowing, "lendingLimit": lending}
    return {name: value for name, value in given.items() if value is not None}


def group(**flavours: dict[str, Object]) -> Object:
    """A group of resources: by flavour what it promises of each."""
    covered = list(dict.fromkeys(name for each in flavours.values() for name in each))
    return {
        "coveredResources": covered,
        "flavors": [
            {"name": name, "resources": [{"name": one, **given} for one, given in each.items()]}
            for name, each in flavours.items()
        ],
    }


def cluster_queue(name: str, *groups: Object, cohort: str = "", **spec: Any) -> Object:
    """A ClusterQueue that takes all namespaces."""
    within = {"cohortName": cohort} if cohort else {}
    given = {"namespaceSelector": {}, "resourceGroups": list(groups), **within, **spec}
    return _object(name, spec=given)


def local_queue(name: str, target: str, **spec: Any) -> Object:
    """A LocalQueue."""
    return _object(name, SPACE, spec={"clusterQueue": target, **spec})


def flavour(name: str, tolerations: list[Object] | None = None, **labels: str) -> Object:
    """A ResourceFlavor; underscores of labels are dashes."""
    named = {key.replace("_", "-"): value for key, value in labels.items()}
    return _object(name, spec={"nodeLabels": named, "tolerations": tolerations or []})


def cohort(name: str, *groups: Object, **spec: Any) -> Object:
    """A Cohort."""
    return _object(name, spec={"resourceGroups": list(groups), **spec})


def rank(name: str, value: object) -> Object:
    """A WorkloadPriorityClass."""
    return {**_object(name), "value": value}


def _object(name: str, namespace: str = "", **more: Any) -> Object:
    meta = {"name": name, "uid": f"uid-{name}", "generation": 1}
    return {"metadata": {**meta, **({"namespace": namespace} if namespace else {})}, **more}


def queued(name: str, queue: str, gpus: int = 1, **given: Any) -> Object:
    """A pod in a LocalQueue."""
    labels = {"kueue.x-k8s.io/queue-name": queue, **given.pop("labels", {})}
    return pod(name, gpus, labels=labels, **given)


def world(nodes: list[Object], pods: list[Object], **given: list[Object]) -> Cluster:
    """A cluster with objects of Kueue: ``queues``, ``locals``, ``flavors``, ``cohorts``, …"""
    kinds = {
        "queues": CLUSTER_QUEUE,
        "locals": LOCAL_QUEUE,
        "flavors": FLAVOR,
        "cohorts": COHORT,
        "classes": CLASS,
    }
    there = {kinds[name]: {_key(one): one for one in found} for name, found in given.items()}
    return Cluster(*nodes, *pods, objects={kind: {} for kind in kinds.values()} | there)


def put(cluster: Cluster, kind: ResourceKind, new: Object) -> None:
    """An object of Kueue came or changed."""
    old = cluster.objects[kind].get(_key(new))
    cluster.objects[kind][_key(new)] = new
    cluster.reconciler.observe(kind, old, new)


def remove(cluster: Cluster, kind: ResourceKind, old: Object) -> None:
    """An object of Kueue is gone."""
    del cluster.objects[kind][_key(old)]
    cluster.reconciler.observe(kind, old, None)


def labelled(node: Object, **labels: str) -> Object:
    """The same node with more labels; underscores are dashes."""
    node["metadata"]["labels"] |= {key.replace("_", "-"): value for key, value in labels.items()}
    return node


def kinds_of(cluster: Cluster) -> int:
    """How many nodes there are."""
    return len(cluster.objects[NODES])


def _key(one: Object) -> tuple[str, str]:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]
