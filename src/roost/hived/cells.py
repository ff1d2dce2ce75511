"""What HiveD's cells are to Roost: nodes with their place in declared trees, and promises.

A chain of HiveD, which is a cell type on top and all that it is made of, is a declared tree with
that name; its nodes are ``node``, its devices ``gpu``, and all other types are levels of the tree
under their own names. So a promise is of cells of this chain and no other, as it is there. Cells
around nodes that the file gives no address are named by their place in it, such as ``4-DGX2-5.1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from roost.core.cells import CellPromise
from roost.core.cells.site import CellSite, InnerLevel, OuterCell
from roost.core.spec import NodeId, NodeSpec, QueueId, QueueSpec
from roost.errors import InvalidSpec, NotFound
from roost.files import Source, load
from roost.hived.config import read_config
from roost.hived.plain import PlainPromises
from roost.hived.tree import CellForest, Chain, PhysicalCell, forest


@dataclass(frozen=True, slots=True)
class HivedCluster:
    """Nodes and queues of a configuration; ``notes`` tell what is not as it is there."""

    nodes: tuple[NodeSpec, ...]
    queues: tuple[QueueSpec, ...]
    notes: tuple[str, ...] = ()


def read_hived(source: Source, *, declared: bool = True) -> HivedCluster:
    """The physical cluster as nodes, and the virtual clusters as queues with cells.

    If not ``declared``, the promises are for a cluster whose nodes say no more than their switch,
    block and zone. Raises InvalidSpec or NotFound with the file and what is wrong in it.
    """
    text = load(source)
    config = read_config(text)
    try:
        cells = forest(config)
        found = _Conversion(cells).cluster()
        if declared:
            return found
        plain = PlainPromises(cells)
        return replace(found, queues=plain.queues(), notes=tuple(dict.fromkeys(plain.notes)))
    except (InvalidSpec, NotFound) as error:
        raise type(error)(f"{text.file}: {error}") from None


class _Conversion:
    """Goes through the cells once, and notes what cannot be carried over."""

    def __init__(self, cells: CellForest) -> None:
        self._cells = cells
        self._notes: list[str] = []
        #: What cells are called here.
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
                yield self._node(cell, name, self._around(above, index))

    def _node(self, cell: PhysicalCell, name: str, around: tuple[OuterCell, ...]) -> NodeSpec:
        chain = cell.chain
        gpus, inner = range(cell.leaves()), list[InnerLevel]()
        level = [cell]
        for depth in range(chain.node + 1, len(chain.types)):
            level = [child for one in level for child in one.children]
            title, each = _level(chain, depth), len(gpus) // len(level)
            cells = tuple(tuple(gpus[at : at + each]) for at in range(0, len(gpus), each))
            for at, one in enumerate(level):
                self._names[id(one)] = f"{name}/{title}{at}"
            if not chain.level_is_device(depth):
                inner.append(InnerLevel(title, cells))
        return NodeSpec(
            NodeId(name),
            gpus=len(gpus),
            kind=chain.device,
            sockets=len(inner[0].cells) if inner else 1,
            switch=around[0].name if around else "",
            site=CellSite(_word(chain.top), tuple(inner), around),
        )

    def _around(self, above: tuple[PhysicalCell, ...], index: int) -> tuple[OuterCell, ...]:
        """The cells around a node, from the inside out."""
        found: list[OuterCell] = []
        for cell in above:
            own = cell.address if found else _top_name(cell, index)
            name = f"{found[-1].name}.{own}" if found else own
            self._names[id(cell)] = name
            found.append(OuterCell(_level(cell.chain, cell.depth), name))
        return tuple(reversed(found))

    # -- queues --------------------------------------------------------------------------------

    def _queue(self, owner: str) -> QueueSpec:
        wanted: dict[CellPromise, int] = {}
        for one in self._cells.virtual:
            if one.owner == owner:
                sort = _sort(one.chain, one.depth)
                wanted[sort] = wanted.get(sort, 0) + one.number
        counted = (
            CellPromise(number, sort.level, sort.kind, sort.gpus, sort.tree)
            for sort, number in wanted.items()
        )
        pinned = (
            CellPromise(pinned=self._names[id(cell)]) for cell in self._cells.pinned.get(owner, ())
        )
        return QueueSpec(QueueId(owner), cells=(*counted, *pinned))


def _sort(chain: Chain, depth: int) -> CellPromise:
    """A cell of a type, of this chain."""
    return CellPromise(1, _level(chain, depth), chain.device, tree=_word(chain.top))


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
    """What a depth of a chain is called here."""
    if depth == chain.node:
        return "node"
    return "gpu" if chain.level_is_device(depth) else _word(chain.types[depth])


def _word(text: str) -> str:
    """A name as a promise can write it."""
    return re.sub(r"[^A-Za-z0-9]+$|^[^A-Za-z0-9]+|[^A-Za-z0-9._-]", "-", text).strip("-") or "cells"
