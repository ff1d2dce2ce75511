"""A node's books: which of its devices are taken, healthy, shared, being left.

Devices of a node are numbered from 0; a set of them is an integer with one bit per device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from roost.core.extras import extra_room, extra_shortage, extra_text
from roost.core.spec import WHOLE, Level, NodeId, NodeSpec, Resources, Way

if TYPE_CHECKING:
    from roost.core.allocation import Part
    from roost.core.state import Run

#: How long before maintenance a job begins at the latest of which nobody knows how long it lasts.
UNKNOWN_S = 3600.0
#: More workers than any node holds; the room of a node for workers that need nothing.
PLENTY = 1 << 30


@lru_cache(maxsize=16384)
def devices(mask: int) -> tuple[int, ...]:
    """The device numbers in a mask, ascending."""
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)


@lru_cache(maxsize=16384)
def mask_of(gpus: tuple[int, ...]) -> int:
    """The mask of device numbers."""
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask


@lru_cache(maxsize=16384)
def lowest(mask: int, count: int) -> tuple[int, ...]:
    """The first ``count`` devices in a mask."""
    return devices(mask)[:count]


@dataclass(slots=True, eq=False)
class Device:
    """What is left of a device that several workers share, and the one way in which they do."""

    left_milli: int
    left_mib: int
    way: Way


@dataclass(frozen=True, slots=True)
class Notice:
    """What was said when something was taken out of service: when, why, and by whom."""

    since: float
    reason: str = ""
    user: str = ""


class Window(NamedTuple):
    """When a node is to be empty for maintenance, from when to when, why, and who said so."""

    node: NodeId
    starts_at: float
    ends_at: float
    reason: str = ""
    user: str = ""
    #: Whether the node is being drained for it now.
    begun: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """A node's books.

    ``taken``, ``healthy``, ``visible`` and ``free`` (healthy, visible, not taken) are masks of
    devices, as is ``leaving``: devices that are free, but that a run has yet to leave.

    ``here``: it joined and was not lost. ``cordon``: it takes nothing new, and why; what runs there
    stays, unless it is ``draining``. ``up``: it is here and not cordoned, so that runs can begin.
    ``notices`` say why devices are not healthy.

    ``extras_used`` is how much of its extras is taken, without those of which nothing is.

    ``shown`` and ``shown_milli`` are what the ledger's masks and sums say of it: nothing while it
    is not up. ``runs`` maps each run on it to the milli-GPUs it holds here. ``memo`` is what a
    policy remembers about it until something changes here.
    """

    spec: NodeSpec
    index: int
    bit: int
    up: bool = False
    here: bool = False
    cordon: Notice | None = None
    draining: bool = False
    notices: dict[int, Notice] = field(default_factory=dict)
    taken: int = 0
    healthy: int = 0
    visible: int = -1
    free: int = 0
    leaving: int = 0
    shared: dict[int, Device] = field(default_factory=dict)
    cpu_left: int = 0
    memory_left: int = 0
    workers_left: int = 0
    extras_used: dict[str, int] = field(default_factory=dict)
    shown: int = 0
    shown_milli: int = 0
    runs: dict[Run, int] = field(default_factory=dict)
    memo: object | None = None

    @property
    def id(self) -> NodeId:
        """Its name."""
        return self.spec.id

    def count_free(self) -> None:
        """Work out which devices are free."""
        self.free = self.healthy & self.visible & ~self.taken


def taken(lasts_s: float) -> float:
    """How long a run is taken to last where maintenance is ahead: an hour, if nobody knows."""
    return lasts_s if lasts_s < math.inf else UNKNOWN_S


def cell_of(node: NodeSpec, gpu: int, level: Level) -> int:
    """The devices that share a cell of that level with a device of a node."""
    if not node.gpus:
        return 0
    if level is Level.GPU:
        return 1 << gpu
    if level is Level.SOCKET:
        own = node.socket_of(gpu)
        return mask_of(tuple(g for g in range(node.gpus) if node.socket_of(g) == own))
    return (1 << node.gpus) - 1


def memory_on(node: NodeSpec, need: Resources) -> int:
    """Device memory that a worker's share is charged with on such a node."""
    if not node.gpu_memory_mib:
        return 0
    if need.gpu_memory_mib:
        return need.gpu_memory_mib
    return node.gpu_memory_mib * need.share_milli // WHOLE


