"""Whether Kueue's own controller is running: two systems that admit the same jobs would fight.

It is known by its pods, which are mirrored anyway, in the namespaces in which Kueue is installed:
in others anybody could make a pod of that name. While it is being updated there may be none.
"""

from __future__ import annotations

from collections.abc import Iterable

from roost.kubernetes.client.kinds import Object

#: Where Kueue's manifests, its chart and OpenShift's operator install it.
NAMESPACES = frozenset({"kueue-system", "openshift-kueue-operator"})
_NAME = "kueue-controller-manager-"
#: So long after its last pod it is taken to be gone.
GRACE_S = 60.0


def controls(pod: Object) -> bool:
    """Whether a pod is Kueue's controller, and runs."""
    meta = pod["metadata"]
    if meta.get("namespace") not in NAMESPACES or not str(meta["name"]).startswith(_NAME):
        return False
    return (pod.get("status") or {}).get("phase") == "Running"


def controllers(pods: Iterable[Object]) -> list[str]:
    """The pods of Kueue's controller, by namespace and name."""
    return sorted(
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods if controls(pod)
    )
