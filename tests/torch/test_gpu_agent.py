"""The agent's whole path on a real GPU: a kubelet's own protocol, processes in place of containers.

A stand-in for the API server keeps one node and its pods; everything else is real: the agent, its
plug-ins over gRPC, cgroups by which it finds containers, the sharing daemon, the driver. It needs
root.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib.util
import json
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from tests.unit.kubernetes.agent.fake_kubelet import FakeKubelet

from roost.core.spec import Way
from roost.engines.local.gpu.telemetry import Nvml
from roost.kubernetes.agent.agent import AgentOptions, NodeAgent, find_machine
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import PODS, Object, ResourceKind
from roost.kubernetes.objects.nodes import SHARED_GPUS
from roost_bench.gpu.programs import CODE, COUNT, FINE, READY, REST, RUN
from roost_bench.gpu.workers import MeasuredWorker

NODE, WHOLE = "gpus", "nvidia.com/gpu"


def place_of_groups() -> Path | None:
    """Where cgroups can be made; one is mounted if none is."""
    roots = [Path("/sys/fs/cgroup"), *sorted(Path("/sys/fs/cgroup").glob("*/"))]
    for root in roots:
        if (root / "cgroup.procs").exists() and os.access(root / "cgroup.procs", os.W_OK):
            return root
    made = Path(tempfile.mkdtemp(prefix="roost-groups-"))
    command = ["mount", "-t", "cgroup2", "none", str(made)]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - its name is fixed
    return made if not done.returncode else None


def has_gpu() -> bool:
    """Whether there is a GPU that torch can use."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch  # noqa: PLC0415 - it may not be here

    return bool(torch.cuda.is_available())


if not has_gpu():
    pytest.skip("no torch with a GPU here", allow_module_level=True)
GROUPS = place_of_groups() if not os.geteuid() else None
if GROUPS is None:
    pytest.skip("cgroups cannot be made here", allow_module_level=True)
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


class OneNodeServer:
    """An API server with one node and its pods, as far as an agent asks."""

    def __init__(self) -> None:
        self.node: Object = {"metadata": {"name": NODE, "resourceVersion": "1"}, "spec": {}}
        self.pods: dict[str, Object] = {}
        self._version = 1
        self._news = asyncio.Condition()
        self._told: list[Object] = []

    async def tell(self, pod: Object) -> None:
        """A pod came or changed."""
        async with self._news:
            self._version += 1
            pod["metadata"]["resourceVersion"] = str(self._version)
            self.pods[pod["metadata"]["name"]] = pod
            self._told.append(copy.deepcopy(pod))
            self._news.notify_all()

    async def note(self, name: str, **notes: str | None) -> None:
        """Somebody annotates a pod."""
        changed = {f"roost.dev/{key}": value for key, value in notes.items()}
        await self.patch(PODS, name, {"metadata": {"annotations": changed}})

    async def pages(self, *_: object, **__: object) -> AsyncGenerator[tuple[bool, Any, str], None]:
        yield True, copy.deepcopy(list(self.pods.values())), str(self._version)

    async def watch(
        self, _: object, version: str, *__: object, **___: object
    ) -> AsyncGenerator[tuple[str, Object], None]:
        yield "BOOKMARK", {"metadata": {"resourceVersion": version}}
        seen = int(version)
        while True:
            async with self._news:
                fresh = [
                    one for one in self._told if int(one["metadata"]["resourceVersion"]) > seen
                ]
                if not fresh:
                    await self._news.wait()
            for one in fresh:
                seen = int(one["metadata"]["resourceVersion"])
                yield "MODIFIED", one

    async def get(self, *_: object) -> Object:
        return copy.deepcopy(self.node)

    async def patch(
        self, kind: ResourceKind, name: str, body: Object, *_: object, **given: str
    ) -> Object:
        if kind != PODS:
            if given.get("sub") == "status":
                self.node["status"] = body["status"]
            return self.node
        pod = copy.deepcopy(self.pods[name])
        notes = pod["metadata"]["annotations"]
        for key, value in body["metadata"]["annotations"].items():
            notes.pop(key, None)
            notes |= {} if value is None else {key: value}
        await self.tell(pod)
        return pod


