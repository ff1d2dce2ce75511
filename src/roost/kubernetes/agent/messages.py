"""What is said on the kubelet's sockets: messages of protobuf, written down by their field numbers.

Numbers, names and types are those of ``k8s.io/kubelet``: ``deviceplugin/v1beta1/api.proto`` and
``podresources/v1/api.proto``. Only what the agent or a test needs is here; a field that is not
known is skipped, as protobuf demands. Maps are repeated messages of a key (1) and a value (2).

A message is a frozen dataclass. Each field says its number and its form: ``text``, ``flag``,
``number``, ``map``, or a class of message. A tuple is a repeated field.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any, Self

from roost.errors import InvalidSpec

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MORE, _SEVEN = 0x80, 0x7F
_LONGEST_VARINT = 70
_WORD = 1 << 64
_SIGN = 1 << 63


def _part(number: int, form: Any, default: Any) -> Any:
    return field(default=default, metadata={"number": number, "form": form})


def _text(number: int) -> Any:
    return _part(number, "text", "")


def _texts(number: int) -> Any:
    return _part(number, "text", ())


def _flag(number: int) -> Any:
    return _part(number, "flag", default=False)


def _each(number: int, form: Any) -> Any:
    return _part(number, form, ())


def _one(number: int, form: Any) -> Any:
    return _part(number, form, None)


class Message:
    """Encodes and decodes by the numbers of its fields."""

    __slots__ = ()

    def encode(self) -> bytes:
        """In protobuf's encoding; what is empty is left out."""
        return b"".join(
            _tagged(one, item)
            for one in fields(self)  # type: ignore[arg-type]  # subclasses are dataclasses
            for item in _items(getattr(self, one.name))
        )

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """From protobuf's encoding; InvalidSpec if it is none."""
        known = {one.metadata["number"]: one for one in fields(cls)}  # type: ignore[arg-type]
        found: dict[str, Any] = {}
        for number, raw in _parts(body):
            if number not in known:
                continue
            one = known[number]
            value = _value(one.metadata["form"], raw)
            if isinstance(value, dict):
                found[one.name] = {**found.get(one.name, {}), **value}
            elif one.default == ():
                found[one.name] = (*found.get(one.name, ()), value)
            else:
                found[one.name] = value
        return cls(**found)


def _items(value: Any) -> Iterator[Any]:
    """The values to write of a field: none if it is as it would be without."""
    match value:
        case tuple():
            yield from value
        case dict():
            yield from value.items()
        case None | "" | False | 0:
            return
        case _:
            yield value


def _tagged(one: Field[Any], item: Any) -> bytes:
    number, form = one.metadata["number"], one.metadata["form"]
    if form in {"flag", "number"}:
        return _varint(number << 3 | _VARINT) + _varint(int(item) % _WORD)
    body: bytes
    if form == "text":
        body = item.encode()
    elif form == "map":
        body = _Entry(*item).encode()
    else:
        body = item.encode()
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body


def _value(form: Any, raw: int | bytes) -> Any:
    if form in {"flag", "number"}:
        if not isinstance(raw, int):
            raise InvalidSpec("a number of a message is none")
        return bool(raw) if form == "flag" else raw - _WORD if raw & _SIGN else raw
    if not isinstance(raw, bytes):
        raise InvalidSpec("a text of a message is none")
    if form == "text":
        return raw.decode(errors="replace")
    if form == "map":
        entry = _Entry.decode(raw)
        return {entry.key: entry.value}
    return form.decode(raw)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= _MORE:
        found.append(value & _SEVEN | _MORE)
        value >>= 7
    found.append(value)
    return bytes(found)


