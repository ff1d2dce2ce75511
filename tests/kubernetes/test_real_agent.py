"""The agent against the kubelet of Kubernetes: CPU slots in place of GPUs, all else as it is.

Real pods in containers of containerd, bound by the operator; the agent is a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.kubernetes.jobbing import define, job, jobbing, pods, reaches
from tests.support.images import busybox_root, write_image
from tests.support.kubernetes.control_plane import CONTROLLERS, ControlPlane
from tests.support.kubernetes.nodes import until
from tests.support.kubernetes.processes import free_ports
from tests.support.kubernetes.real_node import NAME, NotAllowed, RealNode

from roost.engines.local.shim import process_tree
from roost.errors import NotFound
from roost.kubernetes.agent.containers import first_processes, running
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, NODES, PODS, Object, ResourceKind
from roost.kubernetes.crds.permissions import agent_role

IMAGE = "roost.test/work:1"
SPACE = "default"
WHOLE, SHARED = "nvidia.com/gpu", "roost.dev/shared-gpu"
SLOTS = 4
ACCOUNT = "system:serviceaccount:roost-system:roost-agent"
ROLES = ResourceKind(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
BINDINGS = ResourceKind(
    ROLES.group, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
_SLOW_S = 120.0
#: Says what it was given, and works on.
IDLE = 'echo "$NVIDIA_VISIBLE_DEVICES $ROOST_GPUS"; exec sleep 600'
SCRIPT = 'echo "$NVIDIA_VISIBLE_DEVICES $ROOST_GPUS"; while :; do :; done'


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    made = ControlPlane(
        tmp_path_factory.mktemp("agent"),
        kwok=False,
        controller_manager=True,
        controllers=CONTROLLERS,
        users={ACCOUNT: ()},
    )
    try:
        asyncio.run(_prepare(made))
    except NotFound as error:
        pytest.skip(str(error))
    yield made
    asyncio.run(made.stop())


async def _prepare(plane: ControlPlane) -> None:
    """Start it, and let the agent do what its role allows and no more."""
    await plane.start()
    api = await Api.connect(kubeconfig=str(plane.kubeconfig))
    await api.create(ROLES, agent_role())
    to = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": "roost-agent"}
    user = {"apiGroup": ROLES.group, "kind": "User", "name": ACCOUNT}
    body = {"metadata": {"name": "roost-agent"}, "roleRef": to, "subjects": [user]}
    await api.create(BINDINGS, body)
    await define(api)
    await api.close()


@pytest.fixture(scope="module")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    folder = tmp_path_factory.mktemp("node")
    try:
        root = busybox_root(folder / "work", ["env", "sh", "sleep"])
        image = write_image(IMAGE, root, folder / "work.tar")
        with RealNode(plane, folder, {IMAGE: image}) as made:
            yield made
    except (FileNotFoundError, NotAllowed) as error:
        pytest.skip(f"no real kubelet runs on this machine: {error}")


@pytest.fixture
def api(node: RealNode, runner: asyncio.Runner) -> Iterator[Api]:
    made = runner.run(Api.connect(kubeconfig=str(node.plane.kubeconfig)))
    yield made
    runner.run(made.close())


class AgentProcess:
    """``roost agent`` as a process, beside the kubelet; ``home`` outlives it."""

    def __init__(self, node: RealNode, folder: Path) -> None:
        self.home, self.log = folder / "home", folder / "agent.log"
        self.kubelet = folder / "kubelet"  # the names of sockets have to be short
        self.kubelet.symlink_to(node.kubelet_folder)
        (self.port,) = free_ports(1)
        self._kubeconfig = node.plane.kubeconfig_of(ACCOUNT)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = self.spawn()

    def spawn(self) -> subprocess.Popen[bytes]:
        options = {
            "--node": NAME,
            "--kubeconfig": self._kubeconfig,
            "--kubelet-dir": self.kubelet,
            "--home": self.home,
            "--slots": SLOTS,
            "--metrics-port": self.port,
        }
        words = [str(word) for pair in options.items() for word in pair]
        with self.log.open("ab") as log:
            program = Path(sys.executable).with_name("roost")
            return subprocess.Popen(  # noqa: S603 - ours
                [program, "agent", *words], stdout=log, stderr=log
            )

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(_SLOW_S)

    def says(self, path: str) -> str:
        """What it answers on its port; nothing while it does not listen."""
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{self.port}/{path}", timeout=60).text
        return ""

    def tenants(self) -> Object:
        """How the sharing daemon says that each tenant stands."""
        with contextlib.suppress(OSError, ValueError):
            found: Object = json.loads((self.home / "gpu" / "status.json").read_text())
            return dict(found.get("tenants", {}))
        return {}


@pytest.fixture
def agent(node: RealNode) -> Iterator[AgentProcess]:
    with tempfile.TemporaryDirectory(prefix="roost-") as folder:
        made = AgentProcess(node, Path(folder))
        made.start()
        try:
            yield made
        finally:
            if made.process is not None and made.process.poll() is None:
                made.end()


async def offered(api: Api, agent: AgentProcess, times: int) -> None:
    """Wait until kubelets took the devices in so often, and the node offers them."""

    async def offers() -> bool:
        assert agent.process is not None
        assert agent.process.poll() is None, agent.log.read_text()
        try:
            found = (await api.get(NODES, NAME))["status"]["allocatable"]
        except NotFound:
            return False
        all_of_them = (found.get(WHOLE), found.get(SHARED)) == (str(SLOTS), str(48 * SLOTS))
        return all_of_them and agent.log.read_text().count("the kubelet knows") == times

    await until(offers, _SLOW_S)


@contextlib.asynccontextmanager
async def ready(plane: ControlPlane, api: Api, agent: AgentProcess) -> AsyncIterator[None]:
    """An operator, and a node that offers what the agent announces; pods are gone afterwards."""

    await offered(api, agent, 1)
    async with jobbing(plane):
        try:
            yield
        finally:
            for one in (await api.list(JOBS, SPACE))[0]:
                await api.delete(JOBS, one["metadata"]["name"], SPACE)
            for one in (await api.list(PODS, SPACE))[0]:
                await api.delete(PODS, one["metadata"]["name"], SPACE, grace_s=0)

            async def gone() -> bool:
                return not (await api.list(PODS, SPACE))[0]

            await until(gone, _SLOW_S)


def pod(name: str, limits: dict[str, str], **notes: str) -> Object:
    annotations = {f"roost.dev/gpu-{key}": value for key, value in notes.items()}
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["/bin/sh", "-c", SCRIPT],
        "resources": {"limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "annotations": annotations},
        "spec": {
            "schedulerName": "roost",
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }


def half(name: str) -> Object:
    return pod(name, {SHARED: "1"}, share="0.5")


def whole(name: str) -> Object:
    return pod(name, {WHOLE: "1"})


async def runs(api: Api, name: str) -> Object:
    """The pod once its container runs."""

    async def there() -> Object:
        found = await api.get(PODS, name, SPACE)
        assert found["status"].get("phase") != "Failed", found["status"]
        return found if running(found) else {}

    return await until(there, _SLOW_S)


async def given(api: Api, name: str) -> tuple[str, str]:
    """What the scheduler decided for a pod, and what its container was told."""
    found = await runs(api, name)

    async def told() -> bytes:
        return await api.log(SPACE, name)

    said = (await until(told, _SLOW_S)).decode().split()
    decided = found["metadata"]["annotations"]["roost.dev/gpus"]
    assert said == [f"slot-{decided}", decided]
    return name, decided


async def process(api: Api, name: str) -> int:
    """The first process of a pod's container, by its number on this machine."""
    (container,) = running(await runs(api, name)).values()

    async def found() -> int:
        return first_processes([container]).get(container, (0, 0))[0]

    return await until(found, _SLOW_S)


