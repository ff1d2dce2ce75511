"""Where a node stands in a declared tree of cells, where its switch and sockets do not say enough.

A node without a site is cut by its sockets, and stands under its switch, block and zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from roost.errors import InvalidSpec


class InnerLevel(NamedTuple):
    """A level inside of a node: its name, and the GPUs of each of its cells, in their order."""

    level: str
    cells: tuple[tuple[int, ...], ...]


class OuterCell(NamedTuple):
    """A cell around a node: its level, and its name, which no other cell of the tree has."""

    level: str
    name: str


@dataclass(frozen=True, slots=True)
class CellSite:
    """The levels inside of a node, the largest cells first, and the cells around it, inside out.

    ``tree`` names the declared tree: promises may ask for cells of this one, and its cells are
    told apart from those of others.
    """

    tree: str = ""
    inner: tuple[InnerLevel, ...] = ()
    above: tuple[OuterCell, ...] = ()


def check_site(site: CellSite, gpus: int, whose: str) -> None:
    """Refuse levels that do not divide a node and each other; raises InvalidSpec."""
    names = [*(each.level for each in site.inner), "node", *(each.level for each in site.above)]
    for name in names:
        if not name or names.count(name) > 1 or name == "gpu":
            raise InvalidSpec(
                f"{whose}: its site needs levels with names of their own, got {name!r}"
            )
    whole = [set(range(gpus))]
    for level in site.inner:
        found = [set(cell) for cell in level.cells]
        if sum(map(len, found)) != gpus or set().union(*found) != set(range(gpus)):
            raise InvalidSpec(
                f"{whose}: level {level.level!r} does not have each of {gpus} GPUs once"
            )
        if not all(any(cell <= outer for outer in whole) for cell in found):
            raise InvalidSpec(f"{whose}: level {level.level!r} cuts through cells of the one above")
        whole = found