def _parts(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Every field of a message: its number, and a number or bytes."""
    at = 0
    while at < len(body):
        tag, at = _number(body, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _number(body, at)
            yield tag >> 3, value
            continue
        if kind not in {_BYTES, _FIXED64, _FIXED32}:
            raise InvalidSpec("a message has a field of an unknown kind")
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if size is None:
            size, at = _number(body, at)
        if at + size > len(body):
            raise InvalidSpec("a message is cut short")
        yield tag >> 3, body[at : at + size]
        at += size


def _number(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(body) or shift >= _LONGEST_VARINT:
            raise InvalidSpec("a message is cut short")
        value |= (body[at] & _SEVEN) << shift
        at += 1
        if not body[at - 1] & _MORE:
            return value % _WORD, at
        shift += 7


@dataclass(frozen=True, slots=True)
class _Entry(Message):
    key: str = _text(1)
    value: str = _text(2)


@dataclass(frozen=True, slots=True)
class EmptyMessage(Message):
    """Nothing to say."""


# -- deviceplugin/v1beta1 ------------------------------------------------------------------------

#: The version of the device plug-in protocol.
VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


@dataclass(frozen=True, slots=True)
class DevicePluginOptions(Message):
    """What a plug-in wants to be called for."""

    pre_start_required: bool = _flag(1)
    get_preferred_allocation_available: bool = _flag(2)


@dataclass(frozen=True, slots=True)
class RegistrationRequest(Message):
    """A plug-in makes itself known; ``endpoint`` is the name of its socket, without a folder."""

    version: str = _text(1)
    endpoint: str = _text(2)
    resource_name: str = _text(3)
    options: DevicePluginOptions | None = _one(4, DevicePluginOptions)  # noqa: RUF009 - a field


@dataclass(frozen=True, slots=True)
class NumaNode(Message):
    """A NUMA node by its number."""

    number: int = _part(1, "number", 0)


@dataclass(frozen=True, slots=True)
class TopologyInfo(Message):
    """Where a device hangs."""

    nodes: tuple[NumaNode, ...] = _each(1, NumaNode)


@dataclass(frozen=True, slots=True)
class DeviceSlot(Message):
    """One device as the kubelet counts it."""

    id: str = _text(1)
    health: str = _text(2)
    topology: TopologyInfo | None = _one(3, TopologyInfo)  # noqa: RUF009 - a field


@dataclass(frozen=True, slots=True)
class DeviceList(Message):
    """All devices of a resource, as they are now."""

    devices: tuple[DeviceSlot, ...] = _each(1, DeviceSlot)


@dataclass(frozen=True, slots=True)
class ContainerPreference(Message):
    """Which devices are free for a container, and how many it needs."""

    available: tuple[str, ...] = _texts(1)
    must_include: tuple[str, ...] = _texts(2)
    size: int = _part(3, "number", 0)


@dataclass(frozen=True, slots=True)
class PreferredAllocationRequest(Message):
    """Asks which of the free devices it shall be."""

    containers: tuple[ContainerPreference, ...] = _each(1, ContainerPreference)


@dataclass(frozen=True, slots=True)
class DeviceIds(Message):
    """Devices for one container."""

    ids: tuple[str, ...] = _texts(1)


@dataclass(frozen=True, slots=True)
class PreferredAllocationResponse(Message):
    """These, if it is possible."""

    containers: tuple[DeviceIds, ...] = _each(1, DeviceIds)


@dataclass(frozen=True, slots=True)
class AllocationRequest(Message):
    """The kubelet gives these devices to a container."""

    containers: tuple[DeviceIds, ...] = _each(1, DeviceIds)


@dataclass(frozen=True, slots=True)
class Mount(Message):
    """A folder of the host for a container."""

    container_path: str = _text(1)
    host_path: str = _text(2)
    read_only: bool = _flag(3)


@dataclass(frozen=True, slots=True)
class DeviceNode(Message):
    """A file of a device for a container."""

    container_path: str = _text(1)
    host_path: str = _text(2)
    permissions: str = _text(3)


@dataclass(frozen=True, slots=True)
class ContainerAllocation(Message):
    """What a container needs to use its devices."""

    variables: dict[str, str] = field(default_factory=dict, metadata={"number": 1, "form": "map"})
    mounts: tuple[Mount, ...] = _each(2, Mount)
    devices: tuple[DeviceNode, ...] = _each(3, DeviceNode)


@dataclass(frozen=True, slots=True)
class AllocationResponse(Message):
    """What the containers are told."""

    containers: tuple[ContainerAllocation, ...] = _each(1, ContainerAllocation)


@dataclass(frozen=True, slots=True)
class StartRequest(Message):
    """A container with these devices is about to be made."""

    ids: tuple[str, ...] = _texts(1)


# -- podresources/v1 -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContainerDevices(Message):
    """Devices of one resource that a container has."""

    resource: str = _text(1)
    ids: tuple[str, ...] = _texts(2)


@dataclass(frozen=True, slots=True)
class ContainerResources(Message):
    """All devices of a container."""

    name: str = _text(1)
    devices: tuple[ContainerDevices, ...] = _each(2, ContainerDevices)


@dataclass(frozen=True, slots=True)
class PodResources(Message):
    """All devices of a pod."""

    name: str = _text(1)
    namespace: str = _text(2)
    containers: tuple[ContainerResources, ...] = _each(3, ContainerResources)


@dataclass(frozen=True, slots=True)
class PodResourcesResponse(Message):
    """Who has which devices."""

    pods: tuple[PodResources, ...] = _each(1, PodResources)