def near(node: Node, count: int) -> int:
    """Free devices on the fullest socket that has enough of them, else all free ones."""
    spec = node.spec
    sockets = [0] * spec.sockets
    for gpu in devices(node.free):
        sockets[spec.socket_of(gpu)] |= 1 << gpu
    fitting = [mask for mask in sockets if mask.bit_count() >= count]
    return min(fitting, key=int.bit_count, default=node.free)


def empty_room(spec: NodeSpec, need: Resources) -> int:
    """How many such workers an empty node holds."""
    count = PLENTY
    if need.gpus:
        memory = memory_on(spec, need)
        if memory and memory > spec.gpu_memory_mib:
            return 0
        per_gpu = WHOLE // need.share_milli
        if memory and need.share_milli < WHOLE:
            per_gpu = min(per_gpu, spec.gpu_memory_mib // memory)
        count = spec.gpus * per_gpu if need.share_milli < WHOLE else spec.gpus // need.gpus
    if need.cpu_milli and spec.cpu_milli:
        count = min(count, spec.cpu_milli // need.cpu_milli)
    if need.memory_mib and spec.memory_mib:
        count = min(count, spec.memory_mib // need.memory_mib)
    if count and need.extras:
        count = min(count, extra_room(spec.extras, {}, need.extras))
    return min(count, spec.workers) if spec.workers else count


def is_other_use(node: Node, need: Resources) -> bool:
    """Whether a node gives out its GPUs in another way than a worker asks for: whole, or shared."""
    if node.spec.mixed or not need.gpus:
        return False
    if need.share_milli == WHOLE:
        return bool(node.shared)
    return node.taken.bit_count() > len(node.shared)


def refusal(node: Node, part: Part, need: Resources) -> str:
    """Why workers cannot have a part of a node now; nothing, if they can."""
    spec = node.spec
    odd = [gpu for gpu in part.gpus if not 0 <= gpu < spec.gpus]
    if not node.here or odd:
        return f"node {node.id} has no GPU {odd[0]}" if odd else f"node {node.id} is not in service"
    why = _whole(node, part, need) if part.share_milli == WHOLE else _share(node, part, need)
    if why:
        return why
    if spec.cpu_milli and need.cpu_milli * part.workers > node.cpu_left:
        return f"node {node.id} has {node.cpu_left} milli-CPUs left"
    if spec.memory_mib and need.memory_mib * part.workers > node.memory_left:
        return f"node {node.id} has {node.memory_left} MiB of memory left"
    if spec.workers and part.workers > node.workers_left:
        return f"node {node.id} takes {node.workers_left} more workers"
    short = need.extras and extra_shortage(spec.extras, node.extras_used, need.extras, part.workers)
    if short:
        return f"node {node.id} has less than {extra_text(short, dict(need.extras)[short])} left"
    return ""


def _whole(node: Node, part: Part, need: Resources) -> str:
    if busy := mask_of(part.gpus) & ~node.free:
        return f"GPU {devices(busy)[0]} of node {node.id} is not free"
    if part.gpus and need.gpu_memory_mib > node.spec.gpu_memory_mib > 0:
        return f"GPUs of node {node.id} have {node.spec.gpu_memory_mib} MiB"
    return ""


def _share(node: Node, part: Part, need: Resources) -> str:
    (gpu,) = part.gpus
    device = node.shared.get(gpu)
    which = f"GPU {gpu} of node {node.id}"
    usable = node.healthy & node.visible if device is not None else node.free
    if not usable >> gpu & 1:
        return f"{which} is not free"
    if device is not None and device.way is not need.way:
        return f"{which} is shared the {device.way} way"
    left_milli = WHOLE if device is None else device.left_milli
    left_mib = node.spec.gpu_memory_mib if device is None else device.left_mib
    if part.share_milli > left_milli or memory_on(node.spec, need) > left_mib:
        return f"{which} has {left_milli} milli-GPUs and {left_mib} MiB left"
    return ""
