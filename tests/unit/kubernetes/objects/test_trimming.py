"""What mirrors leave out of the objects of each kind."""

from __future__ import annotations

from typing import Any

from roost.kubernetes.client.kinds import JOBS, NODES, PODS
from roost.kubernetes.objects.trimming import trim


def test_pods_keep_what_placing_needs() -> None:
    container = {"name": "main", "image": "i", "env": [1], "args": ["x"], "resources": {"a": 1}}
    found: dict[str, Any] = {
        "metadata": {
            "name": "a",
            "managedFields": [{}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "k": "v"},
        },
        "spec": {"containers": [dict(container)], "initContainers": [dict(container)]},
    }
    kept = {"name": "main", "image": "i", "resources": {"a": 1}}
    assert trim(PODS, found) == {
        "metadata": {"name": "a", "annotations": {"k": "v"}},
        "spec": {"containers": [kept], "initContainers": [kept]},
    }


def test_nodes_lose_their_images_and_other_kinds_keep_their_annotations() -> None:
    node: dict[str, Any] = {"metadata": {"name": "n"}, "status": {"images": [1], "capacity": {}}}
    assert trim(NODES, node) == {"metadata": {"name": "n"}, "status": {"capacity": {}}}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    job: dict[str, Any] = {"metadata": {"annotations": applied}, "spec": {"images": 1}}
    assert trim(JOBS, job)["metadata"]["annotations"] == applied
