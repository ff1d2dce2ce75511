"""Roost beside a real autoscaler: Karpenter, whose machines are nodes of KWOK.

The pool begins without a node. What asks for nodes gets as many as it needs, what a queue holds
gets none, and a node on which a gang trains stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.kubernetes.jobbing import define, job, jobbing, pretend, reaches, status
from tests.kubernetes.jobbing import pods as pods_of
from tests.kubernetes.operating import gang, pods
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.controller_programs import build_controllers
from tests.support.kubernetes.nodes import create, until
from tests.support.kubernetes.real_controllers import Karpenter
from tests.support.kubernetes.stages import LABEL

from roost.errors import Conflict, NotFound, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    JOBS,
    NODES,
    PODS,
    QUEUES,
    Object,
    ResourceKind,
)
from roost.kubernetes.objects.pods import is_bound

POOLS = ResourceKind("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
CLAIMS = ResourceKind("karpenter.sh", "v1", "nodeclaims", "NodeClaim", namespaced=False)
CLASSES = ResourceKind(
    "karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", "KWOKNodeClass", namespaced=False
)
MACHINES = {
    "gpu-4": {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "4"},
    "gpu-8": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"},
}
_TYPE = "node.kubernetes.io/instance-type"
_SLOW_S = 150.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with an autoscaler, once for this module."""
    try:
        programs = build_controllers()
    except RoostError as error:
        pytest.skip(f"the autoscaler is not built: {error}")
    folder = tmp_path_factory.mktemp("autoscaler")
    made = ControlPlane(folder / "plane")
    karpenter = Karpenter(made, folder, programs)

    async def start() -> None:
        await made.start()
        await karpenter.start(MACHINES)
        api = await Api.connect(kubeconfig=str(made.kubeconfig))
        await define(api)
        await equip(api)
        await api.close()

    try:
        asyncio.run(start())
        yield made
    except NotFound as error:
        pytest.skip(str(error))
    finally:
        karpenter.stop()
        asyncio.run(made.stop())


async def equip(api: Api) -> None:
    """A pool of no nodes, which buys machines with GPUs."""
    await api.create(CLASSES, {"metadata": {"name": "kwok"}, "spec": {}})
    template = {
        "metadata": {"labels": dict(LABEL)},
        "spec": {
            "nodeClassRef": {"group": CLASSES.group, "kind": CLASSES.kind, "name": "kwok"},
            "expireAfter": "Never",
            "requirements": [_only(MACHINES)],
        },
    }
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1s"}
    spec = {"template": template, "disruption": disruption}
    await api.create(POOLS, {"metadata": {"name": "gpus"}, "spec": spec})

    async def ready() -> bool:
        found = (await api.get(POOLS, "gpus")).get("status") or {}
        told = found.get("conditions") or ()
        return any(one["type"] == "Ready" and one["status"] == "True" for one in told)

    await until(ready, _SLOW_S)


def _only(types: Iterable[str]) -> Object:
    return {"key": _TYPE, "operator": "In", "values": list(types)}


async def buys(api: Api, *types: str) -> None:
    """Let the pool buy machines of these types alone."""
    spec = {"template": {"spec": {"requirements": [_only(types)]}}}
    await api.patch(POOLS, "gpus", {"spec": spec})


@pytest.fixture
def api(plane: ControlPlane, runner: asyncio.Runner) -> Iterator[Api]:
    """The administrator's connection; no pod and no node is left after a test."""
    made = runner.run(Api.connect(kubeconfig=str(plane.kubeconfig)))
    yield made
    runner.run(cleared(made))
    runner.run(made.close())


async def cleared(api: Api) -> None:
    async def gone() -> bool:
        left = 0
        for kind in (JOBS, QUEUES, CLUSTER_QUEUES, PODS, CLAIMS):
            for one in (await api.list(kind))[0]:
                left += 1
                meta = one["metadata"]
                name, space = meta["name"], meta.get("namespace", "")
                try:
                    if kind in (JOBS, QUEUES, CLUSTER_QUEUES) and meta.get("finalizers"):
                        await api.patch(kind, name, {"metadata": {"finalizers": None}}, space)
                    await api.delete(kind, name, space, grace_s=0)
                except (NotFound, Conflict):
                    continue
        return not left and not (await api.list(NODES))[0]

    await until(gone, _SLOW_S)


async def machines(api: Api) -> list[str]:
    """The types of the nodes that were bought."""
    found, _ = await api.list(CLAIMS)
    return sorted((one["metadata"].get("labels") or {}).get(_TYPE, "") for one in found)


def test_a_pool_of_no_nodes_gets_them_for_a_job_and_for_a_gang_of_others(
    plane: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        async with jobbing(plane, asks_for_nodes=True):
            await api.create(JOBS, job("train", workers=2, gpus=8))
            await reaches(api, "train", "running", _SLOW_S)
            assert await machines(api) == ["gpu-8", "gpu-8"]
            assert not await pods(api, labels="roost.dev/placeholder")
            await create(api, PODS, gang("ring", 3, gpus=4))

            async def placed() -> list[Object]:
                ring = [one for one in await pods(api) if one["metadata"]["name"][:4] == "ring"]
                return ring if len(ring) == 3 and all(map(is_bound, ring)) else []

            await until(placed, _SLOW_S)
            bought = await machines(api)
            assert sum(8 if one == "gpu-8" else 4 for one in bought) in (28, 32), bought

    runner.run(scenario())


def test_what_its_queue_holds_buys_nothing(
    plane: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await api.create(CLUSTER_QUEUES, {"metadata": {"name": "small"}, "spec": {"limit": 4}})
        door: Any = {"metadata": {"name": "small"}, "spec": {"clusterQueue": "small"}}
        await api.create(QUEUES, door, "default")
        async with jobbing(plane, asks_for_nodes=True):
            held = gang("held", 2, gpus=4, labels={"roost.dev/queue": "small"})
            await create(api, PODS, held)
            await api.create(JOBS, job("large", gpus=8, queue="small"))
            # The autoscaler has looked at all that waits when it has bought for this one.
            await api.create(JOBS, job("fits", gpus=4, queue="small"))
            await reaches(api, "fits", "running", _SLOW_S)
            assert await machines(api) == ["gpu-4"]
            assert "asked for" not in str((await status(api, "large")).get("reason"))

    runner.run(scenario())


def test_scale_down_takes_what_is_empty_and_leaves_a_training_gang_alone(
    plane: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        async with jobbing(plane, asks_for_nodes=True):
            # Only large machines at first: half of one is then too much for what stays.
            await buys(api, "gpu-8")
            await api.create(JOBS, job("stays", gpus=4))
            await api.create(JOBS, job("ends", gpus=8))
            await reaches(api, "stays", "running", _SLOW_S)
            await reaches(api, "ends", "running", _SLOW_S)
            await buys(api, *MACHINES)
            (worker,) = await pods_of(api, "stays")
            (other,) = await pods_of(api, "ends")
            assert await machines(api) == ["gpu-8", "gpu-8"]
            await pretend(api, other, "succeeds")
            await reaches(api, "ends", "succeeded")

            async def smaller() -> bool:
                return len(await machines(api)) == 1

            await until(smaller, _SLOW_S)
            assert await machines(api) == ["gpu-8"]
            (found,) = await pods_of(api, "stays")
            assert found["metadata"]["uid"] == worker["metadata"]["uid"]
            assert (await status(api, "stays"))["attempt"] == 1

    runner.run(scenario())
