"""The cells there are: trees of GPUs, sockets, nodes, switches and so on, worked out from nodes.

A tree has GPUs of one kind. All cells of one level of a *chain* are alike, so that counting them is
enough to know what fits: trees of one form are one chain. A cell whose parts are not alike cannot
be counted so; it is left out, and its parts are trees of their own. So is a node that does not say
where it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from roost.core.cells.promise import CellPromise
from roost.core.node import Node
from roost.core.spec import DOMAINS, NodeSpec

#: The levels of a tree from its top down, each with how many parts a cell has.
_Form: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(slots=True, eq=False)
class Cell:
    """A subtree: its devices, as masks by node, and its place in its chain.

    ``height`` is 0 for a GPU. ``inside`` counts the cells in it that are taken, itself included;
    ``taken`` how often it is taken itself.
    """

    name: str
    level: str
    masks: tuple[tuple[Node, int], ...]
    parts: tuple[Cell, ...]
    gpus: int
    index: int
    chain: Chain = field(init=False)
    parent: Cell | None = None
    height: int = 0
    inside: int = 0
    taken: int = 0

    def ancestors(self) -> Iterator[Cell]:
        """The cells around it, inside out."""
        at = self.parent
        while at is not None:
            yield at
            at = at.parent

    @property
    def bad(self) -> bool:
        """Whether some of its devices cannot be had: broken, or on a node out of service."""
        return any(not node.up or mask & ~node.healthy for node, mask in self.masks)

    @property
    def here(self) -> bool:
        """Whether all of its nodes are in the cluster."""
        return all(node.here for node, _ in self.masks)

    @property
    def is_free(self) -> bool:
        """Whether neither it, nor a cell in it, nor one around it is taken."""
        if self.inside:
            return False
        at = self.parent
        while at is not None:
            if at.taken:
                return False
            at = at.parent
        return True

    @property
    def split(self) -> int:
        """The height of the largest free cell that would have to be split for it."""
        return self.whole.height

    @property
    def whole(self) -> Cell:
        """The largest free cell that would have to be split for it; itself, if it is none."""
        at = self
        while at.parent is not None and not at.parent.inside:
            at = at.parent
        return at


@dataclass(slots=True, eq=False)
class Chain:
    """Trees of one form: the cells of each level by height, and how many are free as a whole."""

    kind: str
    tree: str
    levels: tuple[str, ...]
    parts: tuple[int, ...]
    sizes: tuple[int, ...]
    cells: list[list[Cell]]
    free: list[int]

    @property
    def roots(self) -> list[Cell]:
        """Its trees."""
        return self.cells[-1]

    def count(self, *, healthy: bool = False, here: bool = False) -> list[int]:
        """How many cells of each height are free as a whole, counted anew."""
        found = [0] * len(self.levels)
        stack = list(self.roots)
        while stack:
            cell = stack.pop()
            if cell.taken:
                continue
            out = (healthy and cell.bad) or (here and not cell.here)
            if cell.inside or out:
                stack += cell.parts
            else:
                found[cell.height] += 1
        return found


class Forest:
    """All cells of a cluster, by name and by chain."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.cells: dict[str, Cell] = {}
        self.chains: list[Chain] = []
        #: The cell of each GPU of a node, by its number.
        self.leaves: dict[Node, dict[int, Cell]] = {}
        tops = self._grow(nodes)
        forms: dict[tuple[str, str, _Form], list[Cell]] = {}
        for cell, kind, tree in tops:
            forms.setdefault((kind, tree, _form(cell)), []).append(cell)
        for (kind, tree, form), roots in forms.items():
            self.chains.append(_chain(kind, tree, form, roots))

    def eligible(self, promise: CellPromise) -> list[tuple[Chain, int]]:
        """The levels of chains of which a promise may be kept."""
        return [
            (chain, height)
            for chain in self.chains
            for height, level in enumerate(chain.levels)
            if level == promise.level
            and promise.kind in ("", chain.kind)
            and promise.tree in ("", chain.tree)
            and promise.gpus in (0, chain.sizes[height])
        ]

    def take(self, cell: Cell) -> None:
        """Note that a cell is taken."""
        nested = not cell.is_free
        cell.taken += 1
        cell.inside += 1
        if nested:
            _mark(cell, 1)
            cell.chain.free = cell.chain.count()
            return
        _split(cell, 1)
        _mark(cell, 1)

    def give_back(self, cell: Cell) -> None:
        """Note that a cell is not taken any more, by one of those that had taken it."""
        cell.taken -= 1
        cell.inside -= 1
        _mark(cell, -1)
        if cell.is_free:
            _split(cell, -1)
        else:
            cell.chain.free = cell.chain.count()

    # -- how it grows --------------------------------------------------------------------------

    def _grow(self, nodes: Iterable[Node]) -> list[tuple[Cell, str, str]]:
        """The tops of all trees, each with its kind of GPU and its declared tree."""
        found: list[tuple[Cell, str, str]] = []
        around: dict[tuple[str, str], list[tuple[Cell, list[tuple[str, str]]]]] = {}
        for node in nodes:
            spec = node.spec
            if spec.gpus:
                tree = spec.site.tree if spec.site is not None else ""
                cell = self._node(node)
                around.setdefault((spec.kind, tree), []).append((cell, _above(spec)))
        for (kind, tree), cells in around.items():
            found += [(cell, kind, tree) for cell in self._join(cells, kind)]
        return found

    def _node(self, node: Node) -> Cell:
        """The cell of a node, and all in it."""
        spec, leaves = node.spec, self.leaves.setdefault(node, {})
        inner = _inner(spec)
        order = [gpu for cell in inner[-1][1] for gpu in cell] if inner else range(spec.gpus)
        for gpu in order:
            leaves[gpu] = self._add(f"{spec.id}/gpu{gpu}", "gpu", ((node, 1 << gpu),), ())
        below = [leaves[gpu] for gpu in order]
        for level, cells in reversed(inner):
            masks = [sum(1 << gpu for gpu in cell) for cell in cells]
            below = [
                self._add(
                    f"{spec.id}/{level}{at}", level, ((node, mask),), _within(below, node, mask)
                )
                for at, mask in enumerate(masks)
            ]
        return self._add(str(spec.id), "node", ((node, (1 << spec.gpus) - 1),), tuple(below))

    def _join(self, cells: list[tuple[Cell, list[tuple[str, str]]]], kind: str) -> Iterator[Cell]:
        """Cells around others, as long as all of their parts are alike; yields the tops."""
        while cells:
            groups: dict[tuple[str, str], list[tuple[Cell, list[tuple[str, str]]]]] = {}
            for cell, path in cells:
                if path:
                    groups.setdefault(path[0], []).append((cell, path[1:]))
                else:
                    yield cell
            cells = []
            for (level, name), parts in groups.items():
                if len({_form(cell) for cell, _ in parts}) > 1:
                    yield from (cell for cell, _ in parts)
                    continue
                below = tuple(cell for cell, _ in parts)
                masks = tuple(mask for cell in below for mask in cell.masks)
                if (title := name) in self.cells:
                    title = f"{name}:{kind}"
                cells.append((self._add(title, level, masks, below), parts[0][1]))

    def _add(
        self, name: str, level: str, masks: tuple[tuple[Node, int], ...], parts: tuple[Cell, ...]
    ) -> Cell:
        gpus = sum(mask.bit_count() for _, mask in masks)
        cell = self.cells[name] = Cell(name, level, masks, parts, gpus, len(self.cells))
        for part in parts:
            part.parent = cell
        cell.height = parts[0].height + 1 if parts else 0
        return cell


