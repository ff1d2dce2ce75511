"""The agent of a node: everything of this package put together.

1. ``_begin``: one agent per node (a lock). The devices are found, the sharing daemon's files read,
   the pods of the node mirrored, and the kubelet is asked who has which devices: containers that
   run are known before the kubelet can ask for anything.
2. A plug-in listens for each resource, and is registered, again whenever the kubelet begins anew.
3. Once a second, and when a pod changes, tenants are made to be as pods are, and findings are told.
4. ``_end``: the plug-ins stop, and the sharing daemon unlocks all before it ends. Pods go on. What
   is suspended stays so, and the next agent takes over from the files and from the kubelet.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from roost.core.spec import NodeId
from roost.engines.local import devices as local_devices
from roost.engines.local.devices import Machine
from roost.engines.local.gpu import GpuSharing
from roost.errors import Conflict, Fatal, InvalidSpec, NotFound, Retryable, RoostError
from roost.kubernetes.agent.allocation import NodeAllocations
from roost.kubernetes.agent.allocator import NodeAllocator
from roost.kubernetes.agent.devices import WHOLE_GPUS, NodeDevices, announced
from roost.kubernetes.agent.health import GpuHealth
from roost.kubernetes.agent.kubelet import Kubelet
from roost.kubernetes.agent.obstacles import obstacles
from roost.kubernetes.agent.plugin import DevicePlugin
from roost.kubernetes.agent.report import NodeHealth, NodeReport
from roost.kubernetes.agent.tenants import PodTenants
from roost.kubernetes.agent.use import UseMeter
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import PODS, Object
from roost.kubernetes.client.mirror import Mirror
from roost.kubernetes.objects import trimming

_log = logging.getLogger(__name__)
_LOOK_S = 1.0
_AGAIN_S = 0.2
_MEASURE_S = 5.0
#: Every process of the node is looked at for them.
_OBSTACLES_S = 10.0


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How an agent is to run; ``slots``: so many CPU slots in place of GPUs."""

    node: str
    home: Path
    kubelet: Path = Path("/var/lib/kubelet")
    resource: str = WHOLE_GPUS
    split_count: int = 1
    slots: int | None = None


