"""HiveD's promises in the words of a cluster that declares no trees: nodes, what is in and around.

A type of nodes is a node. The types above it are a switch, a block and a zone, from the inside out;
the one right below it, where that is no device, is a socket. Chains are not told apart, but cells
of other sizes are.
"""

from __future__ import annotations

from collections.abc import Iterator

from roost.core.cells import CellPromise
from roost.core.spec import QueueId, QueueSpec
from roost.errors import InvalidSpec
from roost.hived.tree import CellForest, Chain, PhysicalCell

#: The levels above a node, from the inside out.
_ABOVE = ("switch", "block", "zone")


class PlainPromises:
    """The queues of a configuration, and notes on what is not as it is there."""

    def __init__(self, cells: CellForest) -> None:
        self._cells = cells
        self.notes: list[str] = []
        self._inside = dict(_inside(cells))

    def queues(self) -> tuple[QueueSpec, ...]:
        """All virtual clusters."""
        return tuple(self._queue(owner) for owner in self._cells.owners)

    def _queue(self, owner: str) -> QueueSpec:
        wanted: dict[tuple[str, str, int], int] = {}
        for one in self._cells.virtual:
            if one.owner == owner:
                sort = _sort(one.chain, one.depth)
                wanted[sort] = wanted.get(sort, 0) + one.number
                self._note_others(owner, one.chain, one.depth)
        counted = [CellPromise(number, *sort) for sort, number in wanted.items()]
        pinned = [self._pinned(cell) for cell in self._cells.pinned.get(owner, ())]
        return QueueSpec(QueueId(owner), cells=(*counted, *pinned))

    def _note_others(self, owner: str, chain: Chain, depth: int) -> None:
        others = {
            cell.chain.top
            for cell in self._cells.cells
            if cell.chain.top != chain.top and chain.types[depth] in cell.chain.types
        }
        if others:
            self.notes.append(
                f"{owner}: {chain.types[depth]} of {chain.top} may also be those of "
                f"{', '.join(sorted(others))}: nodes say no more than their switch, block and zone"
            )

    def _pinned(self, cell: PhysicalCell) -> CellPromise:
        if (name := self._inside.get(id(cell))) is not None:
            return CellPromise(pinned=name)
        level, kind, gpus = _sort(cell.chain, cell.depth)
        self.notes.append(
            f"{cell.pinned}: what the {level} is called here is not told; any {level} of {kind} "
            f"with {gpus} GPUs is promised"
        )
        return CellPromise(1, level, kind, gpus)


def _inside(cells: CellForest) -> Iterator[tuple[int, str]]:
    """The names of nodes, and of the sockets and GPUs in them."""
    for top in cells.cells:
        for node in top.walk():
            if node.depth != node.chain.node:
                continue
            yield id(node), node.address
            level = node.children
            while level:
                word = _level(node.chain, level[0].depth, strict=False)
                for at, one in enumerate(level if word else ()):
                    yield id(one), f"{node.address}/{word}{at}"
                level = [child for one in level for child in one.children]


def _sort(chain: Chain, depth: int) -> tuple[str, str, int]:
    """The level, the kind and the GPUs of cells of a type."""
    level = _level(chain, depth)
    return level, chain.device, 0 if level == "gpu" else chain.gpus(depth)


def _level(chain: Chain, depth: int, *, strict: bool = True) -> str:
    """What a depth of a chain is here; nothing, or InvalidSpec if strict, where it is no level."""
    above = chain.node - depth
    if above > len(_ABOVE):
        raise InvalidSpec(
            f"cellTypes: {chain.types[depth]} is {above} levels above a node; "
            f"there are three here: {', '.join(_ABOVE)}"
        )
    if above > 0:
        return _ABOVE[above - 1]
    if above == 0:
        return "node"
    if chain.level_is_device(depth):
        return "gpu"
    if above == -1:
        return "socket"
    if not strict:
        return ""
    raise InvalidSpec(
        f"cellTypes: {chain.types[depth]} is between a GPU and a socket, which here is "
        f"{chain.types[chain.node + 1]}; promise sockets or GPUs"
    )
