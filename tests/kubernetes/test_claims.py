"""Claims of devices on a real API server, with the real controller of claims."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kubernetes.operating import bound, gang, operating, pods
from tests.kubernetes.test_claim_verdicts import twice_given
from tests.support.kubernetes.control_plane import CONTROLLERS, ControlPlane
from tests.support.kubernetes.nodes import create, node, pod, until

from roost.errors import NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Object,
    ResourceKind,
)
from roost.kubernetes.filters.claims.writing import FINALIZER
from roost.kubernetes.objects.pods import is_bound

TEMPLATES = ResourceKind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
DRIVER = "gpu.example.com"


@pytest.fixture(scope="module")
def claims_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the controller that makes claims of templates."""
    plane = ControlPlane(
        tmp_path_factory.mktemp("claims"),
        controller_manager=True,
        controllers=(*CONTROLLERS, "resourceclaim-controller"),
    )
    try:
        asyncio.run(plane.start())
    except NotFound as error:
        pytest.skip(str(error))
    yield plane
    asyncio.run(plane.stop())


@pytest.fixture
def server(claims_plane: ControlPlane, runner: asyncio.Runner) -> Iterator[Api]:
    api = runner.run(Api.connect(kubeconfig=str(claims_plane.kubeconfig)))
    yield api
    runner.run(_cleared(api))
    runner.run(api.close())


async def _cleared(api: Api) -> None:
    """Remove what a test made, in an order that lets all of it go."""
    for kind in (PODS, RESOURCE_CLAIMS, TEMPLATES, RESOURCE_SLICES, DEVICE_CLASSES, NODES):

        async def gone(kind: ResourceKind = kind) -> bool:
            there, _ = await api.list(kind)
            for one in there:
                meta = one["metadata"]
                await api.delete(kind, meta["name"], meta.get("namespace", ""), grace_s=0)
            return not there

        await until(gone)


async def devices(api: Api, **rooms: int) -> None:
    """Nodes with so many devices each."""
    expression = f'device.driver == "{DRIVER}"'
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    await create(api, DEVICE_CLASSES, [{"metadata": {"name": "gpu"}, "spec": spec}])
    await create(api, NODES, [node(name, gpus=0) for name in rooms])
    slices = [
        {
            "metadata": {"name": f"{name}-gpus"},
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {"name": f"gpu-{n}", "attributes": {"index": {"int": n}}} for n in range(room)
                ],
            },
        }
        for name, room in rooms.items()
    ]
    await create(api, RESOURCE_SLICES, slices)


def asked(count: int = 1) -> Object:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


async def template(api: Api, name: str, count: int = 1) -> None:
    meta = {"name": name, "namespace": "default"}
    await api.create(TEMPLATES, {"metadata": meta, "spec": {"spec": asked(count)}})


async def claim(api: Api, name: str, count: int = 1) -> None:
    meta = {"name": name, "namespace": "default"}
    await api.create(RESOURCE_CLAIMS, {"metadata": meta, "spec": asked(count)})