class GpuNode:
    """A node with the first GPU: its kubelet, its agent, and pods that are processes."""

    def __init__(self, folder: Path, kubelet: FakeKubelet) -> None:
        self.folder, self.kubelet, self.server = folder, kubelet, OneNodeServer()
        self.agent: NodeAgent | None = None
        self.jobs: list[MeasuredWorker] = []
        self.groups: list[Path] = []
        self._running: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start an agent, and wait until the kubelet knows the devices."""
        options = AgentOptions(NODE, self.folder / "home", self.folder)
        machine = await find_machine(None)
        self.agent = NodeAgent(cast("Api", self.server), options, machine)
        self._running = asyncio.create_task(self.agent.run())
        await self.kubelet.until(SHARED_GPUS, 48 * machine.node.gpus)

    async def end(self) -> None:
        """The agent is told to stop; pods go on."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    async def run(self, kind: str, name: str, amount: float = 0, **notes: str) -> MeasuredWorker:
        """A pod with a share, admitted and begun; its program is in a cgroup of its own."""
        container = uuid4().hex * 2
        pod = {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": f"uid-{name}",
                "annotations": {
                    "roost.dev/gpus": "0",
                    **{f"roost.dev/gpu-{key}": value for key, value in notes.items()},
                },
            },
            "spec": {
                "nodeName": NODE,
                "containers": [{"name": "main", "resources": {"limits": {SHARED_GPUS: "1"}}}],
            },
            "status": {"phase": "Pending"},
        }
        await self.server.tell(pod)
        told = (await self.kubelet.admit(pod))["main"].variables
        await self.kubelet.begin(pod)
        env = {**told, "CUDA_VISIBLE_DEVICES": told.get("CUDA_VISIBLE_DEVICES", "0")}
        job = MeasuredWorker(kind, self.folder, amount, env)
        self.jobs.append(job)
        assert GROUPS is not None
        group = GROUPS / f"roost-{container}"
        group.mkdir()
        self.groups.append(group)
        (group / "cgroup.procs").write_text(str(job.pid))
        state = {
            "name": "main",
            "containerID": f"containerd://{container}",
            "state": {"running": {}},
        }
        running = {"phase": "Running", "containerStatuses": [state]}
        await self.server.tell({**copy.deepcopy(pod), "status": running})
        await asyncio.to_thread(job.until, READY)
        assert self.agent is not None
        agent = self.agent
        await self.until(lambda: name in {one.pod for one in agent.tenants.standings()})
        return job

    async def suspended(self, name: str) -> Object:
        """What is written of a pod's suspension, once it is."""
        key = "roost.dev/suspended"
        await self.until(lambda: key in self.server.pods[name]["metadata"]["annotations"])
        found: Object = json.loads(self.server.pods[name]["metadata"]["annotations"][key])
        return found

    async def until(self, true: Callable[[], object], within_s: float = 60.0) -> None:
        deadline = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < deadline, (self.server.pods, self.server.node)
            await asyncio.sleep(0.05)

    async def rates(self, jobs: list[MeasuredWorker], for_s: float = 6.0) -> list[float]:
        """What each does in a second, while these run."""
        for job in self.jobs:
            if job.process.poll() is None:
                job.tell(RUN if job in jobs else REST)
        await asyncio.sleep(8.0)  # one that was idle is known for what it is, and has paid
        begun, before = time.monotonic(), [job.get(COUNT) for job in jobs]
        await asyncio.sleep(for_s)
        return [
            (job.get(COUNT) - was) / (time.monotonic() - begun)
            for job, was in zip(jobs, before, strict=True)
        ]


@contextlib.asynccontextmanager
async def gpu_node() -> AsyncIterator[GpuNode]:
    nvml = Nvml()
    before = nvml.memory(0).used
    with tempfile.TemporaryDirectory(prefix="roost-") as made:
        async with FakeKubelet(Path(made)) as kubelet:
            node = GpuNode(Path(made), kubelet)
            await node.begin()
            try:
                yield node
            finally:
                for job in node.jobs:
                    job.end()
                assert node.agent is not None
                for daemon in node.agent._sharing._daemons.values():
                    daemon.stop()
                await node.end()
                for group in node.groups:
                    group.rmdir()
    deadline = time.monotonic() + 60
    while nvml.memory(0).used - before > 16 and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    left = nvml.memory(0).used - before
    nvml.close()
    assert left <= 16, f"{left} MiB of the GPU are left behind"


def test_pods_have_their_parts_while_the_agent_is_replaced() -> None:
    async def story() -> None:
        async with gpu_node() as node:
            large = await node.run("chain", "large", share="0.75")
            (alone,) = await node.rates([large])
            small = await node.run("chain", "small", share="0.25")
            parts = await node.rates([large, small])
            # Alone it has three quarters, too: a fixed share is never more.
            assert parts[0] == pytest.approx(alone, rel=0.07)
            assert parts[1] == pytest.approx(alone / 3, rel=0.07)
            await node.end()
            for job in (large, small):  # nobody stays locked, and nobody is ended
                done = job.get(COUNT)
                await node.until(lambda job=job, done=done: job.get(COUNT) > done)  # type: ignore[misc]
            await node.begin()
            await node.until(lambda: node.agent and len(node.agent.tenants.standings()) == 2)
            again = await node.rates([large, small])
            assert again[1] / again[0] == pytest.approx(1 / 3, rel=0.07)

    asyncio.run(story())


def test_a_pod_leaves_its_gpu_and_comes_back() -> None:
    async def story() -> None:
        async with gpu_node() as node:
            nvml = Nvml()
            job = await node.run("hold", "held", 2, share="0.5", qos="best-effort")
            await node.rates([job], 0.5)
            full = nvml.memory(0).used
            await node.server.note("held", suspend="true")
            told = await node.suspended("held")
            assert told["suspended"], told
            assert told["freed_mib"] > 2000
            assert nvml.memory(0).used < full - 2000
            done = job.get(COUNT)
            await node.server.note("held", suspend=None, suspended=None)
            told = await node.suspended("held")
            assert not told["suspended"], told
            await node.until(lambda: job.get(COUNT) > done + 10)
            job.tell(2.0)
            assert await asyncio.to_thread(job.until, CODE) == FINE
            nvml.close()

    asyncio.run(story())


@pytest.mark.parametrize("way", Way)
def test_a_limit_counts_all_processes_of_a_pod(way: Way) -> None:
    async def story() -> None:
        async with gpu_node() as node:
            notes = {"share": "0.25", "memory": "4Gi", "way": str(way)}
            job = await node.run("take-three", "greedy", 2048, **notes)
            beside = await node.run("chain", "beside", share="0.25", way=str(way))
            job.tell(RUN)
            await asyncio.to_thread(job.process.wait, 60)
            (rate,) = await node.rates([beside], 1.0)
            assert rate > 0

    asyncio.run(story())
