"""What is left of nodes: all that a score of ``fragments`` depends on, kept up as nodes change."""

from __future__ import annotations

from typing import NamedTuple

from roost.core.ledger import Ledger
from roost.core.node import Node
from roost.core.spec import WHOLE, Resources, Way

#: More milli-CPUs than any node has: where they are not counted there are always enough.
ENDLESS = 1 << 40
#: How many different leftovers are told apart before all is begun anew.
_MANY = 1 << 17


class Leftover(NamedTuple):
    """What is left of a node: ``free`` are the milli-GPUs of each of its GPUs."""

    kind: str
    cpu_milli: int
    free: tuple[int, ...]

    def without(self, need: Resources, gpu: int) -> Leftover:
        """What is left with a worker more: a share of that GPU, or the first whole ones."""
        cpus = self.cpu_milli - (need.cpu_milli if self.cpu_milli < ENDLESS else 0)
        if not need.gpus:
            return Leftover(self.kind, cpus, self.free)
        free = list(self.free)
        if gpu >= 0:
            free[gpu] -= need.share_milli
        else:
            left = need.gpus
            for number, milli in enumerate(free):
                if milli == WHOLE and left:
                    free[number] = 0
                    left -= 1
        return Leftover(self.kind, cpus, tuple(free))


class NodeRest(NamedTuple):
    """What is left of one node, and what else decides whether a worker fits there.

    ``number`` stands for the leftover: equal ones have the same. ``most`` is how much is free of
    the GPU with the most, ``whole`` how many GPUs are free. ``way`` is the one way in which GPUs
    are shared there, None if none is; ``is_odd``: only the ledger can tell what fits there.
    """

    leftover: Leftover
    number: int
    memory_mib: int
    most: int
    whole: int
    way: Way | None
    is_odd: bool


class Leftovers:
    """What is left of all nodes of a ledger; only those that changed are looked at anew."""

    def __init__(self) -> None:
        self.of: list[NodeRest] = []
        #: What is free of each kind of GPU, in milli-GPUs.
        self.free_milli: dict[str, int] = {}
        #: Grows whenever something changed.
        self.version = 0
        self._numbers: dict[Leftover, int] = {}
        self._stamp, self._rewinds = -1, -1

    @property
    def is_full(self) -> bool:
        """Whether there were so many that it is better to begin anew."""
        return len(self._numbers) > _MANY

    def look(self, ledger: Ledger) -> None:
        """Bring it up to date."""
        if self._stamp == ledger.stamp and self._rewinds == ledger.rewinds:
            return
        changed = ledger.changed_since(self._stamp) if self._rewinds == ledger.rewinds else None
        for node in ledger.order[len(self.of) :]:
            self.of.append(self._rest(node))
            self._add(self.of[-1].leftover, 1)
        all_of = ledger.order if changed is None or self._stamp < 0 else dict.fromkeys(changed)
        for node in all_of:
            self._add(self.of[node.index].leftover, -1)
            self.of[node.index] = self._rest(node)
            self._add(self.of[node.index].leftover, 1)
        self._stamp, self._rewinds = ledger.stamp, ledger.rewinds
        self.version += 1

    def _add(self, left: Leftover, times: int) -> None:
        free = sum(left.free)
        self.free_milli[left.kind] = self.free_milli.get(left.kind, 0) + times * free

    def _rest(self, node: Node) -> NodeRest:
        leftover, spec = leftover_of(node), node.spec
        way: Way | None = None
        is_odd = not spec.mixed or spec.workers > 0
        for device in node.shared.values():
            # Shares of more memory than goes with them leave less than it seems.
            less = device.left_mib * WHOLE < device.left_milli * spec.gpu_memory_mib
            is_odd = is_odd or less or way not in (None, device.way)
            way = device.way
        memory_mib = node.memory_left if spec.memory_mib else ENDLESS
        number = self._numbers.setdefault(leftover, len(self._numbers))
        most = max(leftover.free, default=0)
        return NodeRest(leftover, number, memory_mib, most, leftover.free.count(WHOLE), way, is_odd)


def leftover_of(node: Node) -> Leftover:
    """What is left of a node; nothing, not even a CPU, while it is not in service."""
    spec, usable = node.spec, node.healthy & node.visible
    if not node.up:
        return Leftover(spec.kind, -1, (0,) * spec.gpus)
    free = [WHOLE if node.free >> gpu & 1 else 0 for gpu in range(spec.gpus)]
    for gpu, device in node.shared.items():
        if usable >> gpu & 1:
            free[gpu] = device.left_milli
    return Leftover(spec.kind, node.cpu_left if spec.cpu_milli else ENDLESS, tuple(free))
