"""Pods and Jobs with volumes on a real API server, with Kubernetes' own controllers of volumes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.kubernetes.jobbing import define, job, jobbing, reaches
from tests.kubernetes.operating import bound, gang, operating, pods
from tests.kubernetes.volumes import CONTROLLERS, are_bound, provisioning, store
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, node, pod, until
from tests.support.kubernetes.storage import (
    NOBODY,
    claim,
    csi_node,
    mounting,
    storage_class,
    volume,
)

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, NODES, PODS, VOLUME_CLAIMS, Object
from roost.kubernetes.objects.pods import is_bound, is_running

HOST = "kubernetes.io/hostname"


@pytest.fixture
def storing(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the controllers of volumes."""
    if cluster.binaries.controller_manager is None:
        pytest.skip("there is no kube-controller-manager here")
    cluster.start_manager(CONTROLLERS)
    yield cluster
    cluster.stop_manager()


async def zones(api: Api, *names: str, gpus: int = 4) -> None:
    """Nodes that are called by their zones: a1 is in zone a."""
    await create(api, NODES, [node(name, gpus=gpus, labels={"zone": name[0]}) for name in names])


async def run(api: Api, count: int) -> dict[str, str]:
    """The nodes of so many pods once all of them run."""

    async def all_run() -> dict[str, str]:
        found = [one for one in await pods(api) if is_bound(one) and is_running(one)]
        return {one["metadata"]["name"]: one["spec"]["nodeName"] for one in found}

    async def enough() -> dict[str, str]:
        found = await all_run()
        return found if len(found) >= count else {}

    return await until(enough)


async def told(api: Api, name: str) -> str:
    """Why a pod waits, once it was told."""
    found = await api.get(PODS, name, "default")
    conditions = found["status"].get("conditions") or ()
    return next((one.get("message") or "" for one in conditions if one["status"] == "False"), "")


