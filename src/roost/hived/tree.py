"""HiveD's cells as trees: what each type is made of, which cells there are, what is promised fits.

The rules are those of HiveD: the types form a forest, each type that is used leads from a device
up through exactly one type of nodes, and all virtual clusters together fit into the physical one.
A *chain* is a type that stands on top, with all that it is made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from roost.errors import InvalidSpec, unknown
from roost.hived.config import (
    CellTypeSection,
    HivedConfig,
    PhysicalCellSection,
    VirtualClusterSection,
)

#: More GPUs than this are a slip of the pen.
_MOST_GPUS = 1_000_000


@dataclass(frozen=True, slots=True)
class Chain:
    """The types from the one on top down to the device, and how many of the next each one has."""

    types: tuple[str, ...]
    numbers: tuple[int, ...]
    node: int

    @property
    def top(self) -> str:
        """The type on top, which gives the chain its name."""
        return self.types[0]

    @property
    def device(self) -> str:
        """The type of the devices: the kind of GPU."""
        return self.types[-1]

    def level_is_device(self, depth: int) -> bool:
        """Whether cells at that depth are single devices."""
        return depth == len(self.types) - 1

    def gpus(self, depth: int) -> int:
        """How many devices a cell at that depth has, as its type says."""
        found = 1
        for number in self.numbers[depth:]:
            found *= number
        return found


@dataclass(slots=True)
class PhysicalCell:
    """A cell that is there, at a depth of its chain."""

    chain: Chain
    depth: int
    address: str
    pinned: str = ""
    children: list[PhysicalCell] = field(default_factory=list)

    @property
    def type(self) -> str:
        """What it is."""
        return self.chain.types[self.depth]

    def walk(self) -> Iterator[PhysicalCell]:
        """It, and all cells in it, from the top."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> int:
        """How many devices it has."""
        if self.chain.level_is_device(self.depth):
            return 1
        return sum(child.leaves() for child in self.children)


@dataclass(frozen=True, slots=True)
class VirtualCells:
    """So many cells of a type below the top of a chain, promised to a virtual cluster."""

    owner: str
    chain: Chain
    depth: int
    number: int


@dataclass(frozen=True, slots=True)
class CellForest:
    """All that a configuration says, checked."""

    cells: tuple[PhysicalCell, ...]
    virtual: tuple[VirtualCells, ...]
    #: The pinned cells of each virtual cluster.
    pinned: Mapping[str, tuple[PhysicalCell, ...]]
    owners: tuple[str, ...]


def forest(config: HivedConfig) -> CellForest:
    """The cells of a configuration, checked; raises InvalidSpec or NotFound."""
    types = config.physical.types
    chains = _Chains(types)
    cells = tuple(
        _cell(section, chains.under(_top(section, types, index)), 0, str(index))
        for index, section in enumerate(config.physical.cells)
    )
    if not cells:
        raise InvalidSpec("physicalCluster.physicalCells: there are no cells")
    by_pin = _pins(cells)
    virtual = tuple(_virtual(config.virtual, chains, {cell.chain.top for cell in cells}))
    pinned = _pinned(config.virtual, by_pin)
    found = CellForest(cells, virtual, pinned, tuple(config.virtual))
    _check_fit(found)
    return found


# -- types -------------------------------------------------------------------------------------


class _Chains:
    """The chains of the types that were asked for."""

    def __init__(self, types: Mapping[str, CellTypeSection]) -> None:
        self._types = types
        self._known: dict[str, Chain] = {}

    def under(self, top: str) -> Chain:
        """The chain with that type on top."""
        if top not in self._known:
            self._known[top] = self._read(top)
        return self._known[top]

    def _read(self, top: str) -> Chain:
        names, numbers, nodes = [top], list[int](), list[str]()
        while (section := self._types.get(names[-1])) is not None:
            if section.child in names:
                raise InvalidSpec(f"cellTypes: {section.child} contains itself")
            if section.is_node:
                nodes.append(names[-1])
            numbers.append(section.number)
            names.append(section.child)
        if len(nodes) != 1:
            found = " and ".join(nodes) or "none of them"
            raise InvalidSpec(
                f"cellTypes: of {', '.join(names)} exactly one has to be a node (isNodeLevel), "
                f"here it is {found}"
            )
        chain = Chain(tuple(names), tuple(numbers), names.index(nodes[0]))
        if chain.gpus(0) > _MOST_GPUS:
            raise InvalidSpec(f"cellTypes: {top} has {chain.gpus(0)} devices; that cannot be meant")
        return chain


def _top(section: PhysicalCellSection, types: Mapping[str, CellTypeSection], index: int) -> str:
    if not section.type:
        raise InvalidSpec(f"physicalCells: cell {index} does not say its cellType")
    if section.type not in types:
        raise unknown("cell type in physicalCells:", section.type, types or ["(none)"])
    return section.type


# -- physical cells ----------------------------------------------------------------------------


