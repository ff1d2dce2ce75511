"""Pods that are processes: what they see, how they end, and what the API server says of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.kubelet import Kubelet
from tests.support.kubernetes.nodes import pod, until

from roost.engines.local.shim import process_tree
from roost.errors import NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CONFIG_MAPS, NODES, PODS, SECRETS, Object

Story = Callable[[Kubelet], Awaitable[None]]
Told = Callable[[Story], None]


@pytest.fixture
def tell(api: Api, runner: asyncio.Runner, tmp_path: Path) -> Told:
    def tell(story: Story) -> None:
        async def all_of_it() -> None:
            async with Kubelet(api, "here", tmp_path) as kubelet:
                await story(kubelet)

        runner.run(all_of_it())

    return tell


def _here(name: str, script: str, **spec: Any) -> Object:
    return pod(name, gpus=0, nodeName="here", command=("bash", "-c", script), **spec)


async def _ended(api: Api, name: str, phase: str = "Succeeded") -> Object:
    async def look() -> Object | None:
        found = await api.get(PODS, name, "default")
        return found if found["status"].get("phase") in ("Succeeded", "Failed") else None

    found = await until(look)
    assert found is not None
    assert found["status"]["phase"] == phase, found["status"]
    return found


async def _runs(api: Api, name: str) -> Object | None:
    found = await api.get(PODS, name, "default")
    return found if found["status"].get("phase") == "Running" else None


async def _is_gone(api: Api, name: str) -> bool:
    try:
        await api.get(PODS, name, "default")
    except NotFound:
        return True
    return False


def _exit(found: Object) -> int:
    return int(found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"])


def test_a_pod_runs_and_its_log_is_read_by_the_api_server(api: Api, tell: Told) -> None:
    async def story(_: Kubelet) -> None:
        await api.create(PODS, _here("speaks", "echo out; echo err >&2; echo $HOSTNAME"))
        found = await _ended(api, "speaks")
        assert _exit(found) == 0
        assert await api.log("default", "speaks") == b"out\nerr\nspeaks\n"
        assert await api.log("default", "speaks", since_bytes=4, limit_bytes=3) == b"err"

    tell(story)


def test_a_log_is_followed_while_it_grows(api: Api, tell: Told, tmp_path: Path) -> None:
    go = tmp_path / "go"

    async def story(_: Kubelet) -> None:
        script = f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two"
        await api.create(PODS, _here("grows", script))
        await until(lambda: _runs(api, "grows"))
        seen = b""
        async for piece in api.follow("default", "grows"):
            seen += piece
            go.touch()
        assert seen == b"one\ntwo\n"

    tell(story)


def test_exit_codes_and_signals_are_told_as_container_engines_do(api: Api, tell: Told) -> None:
    async def story(_: Kubelet) -> None:
        await api.create(PODS, _here("fails", "exit 7"))
        await api.create(PODS, _here("killed", "kill -9 $$$$"))
        absent = _here("absent", "")
        absent["spec"]["containers"][0]["command"] = ["no-such-program"]
        await api.create(PODS, absent)
        assert _exit(await _ended(api, "fails", "Failed")) == 7
        assert _exit(await _ended(api, "killed", "Failed")) == 137
        assert _exit(await _ended(api, "absent", "Failed")) == 127

    tell(story)


def test_variables_come_from_everywhere(api: Api, tell: Told) -> None:
    async def story(_: Kubelet) -> None:
        await api.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "kept"}}, "default")
        secret = {"metadata": {"name": "s"}, "stringData": {"token": "hush"}}
        await api.create(SECRETS, secret, "default")
        made = _here("sees", 'echo "$NAME $NODE $LABEL $TOKEN $KEPT $ALL_k $ADDRESS $BOTH"')
        made["metadata"]["labels"] = {"a/b": "label"}
        made["spec"]["containers"][0] |= {
            "envFrom": [{"prefix": "ALL_", "configMapRef": {"name": "c"}}],
            "env": [
                _from("NAME", fieldRef={"fieldPath": "metadata.name"}),
                _from("NODE", fieldRef={"fieldPath": "spec.nodeName"}),
                _from("LABEL", fieldRef={"fieldPath": "metadata.labels['a/b']"}),
                _from("TOKEN", secretKeyRef={"name": "s", "key": "token"}),
                _from("KEPT", configMapKeyRef={"name": "c", "key": "k"}),
                {"name": "ADDRESS", "value": "worker-0.train.default.svc:29500"},
                {"name": "BOTH", "value": "$(NAME)-$(KEPT)-$$(NAME)-$(NONE)"},
            ],
        }
        await api.create(PODS, made)
        await _ended(api, "sees")
        expected = "sees here label hush kept kept 127.0.0.1:29500 sees-kept-$(NAME)-$(NONE)\n"
        assert (await api.log("default", "sees")).decode() == expected

    tell(story)


def _from(name: str, **source: Any) -> Object:
    return {"name": name, "valueFrom": source}


def test_volumes_lie_where_they_are_mounted_and_nowhere_else(
    api: Api, tell: Told, tmp_path: Path
) -> None:
    async def story(_: Kubelet) -> None:
        await api.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"f": "text"}}, "default")
        volumes = [
            {"name": "shared", "emptyDir": {}},
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "kept", "persistentVolumeClaim": {"claimName": "claim"}},
        ]
        mounts = [
            {"name": "shared", "mountPath": "/roost-test/io"},
            {"name": "config", "mountPath": "/etc/roost-test"},
            {"name": "kept", "mountPath": "/roost-test/kept", "subPath": "deep"},
        ]
        script = (
            "cat /etc/roost-test/f /roost-test/io/x; cp /roost-test/io/x /roost-test/kept/y;"
            "echo no > /etc/roost-test/f || echo read-only"
        )
        made = _here("mounts", script, volumes=volumes)
        init = {"name": "init", "image": "x", "volumeMounts": mounts}
        init["command"] = ["bash", "-c", "echo from-init > /roost-test/io/x"]
        made["spec"]["containers"][0]["volumeMounts"] = mounts
        made["spec"]["initContainers"] = [init]
        await api.create(PODS, made)
        found = await _ended(api, "mounts")
        log = (await api.log("default", "mounts", container="main")).decode()
        assert log.startswith("textfrom-init\n")
        assert log.endswith("read-only\n")
        assert found["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0

    tell(story)
    assert (tmp_path / "claims/default/claim/deep/y").read_text() == "from-init\n"
    assert not Path("/roost-test").exists()
    assert not Path("/etc/roost-test").exists()


def test_a_pod_waits_for_what_it_refers_to(api: Api, tell: Told) -> None:
    async def story(_: Kubelet) -> None:
        volumes = [{"name": "config", "configMap": {"name": "late"}}]
        made = _here("waits", "cat /roost-test/f", volumes=volumes)
        mount = {"name": "config", "mountPath": "/roost-test"}
        made["spec"]["containers"][0]["volumeMounts"] = [mount]
        await api.create(PODS, made)

        async def waits() -> bool:
            found = await api.get(PODS, "waits", "default")
            states = [one["state"] for one in found["status"].get("containerStatuses") or ()]
            return any("late" in str(state) for state in states)

        await until(waits)
        body = {"metadata": {"name": "late"}, "data": {"f": "here"}}
        await api.create(CONFIG_MAPS, body, "default")
        await _ended(api, "waits")
        assert await api.log("default", "waits") == b"here"

    tell(story)


def test_a_failed_init_container_keeps_the_others_from_starting(api: Api, tell: Told) -> None:
    async def story(_: Kubelet) -> None:
        made = _here("stuck", "echo never")
        init = {"name": "init", "image": "x", "command": ["bash", "-c", "exit 3"]}
        made["spec"]["initContainers"] = [init]
        await api.create(PODS, made)

        async def failed() -> Object | None:
            found = await api.get(PODS, "stuck", "default")
            return found if found["status"].get("phase") == "Failed" else None

        found = await until(failed)
        assert found is not None
        assert "waiting" in found["status"]["containerStatuses"][0]["state"]

    tell(story)


def test_on_failure_it_runs_again_until_it_succeeds(api: Api, tell: Told, tmp_path: Path) -> None:
    async def story(_: Kubelet) -> None:
        script = f"echo x >> {tmp_path}/tries; [ $(wc -l < {tmp_path}/tries) = 3 ]"
        await api.create(PODS, _here("again", script, restartPolicy="OnFailure"))
        found = await _ended(api, "again")
        assert found["status"]["containerStatuses"][0]["restartCount"] == 2

    tell(story)


def test_a_sidecar_runs_beside_and_ends_with_the_pod(api: Api, tell: Told) -> None:
    async def story(kubelet: Kubelet) -> None:
        made = _here("pair", "sleep 0.1")
        side = {"name": "side", "image": "x", "command": ["sleep", "1000"]}
        made["spec"]["initContainers"] = [{**side, "restartPolicy": "Always"}]
        await api.create(PODS, made)
        await _ended(api, "pair")
        assert kubelet.life("pair").pids == []

    tell(story)


def test_a_deleted_pod_gets_its_grace_and_then_is_killed(api: Api, tell: Told) -> None:
    async def story(kubelet: Kubelet) -> None:
        script = "trap 'echo asked' TERM; while :; do sleep 0.05; done"
        await api.create(PODS, _here("stubborn", script, terminationGracePeriodSeconds=1))
        await api.create(PODS, _here("polite", "trap 'exit 0' TERM; while :; do sleep 0.05; done"))
        for name in ("stubborn", "polite"):
            await until(lambda name=name: _runs(api, name))  # type: ignore[misc]
        pids = kubelet.life("stubborn").pids
        log = kubelet.life("stubborn").container("main")
        await asyncio.sleep(0.2)  # until the traps are set
        await api.delete(PODS, "polite", "default")
        await api.delete(PODS, "stubborn", "default")
        await until(lambda: _is_gone(api, "polite"), 5)
        await until(lambda: _is_gone(api, "stubborn"), 10)
        assert log is not None
        assert log.log.read_text() == "asked\n"
        assert log.exit_code == 137
        assert not any(_lives(pid) for pid in pids)

    tell(story)


def test_a_pod_removed_by_force_leaves_no_process(api: Api, tell: Told) -> None:
    async def story(kubelet: Kubelet) -> None:
        await api.create(PODS, _here("forced", "sleep 1000 & wait"))
        await until(lambda: _runs(api, "forced"))
        (pid,) = kubelet.life("forced").pids
        await api.delete(PODS, "forced", "default", grace_s=0)

        async def gone() -> bool:
            return not _lives(pid)

        await until(gone)

    tell(story)


def test_processes_in_groups_of_their_own_end_with_the_container(
    api: Api, tell: Told, tmp_path: Path
) -> None:
    async def story(_: Kubelet) -> None:
        await api.create(PODS, _here("parent", f"set -m; sleep 1000 & echo $! > {tmp_path}/pid"))
        await _ended(api, "parent")
        assert not _lives(int((tmp_path / "pid").read_text()))

    tell(story)


def test_what_a_lost_node_ran_is_not_run_twice(
    api: Api, runner: asyncio.Runner, tmp_path: Path
) -> None:
    async def story() -> None:
        async with Kubelet(api, "here", tmp_path) as kubelet:
            await api.create(PODS, _here("once", f"echo x >> {tmp_path}/runs; sleep 1000"))
            await until(lambda: _runs(api, "once"))
            pids = kubelet.life("once").pids
        assert not any(_lives(pid) for pid in pids)
        assert (await api.get(PODS, "once", "default"))["status"]["phase"] == "Running"
        async with Kubelet(api, "here", tmp_path):
            found = await _ended(api, "once", "Failed")
        assert _exit(found) == 137

    runner.run(story())


def test_a_node_says_whether_it_is_ready(api: Api, tell: Told) -> None:
    async def story(kubelet: Kubelet) -> None:
        assert await _is_ready(api) == "True"
        await kubelet.report_ready(ready=False)
        assert await _is_ready(api) == "False"

    tell(story)


async def _is_ready(api: Api) -> str:
    found = await api.get(NODES, "here")
    (ready,) = found["status"]["conditions"]
    return str(ready["status"])


def test_processes_outlive_an_api_server_that_dies(
    cluster: ControlPlane, api: Api, tell: Told, tmp_path: Path
) -> None:
    go = tmp_path / "go"

    async def story(_: Kubelet) -> None:
        script = f"until [ -e {go} ]; do sleep 0.05; done; echo done"
        await api.create(PODS, _here("outlives", script))
        await until(lambda: _runs(api, "outlives"))
        cluster.kill_apiserver()
        go.touch()
        await cluster.restart_apiserver()
        await _ended(api, "outlives")
        assert await api.log("default", "outlives") == b"done\n"

    tell(story)


def test_pods_have_our_python(api: Api, tell: Told) -> None:
    async def story(_: Kubelet) -> None:
        await api.create(PODS, _here("python", "python -c 'import sys; print(sys.prefix)'"))
        await _ended(api, "python")
        assert (await api.log("default", "python")).decode().strip() == sys.prefix

    tell(story)


def _lives(pid: int) -> bool:
    found = process_tree.look(pid)
    return found is not None and found.state not in "ZX"  # who ended, waits for its parent