def by_template(name: str) -> Object:
    return {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": name}]}


def by_name(name: str) -> Object:
    return {"resourceClaims": [{"name": "gpus", "resourceClaimName": name}]}


async def claims(api: Api) -> list[Object]:
    return (await api.list(RESOURCE_CLAIMS))[0]


def given(found: Object) -> list[tuple[str, str]]:
    status = found.get("status") or {}
    results = (status.get("allocation") or {}).get("devices", {}).get("results", ())
    return [(one["pool"], one["device"]) for one in results]


async def told(api: Api, name: str, words: str) -> bool:
    """Whether a pod says these words of why it waits."""
    one = await api.get(PODS, name, "default")
    conditions = one["status"].get("conditions") or ()
    return any(words in (each.get("message") or "") for each in conditions)


def run(plane: ControlPlane, runner: asyncio.Runner, scenario: Any) -> None:
    async def all_of_it() -> None:
        async with operating(plane):
            await scenario

    runner.run(all_of_it())


def test_a_pod_gets_devices_and_gives_them_back(
    claims_plane: ControlPlane, server: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await devices(server, small=1, large=3)
        await template(server, "two", 2)
        await server.create(PODS, pod("first", gpus=0, **by_template("two")))
        (first,) = await until(lambda: bound(server, 1))
        assert first["spec"]["nodeName"] == "large"
        (made,) = await claims(server)
        assert len(set(given(made))) == 2
        assert made["metadata"]["finalizers"] == [FINALIZER]
        assert [one["name"] for one in made["status"]["reservedFor"]] == ["first"]
        await server.create(PODS, pod("second", gpus=0, **by_template("two")))
        await until(lambda: told(server, "second", "not the devices free"))
        await server.delete(PODS, "first", "default", grace_s=0)
        await until(lambda: bound(server, 1))
        assert not twice_given(await claims(server))

    run(claims_plane, runner, scenario())


def test_a_gang_is_placed_as_devices_are(
    claims_plane: ControlPlane, server: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await devices(server, one=1, three=3, four=4)
        await template(server, "one", 1)
        await create(server, PODS, gang("g", 8, gpus=0, **by_template("one")))
        found = await until(lambda: bound(server, 8))
        nodes = sorted(one["spec"]["nodeName"] for one in found)
        assert nodes == sorted(["one", *["three"] * 3, *["four"] * 4])
        made = await claims(server)
        assert all(given(one) for one in made)
        assert not twice_given(made)

    run(claims_plane, runner, scenario())


def test_a_gang_that_lacks_devices_holds_none(
    claims_plane: ControlPlane, server: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await devices(server, one=2)
        await template(server, "one", 1)
        await create(server, PODS, gang("g", 3, gpus=0, **by_template("one")))
        await until(lambda: told(server, "g-0", "devices"))
        await server.create(PODS, pod("alone", gpus=0, **by_template("one")))
        found = await until(lambda: bound(server, 1))
        assert [one["metadata"]["name"] for one in found if is_bound(one)] == ["alone"]
        assert sum(bool(given(one)) for one in await claims(server)) == 1

    run(claims_plane, runner, scenario())


def test_pods_share_a_claim(
    claims_plane: ControlPlane, server: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await devices(server, one=1, two=1)
        await claim(server, "shared")
        await create(server, PODS, gang("g", 4, gpus=0, **by_name("shared")))
        found = await until(lambda: bound(server, 4))
        assert len({one["spec"]["nodeName"] for one in found}) == 1
        (made,) = await claims(server)
        assert len(given(made)) == 1
        names = {one["name"] for one in made["status"]["reservedFor"]}
        assert names == {f"g-{n}" for n in range(4)}
        await server.create(PODS, pod("later", gpus=0, **by_name("shared")))
        await until(lambda: bound(server, 5))
        for one in await pods(server):
            await server.delete(PODS, one["metadata"]["name"], "default", grace_s=0)

        async def is_free() -> bool:
            (left,) = await claims(server)
            return not given(left)

        await until(is_free)

    run(claims_plane, runner, scenario())


def test_what_is_missing_is_told_and_waited_for(
    claims_plane: ControlPlane, server: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await create(server, NODES, [node("one", gpus=0)])
        await server.create(PODS, pod("p", gpus=0, **by_name("x")))
        await until(lambda: told(server, "p", "ResourceClaim 'x'"))
        await claim(server, "x")
        await until(lambda: told(server, "p", "no DeviceClass 'gpu'"))
        await server.delete(NODES, "one")
        await devices(server, one=1)
        await until(lambda: bound(server, 1))

    run(claims_plane, runner, scenario())


def test_the_next_leader_goes_on(
    claims_plane: ControlPlane, server: Api, runner: asyncio.Runner
) -> None:
    """A claim that a leader wrote for a pod that it did not bind is used, or moved."""

    async def all_of_it() -> None:
        await devices(server, one=1, two=1)
        await claim(server, "x")
        host = {"kubernetes.io/hostname": "two"}
        p = await server.create(PODS, pod("p", gpus=0, **by_name("x"), nodeSelector=host))
        by_node = {"key": "metadata.name", "operator": "In", "values": ["one"]}
        results = [{"request": "gpus", "driver": DRIVER, "pool": "one", "device": "gpu-0"}]
        consumer = {"resource": "pods", "name": "p", "uid": p["metadata"]["uid"]}
        status = {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [by_node]}]},
            },
            "reservedFor": [consumer],
        }
        await server.patch(RESOURCE_CLAIMS, "x", {"status": status}, "default", sub="status")
        async with operating(claims_plane):
            (found,) = await until(lambda: bound(server, 1))
        assert found["spec"]["nodeName"] == "two"
        (made,) = await claims(server)
        assert given(made) == [("two", "gpu-0")]

    runner.run(all_of_it())
