"""How many devices a pod asks for, and which part of one: the conventions that people use.

Whole devices are counted by a resource: ``nvidia.com/gpu``, ``amd.com/gpu``,
``gpu.intel.com/i915`` or ``xe``. ``nvidia.com/gpu.shared`` counts turns on devices that a plug-in
slices by time: a turn is a device to the core, on nodes that offer turns.

A part of one device is said in one of these ways. A is an annotation of the pod, R a resource of
one of its containers:

    Roost     A  roost.dev/gpu-share      part of a device, 0.25 or 250m
              A  roost.dev/gpu-memory     device memory, a quantity with a unit such as 8Gi; with
                                          whole devices a limit on each
              A  roost.dev/gpu-qos        fixed, equal or best-effort
              A  roost.dev/gpu-way        temporal or spatial
              A  roost.dev/gpu-kinds      kinds that will do, with commas between
    KAI       A  gpu-fraction             part of a device, up to 1
              A  gpu-memory               MiB of a device
              A  gpu-fraction-num-devices how many such devices; more than 1 only of whole ones
    openb     A  alibabacloud.com/gpu-milli        thousandths of a device
              A  alibabacloud.com/gpu-count        how many devices
              A  alibabacloud.com/gpu-card-model   kinds that will do, with | between
    Alibaba   R  aliyun.com/gpu-mem                GiB of a device
              R  aliyun.com/gpu-core.percentage    percent of its computing
              R  aliyun.com/gpu-count              how many devices
    Volcano   R  volcano.sh/vgpu-memory            MiB; vgpu-memory-percentage, vgpu-cores: percent
              R  volcano.sh/vgpu-number            how many devices
              R  volcano.sh/gpu-memory, gpu-number the older names
    HAMi      R  nvidia.com/gpumem                 MiB; gpumem-percentage, gpucores: percent
              R  nvidia.com/gpu                    how many devices
    Alnair    R  alnair/vgpu-memory                GiB; alnair/vgpu-compute: percent

Who asks for memory alone gets the least share of the computing and best effort of the rest; such a
pod goes where the memory of devices is known, for nothing else bounds it. The percentage of memory,
where no computing is asked for, is the share. Two ways in one pod contradict each other.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from roost.core.spec import WHOLE, Qos, Way
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects import quantities
from roost.kubernetes.objects.nodes import DEVICES, MOST_DEVICES
from roost.kubernetes.objects.values import digits, quoted

_MOST_MIB = 1 << 30
_FULL = 100
_LONGEST_LIST = 4096
_W = TypeVar("_W", Qos, Way)


class DeviceNeed(NamedTuple):
    """What a pod asks of devices.

    ``resource`` is what it counts them by, ``offer`` the same if a node must offer that, and
    ``needs`` what the devices must be: see ``constraints.Constraints``.
    """

    gpus: int = 0
    share_milli: int = WHOLE
    memory_mib: int = 0
    qos: Qos = Qos.FIXED
    way: Way = Way.TEMPORAL
    kinds: tuple[str, ...] = ()
    resource: str = ""
    offer: str = ""
    needs: str = ""


class _Dialect(NamedTuple):
    """The names of the resources by which a system asks for a part of a device."""

    number: str
    memory: str
    memory_unit_mib: int
    memory_percent: str = ""
    compute_percent: str = ""

    def parts(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.memory, self.memory_percent, self.compute_percent)))


_DIALECTS = (
    _Dialect(
        "aliyun.com/gpu-count", "aliyun.com/gpu-mem", 1024, "", "aliyun.com/gpu-core.percentage"
    ),
    _Dialect(
        "volcano.sh/vgpu-number",
        "volcano.sh/vgpu-memory",
        1,
        "volcano.sh/vgpu-memory-percentage",
        "volcano.sh/vgpu-cores",
    ),
    _Dialect("volcano.sh/gpu-number", "volcano.sh/gpu-memory", 1),
    _Dialect(
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
        1,
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpucores",
    ),
    _Dialect("", "alnair/vgpu-memory", 1024, "", "alnair/vgpu-compute"),
)
#: Resources that are a part of a device: the sum over containers would mean nothing.
PARTS = frozenset(name for dialect in _DIALECTS for name in dialect.parts())
_COUNTS = (*DEVICES, "volcano.sh/vgpu-number", "volcano.sh/gpu-number", "aliyun.com/gpu-count")
#: Resources that this module understands; all others are counted by their names.
UNDERSTOOD = PARTS | frozenset(_COUNTS)

_SHARE, _MEMORY = "roost.dev/gpu-share", "roost.dev/gpu-memory"
_QOS, _WAY, _KINDS = "roost.dev/gpu-qos", "roost.dev/gpu-way", "roost.dev/gpu-kinds"
_FRACTION, _MIB, _NUMBER = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
_MILLI, _COUNT = "alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-count"
_MODEL = "alibabacloud.com/gpu-card-model"
_ANNOTATIONS = frozenset(
    {_SHARE, _MEMORY, _QOS, _WAY, _KINDS, _FRACTION, _MIB, _MILLI, _COUNT, _MODEL}
)


def devices_asked(annotations: Object, requests: dict[str, int]) -> DeviceNeed:
    """The devices that a pod asks for, by its annotations and the sums of its requests."""
    counted = _counted(requests)
    if PARTS.isdisjoint(requests) and _ANNOTATIONS.isdisjoint(annotations):
        return counted
    asked = _one_way(
        counted,
        _roost(annotations),
        _kai(annotations),
        _openb(annotations),
        *(_part(dialect, requests) for dialect in _DIALECTS),
    )
    return _refined(annotations, asked)


def _counted(requests: dict[str, int]) -> DeviceNeed:
    found = [name for name in _COUNTS if requests.get(name)]
    if not found:
        return DeviceNeed()
    if len(found) > 1:
        raise InvalidSpec(f"the pod asks for devices of two sorts, {found[0]} and {found[1]}")
    name = found[0]
    if requests[name] > MOST_DEVICES:
        raise InvalidSpec(f"the pod asks for {requests[name]} of {name}: no node has as many")
    offer = name if name in DEVICES else ""
    return DeviceNeed(gpus=requests[name], resource=name, offer=offer)


def _one_way(counted: DeviceNeed, *ways: tuple[str, DeviceNeed] | None) -> DeviceNeed:
    """The one way in which a pod asks for devices."""
    used = [way for way in ways if way is not None]
    if not used:
        return counted
    if len(used) > 1:
        raise InvalidSpec(f"the pod asks for devices in two ways, {used[0][0]} and {used[1][0]}")
    name, asked = used[0]
    counts = {one.number for one in _DIALECTS if name in one.parts()}
    if counted.gpus and counted.resource not in counts:
        raise InvalidSpec(f"the pod asks for devices in two ways, {counted.resource} and {name}")
    return asked._replace(offer=counted.offer)


def _roost(annotations: Object) -> tuple[str, DeviceNeed] | None:
    if _SHARE not in annotations:
        return None
    return _SHARE, _fraction(_SHARE, quantities.milli(annotations[_SHARE], _SHARE))


def _own_memory(annotations: Object) -> int:
    given = annotations.get(_MEMORY)
    if given is None:
        return 0
    found = quantities.mib(given, _MEMORY)
    if not isinstance(given, str) or given[-1] not in "kMGTPi":
        raise InvalidSpec(f"{_MEMORY} needs a unit, such as 8Gi or 8192Mi, got {quoted(given)}")
    if not 0 < found <= _MOST_MIB:
        raise InvalidSpec(
            f"{_MEMORY} must be more than nothing and of this world, got {quoted(given)}"
        )
    return found


def _kai(annotations: Object) -> tuple[str, DeviceNeed] | None:
    if _FRACTION not in annotations and _MIB not in annotations:
        return None
    count = digits(annotations.get(_NUMBER, "1"), _NUMBER, MOST_DEVICES)
    if _MIB in annotations:
        if _FRACTION in annotations:
            raise InvalidSpec(f"the pod asks for devices in two ways, {_FRACTION} and {_MIB}")
        _check_single(_MIB, count)
        return _MIB, _by_memory(_MIB, digits(annotations[_MIB], _MIB, _MOST_MIB))
    share = quantities.milli(annotations[_FRACTION], _FRACTION)
    if share == WHOLE and count > 0:
        return _FRACTION, DeviceNeed(gpus=count)
    _check_single(_FRACTION, count)
    return _FRACTION, _fraction(_FRACTION, share)


def _openb(annotations: Object) -> tuple[str, DeviceNeed] | None:
    if _MILLI not in annotations and _COUNT not in annotations:
        return None
    milli = digits(annotations.get(_MILLI, str(WHOLE)), _MILLI, WHOLE)
    count = digits(annotations.get(_COUNT, "1"), _COUNT, MOST_DEVICES)
    if not milli or not count:
        if milli != count and _MILLI in annotations and _COUNT in annotations:
            raise InvalidSpec(f"{_MILLI} and {_COUNT}: one of them is 0 and the other is not")
        return None
    if milli == WHOLE:
        return _MILLI, DeviceNeed(gpus=count)
    _check_single(_MILLI, count)
    return _MILLI, _fraction(_MILLI, milli)


def _part(dialect: _Dialect, requests: dict[str, int]) -> tuple[str, DeviceNeed] | None:
    """The part of a device that resources ask for."""
    name = next((name for name in dialect.parts() if requests.get(name)), None)
    if name is None:
        return None
    memory = requests.get(dialect.memory, 0) * dialect.memory_unit_mib
    if memory > _MOST_MIB:
        raise InvalidSpec(f"{dialect.memory}: no device has that much memory")
    share = _percent(dialect.compute_percent, requests)
    if not share and not memory:
        share = _percent(dialect.memory_percent, requests)
    count = requests.get(dialect.number, 1) if dialect.number else 1
    if share == WHOLE:
        return name, DeviceNeed(gpus=count, memory_mib=memory)
    _check_single(name, count)
    return name, _fraction(name, share, memory) if share else _by_memory(name, memory)


def _percent(name: str, requests: dict[str, int]) -> int:
    found = requests.get(name, 0) if name else 0
    if found > _FULL:
        raise InvalidSpec(f"{name} must be at most {_FULL} percent, got {found}")
    return found * WHOLE // _FULL


def _fraction(name: str, share_milli: int, memory_mib: int = 0) -> DeviceNeed:
    if not 0 < share_milli <= WHOLE:
        raise InvalidSpec(
            f"{name} must be more than 0 and at most a whole device; several devices are asked for"
            " with nvidia.com/gpu"
        )
    if share_milli == WHOLE:
        return DeviceNeed(gpus=1, memory_mib=memory_mib)
    return DeviceNeed(gpus=1, share_milli=share_milli, memory_mib=memory_mib, needs="split")


def _by_memory(name: str, memory_mib: int) -> DeviceNeed:
    if memory_mib <= 0:
        raise InvalidSpec(f"{name} must be more than 0")
    return DeviceNeed(
        gpus=1, share_milli=1, memory_mib=memory_mib, qos=Qos.BEST_EFFORT, needs="sized"
    )


def _check_single(name: str, count: int) -> None:
    if count != 1:
        raise InvalidSpec(
            f"{name} asks for a part of {count} devices; a part is of one device, and several"
            " devices are whole"
        )


def _refined(annotations: Object, asked: DeviceNeed) -> DeviceNeed:
    """With what annotations add to any way of asking."""
    memory = _own_memory(annotations)
    if memory and not asked.gpus:
        asked = _by_memory(_MEMORY, memory)
    elif memory:
        if asked.memory_mib not in {0, memory}:
            raise InvalidSpec(f"the pod says twice how much device memory it needs, once {_MEMORY}")
        asked = asked._replace(memory_mib=memory)
    if kinds := _kinds(annotations):
        asked = asked._replace(kinds=kinds)
    if (qos := annotations.get(_QOS)) is not None:
        asked = asked._replace(qos=_word(Qos, _QOS, qos))
    if (way := annotations.get(_WAY)) is not None:
        asked = asked._replace(way=_word(Way, _WAY, way))
    return asked


def _word(words: type[_W], name: str, given: object) -> _W:
    for word in words:
        if given == word.value:
            return word
    allowed = ", ".join(word.value for word in words)
    raise InvalidSpec(f"{name} must be one of {allowed}, got {quoted(given)}")


def _kinds(annotations: Object) -> tuple[str, ...]:
    for name, between in ((_KINDS, ","), (_MODEL, "|")):
        given = annotations.get(name)
        if given is None or given == "":
            continue
        if not isinstance(given, str) or len(given) > _LONGEST_LIST:
            raise InvalidSpec(f"{name} must be a list of kinds with {between!r} between them")
        return tuple(sorted({kind.strip() for kind in given.split(between)} - {""}))
    return ()
