"""Mirrored objects are small, and what is alike in them is one."""

from __future__ import annotations

from tests.unit.kubernetes.operator.objects import pod

from roost.kubernetes.client.kinds import BATCH_JOBS, NODES, PODS, QUEUES, VOLUMES
from roost.kubernetes.objects.needs import needs
from roost.kubernetes.objects.trimming import trimmer


def test_pods_share_what_is_alike_and_need_the_same_as_before() -> None:
    trim = trimmer(PODS)
    assert trim is not None
    first, second = (pod(name, 2, spec={"volumes": [{"emptyDir": {}}]}) for name in "ab")
    before = needs(first)
    small, other = trim(first), trim(second)
    assert small["spec"]["containers"] is other["spec"]["containers"]
    assert "volumes" not in small["spec"]
    assert needs(small) == before


def test_owners_lose_the_templates_of_their_pods_and_keep_their_numbers() -> None:
    trim = trimmer(BATCH_JOBS)
    assert trim is not None
    template = {"spec": {"containers": [{"name": "x"}]}}
    job = {"metadata": {"name": "j"}, "spec": {"parallelism": 4, "template": template}}
    assert trim(job)["spec"] == {"parallelism": 4}


def test_nodes_keep_what_they_offer() -> None:
    trim = trimmer(NODES)
    assert trim is not None
    conditions = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]
    status = {"allocatable": {"cpu": "1"}, "images": [1], "conditions": conditions}
    small = trim({"metadata": {"name": "n"}, "spec": {"podCIDR": "x"}, "status": status})
    assert small["status"]["allocatable"] == {"cpu": "1"}
    assert [one["type"] for one in small["status"]["conditions"]] == ["Ready"]


def test_pods_keep_volumes_that_are_not_everywhere() -> None:
    trim = trimmer(PODS)
    assert trim is not None
    claim = {"name": "c", "persistentVolumeClaim": {"claimName": "data"}}
    own = {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    small = trim(pod("a", spec={"volumes": [claim, {"name": "m", "configMap": {}}, own]}))
    assert small["spec"]["volumes"] == [claim, {"name": "e", "ephemeral": {}}]
    assert small["spec"]["containers"]


def test_volumes_lose_what_their_drivers_keep_in_them() -> None:
    trim = trimmer(VOLUMES)
    assert trim is not None
    source = {"driver": "d", "volumeHandle": "h", "volumeAttributes": {"secret": "x"}}
    spec = {"csi": source, "capacity": {"storage": "1Gi"}, "mountOptions": ["hard"]}
    small = trim({"metadata": {"name": "v"}, "spec": spec, "status": {"phase": "Bound", "x": 1}})
    assert small["spec"] == {
        "csi": {"driver": "d", "volumeHandle": "h"},
        "capacity": {"storage": "1Gi"},
    }
    assert small["status"] == {"phase": "Bound"}


def test_other_kinds_are_left_alone() -> None:
    assert trimmer(QUEUES) is None


def test_long_annotations_of_others_are_not_kept() -> None:
    trim = trimmer(PODS)
    assert trim is not None
    notes = {"note": "x" * 5000, "roost.dev/plan": "y" * 5000, "gpu-fraction": "0.5"}
    assert trim(pod("a", annotations=notes))["metadata"]["annotations"].keys() == {
        "roost.dev/plan",
        "gpu-fraction",
    }
