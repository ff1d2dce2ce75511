"""Small objects as an API server would show them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Object = dict[str, Any]

#: Whatever JSON can hold, and often what almost makes sense.
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1", "0.5", "500m", "8Gi", "Always", "True", "NaN", "1e400", "\u0663"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)


def some(*fields: str) -> st.SearchStrategy[Object]:
    """An object with some of these fields, and anything in them."""
    return st.dictionaries(st.sampled_from(fields), ANYTHING, max_size=4)


def node(name: str = "n0", **given: Any) -> Object:
    """A ready node with 8 GPUs; ``labels``, ``taints``, ``allocatable``, ``spec``, ``ready``."""
    allocatable = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": given.get("labels", {})},
        "spec": {"taints": given.get("taints", []), **given.get("spec", {})},
        "status": {
            "allocatable": given.get("allocatable", allocatable),
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": given.get("ready", "True")},
            ],
        },
    }


def pod(name: str = "p0", **given: Any) -> Object:
    """A pending pod with one container; ``requests``, ``labels``, ``annotations``, ``spec``, …"""
    resources = {"requests": given.get("requests", {}), "limits": given.get("limits", {})}
    metadata: Object = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "labels": given.get("labels", {}),
        "annotations": given.get("annotations", {}),
    }
    if "owner" in given:
        api, kind, owner = given["owner"]
        metadata["ownerReferences"] = [
            {"apiVersion": api, "kind": kind, "name": owner, "uid": "o1", "controller": True}
        ]
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "resources": resources}], **given.get("spec", {})},
        "status": given.get("status", {"phase": "Pending"}),
    }
