"""What HiveD's cells are to Roost: nodes with the domains that they are in, and promises of cells.

A type of nodes is a node. The types above it are a switch, a block and a zone, from the inside out;
the one right below it, where that is no device, is a socket. Domains that the file gives no address
are named by their place in it, such as ``4-DGX2-5.1``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roost.core.cells import CellPromise
from roost.core.spec import NodeId, NodeSpec, QueueId, QueueSpec
from roost.errors import InvalidSpec, NotFound
from roost.files import Source, load
from roost.hived.config import read_config
from roost.hived.tree import CellForest, Chain, PhysicalCell, VirtualCells, forest

#: The levels above a node, from the inside out.
_ABOVE = ("switch", "block", "zone")


@dataclass(frozen=True, slots=True)
class HivedCluster:
    """Nodes and queues of a configuration; ``notes`` tell what is not as it is there."""

    nodes: tuple[NodeSpec, ...]
    queues: tuple[QueueSpec, ...]
    notes: tuple[str, ...] = ()


def read_hived(source: Source) -> HivedCluster:
    """The physical cluster as nodes, and the virtual clusters as queues with cells.

    Raises InvalidSpec or NotFound with the file and what is wrong in it.
    """
    text = load(source)
    config = read_config(text)
    try:
        return _Conversion(forest(config)).cluster()
    except (InvalidSpec, NotFound) as error:
        raise type(error)(f"{text.file}: {error}") from None


class _Conversion:
    """Goes through the cells once, and notes what cannot be carried over."""

    def __init__(self, cells: CellForest) -> None:
        self._cells = cells
        self._notes: list[str] = []
        #: How cells are called that have a name here.
        self._names: dict[int, str] = {}

    def cluster(self) -> HivedCluster:
        nodes = tuple(self._nodes())
        queues = tuple(self._queue(owner) for owner in self._cells.owners)
        return HivedCluster(nodes, queues, tuple(dict.fromkeys(self._notes)))

    # -- nodes ---------------------------------------------------------------------------------

    def _nodes(self) -> Iterator[NodeSpec]:
        taken: dict[str, str] = {}
        for index, top in enumerate(self._cells.cells):
            for above, cell in _nodes_of(top, ()):
                kind, name = cell.chain.device, cell.address
                if name in taken:
                    if taken[name] == kind:
                        raise InvalidSpec(f"physicalCells: node {name} is there twice")
                    self._notes.append(
                        f"node {name} has devices of two types, {taken[name]} and {kind}; "
                        f"a node of Roost has one: the latter are node {name}.{kind}"
                    )
                    name = f"{name}.{kind}"
                taken[name] = kind
                self._names[id(cell)] = name
                yield self._node(cell, name, self._domains(above, index))

    @staticmethod
    def _node(cell: PhysicalCell, name: str, domains: list[str]) -> NodeSpec:
        chain, below = cell.chain, cell.children
        return NodeSpec(
            NodeId(name),
            gpus=cell.leaves(),
            kind=chain.device,
            sockets=1 if chain.level_is_device(chain.node + 1) else len(below),
            **dict(zip(_ABOVE, domains, strict=False)),
        )

    def _domains(self, above: tuple[PhysicalCell, ...], index: int) -> list[str]:
        """The names of the domains of a node, from the inside out."""
        names: list[str] = []
        for cell in above:
            own = cell.address if names else _top_name(cell, index)
            names.append(f"{names[-1]}.{own}" if names else own)
            self._names[id(cell)] = names[-1]
        return names[::-1]

    # -- queues --------------------------------------------------------------------------------

    def _queue(self, owner: str) -> QueueSpec:
        wanted: dict[tuple[str, str, int], int] = {}
        for one in self._cells.virtual:
            if one.owner == owner:
                sort = self._sort(one)
                wanted[sort] = wanted.get(sort, 0) + one.number
        counted = (
            CellPromise(number, level, kind, gpus) for (level, kind, gpus), number in wanted.items()
        )
        pinned = (self._pinned(cell) for cell in self._cells.pinned.get(owner, ()))
        return QueueSpec(QueueId(owner), cells=(*counted, *pinned))

    def _sort(self, one: VirtualCells) -> tuple[str, str, int]:
        """The level, the kind and the GPUs of cells of a type."""
        chain, depth = one.chain, one.depth
        others = {
            cell.chain.top
            for cell in self._cells.cells
            if cell.chain.top != chain.top and chain.types[depth] in cell.chain.types
        }
        if others:
            self._notes.append(
                f"{one.owner}: {chain.types[depth]} of {chain.top} may also be those of "
                f"{', '.join(sorted(others))}: a promise names a level, a kind and GPUs"
            )
        level = _level(chain, depth)
        return level, chain.device, 0 if level == "gpu" else chain.gpus(depth)

    def _pinned(self, cell: PhysicalCell) -> CellPromise:
        if id(cell) in self._names:
            return CellPromise(pinned=self._names[id(cell)])
        level = _level(cell.chain, cell.depth)
        self._notes.append(
            f"{cell.pinned}: Roost promises nodes and what is above them by their names; "
            f"this is any {level} of {cell.chain.device}"
        )
        gpus = 0 if level == "gpu" else cell.leaves()
        return CellPromise(1, level, cell.chain.device, gpus)


def _nodes_of(
    cell: PhysicalCell, above: tuple[PhysicalCell, ...]
) -> Iterator[tuple[tuple[PhysicalCell, ...], PhysicalCell]]:
    """The nodes in a cell, each with the cells that it is in, from the outside in."""
    if cell.depth == cell.chain.node:
        yield above, cell
    else:
        for child in cell.children:
            yield from _nodes_of(child, (*above, cell))


def _top_name(cell: PhysicalCell, index: int) -> str:
    return f"{cell.type}-{index}" if cell.address == str(index) else cell.address


def _level(chain: Chain, depth: int) -> str:
    """What a depth of a chain is here."""
    above = chain.node - depth
    if above > len(_ABOVE):
        raise InvalidSpec(
            f"cellTypes: {chain.types[depth]} is {above} levels above a node; "
            f"Roost has three: {', '.join(_ABOVE)}"
        )
    if above > 0:
        return _ABOVE[above - 1]
    if above == 0:
        return "node"
    if chain.level_is_device(depth):
        return "gpu"
    if above == -1:
        return "socket"
    raise InvalidSpec(
        f"cellTypes: {chain.types[depth]} is between a GPU and a socket, which here is "
        f"{chain.types[chain.node + 1]}; Roost promises sockets or GPUs"
    )