def test_a_claim_is_provisioned_for_its_first_pod(
    storing: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        await zones(api, "a1", "b1")
        await store(api, [storage_class("wffc", zones=["b"]), claim("data", storage_class="wffc")])
        async with operating(storing), provisioning(api) as asked:
            await create(api, PODS, [pod("train", **mounting("data"))])
            assert await run(api, 1) == {"train": "b1"}
            assert asked == ["b1"]
            assert await are_bound(api, ["data"])
            # The next one goes where the volume is by now.
            await create(api, PODS, [pod("next", **mounting("data"))])
            assert await run(api, 2) == {"train": "b1", "next": "b1"}

    runner.run(story())


def test_a_job_runs_with_a_claim_that_waited_for_it(
    storing: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        await define(api)
        await zones(api, "a1", "b1")
        await store(api, [storage_class("wffc", zones=["b"])])
        async with jobbing(storing), provisioning(api) as asked:
            mounts = mounting("data")
            await api.create(JOBS, job("train", workers=2, pod=mounts))
            await reaches(api, "train", "queued", cause="not-ready")
            await store(api, [claim("data", storage_class="wffc", accessModes=["ReadWriteMany"])])
            await reaches(api, "train", "running")
            assert set((await run(api, 2)).values()) == {"b1"}
            assert asked == ["b1"]

    runner.run(story())


def test_a_gang_has_volumes_in_two_zones(
    storing: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        await zones(api, "a1", "a2", "b1")
        await store(api, two_zones())
        await until(lambda: are_bound(api, ["data-0", "data-1"]))
        async with operating(storing), provisioning(api):
            pair = gang("pair", 2)
            for number, one in enumerate(pair):
                one["spec"] |= mounting(f"data-{number}", f"scratch-{number}")
            await create(api, PODS, pair)
            found = await run(api, 2)
            assert (found["pair-0"][0], found["pair-1"][0]) == ("a", "b")
            assert await are_bound(api, ["scratch-0", "scratch-1"])

    runner.run(story())


def two_zones() -> list[Object]:
    """A claim in each of two zones, and others that wait."""
    made: list[Object] = [storage_class("wffc")]
    for number, zone in enumerate("ab"):
        asks = claim(f"data-{number}")
        asks["spec"]["volumeName"] = f"v-{zone}"
        made += [asks, volume(f"v-{zone}", at={"zone": zone}, claimed_by=asks)]
        made.append(claim(f"scratch-{number}", storage_class="wffc"))
    return made


def test_another_node_is_tried_when_a_provisioner_fails(
    storing: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        await zones(api, "a1", "b1")
        await store(api, [storage_class("wffc"), claim("data", storage_class="wffc")])
        first: list[str] = []

        def breaks(at: str) -> bool:
            first.append(at)
            return at == first[0]

        async with operating(storing), provisioning(api, breaks) as asked:
            await create(api, PODS, [pod("train", **mounting("data"))])
            (at,) = (await run(api, 1)).values()
            assert asked == [first[0], at]
            assert at != first[0]

    runner.run(story())


def test_local_volumes_are_given_to_a_gang_one_on_each_node(
    storing: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        await zones(api, "a1", "a2", "b1", "c1")
        there = [
            volume(f"v-{at}", at={HOST: at}, storage_class="local") for at in ("a1", "a2", "b1")
        ]
        claims = [claim(f"data-{number}", storage_class="local") for number in range(3)]
        await store(api, [storage_class("local", NOBODY), *there, *claims])
        async with operating(storing):
            found = gang("trio", 3)
            for number, one in enumerate(found):
                one["spec"] |= mounting(f"data-{number}")
            await create(api, PODS, found)
            assert sorted((await run(api, 3)).values()) == ["a1", "a2", "b1"]
            assert await are_bound(api, [f"data-{number}" for number in range(3)])

    runner.run(story())


def test_an_ephemeral_volume_is_made_with_its_pod(
    storing: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    asks: Object = {"storageClassName": "wffc", "accessModes": ["ReadWriteOnce"]}
    asks["resources"] = {"requests": {"storage": "1Gi"}}
    scratch: Object = {
        "volumes": [{"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": asks}}}]
    }

    async def story() -> None:
        await define(api)
        await zones(api, "a1", "b1")
        await store(api, [storage_class("wffc", zones=["a"])])
        async with jobbing(storing), provisioning(api):
            await create(api, PODS, [pod("train", **scratch)])
            await api.create(JOBS, job("sort", workers=2, pod=scratch))
            found = await run(api, 3)
            assert set(found.values()) == {"a1"}
            assert await are_bound(api, ["train-s", "sort-1-worker-0-s", "sort-1-worker-1-s"])

    runner.run(story())


def test_pods_wait_for_what_is_missing_and_say_so(
    storing: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        await zones(api, "a1")
        alone = claim("alone", accessModes=["ReadWriteOncePod"])
        alone["spec"]["volumeName"] = "v"
        held = volume("v", claimed_by=alone, accessModes=["ReadWriteOncePod"])
        await store(api, [claim("immediate"), alone, held, csi_node("a1", count=1)])
        await until(lambda: are_bound(api, ["alone"]))
        async with operating(storing):
            await create(api, PODS, [pod("first", **mounting("alone"))])
            await until(lambda: bound(api, 1))
            waiting = {
                "none": ("missing", "claim 'missing' is not there"),
                "late": ("immediate", "claim immediate is not bound yet"),
                "second": ("alone", "claim alone is for one pod at a time, and first has it"),
            }
            made = [pod(name, **mounting(what)) for name, (what, _) in waiting.items()]
            await create(api, PODS, made)
            for name, (_, why) in waiting.items():
                assert await until(lambda name=name: told(api, name)) == why  # type: ignore[misc]
            await api.delete(PODS, "first", "default", grace_s=0)
            await until(lambda: _is_there(api, "second"))
            assert not (await api.get(VOLUME_CLAIMS, "immediate", "default"))["spec"].get(
                "volumeName"
            )

    runner.run(story())


async def _is_there(api: Api, name: str) -> bool:
    return is_bound(await api.get(PODS, name, "default"))