def _mark(cell: Cell, change: int) -> None:
    for outer in cell.ancestors():
        outer.inside += change


def _split(cell: Cell, sign: int) -> None:
    """Take a free cell out of the free ones, and put the rest of what is split in; or undo it."""
    free = cell.chain.free
    at = cell
    while at.parent is not None and not at.parent.inside:
        free[at.height] += sign * (len(at.parent.parts) - 1)
        at = at.parent
    free[at.height] -= sign


def _within(cells: Iterable[Cell], node: Node, mask: int) -> tuple[Cell, ...]:
    """Those of some cells of a node that are in a mask."""
    return tuple(cell for cell in cells if cell.masks[0][0] is node and cell.masks[0][1] & mask)


def _form(cell: Cell) -> _Form:
    """What a cell is like: all parts of it are alike, so the first will do."""
    found = [(cell.level, len(cell.parts))]
    while cell.parts:
        cell = cell.parts[0]
        found.append((cell.level, len(cell.parts)))
    return tuple(found)


def _chain(kind: str, tree: str, form: _Form, roots: list[Cell]) -> Chain:
    """The chain of some trees that are alike."""
    levels = [list(roots)]
    while levels[-1][0].parts:
        levels.append([part for cell in levels[-1] for part in cell.parts])
    levels.reverse()
    names, parts = zip(*reversed(form), strict=True)
    sizes = tuple(cells[0].gpus for cells in levels)
    free = [0] * (len(levels) - 1) + [len(roots)]
    chain = Chain(kind, tree, names, parts, sizes, levels, free)
    for cells in levels:
        for cell in cells:
            cell.chain = chain
    return chain


def _inner(spec: NodeSpec) -> list[tuple[str, list[tuple[int, ...]]]]:
    """The levels inside of a node, largest cells first; only those that cut it evenly."""
    if spec.site is not None and spec.site.inner:
        levels = [(each.level, list(each.cells)) for each in spec.site.inner]
    elif spec.sockets > 1 and spec.gpus % spec.sockets == 0:
        each = spec.gpus // spec.sockets
        cells = [tuple(range(at, at + each)) for at in range(0, spec.gpus, each)]
        levels = [("socket", cells)]
    else:
        levels = []
    even, outer = [], [tuple(range(spec.gpus))]
    for level, cells in levels:
        inside = {sum(1 for cell in cells if set(cell) <= set(one)) for one in outer}
        if len({len(cell) for cell in cells}) == 1 and len(inside) == 1:
            even.append((level, cells))
            outer = cells
    return even


def inner_cells(spec: NodeSpec) -> list[tuple[int, ...]]:
    """The cells of a node with more than one GPU, largest first, each with its GPUs in order."""
    levels = _inner(spec)
    order = tuple(gpu for cell in levels[-1][1] for gpu in cell) if levels else range(spec.gpus)
    found = [tuple(order)]
    for _, cells in levels:
        found += [tuple(gpu for gpu in order if gpu in set(cell)) for cell in cells]
    return found


def _above(spec: NodeSpec) -> list[tuple[str, str]]:
    """The cells around a node, inside out: their levels and names."""
    if spec.site is not None and spec.site.above:
        return [(each.level, each.name) for each in spec.site.above]
    named = {"switch": spec.switch, "block": spec.block, "zone": spec.zone}
    found = []
    for level in DOMAINS:
        if not named[level.name.lower()]:
            continue
        found.append((level.name.lower(), f"{level.name.lower()} {spec.domain(level)}"))
    return found
