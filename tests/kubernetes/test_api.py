"""The door to a real API server: verbs, refusals, rights, and a server that dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import node, pod, timestamp

from roost.errors import Conflict, InvalidSpec, NotFound, Retryable
from roost.kubernetes.client import access as ways
from roost.kubernetes.client.api import Api, Disrupted, Expired, Object, Unpermitted
from roost.kubernetes.client.kinds import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    ResourceKind,
)

NOWHERE = ResourceKind("nowhere.example", "v1", "things", "Thing")
ROLES = ResourceKind(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
GRANTS = ResourceKind(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


def settings(name: str, **data: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


async def grant(api: Api, user: str, resource: str, *verbs: str, group: str = "") -> None:
    """Give a user a right in the whole cluster."""
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}]
    await api.create(ROLES, {"metadata": {"name": f"{user}-{resource}"}, "rules": rules})
    role = {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": f"{user}-{resource}"}
    subject = {"apiGroup": ROLES.group, "kind": "User", "name": user}
    meta = {"name": f"{user}-{resource}"}
    await api.create(GRANTS, {"metadata": meta, "roleRef": role, "subjects": [subject]})


def test_objects_live_and_die(api: Api, runner: asyncio.Runner) -> None:
    async def life() -> None:
        made = await api.create(CONFIG_MAPS, settings("a", x="1"))
        with pytest.raises(Conflict):
            await api.create(CONFIG_MAPS, settings("a"))
        changed = await api.patch(CONFIG_MAPS, "a", {"data": {"y": "2"}}, "default")
        assert changed["data"] == {"x": "1", "y": "2"}
        with pytest.raises(Conflict):
            await api.replace(CONFIG_MAPS, made | {"data": {}})
        fresh = await api.replace(CONFIG_MAPS, changed | {"data": {"z": "3"}})
        assert (await api.get(CONFIG_MAPS, "a", "default"))["data"] == {"z": "3"}
        add = [{"op": "add", "path": "/data/w", "value": "4"}]
        assert (await api.patch(CONFIG_MAPS, "a", add, "default", strategy="json"))["data"]["w"]
        ours = {"apiVersion": "v1", "kind": "ConfigMap", **settings("b", v="5")}
        for _ in range(2):
            await api.patch(CONFIG_MAPS, "b", ours, "default", strategy="apply")
        await api.delete(CONFIG_MAPS, "a", "default", uid="another")
        await api.delete(CONFIG_MAPS, "a", "default", uid=fresh["metadata"]["uid"])
        await api.delete(CONFIG_MAPS, "a", "default")
        with pytest.raises(NotFound):
            await api.get(CONFIG_MAPS, "a", "default")

    runner.run(life())


def test_nonsense_is_refused_with_the_servers_sentence(api: Api, runner: asyncio.Runner) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.containers.*Required value"):
        runner.run(api.create(PODS, pod("a", containers=[])))


def test_a_pod_is_bound_once_and_keeps_what_came_with_it(api: Api, runner: asyncio.Runner) -> None:
    async def bind() -> None:
        await api.create(NODES, node("n"))
        made = await api.create(PODS, pod("a", pretend="stays"))
        uid = made["metadata"]["uid"]
        with pytest.raises(Conflict):
            await api.bind("default", "a", "another", "n", {})
        await api.bind("default", "a", uid, "n", {"roost.dev/gpus": "0,3"})
        found = await api.get(PODS, "a", "default")
        assert found["spec"]["nodeName"] == "n"
        assert found["metadata"]["annotations"]["roost.dev/gpus"] == "0,3"
        with pytest.raises(Conflict):
            await api.bind("default", "a", uid, "n", {})
        with pytest.raises(NotFound):
            await api.bind("default", "nobody", uid, "n", {})

    runner.run(bind())


def test_budgets_keep_pods_from_being_evicted(api: Api, runner: asyncio.Runner) -> None:
    def budget(name: str) -> Object:
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
        return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}

    async def evict() -> None:
        await api.create(NODES, node("n"))
        made = await api.create(PODS, pod("a", labels={"app": "a"}, pretend="stays"))
        uid = made["metadata"]["uid"]
        await api.bind("default", "a", uid, "n", {})
        running = {"status": {"phase": "Running", "conditions": [_ready()]}}
        await api.patch(PODS, "a", running, "default", sub="status", strategy="strategic")
        await api.create(DISRUPTION_BUDGETS, budget("one"))
        with pytest.raises(Disrupted):
            await api.evict("default", "a", uid)
        await api.create(DISRUPTION_BUDGETS, budget("two"))
        with pytest.raises(Disrupted):
            await api.evict("default", "a", uid)
        for name in ("one", "two"):
            await api.delete(DISRUPTION_BUDGETS, name, "default")
        await api.evict("default", "a", "another", grace_s=0)
        assert "deletionTimestamp" not in (await api.get(PODS, "a", "default"))["metadata"]
        await api.evict("default", "a", uid, grace_s=0)
        await api.evict("default", "nobody", uid)

    runner.run(evict())


def _ready() -> Object:
    return {"type": "Ready", "status": "True", "lastTransitionTime": timestamp()}


def test_lists_come_in_pages_and_watches_follow_them(api: Api, runner: asyncio.Runner) -> None:
    async def look() -> None:
        for number in range(25):
            await api.create(CONFIG_MAPS, settings(f"c-{number:02}"))
        found, version = await api.list(CONFIG_MAPS, "default", page=10)
        assert [item["metadata"]["name"] for item in found] == [f"c-{n:02}" for n in range(25)]
        assert found[0]["apiVersion"] == "v1"
        chosen, _ = await api.list(CONFIG_MAPS, fields="metadata.name=c-07")
        assert len(chosen) == 1
        await api.patch(CONFIG_MAPS, "c-01", {"data": {"x": "1"}}, "default")
        await api.delete(CONFIG_MAPS, "c-02", "default")
        await api.create(CONFIG_MAPS, settings("d"))
        seen = []
        watch = api.watch(CONFIG_MAPS, version, "default", timeout_s=1)
        async for what, item in watch:
            if what != "BOOKMARK":
                seen.append((what, item["metadata"]["name"]))
        assert seen == [("MODIFIED", "c-01"), ("DELETED", "c-02"), ("ADDED", "d")]

    runner.run(look())


def test_which_kinds_are_served(api: Api, runner: asyncio.Runner) -> None:
    async def look() -> list[bool]:
        return [await api.discover(kind) for kind in (PODS, EVENTS, LEASES, NOWHERE)]

    assert runner.run(look()) == [True, True, True, False]


def test_a_missing_right_is_named(cluster: ControlPlane, api: Api, runner: asyncio.Runner) -> None:
    async def ask() -> None:
        alice = await Api.connect(kubeconfig=str(cluster.kubeconfig_of("alice", namespace="lab")))
        assert alice.namespace == "lab"
        asked: list[tuple[Callable[[], Awaitable[Any]], str]] = [
            (lambda: alice.list(PODS), "list pods in the whole cluster"),
            (lambda: alice.get(NODES, "n"), "get nodes in the whole cluster"),
            (lambda: alice.create(PODS, pod("a")), "create pods in namespace 'default'"),
            (
                lambda: alice.bind("default", "a", "u", "n", {}),
                "create pods/binding in namespace 'default'",
            ),
            (
                lambda: alice.list(DISRUPTION_BUDGETS, "lab"),
                "list poddisruptionbudgets.policy in namespace 'lab'",
            ),
        ]
        for question, named in asked:
            with pytest.raises(Unpermitted, match=f"no permission to {named}"):
                await question()
        await grant(api, "alice", "pods", "list")
        async with asyncio.timeout(60.0):
            while True:
                try:
                    await alice.list(PODS)
                    break
                except Unpermitted:
                    await asyncio.sleep(0.05)
        await alice.close()

    runner.run(ask())


def test_a_stranger_is_told_so(
    cluster: ControlPlane, runner: asyncio.Runner, tmp_path: Path
) -> None:
    text = cluster.kubeconfig.read_text().replace(cluster.tokens["admin"], "wrong")
    (tmp_path / "kubeconfig").write_text(text)

    async def ask() -> None:
        api = await Api.connect(kubeconfig=str(tmp_path / "kubeconfig"))
        with pytest.raises(Exception, match="does not accept these credentials"):
            await api.list(PODS)
        await api.close()

    runner.run(ask())


def test_a_server_that_nobody_vouches_for(
    cluster: ControlPlane, runner: asyncio.Runner, tmp_path: Path
) -> None:
    text = cluster.kubeconfig.read_text().replace("certificate-authority", "unused")
    (tmp_path / "kubeconfig").write_text(text)

    async def ask() -> None:
        api = await Api.connect(kubeconfig=str(tmp_path / "kubeconfig"))
        with pytest.raises(InvalidSpec, match="certificate is not trusted"):
            await api.list(PODS)
        await api.close()

    runner.run(ask())


def test_the_account_of_a_pod(
    cluster: ControlPlane,
    api: Api,
    runner: asyncio.Runner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As inside a pod: a token file that is rotated, the authority, and the server by its name."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.port))
    monkeypatch.setattr(ways, "ACCOUNT", tmp_path)
    monkeypatch.setattr(ways, "RELOAD_S", 0.0)
    (tmp_path / "ca.crt").write_bytes(cluster.authority.read_bytes())
    (tmp_path / "namespace").write_text("default")
    accounts = ResourceKind("", "v1", "serviceaccounts", "ServiceAccount")

    async def ask() -> None:
        await api.create(accounts, {"metadata": {"name": "robot", "namespace": "default"}})
        (tmp_path / "token").write_text("expired by now")
        pods = await Api.connect()
        assert pods.namespace == "default"
        (tmp_path / "token").write_text(await cluster.account_token("default", "robot"))
        with pytest.raises(Unpermitted, match="system:serviceaccount:default:robot"):
            await pods.list(PODS)
        await pods.close()

    runner.run(ask())


def test_reading_survives_a_server_that_dies_and_comes_back(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def ask() -> None:
        _, version = await api.list(CONFIG_MAPS)
        await api.create(CONFIG_MAPS, settings("a"))
        cluster.kill_apiserver()
        with pytest.raises(Retryable):
            await api.create(CONFIG_MAPS, settings("b"))
        asked = [asyncio.create_task(api.get(CONFIG_MAPS, "a", "default")) for _ in range(20)]
        await cluster.restart_apiserver()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert not [one for one in answers if not isinstance(one, dict | Retryable)]
        assert (await api.get(CONFIG_MAPS, "a", "default"))["metadata"]["name"] == "a"
        with pytest.raises(Expired):  # the new server remembers nothing from before its start
            async for _ in api.watch(CONFIG_MAPS, version):
                pass

    runner.run(ask())
