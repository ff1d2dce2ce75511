"""What of an object is not worth keeping in memory.

Who manages which field, the images on a node, what the containers of a pod run: most of the bytes,
and nothing that placing them needs. It is left out of mirrors alone, so write back by patch, never
by replacing a mirrored object; who needs all of a pod asks for it.
"""

from __future__ import annotations

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
