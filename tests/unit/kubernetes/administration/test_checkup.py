"""Faults of a cluster that is played, each told in one line with what to do."""

from __future__ import annotations

import asyncio
import copy
from typing import Any, cast

import pytest
from tests.unit.kubernetes.operator.objects import node

from roost.errors import NotFound, Retryable
from roost.kubernetes.administration.checkup import ClusterCheckup, checkup
from roost.kubernetes.administration.installed import DEFINITIONS
from roost.kubernetes.administration.meeting_reach import NETWORK_POLICIES
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.faults import Unpermitted
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    DEVICE_CLASSES,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Object,
    ResourceKind,
)
from roost.kubernetes.crds import definitions
from roost.kubernetes.operator.announcement import Announcement

#: ``list`` is a method below.
Lines = list[str]
Page = tuple[list[Object], str]


class Played:
    """As much of an API server as looking around takes; all is well with it."""

    def __init__(self) -> None:
        kinds = (
            *(CLUSTER_QUEUES, JOBS, LEASES, NAMESPACES, NODES, PODS, QUEUES, NETWORK_POLICIES),
            *(DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES),
        )
        self.objects: dict[ResourceKind, list[Object]] = {kind: [] for kind in kinds}
        self.definitions = {one["metadata"]["name"]: one for one in copy.deepcopy(definitions())}
        self.git = "v1.34.4"
        self.closed: set[ResourceKind] = set()
        self.webhook = ""

    async def version(self) -> Object:
        return {"gitVersion": self.git}

    async def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        del namespace
        assert kind is DEFINITIONS
        if name not in self.definitions:
            raise NotFound(name)
        return self.definitions[name]

    async def list(self, kind: ResourceKind, *_: Any, **__: Any) -> Page:
        if kind in self.closed:
            raise Unpermitted("list", kind.resource)
        return self.objects[kind], "1"

    async def create(self, kind: ResourceKind, body: Object, *_: Any, **given: Any) -> Object:
        assert given == {"is_rehearsal": True}
        if self.webhook:
            raise Retryable(
                f'create {kind.plural}: failed calling webhook "{self.webhook}": late', 1.0
            )
        return body

    def found(self) -> ClusterCheckup:
        return asyncio.run(checkup(cast("Api", self), "roost-system"))

    def told(self) -> Lines:
        return [str(fault) for fault in self.found().faults]


@pytest.fixture
def played() -> Played:
    return Played()


def lease(namespace: str, *, noted: str = "2026-01-01T00:00:00Z", **said: Any) -> Object:
    meta = Announcement(**said).metadata()
    meta |= {"namespace": namespace, "name": "roost-operator", "managedFields": [{"time": noted}]}
    spec = {"holderIdentity": "one", "renewTime": "2026-01-01T00:00:00.500000Z"}
    return {"metadata": meta, "spec": spec}


