"""What users may set of the pods of their job, checked once more where the pods are made.

The schema of a Job refuses the rest already. But an object may be older than the schema, or come
from a server on which it was changed: what is not named here never reaches a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roost.errors import InvalidSpec
from roost.kubernetes.autoscaling.disruption import STAY

#: Where volumes may come from; never from the machine that a pod is on.
_SOURCES = frozenset({"persistentVolumeClaim", "configMap", "secret", "emptyDir", "ephemeral"})
_MOUNT = frozenset({"name", "mountPath", "subPath", "readOnly"})
_ACCOUNTS = ("runAsUser", "runAsGroup", "fsGroup")
_IDENTITY = frozenset(
    {*_ACCOUNTS, "runAsNonRoot", "fsGroupChangePolicy", "supplementalGroups", "seccompProfile"}
)
_PULLS = frozenset({"Always", "IfNotPresent", "Never"})
#: Folders of the container that are Roost's or the kernel's.
_TAKEN = ("/roost", "/proc", "/sys", "/dev")


@dataclass(frozen=True, slots=True)
class PodOverrides:
    """The part of a pod that is its user's."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    #: Fields of the pod's spec, as Kubernetes spells them.
    pod: Mapping[str, Any] = field(default_factory=dict)
    volumes: tuple[Mapping[str, Any], ...] = ()
    mounts: tuple[Mapping[str, Any], ...] = ()
    pull_policy: str = ""


def pod_overrides(given: Mapping[str, Any]) -> PodOverrides:
    """What of ``spec.pod`` may reach a pod; raises InvalidSpec for anything else in it."""
    parts: dict[str, Any] = {}
    pod: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("labels", "annotations"):
            parts[name] = _keys(name, value)
        elif name == "volumes":
            parts[name] = tuple(_volume(one) for one in value)
        elif name == "volumeMounts":
            parts["mounts"] = tuple(_mount(one) for one in value)
        elif name == "imagePullPolicy":
            parts["pull_policy"] = _pull_policy(value)
        elif name in _POD:
            pod[name] = _POD[name](value)
        else:
            raise InvalidSpec(f"pod.{name}: this cannot be set of a job's pods")
    return PodOverrides(pod=pod, **parts)


def _keys(field_: str, given: Any) -> dict[str, str]:
    for key in _mapping(f"pod.{field_}", given):
        prefix, slash, _ = key.partition("/")
        owned = prefix == "roost.dev" or prefix.endswith((".roost.dev", "kubernetes.io", "k8s.io"))
        if slash and owned and not (field_ == "annotations" and key in STAY):
            raise InvalidSpec(f"pod.{field_}: {key} is not for users to set")
    return {key: str(value) for key, value in given.items()}


def _volume(given: Any) -> Mapping[str, Any]:
    volume = _mapping("pod.volumes", given)
    name, sources = str(volume.get("name", "")), set(volume) - {"name"}
    if name.startswith("roost-"):
        raise InvalidSpec(f"pod.volumes: the name {name!r} is Roost's own")
    if len(sources) != 1 or not sources <= _SOURCES:
        raise InvalidSpec(
            f"pod.volumes: {name!r} must be exactly one of {', '.join(sorted(_SOURCES))}"
        )
    return volume


def _mount(given: Any) -> Mapping[str, Any]:
    mount = _mapping("pod.volumeMounts", given)
    if odd := set(mount) - _MOUNT:
        raise InvalidSpec(f"pod.volumeMounts: {min(odd)} cannot be set")
    path = str(mount.get("mountPath", ""))
    shared = path == "/dev/shm"  # noqa: S108 - of the pod
    taken = any(path == one or path.startswith(f"{one}/") for one in _TAKEN) and not shared
    if not path.startswith("/") or path.strip("/") == "" or ".." in path.split("/") or taken:
        raise InvalidSpec(f"pod.volumeMounts: nothing can be mounted at {path!r}")
    return mount


def _affinity(given: Any) -> Mapping[str, Any]:
    if set(_mapping("pod.affinity", given)) - {"nodeAffinity"}:
        raise InvalidSpec("pod.affinity: only nodeAffinity is understood")
    return dict(given)


def _identity(given: Any) -> Mapping[str, Any]:
    identity = _mapping("pod.securityContext", given)
    if odd := set(identity) - _IDENTITY:
        raise InvalidSpec(f"pod.securityContext: {min(odd)} cannot be set")
    for name in _ACCOUNTS:
        number = identity.get(name, 1)
        if not isinstance(number, int) or number < 1:
            raise InvalidSpec(f"pod.securityContext: {name} must be at least 1, got {number!r}")
    profile = identity.get("seccompProfile") or {"type": "RuntimeDefault"}
    if profile.get("type") not in ("RuntimeDefault", "Localhost"):
        raise InvalidSpec("pod.securityContext: system calls cannot be left unconfined")
    return identity


def _priority_class(given: Any) -> str:
    name = _text(given)
    if name.startswith("system-"):
        raise InvalidSpec(f"pod.priorityClassName: {name} is for the cluster's own pods")
    return name


def _pull_policy(given: Any) -> str:
    if given not in _PULLS:
        raise InvalidSpec(f"pod.imagePullPolicy: one of {', '.join(sorted(_PULLS))}")
    return str(given)


def _mapping(field_: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidSpec(f"{field_}: expected a mapping")
    return given


def _list(given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise InvalidSpec("pod: expected a list")
    return given


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise InvalidSpec("pod: expected a name")
    return given


#: Fields of a pod's spec that are handed on as they are, and how each is checked.
_POD: dict[str, Callable[[Any], Any]] = {
    "nodeSelector": lambda given: dict(_mapping("pod.nodeSelector", given)),
    "tolerations": _list,
    "affinity": _affinity,
    "imagePullSecrets": _list,
    "runtimeClassName": _text,
    "serviceAccountName": _text,
    "priorityClassName": _priority_class,
    "securityContext": _identity,
}
