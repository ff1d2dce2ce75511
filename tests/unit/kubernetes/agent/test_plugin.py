"""The device plug-in against a kubelet's own protocol: real gRPC on sockets, made-up GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubernetes.agent.fake_kubelet import FakeKubelet, Rejected

from roost.core.spec import NodeId, NodeSpec
from roost.engines.local.devices import Machine
from roost.engines.local.gpu import sharing
from roost.engines.local.gpu.driver import CudaDriver
from roost.engines.local.gpu.sharing import GpuSharing
from roost.kubernetes.agent.allocation import NodeAllocations
from roost.kubernetes.agent.allocator import NodeAllocator
from roost.kubernetes.agent.devices import NodeDevices, announced
from roost.kubernetes.agent.kubelet import Kubelet
from roost.kubernetes.agent.plugin import DevicePlugin
from roost.kubernetes.objects.nodes import SHARED_GPUS

NODE = NodeId("n1")
WHOLE = "nvidia.com/gpu"
VGPU = "volcano.sh/vgpu-number"
GPUS = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")
Object = dict[str, Any]


class NoNvml:
    def uuid(self, index: int) -> str:
        return GPUS[index]

    def close(self) -> None:
        pass


class Node:
    """A node with four GPUs, a kubelet, and the parts of an agent that a kubelet talks to."""

    def __init__(self, folder: Path, split_count: int = 1) -> None:
        spec = NodeSpec(NODE, gpus=4, kind="H200", gpu_memory_mib=100_000)
        self.devices = NodeDevices.of(Machine(spec, (0,), GPUS, (0, 0, 1, 1)))
        self.fake, self.kubelet = FakeKubelet(folder), Kubelet(folder)
        resources = announced(WHOLE, split_count)
        self.allocations = NodeAllocations(NODE, [one.name for one in resources])
        self.sharing = GpuSharing(folder, Machine(spec, (0,)), "")
        self.allocator = NodeAllocator(
            self.devices,
            self.allocations,
            self.sharing,
            self.kubelet.given,
            folder / "gpu" / "hook",
            patience_s=0.0,
        )
        self.plugins = [
            DevicePlugin(one, self.devices, self.allocator, self.kubelet.plugins)
            for one in resources
        ]

    async def register(self) -> None:
        for plugin in self.plugins:
            await plugin.start()
            await self.kubelet.register(plugin.socket.name, plugin.resource.name)
        await self.fake.until(WHOLE, 4 * self.plugins[0].resource.slots)
        for name in (SHARED_GPUS, VGPU):
            await self.fake.until(name, 4 * 48)

    def see(self, *pods: Object) -> None:
        for pod in pods:
            self.allocations.see(None, pod)
        self.allocator.heard()

    async def run(self, pod: Object) -> Any:
        """Admit and begin a pod that the agent knows of; what its first container is told."""
        self.see(pod)
        (answer, *_) = (await self.fake.admit(pod)).values()
        await self.fake.begin(pod)
        return answer


def pod(name: str, gpus: str | None, limits: dict[str, str], **notes: str) -> Object:
    """A pod that was bound to the node, to these GPUs."""
    annotations = {f"roost.dev/gpu-{key}": value for key, value in notes.items()}
    if gpus is not None:
        annotations["roost.dev/gpus"] = gpus
    container = {"name": "main", "resources": {"limits": limits}}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "annotations": annotations,
        },
        "spec": {"nodeName": NODE, "containers": [container]},
        "status": {"phase": "Pending"},
    }


def half(name: str, gpu: int, **notes: str) -> Object:
    return pod(name, str(gpu), {SHARED_GPUS: "1"}, **{"share": "0.5", **notes})


def whole(name: str, gpus: str | None, count: int = 1) -> Object:
    return pod(name, gpus, {WHOLE: str(count)})


@pytest.fixture
def folder() -> Iterator[Path]:
    """The name of a socket has room for a hundred letters."""
    with tempfile.TemporaryDirectory(prefix="roost-") as made:
        yield Path(made)


@pytest.fixture
def play(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Plays a story on a node whose kubelet knows the plug-ins."""
    monkeypatch.setattr(sharing, "Nvml", NoNvml)
    monkeypatch.setattr(CudaDriver, "missing", staticmethod(lambda: ""))

    def go(story: Callable[[Node], Awaitable[None]], split_count: int = 1) -> None:
        async def all_of_it() -> None:
            async with _node(folder, split_count) as node:
                await story(node)

        asyncio.run(all_of_it())

    return go


