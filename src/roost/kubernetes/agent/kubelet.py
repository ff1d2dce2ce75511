"""The kubelet of this node, as the agent calls it: registration, and who has which devices.

Its sockets are in folders that a pod mounts from the host. A kubelet that starts removes the
sockets of all plug-ins and makes its own anew: by that a restart is seen (``identity``), and the
agent registers again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc

from roost.errors import Retryable
from roost.kubernetes.agent.messages import (
    VERSION,
    ContainerDevices,
    DevicePluginOptions,
    EmptyMessage,
    PodResourcesResponse,
    RegistrationRequest,
)

_REGISTER = f"/{VERSION}.Registration/Register"
_LIST = "/v1.PodResourcesLister/List"
_ANSWER_S = 5.0
_AGAIN_S = 1.0
#: What plug-ins ask to be called for: which devices they like, and before a container is made.
OPTIONS = DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)


class Kubelet:
    """Calls the kubelet; ``folder`` is the one that it keeps its own in, ``/var/lib/kubelet``."""

    def __init__(self, folder: Path) -> None:
        self.plugins = folder / "device-plugins"
        self._registry = self.plugins / "kubelet.sock"
        self._resources = folder / "pod-resources" / "kubelet.sock"

    def identity(self) -> tuple[int, int] | None:
        """What differs after the kubelet was started anew; None while it is away."""
        try:
            found = self._registry.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    async def register(self, endpoint: str, resource: str) -> None:
        """Make a plug-in known that listens; Retryable while the kubelet does not answer."""
        request = RegistrationRequest(VERSION, endpoint, resource, OPTIONS)
        await self._call(self._registry, _REGISTER, request.encode())

    async def given(self) -> dict[tuple[str, str], dict[str, dict[str, tuple[str, ...]]]]:
        """The slots that pods have: by namespace and name of the pod, container, resource.

        Retryable while the kubelet does not answer.
        """
        answer = await self._call(self._resources, _LIST, EmptyMessage().encode())
        return {
            (pod.namespace, pod.name): {
                container.name: _summed(container.devices) for container in pod.containers
            }
            for pod in PodResourcesResponse.decode(answer).pods
        }

    @staticmethod
    async def _call(socket: Path, method: str, body: bytes) -> bytes:
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            call: Any = channel.unary_unary(method)
            try:
                answer: bytes = await call(body, timeout=_ANSWER_S)
            except grpc.aio.AioRpcError as error:
                raise Retryable(
                    f"the kubelet does not answer at {socket}: {error.details()}", after=_AGAIN_S
                ) from None
        return answer


def _summed(devices: Iterable[ContainerDevices]) -> dict[str, tuple[str, ...]]:
    """Slots by resource: the kubelet may say them in several rows."""
    found: dict[str, tuple[str, ...]] = {}
    for one in devices:
        found[one.resource] = (*found.get(one.resource, ()), *one.ids)
    return found
