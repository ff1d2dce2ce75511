"""A kubelet's side of its sockets, spoken with real gRPC: it admits pods as a kubelet does.

It takes plug-ins in, listens to their devices, asks which ones they prefer, allocates, and asks
once more before a container is made. What it has given it tells like a kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import grpc

from roost.kubernetes.agent.messages import (
    HEALTHY,
    VERSION,
    AllocationRequest,
    AllocationResponse,
    ContainerAllocation,
    ContainerDevices,
    ContainerPreference,
    ContainerResources,
    DeviceIds,
    DeviceList,
    DevicePluginOptions,
    EmptyMessage,
    Message,
    PodResources,
    PodResourcesResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    RegistrationRequest,
    StartRequest,
)

Object = dict[str, Any]


class Rejected(Exception):
    """The plug-in refused, in this sentence."""


class FakeKubelet:
    """Listens in ``folder`` while it is entered; ``devices``: what plug-ins announced last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registered: dict[str, RegistrationRequest] = {}
        self.devices: dict[str, dict[str, str]] = {}
        #: Slots by namespace and name, container and resource.
        self.given: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
        self.told = asyncio.Event()
        self._servers: list[grpc.aio.Server] = []
        self._watching: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Begin as a kubelet does: what plug-ins left is removed."""
        plugins = self.folder / "device-plugins"
        for one in plugins.glob("*.sock") if plugins.exists() else ():
            one.unlink()
        register = _unary(self._register, RegistrationRequest)
        await self._serve(plugins / "kubelet.sock", f"{VERSION}.Registration", Register=register)
        tell = _unary(self._list, EmptyMessage)
        where = self.folder / "pod-resources" / "kubelet.sock"
        await self._serve(where, "v1.PodResourcesLister", List=tell)

    async def stop(self) -> None:
        for task in self._watching.values():
            task.cancel()
        await asyncio.gather(*self._watching.values(), return_exceptions=True)
        for server in self._servers:
            await server.stop(None)
        self._watching.clear()
        self._servers.clear()

    async def restart(self) -> None:
        """As after an update: it knows what it has given, and no plug-in."""
        await self.stop()
        self.registered.clear()
        self.devices.clear()
        (self.folder / "device-plugins" / "kubelet.sock").unlink(missing_ok=True)
        await self.start()

    async def admit(self, pod: Object) -> dict[str, ContainerAllocation]:
        """Give every container its devices; Rejected with the plug-in's sentence."""
        found = {}
        meta = pod["metadata"]
        for container in pod["spec"]["containers"]:
            for resource, amount in container["resources"]["limits"].items():
                if resource in self.registered:
                    ids = await self._pick(resource, int(amount))
                    request = AllocationRequest((DeviceIds(tuple(ids)),))
                    answer = await self.call(resource, "Allocate", request, AllocationResponse)
                    (found[container["name"]],) = answer.containers
                    of_pod = self.given.setdefault((meta["namespace"], meta["name"]), {})
                    of_pod.setdefault(container["name"], {})[resource] = ids
        return found

    async def begin(self, pod: Object) -> None:
        """Ask before the containers of a pod are made; Rejected with the plug-in's sentence."""
        meta = pod["metadata"]
        for has in self.given[meta["namespace"], meta["name"]].values():
            for resource, ids in has.items():
                request = StartRequest(tuple(ids))
                await self.call(resource, "PreStartContainer", request, EmptyMessage)

    def free(self, resource: str) -> list[str]:
        """Healthy slots that no pod has."""
        taken = {
            one
            for containers in self.given.values()
            for has in containers.values()
            for one in has.get(resource, ())
        }
        return [
            one
            for one, health in self.devices[resource].items()
            if health == HEALTHY and one not in taken
        ]

    async def until(self, resource: str, count: int) -> None:
        """Wait until a plug-in has announced so many healthy slots."""
        async with asyncio.timeout(60):
            while list(self.devices.get(resource, {}).values()).count(HEALTHY) != count:
                await self.told.wait()
                self.told.clear()

    async def call(self, resource: str, name: str, request: Message, answer: type[Any]) -> Any:
        """Call a plug-in."""
        async with self._channel(resource) as channel:
            method: Any = channel.unary_unary(f"/{VERSION}.DevicePlugin/{name}")
            try:
                return answer.decode(await method(request.encode(), timeout=60))
            except grpc.aio.AioRpcError as error:
                raise Rejected(error.details()) from None

    async def _pick(self, resource: str, size: int) -> list[str]:
        free = self.free(resource)
        if len(free) < size:
            raise Rejected(f"OutOf{resource}")
        options = self.registered[resource].options or DevicePluginOptions()
        assert options.get_preferred_allocation_available
        assert options.pre_start_required
        asked = ContainerPreference(tuple(free), (), size)
        answer = await self.call(
            resource,
            "GetPreferredAllocation",
            PreferredAllocationRequest((asked,)),
            PreferredAllocationResponse,
        )
        preferred = list(answer.containers[0].ids) if answer.containers else []
        return preferred if len(preferred) == size else sorted(free)[:size]

    def _channel(self, resource: str) -> grpc.aio.Channel:
        endpoint = self.registered[resource].endpoint
        return grpc.aio.insecure_channel(f"unix:{self.folder / 'device-plugins' / endpoint}")

    async def _serve(self, socket: Path, service: str, **methods: Any) -> None:
        socket.parent.mkdir(parents=True, exist_ok=True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._servers.append(server)

    async def _register(self, request: RegistrationRequest) -> Message:
        assert request.version == VERSION
        self.registered[request.resource_name] = request
        task = asyncio.create_task(self._watch(request.resource_name))
        self._watching[request.resource_name] = task
        return EmptyMessage()

    async def _watch(self, resource: str) -> None:
        async with self._channel(resource) as channel:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for body in _stream(channel):
                    found = DeviceList.decode(body).devices
                    self.devices[resource] = {one.id: one.health for one in found}
                    self.told.set()
        self.devices[resource] = {}
        self.told.set()

    async def _list(self, _: EmptyMessage) -> Message:
        return PodResourcesResponse(
            tuple(
                PodResources(
                    name,
                    namespace,
                    tuple(
                        ContainerResources(
                            container,
                            tuple(ContainerDevices(of, tuple(ids)) for of, ids in has.items()),
                        )
                        for container, has in containers.items()
                    ),
                )
                for (namespace, name), containers in self.given.items()
            )
        )


def _stream(channel: grpc.aio.Channel) -> AsyncIterator[bytes]:
    call: Any = channel.unary_stream(f"/{VERSION}.DevicePlugin/ListAndWatch")
    found: AsyncIterator[bytes] = call(b"")
    return found


def _unary(answer: Any, kind: type[Message]) -> Any:
    async def handle(request: Any, _: object) -> Message:
        found: Message = await answer(request)
        return found

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=kind.decode, response_serializer=Message.encode
    )
