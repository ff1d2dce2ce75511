"""Placers: which nodes, and how many workers on each. Devices on a node are the ledger's choice.

Each is a rule for one role of a gang (``_arrange``: the nodes and how many workers each takes, or
None); the rest of a gang and the cell it must stay in are handled for all of them alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import ClassVar

from roost.core.allocation import WORKER, Part
from roost.core.cells.forest import inner_cells
from roost.core.ledger import Ledger
from roost.core.node import Node, cell_of, devices
from roost.core.spec import WHOLE, Level, Resources, Shape
from roost.placement.exchange import Arrangement, exchanged

#: So many groups of preferred nodes are tried for a gang, each with all that are better.
_MOST_GROUPS = 16


class _Placer(ABC):
    """What all placers share: roles, and cells that a gang must stay in."""

    #: Whether a gang that fits on one node is only ever put on one node.
    consolidates: ClassVar[bool] = False

    def __call__(self, ledger: Ledger, shape: Shape) -> tuple[Part, ...] | None:
        """Choose devices for a whole gang, or None."""
        if shape.within is None or shape.within is Level.CLUSTER:
            return self._gang(ledger, shape)
        for nodes, gpus in _cells(ledger, shape.within):
            with ledger.only(nodes, gpus):
                parts = self._gang(ledger, shape)
            if parts is not None:
                return parts
        return None

    def _gang(self, ledger: Ledger, shape: Shape) -> tuple[Part, ...] | None:
        parts = self._role(ledger, shape.resources, shape.workers, WORKER)
        if parts is None or not shape.roles:
            return None if parts is None else tuple(parts)
        taken = [(part, shape.resources) for part in parts]
        with ledger.trial():
            for part, need in taken:
                ledger.take(part, need)
            for role in shape.roles:
                parts = self._role(ledger, role.resources, role.workers, role.name)
                if parts is None:
                    break
                for part in parts:
                    ledger.take(part, role.resources)
                    taken.append((part, role.resources))
            for part, need in reversed(taken):
                ledger.release(part, need)
        return None if parts is None else tuple(part for part, _ in taken)

    def _role(self, ledger: Ledger, need: Resources, workers: int, role: str) -> list[Part] | None:
        if need.pool in ledger.contingents and (parts := ledger.divided(need.pool, workers)):
            chosen = self._divided(ledger, need, parts)
        else:
            chosen = self._favoured(ledger, need, workers)
        if chosen is None:
            return None
        if len(chosen) == 1:
            return ledger.pick(chosen[0][0], need, chosen[0][1], role)
        return [part for node, count in chosen for part in ledger.pick(node, need, count, role)]

    def _favoured(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        chosen = self._arrange(ledger, need, workers)
        if chosen is None or need.pool not in ledger.preferred:
            return chosen
        return self._preferred(ledger, need, workers, chosen)

    def _divided(
        self, ledger: Ledger, need: Resources, contingents: list[tuple[int, int]]
    ) -> Arrangement | None:
        """So many workers on each of some sets of nodes, or None."""
        chosen: Arrangement = []
        for nodes, workers in contingents:
            with ledger.only(ledger.up & nodes):
                found = self._favoured(ledger, need, workers)
            if found is None:
                return None
            chosen += found
        return chosen

    def _preferred(
        self, ledger: Ledger, need: Resources, workers: int, chosen: Arrangement
    ) -> Arrangement:
        """A place that is no worse than this one, on nodes that are preferred if there is any."""
        groups = ledger.preferred_nodes(need.pool)
        most, shown, tried = self._cost(chosen, need), 0, 0
        for group in groups:
            shown |= group
            with ledger.only(ledger.up & shown):
                # A group without room adds nothing to those before it.
                is_new = ledger.candidates(need) & group
                found = self._arrange(ledger, need, workers) if is_new else None
            if found is not None and self._cost(found, need) <= most:
                return exchanged(ledger, need, found, groups)
            tried += bool(is_new)
            if tried >= _MOST_GROUPS and workers > 1:
                break
        return exchanged(ledger, need, chosen, groups)

    @abstractmethod
    def _arrange(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        """Nodes for so many workers, or None."""

    def _cost(self, chosen: Arrangement, need: Resources) -> tuple[int, ...]:  # noqa: ARG002
        """What is bad about an arrangement: of equal ones, preferences decide."""
        return (len(chosen),)


def _cells(ledger: Ledger, level: Level) -> Iterable[tuple[int, int]]:
    """All cells of a level: their nodes and, inside a node, their devices."""
    if level > Level.NODE:
        # A name may have lost its nodes to another.
        yield from ((nodes, -1) for nodes in ledger.domains[level].values() if nodes)
        return
    for node in ledger.select(ledger.up):
        seen = 0
        for gpu in range(max(node.spec.gpus, 1)):
            if not seen >> gpu & 1:
                cell = cell_of(node.spec, gpu, level)
                seen |= cell
                yield node.bit, cell


class FirstFit(_Placer):
    """First fit, consolidated: one node if a node can hold the gang, else only whole free nodes."""

    consolidates: ClassVar[bool] = True

    def _arrange(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        if not ledger.could(need, workers):
            return _whole_nodes(ledger, need, workers)
        for node in ledger.select(_with_room(ledger, need, workers)):
            if ledger.room(node, need) >= workers:
                return [(node, workers)]
        return None


class Cells(FirstFit):
    """First fit by cells: on a node, the devices of the smallest cell that has enough left.

    Of equal cells the fullest, as buddies are given out. What queues are due but have not claimed
    is used as if it were anybody's.
    """

    spares: ClassVar[bool] = False

    def _role(self, ledger: Ledger, need: Resources, workers: int, role: str) -> list[Part] | None:
        parts = super()._role(ledger, need, workers, role)
        if parts is None or not need.whole_gpus_only:
            return parts
        nodes = ledger.nodes
        return [
            part._replace(gpus=_closest(ledger, nodes[part.node], len(part.gpus))) for part in parts
        ]


def _closest(ledger: Ledger, node: Node, count: int) -> tuple[int, ...]:
    """Free devices of a node, so many, in the smallest cell that has them."""
    known = ledger.notes.setdefault("cells", {})
    assert isinstance(known, dict)  # noqa: S101 - narrows the type
    cells: list[tuple[int, ...]] | None = known.get(node.spec)
    if cells is None:
        cells = known[node.spec] = inner_cells(node.spec)
    free = [tuple(gpu for gpu in cell if node.free >> gpu & 1) for cell in cells]
    enough = [
        (len(cell), len(left), at)
        for at, (cell, left) in enumerate(zip(cells, free, strict=True))
        if len(left) >= count
    ]
    return tuple(sorted(free[min(enough)[2]][:count]))


class Pack(_Placer):
    """Best fit: the tightest node that holds the gang, else as few nodes as possible."""

    def _arrange(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        single = _tightest(ledger, need, workers)
        if single is not None:
            return [(single, workers)]
        if workers == 1:
            return None
        return _spill(ledger, _emptiest_first(ledger, need), need, workers)


class Consolidate(_Placer):
    """Best fit on as few nodes as the gang can possibly use; rather waits than spreads further."""

    consolidates: ClassVar[bool] = True

    def _arrange(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        if not ledger.could(need, workers):
            return _whole_nodes(ledger, need, workers)
        single = _tightest(ledger, need, workers)
        return None if single is None else [(single, workers)]


class Spread(_Placer):
    """Worst fit: workers one by one on the emptiest nodes, so that neighbours are few."""

    def _arrange(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        rooms = []
        for node in _emptiest_first(ledger, need):
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

    def _cost(self, chosen: Arrangement, need: Resources) -> tuple[int, ...]:  # noqa: ARG002
        return max(count for _, count in chosen), -len(chosen)


class Topology(_Placer):
    """The smallest cell that holds the gang: a socket, node, switch, block, zone, then anywhere.

    Of a gang that needs several switches, those of one block come one after the other, and so on:
    workers that follow each other are close to each other.
    """

    def _arrange(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        single = _tightest(ledger, need, workers, _one_socket) or _tightest(ledger, need, workers)
        if single is not None:
            return [(single, workers)]
        cells: list[tuple[int, int, int, Arrangement]] = []
        for cell in ledger.switches.values():
            if not cell:
                continue
            with ledger.only(cell):
                chosen = _spill(ledger, _emptiest_first(ledger, need), need, workers)
            if chosen is not None:
                slack = sum(node.shown for node in ledger.select(cell))
                cells.append((len(chosen), slack, len(cells), chosen))
        if cells:
            return min(cells, key=lambda cell: cell[:3])[3]
        if workers == 1:
            return None
        if any(ledger.domains[level] for level in _WIDER):
            return _nearest(ledger, need, workers)
        chosen = _spill(ledger, _emptiest_first(ledger, need), need, workers)
        return chosen and _neighbours(chosen)

    def _cost(self, chosen: Arrangement, need: Resources) -> tuple[int, ...]:
        widest = (Level.ZONE, Level.BLOCK, Level.SWITCH)
        domains = (len({node.spec.domain(level) for node, _ in chosen}) for level in widest)
        split = sum(not _one_socket(node, need.gpus * count) for node, count in chosen)
        return (*domains, len(chosen), split)


class Anywhere(_Placer):
    """First fit without regard to locality: any free device will do, in node order."""

    def _arrange(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        return _spill(ledger, ledger.select(ledger.candidates(need)), need, workers)

    def _cost(self, chosen: Arrangement, need: Resources) -> tuple[int, ...]:  # noqa: ARG002
        return ()


#: Levels above a switch.
_WIDER = (Level.BLOCK, Level.ZONE)


def _nearest(ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
    """The smallest block or zone that holds so many workers, else the whole cluster."""
    rooms = _rooms(ledger, need, workers)
    for level in _WIDER:
        sums = _sums([each for each in rooms if each[0].spec.is_within(level)], level)
        fitting = [name for name, room in sums.items() if room >= workers]
        if fitting:
            best = min(fitting, key=lambda name: (sums[name], name))
            inside = [each for each in rooms if each[0].spec.domain(level) == best]
            return _fill(inside, Level(level - 1), workers)
    return _fill(rooms, Level.ZONE, workers) if sum(room for _, room in rooms) >= workers else None


def _rooms(ledger: Ledger, need: Resources, workers: int) -> Arrangement:
    """All nodes with room, the emptiest first, and how many of the workers each could take."""
    rooms = ((node, ledger.room(node, need)) for node in _emptiest_first(ledger, need))
    return [(node, min(room, workers)) for node, room in rooms if room]


def _sums(rooms: Arrangement, level: Level) -> dict[str, int]:
    """How many workers there is room for in every domain of a level."""
    sums: dict[str, int] = {}
    for node, room in rooms:
        name = node.spec.domain(level)
        sums[name] = sums.get(name, 0) + room
    return sums


def _fill(rooms: Arrangement, level: Level, workers: int) -> Arrangement:
    """Fill as few domains of a level as hold the workers, each in turn in the same way.

    There is room for all of them. The roomiest come first, the last is the tightest that will do.
    """
    if level is Level.NODE:
        chosen: Arrangement = []
        for node, room in rooms:
            count = min(room, workers)
            chosen.append((node, count))
            workers -= count
            if not workers:
                break
        return chosen
    sums = _sums(rooms, level)
    chosen = []
    while workers:
        enough = [name for name, room in sums.items() if room >= workers]
        if enough:
            best = min(enough, key=lambda name: (sums[name], name))
        else:
            best = max(sums, key=lambda name: (sums[name], name))
        count = min(sums.pop(best), workers)
        inside = [each for each in rooms if each[0].spec.domain(level) == best]
        chosen += _fill(inside, Level(level - 1), count)
        workers -= count
    return chosen


def _neighbours(chosen: Arrangement) -> Arrangement:
    """The same nodes, those of one switch one after the other."""
    order: dict[str, int] = {}
    for node, _ in chosen:
        order.setdefault(node.spec.switch, len(order))
    return sorted(chosen, key=lambda each: order[each[0].spec.switch])


def _whole_nodes(ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
    """Only nodes with no job on their GPUs; for workers without GPUs any node will do."""
    mask = ledger.full if need.gpus else ledger.up
    if need.kinds or need.pool:
        mask &= ledger.eligible(need)
    return _spill(ledger, ledger.select(mask), need, workers)


def _with_room(ledger: Ledger, need: Resources, workers: int) -> int:
    """Nodes with enough free devices for all workers at once."""
    if not need.gpus or need.share_milli < WHOLE:
        return ledger.candidates(need)
    count = need.gpus * workers
    mask = ledger.at_least[count] if count < len(ledger.at_least) else 0
    return mask & ledger.eligible(need) if need.kinds or need.pool else mask


def _tightest(
    ledger: Ledger,
    need: Resources,
    workers: int,
    suits: Callable[[Node, int], bool] | None = None,
) -> Node | None:
    """The node with the fewest free devices that holds all workers, and suits."""
    fitting = _with_room(ledger, need, workers)
    if not fitting:
        return None
    if need.gpus and need.share_milli < WHOLE and (sharing := fitting & ledger.sharing):
        for node in ledger.select(sharing):
            if ledger.room(node, need) >= workers:
                return node
    for nodes in _by_idle(ledger, fitting):
        for node in ledger.select(nodes):
            if ledger.room(node, need) >= workers and (
                suits is None or suits(node, need.gpus * workers)
            ):
                return node
    return None


def _one_socket(node: Node, gpus: int) -> bool:
    """Whether one socket of a node has so many free devices."""
    spec = node.spec
    if spec.sockets == 1:
        return True
    spread = Counter(spec.socket_of(gpu) for gpu in devices(node.free))
    return max(spread.values(), default=0) >= gpus


def _by_idle(ledger: Ledger, nodes: int) -> list[int]:
    """A set of nodes cut up by how many devices are free, fewest first."""
    levels = ledger.at_least
    cuts = [nodes, *(nodes & mask for mask in levels[1:]), 0]
    return [mask & ~more for mask, more in pairwise(cuts)]


def _emptiest_first(ledger: Ledger, need: Resources) -> Iterable[Node]:
    """Candidates, those with the most free devices first."""
    for nodes in reversed(_by_idle(ledger, ledger.candidates(need))):
        yield from ledger.select(nodes)


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