class NodeAgent:
    """Announces devices, gives them out, holds shares, tells how they are."""

    def __init__(self, api: Api, options: AgentOptions, machine: Machine) -> None:
        self.options, self._api, self._machine = options, api, machine
        node = NodeId(options.node)
        resources = announced(
            options.resource, options.split_count, partitioned=machine.partitioned
        )
        self.devices = NodeDevices.of(machine)
        self.kubelet = Kubelet(options.kubelet)
        self.allocations = NodeAllocations(node, [one.name for one in resources])
        self._sharing = GpuSharing(options.home, machine, sys.executable)
        self._allocator = NodeAllocator(
            self.devices,
            self.allocations,
            self._sharing,
            self.kubelet.given,
            options.home / "gpu" / "hook",
        )
        self._allocator.on_given = lambda _wish, _gpus: self._woken.set()
        self.plugins = [
            DevicePlugin(one, self.devices, self._allocator, self.kubelet.plugins)
            for one in resources
        ]
        self._mirror = Mirror(
            api,
            PODS,
            self._see,
            fields=f"spec.nodeName={options.node}",
            trim=partial(trimming.trim, PODS),
        )
        self.tenants = PodTenants(self._sharing, self._annotate)
        self._meter = UseMeter(machine)
        self._report = NodeReport(api, options.node, time.time)
        self._health: GpuHealth | None = None
        self._woken = asyncio.Event()
        self._obstacles: tuple[str, ...] = ()
        self._looked_at = float("-inf")
        #: The kubelet that knows the plug-ins.
        self._registered: tuple[int, int] | None = None

    @property
    def ready(self) -> bool:
        """Whether the kubelet that runs now knows the devices."""
        return self._registered is not None and self._registered == self.kubelet.identity()

    async def run(self) -> None:
        """Go on until cancelled. Conflict: another agent runs on this node."""
        lock = _lock(self.options.home)
        mirroring = asyncio.create_task(self._mirror.run())
        tasks = [mirroring]
        try:
            await self._begin()
            tasks += [
                asyncio.create_task(self._again("the kubelet", self._keep_registered)),
                asyncio.create_task(self._again("tenants", self._hold)),
                asyncio.create_task(self._again("use", self._measure)),
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
            raise Fatal("a part of the agent has ended")
        finally:
            await self._end(tasks)
            os.close(lock)

    async def _begin(self) -> None:
        await self._sharing.start()
        await self._mirror.synced.wait()
        await self._adopt()
        if self._machine.real:
            import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415 - not without GPUs

            loop = asyncio.get_running_loop()
            uuids = [gpu.uuid for gpu in self.devices.gpus]
            self._health = GpuHealth(
                pynvml,
                uuids,
                lambda gpu, why: _ignoring_end(loop, partial(self.fail, gpu, why)),
            )
            self._health.start()

    async def _adopt(self) -> None:
        """Know what containers have from before."""
        while self.kubelet.identity() is not None:
            try:
                given = await self.kubelet.given()
            except Retryable as error:
                _log.warning("%s", error)
                await asyncio.sleep(_LOOK_S)
                continue
            names = {plugin.resource.name for plugin in self.plugins}
            known = {
                pod: {
                    container: {
                        name: self.devices.indices(slots)
                        for name, slots in has.items()
                        if name in names and self._knows(slots)
                    }
                    for container, has in containers.items()
                }
                for pod, containers in given.items()
            }
            self.allocations.adopt(known)
            return

    def _knows(self, slots: tuple[str, ...]) -> bool:
        """Whether slots are of this agent: another plug-in may have had these resources before."""
        with suppress(InvalidSpec):
            return bool(self.devices.indices(slots))
        return False

    def fail(self, gpu: int, why: str) -> None:
        """A GPU is unhealthy from now on."""
        self.devices.faults[gpu] = why
        for plugin in self.plugins:
            plugin.changed()
        self._woken.set()

    async def _keep_registered(self) -> None:
        """Listen, and be known to the kubelet that runs."""
        found = self.kubelet.identity()
        if found is not None and found != self._registered:
            for plugin in self.plugins:
                await plugin.start()  # a kubelet that begins removes all sockets
                await self.kubelet.register(plugin.socket.name, plugin.resource.name)
                await plugin.heard()
            self._registered = found
            _log.info("the kubelet knows %d GPUs", len(self.devices.gpus))
        await asyncio.sleep(_LOOK_S)

    async def _hold(self) -> None:
        """Make tenants be as pods are, and tell what is found."""
        self._woken.clear()
        if time.monotonic() - self._looked_at > _OBSTACLES_S:
            self._looked_at = time.monotonic()
            found = await asyncio.to_thread(obstacles, self._machine, self.options.home)
            self._obstacles = tuple(found)
        await self.tenants.look(self.allocations.pods(), list(self.allocations.holders()))
        await self._report.tell(self.findings())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), _LOOK_S)

    async def _measure(self) -> None:
        """See what pods make of their shares."""
        await asyncio.sleep(_MEASURE_S)
        await self.tenants.tell_use(self.allocations.pods(), self._meter, time.monotonic())

    def findings(self) -> NodeHealth:
        """What there is to tell of this node."""
        unheld = list(self._obstacles)
        if self._health is not None and self._health.why:
            unheld.append(self._health.why)
        if unseen := sorted(self.tenants.unseen.values()):
            unheld.append(
                f"no processes of {', '.join(unseen)} are seen here: the agent needs hostPID"
            )
        # A copy: a GPU may fail while this is being told.
        kind = self._machine.node.kind if self._machine.partitioned else ""
        return NodeHealth(len(self.devices.gpus), dict(self.devices.faults), tuple(unheld), kind)

    async def _again(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        """One step after the other; what fails is named once, and tried again."""
        said = ""
        while True:
            try:
                await step()
            except (RoostError, OSError) as error:
                if str(error) != said:
                    _log.warning("%s: %s", what, error)
                said = str(error)
                await asyncio.sleep(_AGAIN_S)
            else:
                said = ""

    def _see(self, old: Object | None, new: Object | None) -> None:
        self.allocations.see(old, new)
        self._allocator.heard()
        self._woken.set()

    async def _annotate(self, pod: Object, notes: dict[str, str | None]) -> None:
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"], "annotations": notes}}
        with suppress(NotFound, Conflict):  # it is gone, or another one of its name
            await self._api.patch(PODS, meta["name"], body, meta["namespace"])

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for plugin in self.plugins:
            await plugin.stop()
        if self._health is not None:
            await asyncio.to_thread(self._health.close)
        await self._sharing.close()
        await self._sharing.rest()


def _ignoring_end(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """From another thread, unless the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


def _lock(home: Path) -> int:
    """Become the agent of this node; held as long as the process lives."""
    home.mkdir(mode=0o711, parents=True, exist_ok=True)
    path = home / "agent.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = os.read(fd, 32).decode(errors="replace").strip() or "?"
        os.close(fd)
        raise Conflict(
            f"another agent runs on this node (process {other}): it holds {path}"
        ) from None
    os.ftruncate(fd, 0)
    os.write(fd, str(os.getpid()).encode())
    return fd


async def find_machine(slots: int | None) -> Machine:
    """What this machine offers; a node without GPUs offers none, not CPU slots."""
    machine = await local_devices.find(sys.executable, slots)
    if not machine.real and slots is None:
        raise NotFound(
            "no NVIDIA GPU is found on this node: no driver is loaded, or the agent's container "
            "does not see it (runtimeClassName: nvidia)"
        )
    return machine
