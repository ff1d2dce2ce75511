"""Answers the kubelet's questions: which devices, for whom, and what the container is told.

One question is answered at a time, for the kubelet admits one pod at a time, and what it was given
last decides what the next one is given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from roost.core.spec import Way
from roost.engines.local.gpu import GpuSharing
from roost.errors import InvalidSpec, Retryable
from roost.kubernetes.agent.allocation import ContainerWish, Given, NodeAllocations
from roost.kubernetes.agent.devices import NodeDevices
from roost.kubernetes.agent.messages import ContainerAllocation, Mount

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
#: How long the kubelet may know a pod before the agent hears of it.
_PATIENCE_S = 5.0
#: Clients of CUDA MPS and its server meet in shared memory.
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a place of the host, not a file of ours


class NodeAllocator:
    """Decides for the plug-ins of a node; ``given`` asks the kubelet who has what."""

    def __init__(  # noqa: PLR0913 - what it puts together
        self,
        devices: NodeDevices,
        allocations: NodeAllocations,
        sharing: GpuSharing,
        given: Callable[[], Awaitable[Given]],
        hook: Path,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._devices, self._allocations, self._sharing = devices, allocations, sharing
        self._given, self._hook, self._patience_s = given, hook, patience_s
        self._mutex = asyncio.Lock()
        self._news = asyncio.Event()
        #: Is called with what a container was given, once that is certain.
        self.on_given: Callable[[ContainerWish, tuple[int, ...]], None] = lambda _wish, _gpus: None

    def heard(self) -> None:
        """Pods of this node changed: who waits for one looks again."""
        before, self._news = self._news, asyncio.Event()
        before.set()

    async def prefer(self, resource: str, count: int) -> tuple[int, ...]:
        """The GPUs that the next container which asks for so many is to have."""
        async with self._mutex:
            try:
                wish = (await self._waiting(resource, count))[0]
                return self._choice(wish)
            except InvalidSpec as error:
                # The kubelet takes an error here for no preference: Allocate says it once more.
                _log.info("%s: no preference: %s", resource, error)
                return ()

    async def allocate(self, resource: str, slots: tuple[str, ...]) -> ContainerAllocation:
        """Give these slots to the container that they are for."""
        async with self._mutex:
            gpus = self._devices.indices(slots)
            waiting = await self._waiting(resource, len(slots))
            # The first in line; of several those are meant that are to have just these.
            wish = next((one for one in waiting if self._suits(one, gpus)), waiting[0])
            decided = self._choice(wish)
            if tuple(sorted(decided)) != gpus:
                raise InvalidSpec(
                    f"{wish} was to have GPU {_listed(decided)}, as the scheduler decided, and "
                    f"the kubelet gave it GPU {_listed(gpus)}"
                )
            self._check_health(wish, gpus)
            self._allocations.check(wish, gpus)
            answer = await self._answer(wish, decided)
            self._allocations.note(wish, decided)
            _log.info("%s gets GPU %s (%s)", wish, _listed(decided), resource)
            return answer

    async def confirm(self, resource: str, slots: tuple[str, ...]) -> ContainerWish:
        """Make sure that these slots are with the container that they are for."""
        gpus = self._devices.indices(slots)
        wanted = set(slots)
        for (namespace, pod), containers in (await self._given()).items():
            for container, has in containers.items():
                if not wanted <= set(has.get(resource, ())):
                    continue
                wish = await self._wish(namespace, pod, container, resource)
                decided = gpus if wish.gpus is None else tuple(sorted(wish.gpus))
                if decided != gpus:
                    raise InvalidSpec(
                        f"{wish} was to have GPU {_listed(decided)} and holds GPU "
                        f"{_listed(gpus)}: it was taken for another pod; delete it"
                    )
                self._allocations.note(wish, decided)
                self.on_given(wish, decided)
                return wish
        raise Retryable(f"the kubelet does not tell who has {', '.join(slots)}", after=1.0)

    async def _wish(self, namespace: str, pod: str, container: str, resource: str) -> ContainerWish:
        found = await self._await(
            lambda: self._allocations.wish(namespace, pod, container, resource)
        )
        if found is None:
            raise Retryable(f"nothing is known of pod {namespace}/{pod}", after=1.0)
        return found

    async def _waiting(self, resource: str, count: int) -> list[ContainerWish]:
        """Containers that such an allocation may be for, at least one."""
        try:
            given = await self._given()
        except Retryable as error:  # what was noted here will do
            _log.warning("%s", error)
            given = {}
        found = await self._await(lambda: self._allocations.waiting(resource, count, given))
        if not found:
            raise InvalidSpec(
                f"no pod on this node is known to wait for {count} of {resource}"
                + "".join(f"; {why}" for why in self._allocations.troubles())
            )
        return found

    async def _await(self, look: Callable[[], _T]) -> _T:
        """What is there, or comes within a moment: the kubelet may know of it before us."""
        deadline = asyncio.get_running_loop().time() + self._patience_s
        while True:
            news = self._news
            if found := look():
                return found
            try:
                async with asyncio.timeout_at(deadline):
                    await news.wait()
            except TimeoutError:
                return look()

    def _suits(self, wish: ContainerWish, gpus: tuple[int, ...]) -> bool:
        return wish.gpus is not None and tuple(sorted(wish.gpus)) == gpus

    def _choice(self, wish: ContainerWish) -> tuple[int, ...]:
        taken = self._allocations.taken(len(self._devices.gpus))
        taken.update({gpu: f"unhealthy ({why})" for gpu, why in self._devices.faults.items()})
        found = self._allocations.choice(wish, taken)
        if any(gpu >= len(self._devices.gpus) for gpu in found):
            raise InvalidSpec(
                f"{wish} was to have GPU {_listed(found)}, and this node has "
                f"{len(self._devices.gpus)}"
            )
        return found

    def _check_health(self, wish: ContainerWish, gpus: tuple[int, ...]) -> None:
        for gpu in gpus:
            if why := self._devices.faults.get(gpu):
                raise InvalidSpec(f"{wish} was to have GPU {gpu}, which is unhealthy: {why}")

    async def _answer(self, wish: ContainerWish, gpus: tuple[int, ...]) -> ContainerAllocation:
        """What a container needs to use its devices and to keep to its part."""
        seat = replace(wish.seat, gpus=gpus)
        # On a thread: a daemon of CUDA MPS may have to start first.
        limits = await asyncio.to_thread(self._sharing.env, seat, wish.need)
        variables = {
            "NVIDIA_VISIBLE_DEVICES": ",".join(self._devices.uuids(gpus)),
            "ROOST_GPUS": _listed(gpus),
            **limits,
        }
        return ContainerAllocation(variables, tuple(self._mounts(wish, limits)))

    def _mounts(self, wish: ContainerWish, limits: dict[str, str]) -> list[Mount]:
        found = []
        if limits.get("PYTHONPATH") == str(self._hook):
            found.append(Mount(str(self._hook), str(self._hook), read_only=True))
        if wish.need.way is Way.SPATIAL and "CUDA_MPS_PIPE_DIRECTORY" in limits:
            found += [
                Mount(limits[name], limits[name])
                for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
            ]
            found.append(Mount(_SHARED_MEMORY, _SHARED_MEMORY))
        return found


def _listed(gpus: tuple[int, ...]) -> str:
    return ",".join(map(str, gpus)) or "none"
