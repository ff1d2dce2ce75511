"""Nodes as the core knows them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from tests.unit.kubernetes.kube_objects import Object, node, some

from roost.core.spec import NodeSpec
from roost.errors import InvalidSpec
from roost.kubernetes.objects.constraints import Pools, constraints_of
from roost.kubernetes.objects.nodes import facts_of, is_open, is_ready, node_spec
from roost.kubernetes.objects.ports import EVERY_PORT

#: Of devices of every class there are as many as filters find.
EVERY_CLASS = (("deviceclass.resource.k8s.io/*", 1 << 40),)


def test_a_node_of_the_usual_sort() -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "topology.kubernetes.io/zone": "eu-1a",
    }
    offered = {"cpu": "191450m", "memory": "2097151Ki", "nvidia.com/gpu": "8", "pods": "110"}

    assert node_spec(node("h", labels=labels, allocatable=offered)) == NodeSpec(
        id="h",  # type: ignore[arg-type]
        gpus=8,
        kind="NVIDIA-H100-80GB-HBM3",
        gpu_memory_mib=81559,
        cpu_milli=191450,
        memory_mib=2047,
        zone="eu-1a",
        workers=110,
        extras=(*EVERY_CLASS, *EVERY_PORT.items(), ("pods apart/*", 1)),
        mixed=False,
    )


@pytest.mark.parametrize(
    ("offered", "gpus"),
    [
        ({}, 0),
        ({"cpu": "4"}, 0),
        ({"nvidia.com/gpu": "0"}, 0),
        ({"nvidia.com/gpu": "4"}, 4),
        ({"amd.com/gpu": "8"}, 8),
        ({"gpu.intel.com/i915": "2"}, 2),
        ({"gpu.intel.com/xe": "2"}, 2),
        ({"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "32"}, 32),
        ({"alibabacloud.com/gpu-count": "2", "alibabacloud.com/gpu-milli": "2000"}, 2),
        ({"aliyun.com/gpu-count": "2", "aliyun.com/gpu-mem": "30"}, 2),
    ],
)
def test_devices_are_counted_whoever_made_them(offered: dict[str, str], gpus: int) -> None:
    assert node_spec(node(allocatable=offered)).gpus == gpus


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ({}, "gpu"),
        ({"node.kubernetes.io/instance-type": "g4"}, "g4"),
        ({"node.kubernetes.io/instance-type": "g4", "nvidia.com/gpu.product": "T4"}, "T4"),
        ({"nvidia.com/gpu.product": "T4", "roost.dev/gpu-kind": "small"}, "small"),
        ({"alibabacloud.com/gpu-card-model": "V100M16"}, "V100M16"),
        ({"amd.com/gpu.product-name": "MI300X"}, "MI300X"),
        ({"nvidia.com/gpu.product": ""}, "gpu"),
        ({"nvidia.com/gpu.product": ["T4"]}, "gpu"),
    ],
)
def test_the_kind_of_devices(labels: dict[str, Any], kind: str) -> None:
    assert node_spec(node(labels=labels)).kind == kind


@pytest.mark.parametrize(
    ("labels", "mib"),
    [
        ({"nvidia.com/gpu.memory": "15109"}, 15109),
        ({"amd.com/gpu.vram": "192G"}, 183105),
        ({"nvidia.com/gpu.memory": "many"}, 0),
        ({"nvidia.com/gpu.memory": "-5"}, 0),
        ({"nvidia.com/gpu.memory": "1e400"}, 0),
        ({"nvidia.com/gpu.memory": "٣"}, 0),
        ({"nvidia.com/gpu.memory": "9" * 100_000}, 0),
        ({"nvidia.com/gpu.memory": None}, 0),
        ({"amd.com/gpu.vram": "NaN"}, 0),
        ({}, 0),
    ],
)
def test_a_label_that_makes_no_sense_is_as_good_as_none(labels: dict[str, Any], mib: int) -> None:
    assert node_spec(node(labels=labels)).gpu_memory_mib == mib


_ZONE, _NVIDIA = "topology.kubernetes.io/zone", "network.topology.nvidia.com"


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        ({}, ("", "", "")),
        ({_ZONE: "a"}, ("a", "", "")),
        ({_ZONE: "a", f"{_NVIDIA}/leaf": "l"}, ("a", "", "l")),
        ({_ZONE: "a", f"{_NVIDIA}/block": "b"}, ("a", "b", "")),
        ({f"{_NVIDIA}/leaf": "l", "topology.kubernetes.io/rack": "r"}, ("", "", "r")),
        ({"topology.kubernetes.io/rack": "r", "roost.dev/switch": "s"}, ("", "", "s")),
        ({f"{_NVIDIA}/spine": "s", "roost.dev/block": "b", "roost.dev/zone": ""}, ("", "b", "")),
    ],
)
def test_where_a_node_is_at_each_level(labels: dict[str, str], place: tuple[str, str, str]) -> None:
    spec = node_spec(node(labels=labels))
    assert (spec.zone, spec.block, spec.switch) == place


def test_nothing_left_is_not_without_bound() -> None:
    spec = node_spec(node(allocatable={"cpu": "0", "memory": "1Ki"}))

    assert (spec.cpu_milli, spec.memory_mib) == (1, 1)


def test_a_node_that_does_not_say_what_it_has_is_not_bounded_by_it() -> None:
    spec = node_spec({"metadata": {"name": "bare"}})

    assert (spec.gpus, spec.cpu_milli, spec.memory_mib) == (0, 0, 0)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"metadata": None},
        {"metadata": []},
        {"metadata": {"name": 3}},
        {"metadata": {"name": ""}},
        {"metadata": {"name": "n", "labels": ["a"]}},
        {"metadata": {"name": "n"}, "status": []},
        {"metadata": {"name": "n"}, "status": {"allocatable": ["cpu"]}},
        {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "lots"}}},
        {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "-1"}}},
        {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "1e9"}}},
    ],
)
def test_what_cannot_be_a_node_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        node_spec(broken)


@pytest.mark.parametrize(
    ("given", "ready", "is_open_"),
    [
        ({}, True, True),
        ({"ready": "False"}, False, True),
        ({"ready": "Unknown"}, False, True),
        ({"ready": True}, False, True),
        ({"spec": {"unschedulable": True}}, True, False),
        ({"spec": {"unschedulable": False}}, True, True),
    ],
)
def test_ready_and_open(given: dict[str, Any], ready: bool, is_open_: bool) -> None:  # noqa: FBT001
    assert (is_ready(node(**given)), is_open(node(**given))) == (ready, is_open_)


def test_a_node_without_conditions_is_not_ready() -> None:
    assert not is_ready({"metadata": {"name": "n"}})


def test_a_node_that_is_being_deleted_is_closed() -> None:
    leaving = node()
    leaving["metadata"]["deletionTimestamp"] = "2024-05-01T12:00:00Z"

    assert not is_open(leaving)


@pytest.mark.parametrize(
    ("offered", "labels", "split", "sized"),
    [
        ({"nvidia.com/gpu": "8"}, {}, True, False),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.memory": "81559"}, True, True),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.sharing-strategy": "none"}, True, False),
        (
            {"nvidia.com/gpu": "80"},
            {"nvidia.com/gpu.sharing-strategy": "time-slicing"},
            False,
            False,
        ),
        ({"nvidia.com/gpu.shared": "80"}, {"nvidia.com/gpu.memory": "81559"}, False, False),
        ({"cpu": "8"}, {"nvidia.com/gpu.memory": "81559"}, False, False),
    ],
)
def test_devices_that_can_be_shared_out(
    offered: dict[str, str],
    labels: dict[str, str],
    split: bool,  # noqa: FBT001
    sized: bool,  # noqa: FBT001
) -> None:
    facts = facts_of(node(allocatable=offered, labels=labels))

    assert (facts.split, facts.sized) == (split, sized)


def test_only_taints_that_keep_pods_away_are_facts() -> None:
    taints = [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "b", "effect": "PreferNoSchedule", "value": "x"},
        {"key": "c", "effect": "NoExecute", "value": "y"},
    ]

    assert facts_of(node(taints=taints)).taints == (
        ("a", "", "NoSchedule"),
        ("c", "y", "NoExecute"),
    )


def test_facts_leave_out_labels_that_are_no_texts() -> None:
    assert facts_of(node(labels={"a": "1", "b": ["2"], "c": None})).labels == {"a": "1"}


@given(
    some("name", "labels", "deletionTimestamp"),
    some("taints", "unschedulable"),
    some("allocatable", "conditions"),
    some("cpu", "memory", "nvidia.com/gpu", "amd.com/gpu", "pods"),
    some("nvidia.com/gpu.memory", "nvidia.com/gpu.product", "roost.dev/switch"),
)
def test_nothing_but_a_refusal_comes_of_nonsense(
    metadata: Object, spec: Object, status: Object, offered: Object, labels: Object
) -> None:
    pools = Pools()
    pools.add(constraints_of({"nodeSelector": {"a": "b"}}))
    for one in (
        {"metadata": metadata, "spec": spec, "status": status},
        node(allocatable=offered, labels=labels, spec=spec),
    ):
        for read in (node_spec, facts_of, is_ready, is_open, pools.see):
            with suppress(InvalidSpec):
                read(one)


def test_a_node_counts_all_else_that_it_offers_by_name() -> None:
    offered = {
        "cpu": "8",
        "pods": "110",
        "nvidia.com/gpu": "1",
        "nvidia.com/mig-1g.5gb": "7",
        "rdma/hca": "0",
        "hugepages-2Mi": "4Mi",
        "ephemeral-storage": "1536",
    }
    found = node_spec(node(allocatable=offered))

    assert found.extras == (
        *EVERY_CLASS,
        ("ephemeral-storage", 1536),
        ("host port SCTP/*", 1000),
        ("host port TCP/*", 1000),
        ("host port UDP/*", 1000),
        ("hugepages-2Mi", 4 << 20),
        ("nvidia.com/mig-1g.5gb", 7),
        ("pods apart/*", 1),
    )
    assert node_spec(node("n1", allocatable=offered)).extras is found.extras


def test_where_an_agent_gives_out_devices_whole_and_shared_are_beside_each_other() -> None:
    offered = {"nvidia.com/gpu": "4", "roost.dev/shared-gpu": "192"}
    made = node("a", allocatable=offered)
    assert (node_spec(made).gpus, node_spec(made).mixed) == (4, True)
    assert ("roost.dev/shared-gpu", 192) in node_spec(made).extras
    assert (facts_of(made).whole, facts_of(made).split) == (True, True)
    for said, mixed in (("shares", False), ("whole", False), ("both", True)):
        labelled = node("a", allocatable=offered, labels={"roost.dev/gpus-as": said})
        assert node_spec(labelled).mixed is mixed
    away = node("a", allocatable={"nvidia.com/gpu": "0", "roost.dev/shared-gpu": "0"})
    assert (node_spec(away).gpus, node_spec(away).mixed) == (0, True)


@pytest.mark.parametrize(("said", "gpus"), [("4", 4), ("50", 40), ("x", 40), ("", 40)])
def test_of_several_places_on_each_gpu_there_are_fewer_gpus(said: str, gpus: int) -> None:
    offered = {"nvidia.com/gpu": "40", "roost.dev/shared-gpu": "192"}
    made = node("a", allocatable=offered, labels={"roost.dev/gpu-count": said})
    assert node_spec(made).gpus == gpus
