"""The device plug-in of one resource, as the kubelet calls the agent.

    ListAndWatch            every slot with its health, again whenever that changes
    GetPreferredAllocation  the slots of the GPUs that the scheduler decided
    Allocate                is refused if the kubelet took others; else variables, mounts, files
    PreStartContainer       is refused if the devices turn out to be another pod's

It listens on a socket of its own in the kubelet's folder. What is decided is in ``allocation``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import grpc

from roost.errors import InvalidSpec, Retryable, RoostError
from roost.kubernetes.agent.allocation import ContainerWish
from roost.kubernetes.agent.devices import NodeDevices, SlotResource
from roost.kubernetes.agent.kubelet import OPTIONS
from roost.kubernetes.agent.messages import (
    HEALTHY,
    UNHEALTHY,
    VERSION,
    AllocationRequest,
    AllocationResponse,
    ContainerAllocation,
    ContainerPreference,
    DeviceIds,
    DeviceList,
    EmptyMessage,
    Message,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    StartRequest,
)

_log = logging.getLogger(__name__)
_SERVICE = f"{VERSION}.DevicePlugin"
_GRACE_S = 1.0
_HEARD_S = 10.0


class Allocator(Protocol):
    """Decides for plug-ins; every call may raise a RoostError with a sentence."""

    async def prefer(self, resource: str, count: int) -> tuple[int, ...]:
        """The GPUs that the next container which asks for so many is to have."""
        ...

    async def allocate(self, resource: str, slots: tuple[str, ...]) -> ContainerAllocation:
        """Give these slots to the container that they are for."""
        ...

    async def confirm(self, resource: str, slots: tuple[str, ...]) -> ContainerWish:
        """Make sure that these slots are with the container that they are for."""
        ...


class DevicePlugin:
    """Serves one resource on a socket."""

    def __init__(
        self, resource: SlotResource, devices: NodeDevices, allocator: Allocator, folder: Path
    ) -> None:
        self.resource, self.socket = resource, folder / resource.socket
        self._devices, self._allocator = devices, allocator
        self._server: grpc.aio.Server | None = None
        #: Set and replaced when the devices changed: every stream waits for the one that it saw.
        self._changed = asyncio.Event()
        #: Set once a kubelet has taken the devices in.
        self._taken = asyncio.Event()

    async def start(self) -> None:
        """Listen; what an earlier process left at this place goes."""
        await self.stop()
        with suppress(FileNotFoundError):
            self.socket.unlink()
        self._taken = asyncio.Event()
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            server.add_insecure_port(f"unix:{self.socket}")
        except RuntimeError as error:
            await server.stop(None)
            raise Retryable(f"cannot listen at {self.socket}: {error}", after=1.0) from None
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Listen no longer; the kubelet notes that the devices are away, and pods keep theirs."""
        if self._server is not None:
            server, self._server = self._server, None
            self.changed()
            await server.stop(_GRACE_S)

    async def heard(self) -> None:
        """Wait until a kubelet has asked for the devices; Retryable if none does."""
        try:
            async with asyncio.timeout(_HEARD_S):
                await self._taken.wait()
        except TimeoutError:
            raise Retryable(
                f"the kubelet does not ask for the devices of {self.resource.name}", after=1.0
            ) from None

    def changed(self) -> None:
        """Tell the kubelet anew how the devices are."""
        before, self._changed = self._changed, asyncio.Event()
        before.set()

    def _handlers(self) -> grpc.GenericRpcHandler:
        answers: dict[str, tuple[type[Message], Callable[[Any], Awaitable[Message]]]] = {
            "GetDevicePluginOptions": (EmptyMessage, self._options),
            "GetPreferredAllocation": (PreferredAllocationRequest, self._prefer),
            "Allocate": (AllocationRequest, self._allocate),
            "PreStartContainer": (StartRequest, self._before_start),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                _answering(f"{self.resource.name}: {name}", answer),
                request_deserializer=kind.decode,
                response_serializer=Message.encode,
            )
            for name, (kind, answer) in answers.items()
        }
        handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self._watch,
            request_deserializer=EmptyMessage.decode,
            response_serializer=DeviceList.encode,
        )
        return grpc.method_handlers_generic_handler(_SERVICE, handlers)

    async def _options(self, _: EmptyMessage) -> Message:
        return OPTIONS

    async def _watch(self, _: EmptyMessage, __: object) -> AsyncIterator[DeviceList]:
        while self._server is not None:
            changed = self._changed
            found = self._devices.announced(self.resource, HEALTHY, UNHEALTHY)
            yield DeviceList(tuple(found))
            self._taken.set()
            await changed.wait()

    async def _prefer(self, request: PreferredAllocationRequest) -> Message:
        answers = [DeviceIds(await self._preferred(one)) for one in request.containers]
        return PreferredAllocationResponse(tuple(answers))

    async def _preferred(self, asked: ContainerPreference) -> tuple[str, ...]:
        """Slots of the GPUs that were decided; none if they are not to be had: see ``Allocate``."""
        gpus = await self._allocator.prefer(self.resource.name, asked.size)
        found = list(asked.must_include)
        for gpu in gpus:
            if gpu in self._devices.indices(found):
                continue
            free = (one for one in asked.available if one not in found)
            slot = next((one for one in free if self._devices.index(one) == gpu), None)
            if slot is not None and len(found) < asked.size:
                found.append(slot)
        return tuple(found) if len(found) == asked.size else ()

    async def _allocate(self, request: AllocationRequest) -> Message:
        return AllocationResponse(
            tuple(
                [
                    await self._allocator.allocate(self.resource.name, one.ids)
                    for one in request.containers
                ]
            )
        )

    async def _before_start(self, request: StartRequest) -> Message:
        await self._allocator.confirm(self.resource.name, request.ids)
        return EmptyMessage()


def _answering(
    what: str, answer: Callable[[Any], Awaitable[Message]]
) -> Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Message]]:
    """An answer, or a refusal with the sentence that the pod's events show."""

    async def handle(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
        try:
            return await answer(request)
        except RoostError as error:
            _log.warning("%s: refused: %s", what, error)
            await context.abort(_code(error), str(error))

    return handle


def _code(error: RoostError) -> grpc.StatusCode:
    refused = isinstance(error, InvalidSpec)
    return grpc.StatusCode.FAILED_PRECONDITION if refused else grpc.StatusCode.UNAVAILABLE
