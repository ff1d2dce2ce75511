"""Claims, volumes, classes and limits, as people and drivers make them.

await create(api, VOLUMES, [volume("v", labels={"zone": "a"})])
await create(api, VOLUME_CLAIMS, [claim("data", storage_class="local")])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roost.kubernetes.client.kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUME_CLAIMS,
    VOLUMES,
    Object,
    ResourceKind,
)

DRIVER, NOBODY = "csi.example.org", "kubernetes.io/no-provisioner"
BOUND = "pv.kubernetes.io/bind-completed"
#: Annotations of volumes and claims that their controller bound to each other.
BY_CONTROLLER = {"pv.kubernetes.io/bound-by-controller": "yes"}


def claim(
    name: str,
    *,
    storage_class: str = "",
    size: str = "1Gi",
    namespace: str = "default",
    volume: str = "",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A claim; one that names a volume is bound to it."""
    notes = {**(annotations or {}), **({BOUND: "yes"} if volume else {})}
    made = _object(VOLUME_CLAIMS, name, namespace=namespace, annotations=notes)
    made["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "storageClassName": storage_class,
        **({"volumeName": volume} if volume else {}),
        **spec,
    }
    made["status"] = {"phase": "Bound" if volume else "Pending"}
    return made


def volume(
    name: str,
    *,
    at: Mapping[str, str] | None = None,
    storage_class: str = "",
    size: str = "1Gi",
    claimed_by: Object | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A volume of a CSI driver that nodes with the labels ``at`` can reach."""
    made = _object(VOLUMES, name, labels=dict(labels or {}))
    if at is not None:
        tests = [{"key": k, "operator": "In", "values": [v]} for k, v in at.items()]
        terms = [{"matchExpressions": tests}]
        spec.setdefault("nodeAffinity", {"required": {"nodeSelectorTerms": terms}})
    if claimed_by is not None:
        meta = claimed_by["metadata"]
        reference = {key: meta[key] for key in ("name", "namespace", "uid") if key in meta}
        spec["claimRef"] = {"apiVersion": "v1", "kind": VOLUME_CLAIMS.kind, **reference}
        made["metadata"]["annotations"] = dict(BY_CONTROLLER)
    made["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "storageClassName": storage_class,
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": DRIVER, "volumeHandle": name},
        **spec,
    }
    made["status"] = {"phase": "Available" if claimed_by is None else "Bound"}
    return made


def storage_class(
    name: str,
    provisioner: str = DRIVER,
    *,
    waits: bool = True,
    zones: Sequence[str] = (),
    key: str = "zone",
) -> Object:
    """A class whose claims wait for their first pod, unless it says otherwise."""
    made = _object(STORAGE_CLASSES, name)
    made |= {
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
    }
    if zones:
        terms = [{"matchLabelExpressions": [{"key": key, "values": list(zones)}]}]
        made["allowedTopologies"] = terms
    return made


def csi_node(name: str, driver: str = DRIVER, count: int | None = None, uid: str = "") -> Object:
    """A node's drivers, and how many volumes it takes of this one."""
    made = _object(CSI_NODES, name)
    limit = {} if count is None else {"allocatable": {"count": count}}
    made["spec"] = {"drivers": [{"name": driver, "nodeID": name, "topologyKeys": None, **limit}]}
    if uid:
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        made["metadata"]["ownerReferences"] = [owner]
    return made


def csi_driver(name: str = DRIVER, *, counts: bool = False) -> Object:
    """A driver that says how much storage is left, or does not."""
    made = _object(CSI_DRIVERS, name)
    made["spec"] = {"attachRequired": True, "storageCapacity": counts}
    return made


def capacity(name: str, storage_class: str, size: str, at: Mapping[str, str]) -> Object:
    """So much storage of a class for nodes with these labels."""
    made = _object(STORAGE_CAPACITIES, name, namespace="default")
    nodes = {"matchLabels": dict(at)}
    return made | {"storageClassName": storage_class, "capacity": size, "nodeTopology": nodes}


def attachment(name: str, node: str, volume: str, driver: str = DRIVER) -> Object:
    """A volume that is attached to a node."""
    made = _object(VOLUME_ATTACHMENTS, name)
    source = {"persistentVolumeName": volume}
    return made | {"spec": {"attacher": driver, "nodeName": node, "source": source}}


def mounting(*claims: str) -> Object:
    """The part of a pod's spec that mounts claims."""
    return {
        "volumes": [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}}
            for number, name in enumerate(claims)
        ]
    }


def _object(kind: ResourceKind, name: str, **meta: Any) -> Object:
    given = {key: value for key, value in meta.items() if value}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **given},
    }
