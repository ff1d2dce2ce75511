"""The GPUs of this node, and the names under which the kubelet counts them.

A resource counts *slots* of devices. ``nvidia.com/gpu`` has one slot per GPU: who has it has the
GPU. ``roost.dev/shared-gpu`` has many: a slot is a place on a GPU that is shared, and how much of
it a pod may use is said by the pod (``roost.dev/gpu-share``) and held by the agent. The kubelet
knows nothing of what two resources have in common: that a GPU is given whole or in shares, never
both, is seen to by the scheduler, and by ``allocation`` for every single container.

The id of a slot is the name of the GPU for good and a number: ``GPU-5e1f…::3``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roost.engines.local.devices import Machine
from roost.errors import InvalidSpec
from roost.kubernetes.agent.messages import DeviceSlot, NumaNode, TopologyInfo
from roost.kubernetes.objects.nodes import SHARED_GPUS

#: Whole GPUs, where nothing else is said.
WHOLE_GPUS = "nvidia.com/gpu"
#: Names by which Volcano counts places on shared GPUs.
OTHER_NAMES = ("volcano.sh/vgpu-number", "volcano.sh/gpu-number")
#: CUDA MPS has at most 48 clients on a GPU; more tenants by turns than that would hardly run.
SLOTS = 48
_BETWEEN = "::"


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU of the node."""

    index: int
    uuid: str
    numa: int = -1


@dataclass(frozen=True, slots=True)
class SlotResource:
    """A resource of the kubelet, and how many slots each GPU has of it."""

    name: str
    slots: int

    @property
    def socket(self) -> str:
        """The name of its socket in the kubelet's folder: such paths have to be short."""
        return f"roost-{self.name.rpartition('/')[2]}.sock"


class NodeDevices:
    """The GPUs of this node as they are announced; ``faults``: what is wrong with which."""

    def __init__(self, gpus: Sequence[GpuDevice]) -> None:
        self.gpus = tuple(gpus)
        self.faults: dict[int, str] = {}
        self._by_uuid = {gpu.uuid: gpu.index for gpu in gpus}

    @classmethod
    def of(cls, machine: Machine) -> NodeDevices:
        """The devices that the local engine found; CPU slots stand in for GPUs."""
        count = machine.node.gpus
        uuids = machine.uuids or tuple(f"slot-{index}" for index in range(count))
        numa = machine.numa or (-1,) * count
        return cls([GpuDevice(*one) for one in zip(range(count), uuids, numa, strict=True)])

    def announced(self, resource: SlotResource, healthy: str, sick: str) -> list[DeviceSlot]:
        """Every slot of a resource."""
        return [
            DeviceSlot(
                slot_id(gpu.uuid, slot),
                sick if gpu.index in self.faults else healthy,
                TopologyInfo((NumaNode(gpu.numa),)) if gpu.numa >= 0 else None,
            )
            for gpu in self.gpus
            for slot in range(resource.slots)
        ]

    def index(self, slot: str) -> int:
        """The GPU of a slot; InvalidSpec if this node has none of that name."""
        found = self._by_uuid.get(slot.partition(_BETWEEN)[0])
        if found is None:
            raise InvalidSpec(f"this node has no GPU {slot!r}; the agent may have to be restarted")
        return found

    def indices(self, slots: Sequence[str]) -> tuple[int, ...]:
        """The GPUs of slots, each once, in order."""
        return tuple(sorted({self.index(slot) for slot in slots}))

    def uuids(self, gpus: Sequence[int]) -> list[str]:
        """What GPUs are called for good."""
        return [self.gpus[gpu].uuid for gpu in gpus]


def slot_id(uuid: str, slot: int) -> str:
    """The id of a slot."""
    return f"{uuid}{_BETWEEN}{slot}"


def announced(
    whole: str, split_count: int, *, partitioned: bool = False
) -> tuple[SlotResource, ...]:
    """All resources of a node; ``split_count``: how many places a GPU has under ``whole``.

    Partitions of GPUs are not shared any further: each is one device, and nothing has places.
    """
    shared = (SHARED_GPUS, *OTHER_NAMES)
    return (
        SlotResource(whole, 1 if partitioned else split_count),
        *(SlotResource(name, 0 if partitioned else SLOTS) for name in shared),
    )
