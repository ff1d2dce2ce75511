"""What nodes count beside whole GPUs, on a real API server: nothing is given out twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tests.kubernetes.operating import Play, bound, gang, pods
from tests.support.kubernetes.nodes import create, node, pod, until

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import NODES, PODS, Object
from roost.kubernetes.objects.pods import is_bound

MIG = "nvidia.com/mig-1g.5gb"


def asking(name: str, requests: dict[str, str], pool: str, **more: Any) -> Object:
    """A pod that goes to the nodes of one pool."""
    found = pod(name, gpus=0, nodeSelector={"pool": pool}, **more)
    container = found["spec"]["containers"][0]
    container["resources"] = {"requests": dict(requests), "limits": dict(requests)}
    return found


def listening(found: Object, number: int) -> Object:
    found["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": number}]
    return found


def replica(found: Object) -> Object:
    """The pod as one of a ReplicaSet's: such an owner makes another when it fails."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-web"}
    found["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return found


def condition_of(found: Object) -> str:
    for one in found["status"].get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return str(one["message"])
    return ""


def test_no_more_pods_than_a_node_has_of_anything(play: Play) -> None:
    """Slices, huge pages, local disk, pods and ports, of single pods and of a gang."""

    async def scenario(api: Api) -> None:
        has = {
            "slices": {MIG: "7"},
            "pages": {"hugepages-2Mi": "8Mi"},
            "disk": {"ephemeral-storage": "10Gi"},
            "few": {"pods": "3"},
            "ports": {},
        }
        made = [
            node(f"{name}-0", gpus=0, labels={"pool": name}, capacity=more)
            for name, more in has.items()
        ]
        more = [node(f"ports-{n}", gpus=0, labels={"pool": "ports"}) for n in (1, 2)]
        await create(api, NODES, [*made, *more])
        wanted = [
            *(asking(f"slice-{n}", {MIG: "1"}, "slices") for n in range(20)),
            *(asking(f"page-{n}", {"hugepages-2Mi": "4Mi", "cpu": "1"}, "pages") for n in range(4)),
            *(asking(f"disk-{n}", {"ephemeral-storage": "3Gi"}, "disk") for n in range(5)),
            *(asking(f"few-{n}", {"cpu": "1"}, "few") for n in range(5)),
            *(listening(asking(f"port-{n}", {"cpu": "1"}, "ports"), 8080) for n in range(5)),
            *(
                listening(each, 23456)
                for each in gang("ring", 3, gpus=0, nodeSelector={"pool": "ports"})
            ),
        ]
        await create(api, PODS, wanted)
        await until(lambda: bound(api, 7 + 2 + 3 + 3 + 3 + 3))
        told = {
            name: await until(lambda name=name: _told(api, name))  # type: ignore[misc]
            for name in ("slice", "disk", "port")
        }
        assert told["slice"] == f"1 node has no {MIG} free"
        assert told["disk"] == "1 node has less than 3Gi ephemeral-storage free"
        assert told["port"] == "host port TCP/8080 is taken on 3 nodes"
        on = [(one["metadata"]["name"][:4], one["spec"].get("nodeName")) for one in await pods(api)]
        counts = Counter(name for name, where in on if where)
        assert counts == {"slic": 7, "page": 2, "disk": 3, "few-": 3, "port": 3, "ring": 3}
        assert len({where for name, where in on if name == "ring"}) == 3
        await api.delete(PODS, await _some(api, "slice"), "default")
        await until(lambda: bound(api, 21))

    play(scenario)


async def _told(api: Api, kind: str) -> str:
    texts = [
        condition_of(one)
        for one in await pods(api)
        if one["metadata"]["name"].startswith(f"{kind}-") and not is_bound(one)
    ]
    return next(filter(None, texts), "")


async def _some(api: Api, kind: str) -> str:
    """A bound pod of a kind."""
    names = [str(one["metadata"]["name"]) for one in await pods(api) if is_bound(one)]
    return next(name for name in names if name.startswith(f"{kind}-"))


def test_slices_that_pods_of_others_take_are_gone(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await create(api, NODES, [node("n0", gpus=0, labels={"pool": "p"}, capacity={MIG: "3"})])
        other = asking("other", {MIG: "2"}, "p", scheduler="somebody", nodeName="n0")
        await create(api, PODS, [other])
        await create(api, PODS, [asking(f"mine-{n}", {MIG: "1"}, "p") for n in range(3)])
        await until(lambda: bound(api, 2))
        assert await until(lambda: _told(api, "mine")) == f"1 node has no {MIG} free"
        assert sum(map(is_bound, await pods(api))) == 2

    play(scenario)


def test_a_node_serves_whole_gpus_or_shares(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await create(api, NODES, [node("n0", gpus=2)])
        half = pod("half", gpus=0, annotations={"roost.dev/gpu-share": "0.5"})
        await create(api, PODS, [half])
        await until(lambda: bound(api, 1))
        await create(api, PODS, [pod("whole")])
        assert await until(lambda: _waits_of(api, "whole")) == (
            "node n0 serves shares of GPUs while a share of one is in use there"
        )
        await create(api, NODES, [node("n1", gpus=1, labels={"roost.dev/gpus-as": "shares"})])
        quarter = pod("quarter", gpus=0, annotations={"roost.dev/gpu-share": "0.25"})
        await create(api, PODS, [quarter])
        await until(lambda: bound(api, 2))
        await api.delete(PODS, "half", "default")
        await api.delete(PODS, "quarter", "default")
        assert await until(lambda: _node_of(api, "whole")) == "n0"
        await until(lambda: _gone(api, "half"))
        await create(api, PODS, [half])
        assert await until(lambda: _node_of(api, "half")) == "n1"

    play(scenario)


async def _waits_of(api: Api, name: str) -> str:
    return condition_of(await api.get(PODS, name, "default"))


async def _node_of(api: Api, name: str) -> str:
    found = await api.get(PODS, name, "default")
    return str(found["spec"].get("nodeName") or "")


async def _gone(api: Api, name: str) -> bool:
    return all(one["metadata"]["name"] != name for one in await pods(api))


def test_an_owner_whose_pods_are_rejected_waits_longer_each_time(play: Play) -> None:
    """As with a node whose kubelet has less than it says, and a ReplicaSet that makes new pods."""

    async def scenario(api: Api) -> None:
        silent = node("n0", gpus=0, labels={"pool": "p"}, capacity={MIG: "2"})
        del silent["metadata"]["labels"]["type"]  # no KWOK: nothing runs there
        await create(api, NODES, [silent])
        loop = asyncio.get_running_loop()
        waited = []
        for number in range(3):
            name, since = f"web-{number}", loop.time()
            await create(api, PODS, [replica(asking(name, {MIG: "1"}, "p"))])
            if number:
                said = await until(lambda: _told(api, "web"))
                assert "node n0 rejected a pod of ReplicaSet web (Node didn't have" in said
            await until(lambda: bound(api, 1))
            waited.append(loop.time() - since)
            await _reject(api, name)
            await api.delete(PODS, name, "default", grace_s=0)
            await until(lambda: _none(api))
        assert waited[1] >= 3.5  # n0 is shunned for twice the first pause
        assert waited[2] >= 7.5
        # Another owner is none of it.
        await create(api, PODS, [asking("alone", {MIG: "1"}, "p")])
        await until(lambda: bound(api, 1), 30)

    play(scenario)


async def _none(api: Api) -> bool:
    return not await pods(api)


async def _reject(api: Api, name: str) -> None:
    """As a kubelet does that does not have what a pod was promised."""
    status = {
        "phase": "Failed",
        "reason": f"OutOf{MIG}",
        "message": f"Node didn't have enough resource: {MIG}",
    }
    await api.patch(PODS, name, {"status": status}, "default", sub="status")
