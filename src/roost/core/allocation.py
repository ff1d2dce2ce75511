"""Where a job runs: which devices on which nodes its workers hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from roost.core.spec import WHOLE, NodeId

#: The role of a job's main, possibly elastic, workers.
WORKER = "worker"


class Part(NamedTuple):
    """Workers of one role on one node, and the devices they hold."""

    node: NodeId
    gpus: tuple[int, ...]
    share_milli: int = WHOLE
    workers: int = 1
    role: str = WORKER

    @property
    def gpu_milli(self) -> int:
        """GPUs held here, in milli-GPUs."""
        return len(self.gpus) * self.share_milli


@dataclass(frozen=True, slots=True)
class Allocation:
    """All parts that a run holds."""

    parts: tuple[Part, ...]

    @property
    def workers(self) -> int:
        """Main workers, not counting other roles."""
        if len(self.parts) == 1 and self.parts[0].role == WORKER:
            return self.parts[0].workers
        return sum(part.workers for part in self.parts if part.role == WORKER)

    def count(self, role: str) -> int:
        """Workers of one role."""
        return sum(part.workers for part in self.parts if part.role == role)

    @property
    def gpu_milli(self) -> int:
        """GPUs held, in milli-GPUs."""
        milli = 0
        for part in self.parts:
            milli += len(part.gpus) * part.share_milli
        return milli

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """The nodes it touches, each once, in order."""
        return tuple(dict.fromkeys(part.node for part in self.parts))


@dataclass(frozen=True, slots=True)
class Seat:
    """One worker of a gang: its role, its index in it, and the devices that it holds."""

    role: str
    index: int
    gpus: tuple[int, ...]
    share_milli: int
    node: NodeId

    @property
    def name(self) -> str:
        """What its log is called."""
        return f"{self.role}-{self.index}"


def seats(allocation: Allocation) -> Iterator[Seat]:
    """The workers of an allocation, main ones first, each with its devices."""
    counts: Counter[str] = Counter()
    for part in sorted(allocation.parts, key=lambda part: part.role != WORKER):
        each = len(part.gpus) // part.workers if part.workers else 0
        for number in range(part.workers):
            gpus = part.gpus[number * each : (number + 1) * each]
            yield Seat(part.role, counts[part.role], gpus, part.share_milli, part.node)
            counts[part.role] += 1


def survivors(allocation: Allocation, node: NodeId, gpu: int | None = None) -> Allocation:
    """What is left of an allocation without the workers on a node, or on one device of it."""
    kept = []
    for part in allocation.parts:
        if part.node != node or (gpu is not None and gpu not in part.gpus):
            kept.append(part)
        elif gpu is not None and part.workers > 1:
            each = len(part.gpus) // part.workers
            at = part.gpus.index(gpu) // each * each
            gpus = part.gpus[:at] + part.gpus[at + each :]
            kept.append(part._replace(gpus=gpus, workers=part.workers - 1))
    return Allocation(tuple(kept))


def keeping(allocation: Allocation, places: Collection[int]) -> Allocation:
    """What is left of an allocation with only these of its main workers, by their places."""
    kept, first = [], 0
    for part in allocation.parts:
        if part.role != WORKER:
            kept.append(part)
            continue
        each = len(part.gpus) // part.workers
        mine = [place for place in range(part.workers) if first + place in places]
        gpus = tuple(gpu for at in mine for gpu in part.gpus[at * each : (at + 1) * each])
        if mine:
            kept.append(part._replace(gpus=gpus, workers=len(mine)))
        first += part.workers
    return Allocation(tuple(kept))


def without(held: Allocation, kept: Allocation) -> tuple[Part, ...] | None:
    """What is given up by keeping only a part of what is held; None: it is no part of it."""
    gone: list[Part] = []
    had, has = _groups(held), _groups(kept)
    for place, (workers, gpus) in had.items():
        stay, keep = has.pop(place, (0, Counter()))
        if stay > workers or keep - gpus:
            return None
        left = sorted((gpus - keep).elements())
        node, role, share_milli = place
        if share_milli < WHOLE:
            gone += [Part(node, (gpu,), share_milli, 1, role) for gpu in left]
        elif left or workers > stay:
            gone.append(Part(node, tuple(left), share_milli, workers - stay, role))
    return None if has else tuple(gone)


def beyond(more: Allocation, less: Allocation) -> tuple[Part, ...]:
    """The parts of one allocation that take what another does not: of devices, or of nodes."""
    devices = _devices(more)
    devices.subtract(_devices(less))
    workers = _workers(more)
    workers.subtract(_workers(less))
    found = []
    for part in more.parts:
        gpus = tuple(gpu for gpu in part.gpus if devices[part.node, gpu] > 0)
        if gpus or workers[part.node, part.role] > 0:
            found.append(part._replace(gpus=gpus))
    return tuple(found)


def _groups(
    allocation: Allocation,
) -> dict[tuple[NodeId, str, int], tuple[int, Counter[int]]]:
    """Workers and devices by node, role and share."""
    found: dict[tuple[NodeId, str, int], tuple[int, Counter[int]]] = {}
    for part in allocation.parts:
        place = (part.node, part.role, part.share_milli)
        workers, gpus = found.get(place, (0, Counter()))
        found[place] = workers + part.workers, gpus + Counter(part.gpus)
    return found


def _devices(allocation: Allocation) -> Counter[tuple[NodeId, int]]:
    found: Counter[tuple[NodeId, int]] = Counter()
    for part in allocation.parts:
        for gpu in part.gpus:
            found[part.node, gpu] += part.share_milli
    return found


def _workers(allocation: Allocation) -> Counter[tuple[NodeId, str]]:
    found: Counter[tuple[NodeId, str]] = Counter()
    for part in allocation.parts:
        found[part.node, part.role] += part.workers
    return found
