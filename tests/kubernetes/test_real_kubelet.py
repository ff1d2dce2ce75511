"""Jobs in real containers: the kubelet of Kubernetes with containerd, where a machine allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kubernetes.jobbing import SPACE, define, job, jobbing, pods, reaches
from tests.support.images import busybox_root, write_image
from tests.support.kubernetes.control_plane import CONTROLLERS, ControlPlane
from tests.support.kubernetes.nodes import until
from tests.support.kubernetes.real_node import NAME, NotAllowed, RealNode

from roost.errors import NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, NODES, PODS, Object, ResourceKind
from roost.kubernetes.objects.pods import is_bound, is_rejected

IMAGE = "roost.test/work:1"
SLICE = "example.com/mig-1g"
REPLICA_SETS = ResourceKind("apps", "v1", "replicasets", "ReplicaSet")
_SLOW_S = 120.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    made = ControlPlane(
        tmp_path_factory.mktemp("real"),
        kwok=False,
        controller_manager=True,
        controllers=(*CONTROLLERS, "replicaset-controller"),
    )
    try:
        asyncio.run(made.start())
    except NotFound as error:
        pytest.skip(str(error))
    yield made
    asyncio.run(made.stop())


@pytest.fixture(scope="module")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    folder = tmp_path_factory.mktemp("node")
    try:
        root = busybox_root(folder / "work", ["env", "sh", "sleep"])
        image = write_image(IMAGE, root, folder / "work.tar")
        with RealNode(plane, folder, {IMAGE: image}) as made:
            asyncio.run(_equip(plane, made))
            yield made
    except (FileNotFoundError, NotAllowed) as error:
        pytest.skip(f"no real kubelet runs on this machine: {error}")


async def _equip(plane: ControlPlane, node: RealNode) -> None:
    """Wait until the node is ready, and give it devices, as device plug-ins would."""
    path = f"/api/v1/nodes/{NAME}"

    async def ready() -> bool:
        found = (await plane.request("GET", "/api/v1/nodes"))["items"]
        told = [each for one in found for each in one["status"].get("conditions", ())]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in told)

    try:
        await until(ready, _SLOW_S)
    except TimeoutError:
        raise NotAllowed(f"the kubelet does not get ready: {node.log()[-1000:]}") from None
    found = await plane.request("GET", path)
    has = {"nvidia.com/gpu": "4", SLICE: "2"}
    for name in ("capacity", "allocatable"):
        found["status"][name] |= has
    await plane.request("PUT", f"{path}/status", found)


@pytest.fixture
def api(node: RealNode, runner: asyncio.Runner) -> Iterator[Api]:
    made = runner.run(Api.connect(kubeconfig=str(node.plane.kubeconfig)))
    runner.run(define(made))
    yield made
    runner.run(made.close())


def work(name: str, script: str, **spec: Any) -> Object:
    return job(name, **{"image": IMAGE, "command": ["/bin/sh", "-c", script], **spec})


def replica_set(name: str, replicas: int, **pod: object) -> Object:
    labels = {"app": name}
    container = {"name": "main", "image": IMAGE, "resources": {"limits": {SLICE: "1"}}}
    alone = {"terminationGracePeriodSeconds": 1, "schedulerName": "roost"}
    spec = {**alone, "containers": [container], **pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


async def of(api: Api, name: str) -> list[Object]:
    return (await api.list(PODS, SPACE, labels=f"app={name}"))[0]


def test_two_workers_run_in_containers_and_tell(
    plane: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with jobbing(plane):
            script = 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR"'
            await api.create(JOBS, work("pair", script, workers=2))
            await reaches(api, "pair", "succeeded", _SLOW_S)
            found = await pods(api, "pair")
            told = [await api.log(SPACE, one["metadata"]["name"]) for one in found]
            where = "pair-1-worker-0.roost-pair.default.svc"
            assert told == [f"{rank} of 2 at {where}\n".encode() for rank in range(2)]
            await api.delete(JOBS, "pair", SPACE)

    runner.run(story())


def test_a_worker_that_is_killed_is_tried_again(
    plane: ControlPlane, node: RealNode, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with jobbing(plane):
            await api.create(JOBS, work("dies", "exec sleep 600", retry={"max": 2}))
            await reaches(api, "dies", "running", _SLOW_S)
            (first,) = await pods(api, "dies")
            node.kill(first)
            await reaches(api, "dies", "running", _SLOW_S, attempt=2, failures=1)
            found = {one["metadata"]["name"]: one for one in await pods(api, "dies")}
            ended = found[first["metadata"]["name"]]["status"]["containerStatuses"][0]
            assert ended["state"]["terminated"]["exitCode"] == 137
            await api.delete(JOBS, "dies", SPACE)

    runner.run(story())


def test_what_a_node_has_is_not_given_twice(
    plane: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with jobbing(plane):
            await api.create(REPLICA_SETS, replica_set("slices", 4))

            async def two_run() -> list[Object]:
                found = await of(api, "slices")
                up = [one for one in found if one["status"].get("phase") == "Running"]
                return found if len(up) == 2 else []

            found = await until(two_run, _SLOW_S)
            await asyncio.sleep(3.0)
            found = await of(api, "slices")
            assert (len(found), sum(map(is_bound, found))) == (4, 2)
            assert not any(map(is_rejected, found))
            await api.delete(REPLICA_SETS, "slices", SPACE)
            await until(lambda: _gone(api, "slices"), _SLOW_S)

    runner.run(story())


def test_an_owner_whose_pods_the_kubelet_rejects_waits_longer_and_longer(
    plane: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """Only the kubelet knows that it allows no such sysctl; the owner makes pods without end."""

    async def story() -> None:
        async with jobbing(plane):
            unsafe = {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}
            body = replica_set("refused", 1, securityContext=unsafe)
            await api.create(REPLICA_SETS, body)

            async def refused() -> bool:
                return any(map(is_rejected, await of(api, "refused")))

            await until(refused, _SLOW_S)
            await asyncio.sleep(15.0)
            found = [one for one in await of(api, "refused") if is_rejected(one)]
            # After 2, 4, 8 s and so on; without a pause there would be dozens.
            assert 2 <= len(found) <= 5
            assert {one["status"]["reason"] for one in found} == {"SysctlForbidden"}
            await api.delete(REPLICA_SETS, "refused", SPACE)
            await until(lambda: _gone(api, "refused"), _SLOW_S)

    runner.run(story())


async def _gone(api: Api, name: str) -> bool:
    return not await of(api, name)


def test_the_node_is_as_the_kubelet_tells(api: Api, runner: asyncio.Runner) -> None:
    found = runner.run(api.get(NODES, NAME))
    assert found["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