def _cell(section: PhysicalCellSection, chain: Chain, depth: int, default: str) -> PhysicalCell:
    name = chain.types[depth]
    where = section.address if section.address is not None else default
    if section.type and section.type != name:
        raise InvalidSpec(
            f"physicalCells: {section.type} {where} is where a {name} belongs: {chain.top} is made "
            f"of {', '.join(chain.types[1:])}"
        )
    if depth == chain.node and section.address is None:
        raise InvalidSpec(
            f"physicalCells: a cell of type {name} has no cellAddress; that of a node is its name"
        )
    made = PhysicalCell(chain, depth, where, section.pinned or "")
    if chain.level_is_device(depth):
        if section.children:
            raise InvalidSpec(f"physicalCells: {name} {where} is a device, it has no cellChildren")
        return made
    number = chain.numbers[depth]
    children = section.children or (PhysicalCellSection(),) * number
    if len(children) != number:
        raise InvalidSpec(
            f"physicalCells: {name} {where} has {len(children)} cellChildren, "
            f"a cell of its type has {number}"
        )
    made.children = [
        _cell(child, chain, depth + 1, str(index)) for index, child in enumerate(children)
    ]
    return made


def _pins(cells: Sequence[PhysicalCell]) -> dict[str, PhysicalCell]:
    """Cells that have a name of their own; no cell is in another one that has."""
    found: dict[str, PhysicalCell] = {}

    def look(cell: PhysicalCell, above: PhysicalCell | None) -> None:
        if cell.pinned:
            if cell.pinned in found:
                raise InvalidSpec(f"physicalCells: two cells have the pinnedCellId {cell.pinned}")
            if above is not None:
                raise InvalidSpec(
                    f"physicalCells: the pinned cells {above.pinned} and {cell.pinned} overlap: "
                    f"{cell.type} {cell.address} is a part of {above.type} {above.address}"
                )
            found[cell.pinned] = cell
        for child in cell.children:
            look(child, cell if cell.pinned else above)

    for cell in cells:
        look(cell, None)
    return found


# -- virtual cells -----------------------------------------------------------------------------


def _virtual(
    clusters: Mapping[str, VirtualClusterSection], chains: _Chains, tops: set[str]
) -> Iterator[VirtualCells]:
    for owner, cluster in clusters.items():
        for section in cluster.cells or ():
            names = section.type.split(".")
            if names[0] not in tops:
                raise unknown(
                    f"cell type of virtual cluster {owner} (of those that physicalCells have):",
                    names[0],
                    tops,
                )
            chain = chains.under(names[0])
            if tuple(names) != chain.types[: len(names)]:
                raise InvalidSpec(
                    f"virtual cluster {owner}: there is no {section.type}; "
                    f"a cell type is written from the top down, as in {'.'.join(chain.types)}"
                )
            if section.number:
                yield VirtualCells(owner, chain, len(names) - 1, section.number)


def _pinned(
    clusters: Mapping[str, VirtualClusterSection], by_pin: Mapping[str, PhysicalCell]
) -> dict[str, tuple[PhysicalCell, ...]]:
    found: dict[str, tuple[PhysicalCell, ...]] = {}
    taken: dict[str, str] = {}
    for owner, cluster in clusters.items():
        for section in cluster.pinned or ():
            if section.id not in by_pin:
                raise unknown(
                    f"pinned cell of virtual cluster {owner}:", section.id, by_pin or ["(none)"]
                )
            if section.id in taken:
                raise InvalidSpec(
                    f"the pinned cell {section.id} is promised to {taken[section.id]} "
                    f"and to {owner}"
                )
            taken[section.id] = owner
        found[owner] = tuple(by_pin[section.id] for section in cluster.pinned or ())
    return found


# -- whether it fits ---------------------------------------------------------------------------


def _check_fit(found: CellForest) -> None:
    """Refuse promises beyond what there is: by chain, from the largest cells down."""
    taken = {cell.pinned for cells in found.pinned.values() for cell in cells}
    for chain in {cell.chain.top: cell.chain for cell in found.cells}.values():
        free = [cell for cell in found.cells if cell.chain == chain]
        asked: dict[int, Counter[str]] = {}
        for one in found.virtual:
            if one.chain == chain:
                asked.setdefault(one.depth, Counter())[one.owner] += one.number
        for depth in range(len(chain.types)):
            whole = [cell for cell in free if not _holds(cell, taken)]
            wanted = asked.get(depth, Counter())
            if wanted.total() > len(whole):
                who = ", ".join(f"{owner} {number}" for owner, number in sorted(wanted.items()))
                raise InvalidSpec(
                    f"virtual clusters ask for {wanted.total()} cells of type "
                    f"{'.'.join(chain.types[: depth + 1])} ({who}); "
                    f"{len(whole)} {'is' if len(whole) == 1 else 'are'} left for them"
                )
            # Those that were split already go first: the whole ones may be wanted further below.
            rest = [cell for cell in free if _holds(cell, taken)] + whole[wanted.total() :]
            free = [child for cell in rest if cell.pinned not in taken for child in cell.children]


def _holds(cell: PhysicalCell, taken: set[str]) -> bool:
    """Whether a cell that is promised by its name is in a cell, or is it."""
    return any(one.pinned in taken for one in cell.walk() if one.pinned)
