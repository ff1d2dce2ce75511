"""The claims by which a job would have a place within its queue's promise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from roost.core.cells.claim import CellClaim
from roost.core.cells.dues import Due
from roost.core.cells.forest import Cell, Forest
from roost.core.cells.holdings import Holdings
from roost.core.node import Node, mask_of

if TYPE_CHECKING:
    from roost.core.allocation import Part
    from roost.core.ledger import Ledger
    from roost.core.state import Job


def confines(job: Job) -> bool:
    """Whether a job may only be where its queue has a claim."""
    spec = job.queue.spec
    return bool(job.spec.cell) or (
        bool(spec.cells) and not spec.overflows and job.spec.priority >= 0
    )


def leaves_of(forest: Forest, ledger: Ledger, parts: Iterable[Part]) -> Iterator[Cell]:
    """The cells of the GPUs of some parts."""
    for part in parts:
        if part.gpus:
            of_node = forest.leaves.get(ledger.nodes[part.node], {})
            for gpu in part.gpus:
                if gpu in of_node:
                    yield of_node[gpu]


def masks_of(ledger: Ledger, parts: Iterable[Part]) -> dict[Node, int]:
    """The devices of parts, by node."""
    found: dict[Node, int] = {}
    for part in parts:
        node = ledger.nodes[part.node]
        found[node] = found.get(node, 0) | mask_of(part.gpus)
    return found


def is_in(leaf: Cell, cell: Cell) -> bool:
    """Whether a GPU is in a cell."""
    ((node, mask),) = leaf.masks
    return any(other is node and mask & all_of for other, all_of in cell.masks)


def cover(
    holdings: Holdings,
    ledger: Ledger,
    job: Job,
    parts: Iterable[Part],
    prefer: Iterable[tuple[Due, Cell]] = (),
) -> tuple[CellClaim, ...]:
    """The claims by which a job would have a place within its queue's promise; else none.

    An elastic job need only be covered with its least workers.
    """
    owed, parts = holdings.dues.owed(job), tuple(parts)
    if not owed:
        return ()
    search = _Search(holdings, owed, leaves_of(holdings.dues.forest, ledger, parts), prefer)
    chosen, bare = search.found()
    if not chosen or (bare and not _suffices(job, parts, bare)):
        return ()
    if confines(job) and _spans(parts, chosen, ledger):
        return ()
    return tuple(CellClaim(cell.name, due.key) for cell, due in chosen.items())


class _Search:
    """Cells that hold some GPUs: those that their queue has, or else new ones."""

    def __init__(
        self,
        holdings: Holdings,
        owed: list[Due],
        leaves: Iterable[Cell],
        prefer: Iterable[tuple[Due, Cell]],
    ) -> None:
        self.holdings, self.owed, self.prefer = holdings, owed, prefer
        self.left = dict.fromkeys(leaves)
        self.chosen: dict[Cell, Due] = {}
        self.tried: list[tuple[Due, Cell]] = []

    def found(self) -> tuple[dict[Cell, Due], set[Cell]]:
        """The cells, each with the promise of which it is, and GPUs that are in none."""
        bare: set[Cell] = set()
        while self.left:
            leaf = next(iter(self.left))
            one = self._around(leaf)
            if one is None:
                del self.left[leaf]
                bare.add(leaf)
                continue
            due, cell = one
            self.chosen[cell] = due
            for other in list(self.left):
                if is_in(other, cell):
                    del self.left[other]
        for due, cell in reversed(self.tried):
            self.holdings.dues.unclaim(due, cell)
        return self.chosen, bare

    def _around(self, leaf: Cell) -> tuple[Due, Cell] | None:
        """The cell by which a GPU is within a promise: one that is held, or a new one."""
        around = (leaf, *leaf.ancestors())
        for cell in around:
            due = self.holdings.owner(cell) or self.chosen.get(cell)
            if due is not None:
                return (due, cell) if due in self.owed else None
        options = [(due, cell) for due, cell in self.prefer if cell in around]
        more = [
            (due, cell) for due in self.owed if due.open > 0 for cell in around if due.suits(cell)
        ]
        more.sort(key=lambda one: (-sum(is_in(each, one[1]) for each in self.left), one[1].gpus))
        for due, cell in (*options, *more):
            if due in self.owed and self.holdings.dues.allows(due, cell):
                self.holdings.dues.claim(due, cell)
                self.tried.append((due, cell))
                return due, cell
        return None


def _suffices(job: Job, parts: Iterable[Part], bare: set[Cell]) -> bool:
    """Whether an elastic job has its least workers on what is covered."""
    if not job.spec.elastic or job.spec.roles:
        return False
    names = {cell.name for cell in bare}
    covered = 0
    for part in parts:
        each = len(part.gpus) // part.workers
        covered += sum(
            not any(f"{part.node}/gpu{gpu}" in names for gpu in part.gpus[at : at + each])
            for at in range(0, len(part.gpus), max(each, 1))
        )
    return covered >= job.spec.workers.min


def _spans(parts: Iterable[Part], cells: Iterable[Cell], ledger: Ledger) -> bool:
    """Whether a worker is in two cells at once: next to each other they are by chance."""
    masks = [mask for cell in cells for mask in cell.masks]
    for part in parts:
        node, each = ledger.nodes[part.node], max(1, len(part.gpus) // part.workers)
        for at in range(0, len(part.gpus), each):
            mine = mask_of(part.gpus[at : at + each])
            if not any(other is node and not mine & ~mask for other, mask in masks):
                return True
    return False
