"""The control plane itself: users, KWOK's pods, a wipe, an API server that dies."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from tests.support.kubernetes import keys
from tests.support.kubernetes.control_plane import ControlPlane, NotStarted
from tests.support.kubernetes.nodes import create, nodes, pod, until

from roost.errors import Forbidden, NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import BATCH_JOBS, CONFIG_MAPS, NAMESPACES, NODES, PODS, Object


async def _phase(api: Api, name: str) -> str:
    found: Object = await api.get(PODS, name, "default")
    return str(found["status"].get("phase"))


async def _is_gone(api: Api, name: str) -> bool:
    try:
        await api.get(PODS, name, "default")
    except NotFound:
        return True
    return False


def test_pods_on_pretended_nodes_run_and_end_as_told(api: Api, runner: asyncio.Runner) -> None:
    async def story() -> None:
        (name,) = await nodes(api, 1)
        made = [pod("runs"), pod("wins", pretend="succeeds"), pod("loses", pretend="fails")]
        for one in await create(api, PODS, made):
            meta = one["metadata"]
            await api.bind("default", meta["name"], meta["uid"], name, {"roost.dev/gpus": "0"})
        for name, phase in (("runs", "Running"), ("wins", "Succeeded"), ("loses", "Failed")):
            await until(partial(_is, api, name, phase))
        failed = await api.get(PODS, "loses", "default")
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
        assert failed["metadata"]["annotations"]["roost.dev/gpus"] == "0"

        await api.patch(
            PODS,
            "runs",
            {"metadata": {"annotations": {"roost.dev/pretend": "succeeds"}}},
            "default",
        )
        await until(lambda: _is(api, "runs", "Succeeded"))

    runner.run(story())


async def _is(api: Api, name: str, phase: str) -> bool:
    return await _phase(api, name) == phase


def test_a_deleted_pod_goes_unless_its_node_does_not_answer(
    api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        (name,) = await nodes(api, 1)
        await create(api, PODS, [pod("goes", nodeName=name)])
        await create(api, PODS, [pod("stays", nodeName=name, pretend="stays")])
        await until(lambda: _is(api, "goes", "Running"))
        await api.delete(PODS, "stays", "default")
        await api.delete(PODS, "goes", "default")
        await until(lambda: _is_gone(api, "goes"))
        left = await api.get(PODS, "stays", "default")
        assert left["status"]["phase"] == "Pending"
        assert "deletionTimestamp" in left["metadata"]

    runner.run(story())


def test_a_wipe_removes_what_tests_made_and_tells_watchers(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        before, _ = await api.list(NAMESPACES)
        body = {"metadata": {"name": "held", "namespace": "default", "finalizers": ["a.b/c"]}}
        await api.create(CONFIG_MAPS, body)
        await api.create(NAMESPACES, {"metadata": {"name": "extra"}})
        await nodes(api, 300)
        _, version = await api.list(NODES)
        seen: set[str] = set()

        async def look() -> None:
            async for kind, one in api.watch(NODES, version):
                if kind == "DELETED":
                    seen.add(one["metadata"]["name"])
                if len(seen) == 300:
                    return

        watching = asyncio.create_task(look())
        await asyncio.sleep(0.1)
        begun = time.monotonic()
        await cluster.wipe()
        assert time.monotonic() - begun < 30.0  # 0.1 s on an idle machine
        await asyncio.wait_for(watching, 60)
        assert (await api.list(NODES))[0] == []
        assert (await api.list(CONFIG_MAPS, "default"))[0] == []
        after, _ = await api.list(NAMESPACES)
        assert _names(after) == _names(before)

    runner.run(story())


def _names(objects: list[Object]) -> list[str]:
    return [one["metadata"]["name"] for one in objects]


def test_users_have_the_rights_they_were_given(
    cluster: ControlPlane, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        alice = await Api.connect(kubeconfig=str(cluster.kubeconfig_of("alice")))
        try:
            with pytest.raises(Forbidden):
                await alice.list(PODS, "default")
            await cluster.request("POST", f"{_RBAC}/roles", _ROLE)
            await cluster.request("POST", f"{_RBAC}/rolebindings", _grant("User", "alice"))
            await until(lambda: _may_list(alice))
            with pytest.raises(Forbidden):
                await alice.list(PODS)
        finally:
            await alice.close()

    runner.run(story())


def test_a_service_account_gets_a_token(cluster: ControlPlane, runner: asyncio.Runner) -> None:
    async def story() -> None:
        path = "/api/v1/namespaces/default/serviceaccounts"
        await cluster.request("POST", path, {"metadata": {"name": "robot"}})
        await cluster.account_token("default", "robot")
        name = "system:serviceaccount:default:robot"
        robot = await Api.connect(kubeconfig=str(cluster.kubeconfig_of(name)))
        try:
            with pytest.raises(Forbidden, match="pods"):
                await robot.list(PODS, "default")
        finally:
            await robot.close()

    runner.run(story())


_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
_ROLE = {
    "metadata": {"name": "reader"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
}


def _grant(kind: str, name: str) -> Object:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": "readers"},
        "subjects": [{"kind": kind, "name": name, "apiGroup": group}],
        "roleRef": {"kind": "Role", "name": "reader", "apiGroup": group},
    }


async def _may_list(api: Api) -> bool:
    try:
        await api.list(PODS, "default")
    except Forbidden:
        return False
    return True


def test_what_was_stored_outlives_the_api_server(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        await nodes(api, 3)
        cluster.kill_apiserver()
        await cluster.restart_apiserver()
        assert len((await api.list(NODES))[0]) == 3

    runner.run(story())


def test_controllers_and_scheduler_make_a_batch_job_succeed(tmp_path: Path) -> None:
    async def story() -> None:
        async with ControlPlane(tmp_path, controller_manager=True, scheduler=True) as plane:
            api = await Api.connect(kubeconfig=str(plane.kubeconfig))
            try:
                await nodes(api, 2)
                await api.create(BATCH_JOBS, _batch_job(), "default")

                async def succeeded() -> bool:
                    found = await api.get(BATCH_JOBS, "twice", "default")
                    return bool(found["status"].get("succeeded") == 2)

                await until(succeeded, 60)
                await api.delete(BATCH_JOBS, "twice", "default")

                async def collected() -> bool:
                    return (await api.list(PODS, "default"))[0] == []

                await until(collected, 60)
            finally:
                await api.close()

    asyncio.run(story())


def _batch_job() -> Object:
    made = pod("any", gpus=1, scheduler="default-scheduler", pretend="succeeds")
    template = {"metadata": {"annotations": made["metadata"]["annotations"]}, "spec": made["spec"]}
    spec = {"parallelism": 2, "completions": 2, "template": template}
    return {"metadata": {"name": "twice", "namespace": "default"}, "spec": spec}


def test_a_start_that_fails_says_what_the_server_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        keys, "write_account_keys", lambda folder: (folder / "accounts.pub").touch()
    )
    plane = ControlPlane(tmp_path, kwok=False)
    with pytest.raises(NotStarted, match="accounts"):
        asyncio.run(plane.start())
    assert all(process.pid is None for process in plane._processes.values())


_VICTIM = """
import asyncio, pathlib, sys
from tests.support.kubernetes.control_plane import ControlPlane
plane = ControlPlane(pathlib.Path(sys.argv[1]))
asyncio.run(plane.start())
print(*(process.pid for process in plane._processes.values() if process.pid), flush=True)
sys.stdin.read()
"""


def test_nothing_outlives_a_test_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _VICTIM, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as victim:  # noqa: S603
        assert victim.stdout is not None
        pids = [int(word) for word in victim.stdout.readline().split()]
        victim.kill()
    assert len(pids) == 3
    end = time.monotonic() + 60
    while any(_lives(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