async def are_by_turns(*pids: int) -> None:
    """Wait until each was seen stopped and going on."""
    seen: dict[int, set[str]] = {pid: set() for pid in pids}

    async def both() -> bool:
        for pid, states in seen.items():
            now = process_tree.look(pid)
            assert now is not None
            states.add("stopped" if now.state == "T" else "goes on")
        return all(len(states) == 2 for states in seen.values())

    await until(both, _SLOW_S)


def test_containers_see_what_the_scheduler_decided(
    plane: ControlPlane, api: Api, agent: AgentProcess, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with ready(plane, api, agent):
            for one in (whole("one"), half("left"), half("right"), whole("two")):
                await api.create(PODS, one)
            found = dict([await given(api, name) for name in ("one", "left", "right", "two")])
            assert found["left"] == found["right"]
            assert len({found["one"], found["two"], found["left"]}) == 3
            await are_by_turns(await process(api, "left"), await process(api, "right"))
            labels = (await api.get(NODES, NAME))["metadata"]["labels"]
            assert labels["roost.dev/gpu-count"] == str(SLOTS)
            assert agent.says("readyz") == "the kubelet knows the devices\n"

            async def measured() -> bool:
                return agent.says("metrics").count('roost_agent_busy{gpu="') == 2

            await until(measured, _SLOW_S)
            told = agent.says("metrics")
            labelled = f'{{gpu="{found["left"]}",namespace="default",pod="left"}}'
            assert f"roost_agent_share{labelled} 0.5" in told
            assert "roost_agent_shares_held 1.0" in told

    runner.run(story())


def test_many_at_once_are_not_taken_for_each_other(
    plane: ControlPlane, api: Api, agent: AgentProcess, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with ready(plane, api, agent):
            wholes = [whole(f"whole-{n}") for n in range(2)]
            quarters = [pod(f"part-{n}", {SHARED: "1"}, share="0.25") for n in range(8)]
            made = [*wholes, *quarters]
            for one in made:
                one["spec"]["containers"][0]["command"][2] = IDLE
            await asyncio.gather(*(api.create(PODS, one) for one in made))
            names = [one["metadata"]["name"] for one in made]
            found = dict([await given(api, name) for name in names])
            held = {gpu: sum(on == gpu for on in found.values()) for gpu in found.values()}
            assert sorted(held.values()) == [1, 1, 4, 4]

    runner.run(story())


def test_pods_go_on_while_the_agent_is_killed_and_started(
    plane: ControlPlane, api: Api, agent: AgentProcess, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with ready(plane, api, agent):
            for one in (half("left"), half("right"), whole("one")):
                await api.create(PODS, one)
            before = dict([await given(api, name) for name in ("left", "right", "one")])
            pids = [await process(api, name) for name in ("left", "right")]
            await are_by_turns(*pids)
            agent.end(signal.SIGKILL)
            await are_by_turns(*pids)  # the sharing daemon is a process of its own
            agent.start()

            await offered(api, agent, 2)

            async def adopted() -> bool:
                return len(agent.tenants()) == 2

            await until(adopted, _SLOW_S)
            await are_by_turns(*pids)
            await api.create(PODS, whole("late"))
            late = (await given(api, "late"))[1]
            assert late not in before.values()
            assert [await process(api, name) for name in ("left", "right")] == pids
            assert agent.end() == 0  # in order: nobody stays locked
            for pid in pids:
                now = process_tree.look(pid)
                assert now is not None
                assert now.state != "T"

    runner.run(story())


def test_a_pod_is_suspended_in_place(
    plane: ControlPlane, api: Api, agent: AgentProcess, runner: asyncio.Runner
) -> None:
    async def is_so(standing: bool) -> bool:  # noqa: FBT001 - an expected value
        notes = (await api.get(PODS, "left", SPACE))["metadata"]["annotations"]
        found = json.loads(notes.get("roost.dev/suspended", "null"))
        return found is not None and found["suspended"] is standing

    async def story() -> None:
        async with ready(plane, api, agent):
            await api.create(PODS, half("left"))
            pid = await process(api, "left")
            for word, standing in (("true", True), (None, False)):
                body = {"metadata": {"annotations": {"roost.dev/suspend": word}}}
                await api.patch(PODS, "left", body, SPACE)

                await until(partial(is_so, standing), _SLOW_S)
                (tenant,) = agent.tenants().values()
                assert tenant["standing"] == ("parked" if standing else "running")
                if not standing:
                    await are_by_turns(pid)  # alone, it has its half and no more

    runner.run(story())


def test_there_is_one_agent_on_a_node(
    plane: ControlPlane, api: Api, agent: AgentProcess, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with ready(plane, api, agent):
            second = await asyncio.to_thread(agent.spawn)
            assert await asyncio.to_thread(second.wait, _SLOW_S) == 2
            assert agent.process is not None
            said = agent.log.read_text()
            assert f"another agent runs on this node (process {agent.process.pid})" in said
            assert agent.process.poll() is None

    runner.run(story())


def test_a_kubelet_that_is_started_anew_is_told_again(
    plane: ControlPlane, node: RealNode, api: Api, agent: AgentProcess, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with ready(plane, api, agent):
            await api.create(PODS, half("left"))
            await api.create(PODS, whole("one"))
            before = dict([await given(api, name) for name in ("left", "one")])
            pid = await process(api, "left")
            node.restart_kubelet()

            await offered(api, agent, 2)
            await api.create(PODS, half("right"))
            await api.create(PODS, whole("late"))
            after = dict([await given(api, name) for name in ("right", "late")])
            assert after["right"] == before["left"]
            assert after["late"] not in {*before.values()}
            assert await process(api, "left") == pid
            await are_by_turns(pid, await process(api, "right"))

    runner.run(story())


def test_jobs_of_roost_get_their_shares_from_the_agent(
    plane: ControlPlane, api: Api, agent: AgentProcess, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with ready(plane, api, agent):
            await api.create(PODS, whole("one"))
            share = job("half", image=IMAGE, command=["/bin/sh", "-c", SCRIPT], gpus=0.5)
            await api.create(JOBS, share)
            await reaches(api, "half", "running", _SLOW_S)
            (found,) = await pods(api, "half")
            assert found["spec"]["containers"][0]["resources"]["limits"][SHARED] == "1"
            decided = (await given(api, found["metadata"]["name"]))[1]
            assert decided != (await given(api, "one"))[1]
            await are_by_turns(await process(api, found["metadata"]["name"]))

    runner.run(story())
