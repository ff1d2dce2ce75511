"""Objects as small as mirrors can keep them.

Managed fields, images of nodes and what containers run are most of the bytes, and placing needs
none of them. Parts that are equal become one object: of ten thousand pods most carry the same
tolerations, resources and labels. So mirrored objects are never changed, and writes are patches:
replacing an object by a mirrored one would lose what was left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from sys import intern
from typing import Any

from roost.kubernetes.client import kinds
from roost.kubernetes.client.kinds import NODES, PODS, Object, ResourceKind

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OF_NODES = ("images", "volumesInUse", "volumesAttached", "daemonEndpoints")
_CONTAINERS = ("containers", "initContainers")
_OF_CONTAINERS = (
    "args",
    "command",
    "env",
    "envFrom",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "securityContext",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
)


def trim(kind: ResourceKind, found: Object) -> Object:
    """The object without what no mirror needs, changed in place."""
    meta = found["metadata"]
    meta.pop("managedFields", None)
    if kind is NODES:
        _drop_applied(meta)
        _drop(found.get("status") or {}, _OF_NODES)
    elif kind is PODS:
        _drop_applied(meta)
        spec = found.get("spec") or {}
        for name in _CONTAINERS:
            for container in spec.get(name) or ():
                _drop(container, _OF_CONTAINERS)
    return found


def _drop_applied(meta: Object) -> None:
    annotations = meta.get("annotations")
    if annotations:
        annotations.pop(_APPLIED, None)


def _drop(part: Object, names: tuple[str, ...]) -> None:
    for name in names:
        part.pop(name, None)


_META = (
    *("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"),
    *("labels", "annotations", "ownerReferences", "finalizers", "generation"),
    "deletionGracePeriodSeconds",
)
_POD_SPEC = (
    *("nodeName", "schedulerName", "priority", "preemptionPolicy", "nodeSelector", "affinity"),
    *("tolerations", "schedulingGates", "overhead", "resources", "topologySpreadConstraints"),
    *("resourceClaims", "terminationGracePeriodSeconds", "restartPolicy"),
    *("workloadRef", "schedulingGroup"),
)
_POD_STATUS = (
    *("phase", "reason", "message", "startTime", "podIP", "conditions"),
    *("containerStatuses", "initContainerStatuses", "resourceClaimStatuses"),
)
_CONTAINER = ("name", "resources", "restartPolicy")
_PORT = ("hostPort", "hostIP", "protocol")
_CONDITIONS = ("Ready", "PodScheduled", "DisruptionTarget")
_CONTAINER_STATUS = ("name", "state", "ready", "restartCount")
#: Volumes that pods do not find on every node.
_VOLUMES = frozenset(
    {"persistentVolumeClaim", "gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"}
)
#: Of objects of storage, the parts of their specs that are looked at, and of their statuses.
_STORAGE: dict[ResourceKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    kinds.VOLUME_CLAIMS: (
        (
            *("accessModes", "resources", "selector", "storageClassName", "volumeMode"),
            *("volumeName", "volumeAttributesClassName"),
        ),
        ("phase",),
    ),
    kinds.VOLUMES: (
        (
            *("accessModes", "capacity", "claimRef", "nodeAffinity", "storageClassName"),
            *("volumeMode", "volumeAttributesClassName", "csi", "awsElasticBlockStore"),
            *("gcePersistentDisk", "azureDisk", "azureFile", "cinder", "vsphereVolume"),
            "portworxVolume",
        ),
        ("phase",),
    ),
    kinds.CSI_DRIVERS: (("storageCapacity",), ()),
    kinds.CSI_NODES: (("drivers",), ()),
    kinds.VOLUME_ATTACHMENTS: (("attacher", "nodeName", "source"), ()),
}
#: Of the source of a volume, the names by which it is known.
_CSI = ("driver", "volumeHandle")
#: Annotations of others that are longer say nothing to us.
_LONGEST_NOTE, _OURS = 4096, "roost.dev/"
#: Parts longer than this are one of a kind.
_SHARED_CHARS = 2000
_MOST_SHARED = 20_000


def trimmer(kind: ResourceKind) -> Callable[[Object], Object] | None:
    """How objects of a kind are made smaller; None: they are kept as they are."""
    if kind is kinds.PODS:
        return Shared().pod
    if kind is kinds.NODES:
        return Shared().node
    if kind in _STORAGE:
        return partial(_storage, kind, Shared())
    return _without_templates if kind in kinds.GANG_OWNERS else None


class Shared:
    """Makes objects smaller, and what is equal in them one."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def pod(self, pod: Object) -> Object:
        """A pod with what placing it and seeing it end takes."""
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        small = {name: self._one(spec[name]) for name in _POD_SPEC if name in spec}
        for name in ("containers", "initContainers"):
            if spec.get(name):
                small[name] = self._one([_container(each) for each in spec[name]])
        mounts = [mount for mount in map(_mount, spec.get("volumes") or ()) if mount]
        if mounts:
            small["volumes"] = self._one(mounts)
        return self.made(pod, small, self._status(status))

    def _status(self, status: Object) -> Object:
        small = _kept(status, _POD_STATUS)
        for name in ("containerStatuses", "initContainerStatuses"):
            if name in small:
                small[name] = [_kept(each, _CONTAINER_STATUS) for each in small[name]]
        if "conditions" in small:
            small["conditions"] = self._conditions(small["conditions"])
        return small

    def _conditions(self, conditions: list[Object]) -> list[Object]:
        return [
            self._one(_kept(each, ("type", "status", "reason", "message")))
            for each in conditions
            if each.get("type") in _CONDITIONS
        ]

    def node(self, node: Object) -> Object:
        """A node with what it offers and whether it does."""
        status = node.get("status") or {}
        small = {"allocatable": self._one(status.get("allocatable") or {})}
        small["conditions"] = self._conditions(status.get("conditions") or [])
        spec = _kept(node.get("spec") or {}, ("unschedulable", "taints", "providerID"))
        return self.made(node, spec, small)

    def made(self, found: Object, spec: Object, status: Object) -> Object:
        """An object of these parts, with the metadata that is looked at."""
        meta = _kept(found["metadata"], _META)
        if "annotations" in meta:
            meta["annotations"] = _short(meta["annotations"])
        for name in ("ownerReferences", "annotations", "labels"):
            if name in meta:
                meta[name] = self._one(meta[name])
        if "namespace" in meta:
            meta["namespace"] = intern(meta["namespace"])
        made: Object = {"metadata": meta, "spec": spec, "status": status}
        for name in ("apiVersion", "kind"):
            if name in found:
                made[name] = intern(found[name])
        return made

    def _one(self, part: Any) -> Any:
        """The one object of all that are equal to this."""
        if isinstance(part, str):
            return intern(part)
        if not part or isinstance(part, int):
            return part
        key = repr(part)
        if len(key) > _SHARED_CHARS:
            return part
        if len(self._known) > _MOST_SHARED:
            self._known.clear()
        return self._known.setdefault(key, part)