def queue(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


def test_a_cluster_with_which_all_is_well_has_no_faults(played: Played) -> None:
    played.objects[NODES] = [node("n1")]
    played.objects[LEASES] = [lease("roost-system")]
    assert played.found() == ClusterCheckup([], [])


@pytest.mark.parametrize("git", ["v1.28.15", "v1.9.0", "v1.28.3-eks-1", "v1.28+"])
def test_an_old_cluster_is_told(played: Played, git: str) -> None:
    played.git = git
    (line,) = played.told()
    assert line == f"Kubernetes  is {git}; Roost needs 1.29 or newer: upgrade the cluster"


@pytest.mark.parametrize("git", ["v1.29.0", "v1.30.1-gke.5", "v2.0.0", "", "next"])
def test_a_new_one_is_not(played: Played, git: str) -> None:
    played.git = git
    assert played.told() == []


def test_a_definition_that_is_missing(played: Played) -> None:
    del played.definitions["queues.roost.dev"]
    assert played.told() == ["definition queues.roost.dev  is missing: roost kubernetes upgrade"]


def test_a_definition_of_another_version_names_the_field(played: Played) -> None:
    (version,) = played.definitions["jobs.roost.dev"]["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["within"]
    (line,) = played.told()
    assert line == (
        "definition jobs.roost.dev  is of another version: spec.within is missing; "
        "roost kubernetes upgrade"
    )
    spec["later"] = {"type": "string"}
    (line,) = played.told()
    assert "spec.within is missing and 1 more" in line


def test_what_is_prose_or_says_nothing_is_no_difference(played: Played) -> None:
    (version,) = played.definitions["queues.roost.dev"]["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    schema["description"] = "Another sentence."
    schema["properties"]["spec"]["nullable"] = False
    assert played.told() == []


def test_a_webhook_that_does_not_answer(played: Played) -> None:
    played.webhook = "pods.example.org"
    (told,) = played.told()
    assert told == (
        "webhook pods.example.org  does not answer, so that no jobs.roost.dev and no pods can be "
        "made: repair what serves it or delete its configuration (late)"
    )


def test_labels_of_nodes_that_contradict(played: Played) -> None:
    wrong, odd, blind, bad = (node(f"n{n}") for n in range(4))
    wrong["metadata"]["labels"]["roost.dev/gpus-as"] = "half"
    odd["metadata"]["labels"] |= {
        "roost.dev/gpus-as": "shares",
        "nvidia.com/gpu.sharing-strategy": "mps",
    }
    blind["metadata"]["annotations"] = {"roost.dev/others": "cpu"}
    bad["status"]["allocatable"]["nvidia.com/gpu"] = "many"
    played.objects[NODES] = [wrong, odd, blind, bad]
    told = played.told()
    assert len(told) == 4
    assert "is 'half', and means nothing: say whole, shares or both" in told[0]
    assert "labels contradict each other" in told[1]
    assert "roost.dev/others: 'cpu' is no amount" in told[2]
    assert told[3].startswith("node n3  cannot be used: nvidia.com/gpu must be a quantity")


def test_what_the_agent_of_a_node_says_is_told(played: Played) -> None:
    sick = node("n0")
    sick["status"]["conditions"] += [
        {"type": "GpusHealthy", "status": "False", "message": "GPU 1: Xid 79: it fell off the bus"},
        {"type": "GpuSharesHeld", "status": "True", "message": "shares of GPUs are held"},
    ]
    played.objects[NODES] = [sick]
    (told,) = played.told()
    assert told == "node n0  its agent says: GPU 1: Xid 79: it fell off the bus"


def test_many_nodes_are_counted(played: Played) -> None:
    played.objects[NODES] = [node(f"n{n}") for n in range(9)]
    for one in played.objects[NODES]:
        one["metadata"]["labels"]["roost.dev/gpus-as"] = ""
    assert len(played.told()) == 6
    assert played.told()[-1] == "nodes  4 more are labelled or annotated wrongly"


def test_queues_in_a_circle_and_to_nowhere(played: Played) -> None:
    played.objects[CLUSTER_QUEUES] = [queue("a", parent="b"), queue("b", parent="a"), queue("c")]
    lost = queue("lost", clusterQueue="gone")
    lost["metadata"]["namespace"] = "lab"
    played.objects[QUEUES] = [lost]
    told = played.told()
    assert [line.partition("  ")[0] for line in told] == [
        *("clusterqueue a", "clusterqueue b", "queue lab/lost"),
    ]
    assert all("correct its parent" in line for line in told[:2])
    assert told[2].endswith("leads to ClusterQueue 'gone', which does not exist: make it")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({}, {}, "all namespaces"),
        ({"namespaces": ("a", "b")}, {"namespaces": ("b", "c")}, "namespace b"),
        ({"namespaces": ("a",)}, {}, "the same namespaces"),
        ({"namespaces": ("a",)}, {"namespaces": ("b",)}, ""),
        ({"scheduler": "roost-two"}, {}, ""),
    ],
)
def test_two_operators(played: Played, one: Any, other: Any, both: str) -> None:
    played.objects[LEASES] = [lease("x", **one), lease("y", **other)]
    told = played.told()
    assert len(told) == bool(both)
    if both:
        assert told[0] == (
            f"operators x/roost-operator and y/roost-operator  both place pods of {both}: "
            "stop one, or give each its own --namespaces"
        )
    played.objects[LEASES][0]["spec"]["holderIdentity"] = ""
    assert played.told() == []


def test_a_name_to_which_nobody_listens(played: Played) -> None:
    played.objects[LEASES] = [lease("x", scheduler="mine")]
    assert played.told() == []
    played.objects[PODS] = [{"metadata": {"name": "p"}, "status": {}}]
    (line,) = played.told()
    assert line.startswith("1 pods  ask for the scheduler roost, but the operator answers to mine")


@pytest.mark.parametrize(
    ("noted", "told"),
    [
        ("2026-01-01T00:01:00Z", "its clock is 60 s behind the API server's"),
        ("2025-12-31T23:50:00Z", "its clock is 600 s ahead of the API server's"),
    ],
)
def test_a_clock_that_is_wrong(played: Played, noted: str, told: str) -> None:
    played.objects[LEASES] = [lease("x", noted=noted)]
    (line,) = played.told()
    assert line.startswith(f"operator x/roost-operator  {told}")


def test_images_that_cannot_be_pulled(played: Played) -> None:
    waiting = {"image": "roost:0.1.0", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    status = {"containerStatuses": [waiting], "initContainerStatuses": [{**waiting, "image": "t"}]}
    played.objects[PODS] = [{"metadata": {"name": "p"}, "status": status}]
    told = played.told()
    assert [line.partition("  ")[0] for line in told] == ["image roost:0.1.0", "image t"]


def test_what_may_not_be_looked_at_is_told_and_the_rest_is_looked_at(played: Played) -> None:
    played.closed = {NODES, NETWORK_POLICIES}
    played.objects[LEASES] = [lease("x"), lease("y")]
    found = played.found()
    assert found.unseen == ["nodes", "networkpolicies.networking.k8s.io"]
    assert len(found.faults) == 1


def test_a_server_that_fails_is_one_line(played: Played) -> None:
    async def failing() -> Object:
        raise Retryable("get version: no answer in time", 1.0)

    played.version = failing  # type: ignore[method-assign]
    assert played.told() == ["the API server  get version: no answer in time; try again"]


def resource_claim(name: str, *requests: Object, **status: Any) -> Object:
    meta = {"namespace": "lab", "name": name}
    return {"metadata": meta, "spec": {"devices": {"requests": list(requests)}}, "status": status}


def exactly(device_class: str, *expressions: str) -> Object:
    selectors = [{"cel": {"expression": one}} for one in expressions]
    return {"name": "r", "exactly": {"deviceClassName": device_class, "selectors": selectors}}


def test_claims_that_nothing_can_fill_are_told(played: Played) -> None:
    mine = 'device.driver == "gpu.example.com"'
    own = [{"cel": {"expression": mine}}]
    played.objects[DEVICE_CLASSES] = [
        {"metadata": {"name": "gpu"}, "spec": {"selectors": own}},
        {"metadata": {"name": "any"}, "spec": {}},
    ]
    choice = {
        "name": "r",
        "firstAvailable": [exactly("none")["exactly"], {"deviceClassName": "any"}],
    }
    gone = "device.driver == 'net.example.com' && true"
    played.objects[RESOURCE_CLAIMS] = [
        resource_claim("fine", exactly("any"), choice),
        resource_claim("either", exactly("gpu", 'device.driver == "x" || ' + mine)),
        resource_claim("given", exactly("none"), allocation={"devices": {}}),
        resource_claim("classless", exactly("none")),
        resource_claim("driverless", exactly("any"), exactly("any", gone)),
        resource_claim("waits", exactly("gpu")),
        resource_claim("odd", {"exactly": "gpu"}),
    ]
    played.objects[RESOURCE_SLICES] = [{"spec": {"driver": "gpu.example.com"}}]
    absent = "asks for devices of driver net.example.com, of which no node has any"
    assert [line.partition(": ")[0] for line in played.told()] == [
        "resourceclaim lab/classless  names DeviceClass 'none', which does not exist",
        f"resourceclaim lab/driverless  {absent}",
        "resourceclaim lab/odd  cannot be read",
    ]

    played.objects[RESOURCE_SLICES] = []
    assert any(
        "lab/waits  asks for devices of driver gpu.example" in line for line in played.told()
    )
    played.objects[RESOURCE_CLAIMS] *= 3
    assert played.told()[-1] == "resourceclaims  10 more wait for what is not there"
