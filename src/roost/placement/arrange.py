"""Placers: which nodes, and how many workers on each. Devices on a node are the ledger's choice.

Each is a rule for one role of a gang (``_arrange``: the nodes and how many workers each takes, or
None); the rest of a gang and the cell it must stay in are handled for all of them alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from roost.core.allocation import WORKER, Part
from roost.core.ledger import Ledger, Node
from roost.core.spec import WHOLE, Level, Resources, Shape

#: Nodes and how many workers each takes.
Arrangement: TypeAlias = list[tuple[Node, int]]


class _Placer(ABC):
    """What all placers share: roles, and cells that a gang must stay in."""

    __slots__ = ()

    #: Whether a gang that fits on one node is only ever put on one node.
    consolidates = False

    def __call__(self, ledger: Ledger, shape: Shape) -> tuple[Part, ...] | None:
        """Choose devices for a whole gang, or None."""
        if shape.within is None or shape.within is Level.CLUSTER:
            return self._gang(ledger, shape, -1)
        if shape.within is Level.SWITCH:
            for mask in ledger.switches.values():
                if parts := self._gang(ledger, shape, mask):
                    return parts
            return None
        for node in ledger.select(ledger.candidates(shape.resources)):
            if parts := self._gang(ledger, shape, node.bit):
                return parts
        return None

    def _gang(self, ledger: Ledger, shape: Shape, mask: int) -> tuple[Part, ...] | None:
        parts = self._role(ledger, shape.resources, shape.workers, mask, WORKER)
        if parts is None or not shape.roles:
            return None if parts is None else tuple(parts)
        taken = [(part, shape.resources) for part in parts]
        for part, need in taken:
            ledger.take(part, need)
        for role in shape.roles:
            more = self._role(ledger, role.resources, role.workers, mask, role.name)
            if more is None:
                break
            for part in more:
                ledger.take(part, role.resources)
                taken.append((part, role.resources))
        else:
            more = []
        for part, need in reversed(taken):
            ledger.release(part, need)
        return None if more is None else tuple(part for part, _ in taken)

    def _role(
        self, ledger: Ledger, need: Resources, workers: int, mask: int, role: str
    ) -> list[Part] | None:
        chosen = self._arrange(ledger, need, workers, mask)
        if chosen is None:
            return None
        if len(chosen) == 1:
            return ledger.pick(chosen[0][0], need, chosen[0][1], role)
        return [part for node, count in chosen for part in ledger.pick(node, need, count, role)]

    @abstractmethod
    def _arrange(
        self, ledger: Ledger, need: Resources, workers: int, mask: int
    ) -> Arrangement | None:
        """Nodes of the set ``mask`` for so many workers, or None."""


@dataclass(frozen=True, slots=True)
class FirstFit(_Placer):
    """First fit, consolidated: one node if a node can hold the gang, else only whole free nodes."""

    consolidates = True

    def _arrange(
        self, ledger: Ledger, need: Resources, workers: int, mask: int
    ) -> Arrangement | None:
        if _one_node_could(ledger, need, workers):
            for node in ledger.select(_with_room(ledger, need, workers) & mask):
                if ledger.room(node, need) >= workers:
                    return [(node, workers)]
            return None
        free = ledger.full & mask
        if need.kinds:
            free &= ledger.of_kinds(need.kinds)
        return _spill(ledger, ledger.select(free), need, workers)


@dataclass(frozen=True, slots=True)
class Pack(_Placer):
    """Best fit: the tightest node that holds the gang, else as few nodes as possible."""

    def _arrange(
        self, ledger: Ledger, need: Resources, workers: int, mask: int
    ) -> Arrangement | None:
        single = _tightest(ledger, need, workers, mask)
        if single is not None:
            return [(single, workers)]
        if workers == 1:
            return None
        return _spill(ledger, _by_idle(ledger, need, mask, emptiest_first=True), need, workers)


@dataclass(frozen=True, slots=True)
class Consolidate(_Placer):
    """Best fit on as few nodes as the gang can possibly use; rather waits than spreads further."""

    consolidates = True

    def _arrange(
        self, ledger: Ledger, need: Resources, workers: int, mask: int
    ) -> Arrangement | None:
        if _one_node_could(ledger, need, workers):
            single = _tightest(ledger, need, workers, mask)
            return None if single is None else [(single, workers)]
        free = ledger.full & mask
        if need.kinds:
            free &= ledger.of_kinds(need.kinds)
        return _spill(ledger, ledger.select(free), need, workers)


@dataclass(frozen=True, slots=True)
class Spread(_Placer):
    """Worst fit: workers one by one on the emptiest nodes, so that neighbours are few."""

    def _arrange(
        self, ledger: Ledger, need: Resources, workers: int, mask: int
    ) -> Arrangement | None:
        rooms = []
        for node in _by_idle(ledger, need, mask, emptiest_first=True):
            room = ledger.room(node, need)
            if room:
                rooms.append([node, room, 0])
            if len(rooms) >= workers:
                break
        placed = 0
        while placed < workers:
            before = placed
            for entry in rooms:
                if entry[2] < entry[1] and placed < workers:  # type: ignore[operator]
                    entry[2] += 1  # type: ignore[operator]
                    placed += 1
            if placed == before:
                return None
        return [(node, count) for node, _, count in rooms if count]  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Topology(_Placer):
    """The smallest cell that holds the gang: one socket, one node, one switch, then anywhere."""

    def _arrange(
        self, ledger: Ledger, need: Resources, workers: int, mask: int
    ) -> Arrangement | None:
        single = _tightest(ledger, need, workers, mask)
        if single is not None:
            return [(single, workers)]
        cells: list[tuple[int, int, int, Arrangement]] = []
        for cell in ledger.switches.values():
            chosen = _spill(
                ledger, _by_idle(ledger, need, cell & mask, emptiest_first=True), need, workers
            )
            if chosen is not None:
                slack = sum(node.shown for node in ledger.select(cell & mask))
                cells.append((len(chosen), slack, len(cells), chosen))
        if cells:
            return min(cells, key=lambda cell: cell[:3])[3]
        return _spill(ledger, _by_idle(ledger, need, mask, emptiest_first=True), need, workers)


@dataclass(frozen=True, slots=True)
class Anywhere(_Placer):
    """First fit without regard to locality: any free device will do, in node order."""

    def _arrange(
        self, ledger: Ledger, need: Resources, workers: int, mask: int
    ) -> Arrangement | None:
        return _spill(ledger, ledger.select(ledger.candidates(need) & mask), need, workers)


def _one_node_could(ledger: Ledger, need: Resources, workers: int) -> bool:
    """Whether some node, empty, has enough devices for the whole gang."""
    if not need.gpus:
        return workers == 1
    if need.share_milli < WHOLE:
        return workers <= (len(ledger.at_least) - 1) * (WHOLE // need.share_milli)
    return need.gpus * workers < len(ledger.at_least)


def _with_room(ledger: Ledger, need: Resources, workers: int) -> int:
    """Nodes with enough idle devices for all workers at once."""
    if not need.gpus or need.share_milli < WHOLE:
        return ledger.candidates(need)
    count = need.gpus * workers
    mask = ledger.at_least[count] if count < len(ledger.at_least) else 0
    return mask & ledger.of_kinds(need.kinds) if need.kinds else mask


def _tightest(ledger: Ledger, need: Resources, workers: int, mask: int) -> Node | None:
    """The node with the fewest idle devices that holds all workers."""
    fitting = _with_room(ledger, need, workers) & mask
    if not fitting:
        return None
    if need.gpus and need.share_milli < WHOLE and (sharing := fitting & ledger.sharing):
        for node in ledger.select(sharing):
            if ledger.room(node, need) >= workers:
                return node
    levels = ledger.at_least
    for count in range(len(levels)):
        exactly = fitting
        if count:
            exactly &= levels[count]
        if count + 1 < len(levels):
            exactly &= ~levels[count + 1]
        for node in ledger.select(exactly):
            if ledger.room(node, need) >= workers:
                return node
    return None


def _by_idle(ledger: Ledger, need: Resources, mask: int, *, emptiest_first: bool) -> Iterable[Node]:
    """Candidates by how many devices are idle."""
    fitting = ledger.candidates(need) & mask
    levels = ledger.at_least
    counts = range(len(levels))
    for count in reversed(counts) if emptiest_first else counts:
        exactly = fitting & levels[count] if count else fitting
        if count + 1 < len(levels):
            exactly &= ~levels[count + 1]
        yield from ledger.select(exactly)


def _spill(
    ledger: Ledger, nodes: Iterable[Node], need: Resources, workers: int
) -> Arrangement | None:
    """Fill nodes in order until every worker has a place."""
    chosen: Arrangement = []
    for node in nodes:
        count = min(ledger.room(node, need), workers)
        if count:
            chosen.append((node, count))
            workers -= count
            if not workers:
                return chosen
    return None