def _short(notes: Object) -> Object:
    """Annotations without what is long and not Roost's: each pod may carry a quarter of a MiB."""
    return {
        name: text
        for name, text in notes.items()
        if len(text) <= _LONGEST_NOTE or name.startswith(_OURS)
    }


def _mount(volume: Object) -> Object:
    """A volume that a pod cannot have everywhere; nothing for one that it can."""
    if "ephemeral" in volume:  # of its template a claim is made
        return {"name": volume.get("name"), "ephemeral": {}}
    return volume if not _VOLUMES.isdisjoint(volume) else {}


def _container(container: Object) -> Object:
    small = _kept(container, _CONTAINER)
    ports = [_kept(port, _PORT) for port in container.get("ports") or () if port.get("hostPort")]
    return {**small, "ports": ports} if ports else small


def _kept(of: Object, names: tuple[str, ...]) -> Object:
    return {name: of[name] for name in names if name in of}


def _storage(kind: ResourceKind, shared: Shared, found: Object) -> Object:
    """An object of storage without what its drivers keep in it."""
    of_spec, of_status = _STORAGE[kind]
    spec = _kept(found.get("spec") or {}, of_spec)
    if spec.get("csi"):
        spec["csi"] = _kept(spec["csi"], _CSI)
    status = _kept(found.get("status") or {}, of_status)
    return shared.made(found, spec, status)


def _without_templates(found: Object) -> Object:
    """An owner without the templates of its pods, which say nothing of how many they are."""
    return {**found, "spec": _plain(found.get("spec") or {}), "status": _counts(found)}


def _plain(part: Any) -> Any:
    if isinstance(part, list):
        return [_plain(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {name: _plain(value) for name, value in part.items() if not _is_template(value)}


def _is_template(part: Any) -> bool:
    spec = part.get("spec") if isinstance(part, dict) else None
    return isinstance(spec, dict) and "containers" in spec


def _counts(found: Object) -> Object:
    return _kept(found.get("status") or {}, ("succeeded", "failed", "active"))