@contextlib.asynccontextmanager
async def _node(folder: Path, split_count: int) -> AsyncIterator[Node]:
    node = Node(folder, split_count)
    async with node.fake:
        try:
            await node.register()
            yield node
        finally:
            for plugin in node.plugins:
                await plugin.stop()


Play = Callable[..., None]


def test_partitions_are_one_device_each_and_have_no_places() -> None:
    found = announced(WHOLE, 10, partitioned=True)
    assert (found[0].name, found[0].slots) == (WHOLE, 1)
    assert {one.slots for one in found[1:]} == {0}


def test_two_halves_on_one_gpu_and_a_whole_one_beside(play: Play) -> None:
    async def story(node: Node) -> None:
        for name in ("first", "second"):
            told = await node.run(half(name, 2))
            assert told.variables["NVIDIA_VISIBLE_DEVICES"] == "GPU-c"
            assert told.variables["ROOST_GPUS"] == "2"
            assert told.variables["ROOST_GPU_MEMORY_MIB"] == "50000"
            assert told.mounts[0].container_path == told.variables["PYTHONPATH"]
            assert told.mounts[0].read_only
        # The kubelet would have taken the first; the scheduler decided the last.
        told = await node.run(whole("alone", "3"))
        assert told.variables == {"NVIDIA_VISIBLE_DEVICES": "GPU-d", "ROOST_GPUS": "3"}
        told = await node.run(whole("pair", "1,0", 2))
        assert told.variables["NVIDIA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"

    play(story)


def test_what_contradicts_the_scheduler_is_refused(play: Play) -> None:
    async def story(node: Node) -> None:
        taken = whole("stays", "1")
        await node.run(taken)
        late = whole("late", "1")
        node.see(late)
        with pytest.raises(Rejected, match=r"late .* was to have GPU 1, as the scheduler decided"):
            await node.fake.admit(late)

    play(story)


def test_whole_and_shared_are_never_on_one_gpu(play: Play) -> None:
    async def story(node: Node) -> None:
        await node.run(half("small", 1))
        large = whole("large", "1")
        node.see(large)
        with pytest.raises(
            Rejected, match=r"large .* GPU 1 whole, which team/small .* has in shares"
        ):
            await node.fake.admit(large)
        node.allocations.see(large, None)
        await node.run(whole("other", "2"))
        tiny = half("tiny", 2)
        node.see(tiny)
        with pytest.raises(Rejected, match=r"in shares, which team/other .* has whole"):
            await node.fake.admit(tiny)

    play(story)


def test_pods_of_other_schedulers_get_what_nobody_has(play: Play) -> None:
    async def story(node: Node) -> None:
        await node.run(half("small", 0))
        await node.run(whole("ours", "1"))
        coming = half("coming", 2)  # bound, and not here yet
        node.see(coming)
        told = await node.run(whole("theirs", None))
        assert told.variables["ROOST_GPUS"] == "3"
        more = whole("more", None)
        node.see(more)
        with pytest.raises(Rejected, match=r"0 are left on this node .GPU 0: team/small"):
            await node.fake.admit(more)
        node.allocations.see(coming, None)
        unplaced = pod("lost", None, {SHARED_GPUS: "1"}, share="0.5")
        node.see(unplaced)
        with pytest.raises(Rejected, match="schedulerName: roost"):
            await node.fake.admit(unplaced)

    play(story)


def test_a_pod_that_was_taken_for_another_is_not_begun(play: Play) -> None:
    """The kubelet admits the second first, and nothing it says tells the two apart."""

    async def story(node: Node) -> None:
        first, second = whole("first", "0"), whole("second", "1")
        node.see(first, second)
        await node.fake.admit(second)
        with pytest.raises(Rejected, match=r"second .* was to have GPU 1 and holds GPU 0"):
            await node.fake.begin(second)

    play(story)


def test_containers_of_a_pod_share_its_gpus_out(play: Play) -> None:
    async def story(node: Node) -> None:
        two = whole("two", "3,1")
        two["spec"]["containers"].append({"name": "side", "resources": {"limits": {WHOLE: "1"}}})
        node.see(two)
        found = await node.fake.admit(two)
        assert {name: one.variables["ROOST_GPUS"] for name, one in found.items()} == {
            "main": "3",
            "side": "1",
        }

    play(story)


def test_a_gpu_that_failed_is_not_given(play: Play) -> None:
    async def story(node: Node) -> None:
        sick = whole("sick", "1")
        node.see(sick)
        node.devices.faults[1] = "Xid 79: it fell off the bus"
        for plugin in node.plugins:
            plugin.changed()
        await node.fake.until(WHOLE, 3)
        await node.fake.until(SHARED_GPUS, 3 * 48)
        assert "GPU-b::0" not in node.fake.free(WHOLE)
        with pytest.raises(Rejected, match="was to have GPU 1"):
            await node.fake.admit(sick)

    play(story)


def test_a_kubelet_that_begins_anew_is_told_again(play: Play) -> None:
    async def story(node: Node) -> None:
        await node.run(whole("before", "0"))
        before = node.kubelet.identity()
        await node.fake.restart()
        assert node.kubelet.identity() not in {None, before}
        assert not any(plugin.socket.exists() for plugin in node.plugins)
        await node.register()
        told = await node.run(half("after", 1))
        assert told.variables["ROOST_GPUS"] == "1"

    play(story)


def test_an_agent_that_begins_anew_knows_who_has_what(play: Play) -> None:
    async def story(node: Node) -> None:
        small, large = half("small", 0), whole("large", "2")
        await node.run(small)
        await node.run(large)
        fresh = NodeAllocations(NODE, [WHOLE, SHARED_GPUS])
        for one in (small, large):
            fresh.see(None, one)
        found = await node.kubelet.given()
        fresh.adopt(
            {
                who: {
                    container: {name: node.devices.indices(ids) for name, ids in has.items()}
                    for container, has in containers.items()
                }
                for who, containers in found.items()
            }
        )
        assert {wish.pod: gpus for wish, gpus in fresh.holders()} == {"small": (0,), "large": (2,)}
        assert fresh.waiting(WHOLE, 1, found) == []

    play(story)


def test_names_of_other_systems_go_on_working(play: Play) -> None:
    async def story(node: Node) -> None:
        volcano = pod("v", "1", {VGPU: "1", "volcano.sh/vgpu-memory": "8192"})
        told = await node.run(volcano)
        assert told.variables["ROOST_GPU_MEMORY_MIB"] == "8192"
        for name in ("h1", "h2", "h3"):  # as HAMi's pods ask: a place on a GPU, and memory
            told = await node.run(pod(name, "0", {WHOLE: "1", "nvidia.com/gpumem": "4096"}))
            assert told.variables["ROOST_GPUS"] == "0"
        told = await node.run(whole("w", "3"))
        assert told.variables["NVIDIA_VISIBLE_DEVICES"] == "GPU-d"

    play(story, split_count=10)


def test_a_pod_that_is_not_known_is_named_as_such(play: Play) -> None:
    async def story(node: Node) -> None:
        with pytest.raises(Rejected, match="is known to wait for 1 of"):
            await node.fake.admit(whole("unheard", "0"))
        unsaid = pod("unsaid", "", {SHARED_GPUS: "1"})
        node.see(unsaid)
        with pytest.raises(
            Rejected, match=r"unsaid asks for 1 of .* annotation roost\.dev/gpu-share"
        ):
            await node.fake.admit(unsaid)
        node.allocations.see(unsaid, None)
        wrong = whole("wrong", "0,x")
        node.see(wrong)
        with pytest.raises(Rejected, match=r"annotation roost\.dev/gpus"):
            await node.fake.admit(wrong)

    play(story)


def test_the_agent_waits_a_moment_for_news_of_a_pod(play: Play) -> None:
    async def story(node: Node) -> None:
        patient = NodeAllocator(
            node.devices,
            node.allocations,
            node.sharing,
            node.kubelet.given,
            Path("/hook"),
            patience_s=60.0,
        )
        asked = asyncio.create_task(patient.prefer(WHOLE, 1))
        await asyncio.sleep(0)
        assert patient._mutex.locked()
        node.allocations.see(None, whole("slow", "2"))
        patient.heard()
        assert await asked == (2,)

    play(story)


def test_a_machine_names_its_devices() -> None:
    machine = Machine(NodeSpec(NODE, gpus=2, kind="CPU"), (0,))
    devices = NodeDevices.of(machine)
    assert [gpu.uuid for gpu in devices.gpus] == ["slot-0", "slot-1"]
    assert replace(machine, uuids=GPUS[:2], numa=(0, 1)).uuids == GPUS[:2]
