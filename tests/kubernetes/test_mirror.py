"""Mirrors of a real API server that dies, stalls, forgets, and refuses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import pytest
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import node, nodes
from tests.support.kubernetes.proxy import Chances, FaultyProxy

from roost.kubernetes.client import mirror as module
from roost.kubernetes.client.api import Api, Object
from roost.kubernetes.client.kinds import CONFIG_MAPS, NODES, PODS, ResourceKind
from roost.kubernetes.client.mirror import Mirror

NOWHERE = ResourceKind("nowhere.example", "v1", "things", "Thing")


class Witness:
    """A mirror whose changes are folded: what they add up to must be what the mirror has."""

    def __init__(self, api: Api, kind: ResourceKind, **options: Any) -> None:
        self.mirror = Mirror(api, kind, self.changed, **options)
        self.folded: dict[str, str] = {}

    def changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None:
            known = self.folded.pop(old["metadata"]["name"])
            assert known == old["metadata"]["resourceVersion"]
        if new is not None:
            assert new["metadata"]["name"] not in self.folded
            self.folded[new["metadata"]["name"]] = new["metadata"]["resourceVersion"]

    @property
    def names(self) -> set[str]:
        here = {name for _, name in self.mirror.objects}
        assert here == set(self.folded)
        return here


@contextlib.asynccontextmanager
async def mirrored(api: Api, kind: ResourceKind = NODES, **options: Any) -> AsyncIterator[Witness]:
    witness = Witness(api, kind, **options)
    task = asyncio.create_task(witness.mirror.run())
    try:
        async with asyncio.timeout(60.0):
            await witness.mirror.synced.wait()
        yield witness
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(told: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not told():  # noqa: ASYNC110 - whatever changes, it is looked at
            await asyncio.sleep(0.02)


def test_it_follows(api: Api, runner: asyncio.Runner) -> None:
    async def follow() -> None:
        await nodes(api, 30)
        async with mirrored(api) as seen:
            assert len(seen.names) == 30
            assert "managedFields" not in next(iter(seen.mirror.objects.values()))["metadata"]
            await asyncio.gather(*(api.delete(NODES, f"node-{n:04}") for n in range(10)))
            await api.create(NODES, node("late"))
            await until(lambda: len(seen.names) == 21 and "late" in seen.names)
            assert seen.mirror.stale_s < 5.0

    runner.run(follow())


def test_a_server_that_dies_and_comes_back(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """Its new watch cache knows no version from before: the mirror lists and tells differences."""

    async def follow() -> None:
        await nodes(api, 20)
        async with mirrored(api) as seen, mirrored(api, CONFIG_MAPS):
            for _ in range(2):
                cluster.kill_apiserver()
                await asyncio.sleep(0.5)
                await cluster.restart_apiserver()
            await api.delete(NODES, "node-0003")
            await api.create(NODES, node("late"))
            await until(lambda: "late" in seen.names and "node-0003" not in seen.names)
            assert len(seen.names) == 20
            assert seen.mirror.trouble == ""

    runner.run(follow())


def test_what_changed_while_the_server_was_cut_off(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """Objects vanish from the store while nobody serves it, and others come before we are back."""

    async def follow() -> None:
        await nodes(api, 5)
        async with mirrored(api) as seen:
            cluster.kill_apiserver()
            await cluster.wipe()
            await cluster.restart_apiserver()
            await api.create(NODES, node("node-0002"))
            await until(lambda: seen.names == {"node-0002"})

    runner.run(follow())


def test_a_server_that_stands_still(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    """No byte comes and no connection breaks: the watch is given up and taken up again."""
    pid = cluster._processes["apiserver"].pid
    assert pid is not None

    async def follow() -> None:
        await nodes(api, 3)
        async with mirrored(api, stall_s=1.0) as seen:
            os.kill(pid, signal.SIGSTOP)
            try:
                await until(lambda: seen.mirror.trouble != "", 10.0)
                assert "no answer in time" in seen.mirror.trouble
            finally:
                os.kill(pid, signal.SIGCONT)
            await api.create(NODES, node("late"))
            await until(lambda: "late" in seen.names, 15.0)

    with caplog.at_level(logging.INFO):
        runner.run(follow())


def test_a_quiet_watch_is_taken_up_without_a_list(api: Api, runner: asyncio.Runner) -> None:
    async def follow() -> None:
        await nodes(api, 3)
        async with mirrored(api, stall_s=0.3) as seen:
            lists = 0
            pages = api.pages

            def counted(*args: Any, **options: Any) -> Any:
                nonlocal lists
                lists += 1
                return pages(*args, **options)

            api.pages = counted  # type: ignore[method-assign]
            await asyncio.sleep(4.0)
            await api.create(NODES, node("late"))
            await until(lambda: "late" in seen.names)
            assert lists == 0
            assert seen.mirror.trouble == ""

    runner.run(follow())


def test_a_missing_right_is_named_and_the_rest_is_served(
    cluster: ControlPlane,
    api: Api,
    runner: asyncio.Runner,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REFUSED_S", 0.2)
    rbac = ("rbac.authorization.k8s.io", "v1")
    roles = ResourceKind(*rbac, "clusterroles", "ClusterRole", namespaced=False)
    grants = ResourceKind(*rbac, "clusterrolebindings", "ClusterRoleBinding", namespaced=False)

    async def grant(resource: str) -> None:
        rules = [{"apiGroups": [""], "resources": [resource], "verbs": ["list", "watch"]}]
        await api.create(roles, {"metadata": {"name": f"bob-{resource}"}, "rules": rules})
        role = {"apiGroup": rbac[0], "kind": "ClusterRole", "name": f"bob-{resource}"}
        subject = {"apiGroup": rbac[0], "kind": "User", "name": "bob"}
        meta = {"name": f"bob-{resource}"}
        await api.create(grants, {"metadata": meta, "roleRef": role, "subjects": [subject]})

    async def follow() -> None:
        await nodes(api, 2)
        await grant("nodes")
        bob = await Api.connect(kubeconfig=str(cluster.kubeconfig_of("bob")))
        pods = Witness(bob, PODS)
        task = asyncio.create_task(pods.mirror.run())
        async with mirrored(bob) as seen:
            await until(lambda: len(seen.names) == 2)
            await until(lambda: pods.mirror.trouble != "")
            await asyncio.sleep(1.0)
            assert not pods.mirror.synced.is_set()
            await grant("pods")
            await until(pods.mirror.synced.is_set)
        task.cancel()
        await asyncio.wait([task])
        await bob.close()

    with caplog.at_level(logging.WARNING, "roost"):
        runner.run(follow())
    refused = [text for text in caplog.messages if "pods" in text]
    assert len(refused) == 1
    assert "no permission to list pods in the whole cluster" in refused[0]


def test_a_kind_that_nobody_serves(api: Api, runner: asyncio.Runner) -> None:
    async def follow() -> None:
        async with mirrored(api, NOWHERE) as seen:
            assert seen.names == set()
            assert "404 page not found" in seen.mirror.trouble

    runner.run(follow())


@contextlib.asynccontextmanager
async def behind(
    cluster: ControlPlane, seed: int = 1, chances: Chances | None = None
) -> AsyncIterator[tuple[FaultyProxy, Api]]:
    """The same server by a bad way."""
    chances = chances or Chances()
    async with FaultyProxy(cluster.url, cluster.authority, seed=seed, chances=chances) as proxy:
        api = await Api.connect(kubeconfig=str(cluster.kubeconfig_of("admin", server=proxy.url)))
        try:
            yield proxy, api
        finally:
            await api.close()


async def versions(api: Api) -> dict[str, str]:
    found, _ = await api.list(NODES)
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in found}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_comes_to_the_truth_through_every_fault(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, seed: int
) -> None:
    """Lost, late, repeated and refused requests; watches that stall, break, expire, repeat."""
    chances = Chances(
        lose_request=0.1,
        lose_answer=0.1,
        delay_answer=0.2,
        refuse=0.1,
        stall_watch=0.3,
        cut_watch=0.3,
        expire_watch=0.1,
        repeat_event=0.3,
    )

    async def follow() -> None:
        await nodes(api, 10)
        async with behind(cluster, seed, chances) as (_, far), mirrored(far, stall_s=1.0) as seen:
            for number in range(60):
                name = f"node-{number % 10:04}"
                label = {"metadata": {"labels": {"number": str(number)}}}
                await api.patch(NODES, name, label)
                if number % 7 == 0:
                    await api.delete(NODES, name)
                    await api.create(NODES, node(name))
                await asyncio.sleep(0.02)
            truth = await versions(api)
            await until(lambda: seen.folded == truth)
            assert seen.names == set(truth)

    runner.run(follow())


@pytest.mark.parametrize("way", ["both", "answers"])
def test_a_partition_heals(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, way: Literal["both", "answers"]
) -> None:
    async def follow() -> None:
        await nodes(api, 3)
        async with behind(cluster) as (proxy, far), mirrored(far, stall_s=1.0) as seen:
            proxy.cut(4.0, way)
            await api.delete(NODES, "node-0000")
            await api.create(NODES, node("late"))
            await asyncio.sleep(3.0)
            assert "late" not in seen.names
            assert way == "answers" or seen.mirror.stale_s > 2.0
            await until(lambda: seen.names == {"late", "node-0001", "node-0002"}, 11.0)

    runner.run(follow())
