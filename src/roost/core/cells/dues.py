"""What is due to queues, and what of it fits into what is left of a forest beside the rest.

What is left is counted in cells that are free as a whole (buddies: they are split from the
smallest that will do, and are whole again when all parts are free). Broken cells count, for they
come back; which promises could not be kept today for lack of healthy ones is told by ``broken``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from roost.core.cells.forest import Cell, Chain, Forest
from roost.core.cells.promise import CellPromise
from roost.core.spec import JobId, QueueId, QueueSpec

if TYPE_CHECKING:
    from roost.core.state import Job

#: How many cells of each height are free as a whole, by chain.
Room: TypeAlias = dict[Chain, list[int]]


@dataclass(slots=True, eq=False)
class Due:
    """What a queue is promised of one sort of cells, and which of them it has.

    ``held`` has the jobs in each cell; ``claimed`` is how many cells there are in it, and those of
    a search that is under way.
    """

    queue: QueueId
    promise: CellPromise
    key: str
    levels: list[tuple[Chain, int]]
    pin: Cell | None = None
    held: dict[Cell, set[JobId]] = field(default_factory=dict)
    claimed: int = 0

    @property
    def open(self) -> int:
        """How many more cells it may claim."""
        return self.promise.count - self.claimed

    @property
    def gpus(self) -> int:
        """How many GPUs one of its cells has, if there is any such cell."""
        if self.pin is not None:
            return self.pin.gpus
        return self.levels[0][0].sizes[self.levels[0][1]] if self.levels else 0

    def suits(self, cell: Cell) -> bool:
        """Whether a cell is of the sort."""
        return any(cell.chain is chain and cell.height == height for chain, height in self.levels)


class Dues:
    """What is due to all queues on a forest; cells by name are taken out of it at once."""

    def __init__(self, forest: Forest, specs: Mapping[QueueId, QueueSpec]) -> None:
        self.forest = forest
        #: What is due to each queue, smallest cells first; and all of it but pins, largest first.
        self.by_queue: dict[QueueId, list[Due]] = {}
        self.order: list[Due] = []
        self.pins: dict[Cell, Due] = {}
        for name, spec in specs.items():
            self.by_queue[name] = [
                self._due(name, key, promise) for key, promise in _sums(spec.cells).items()
            ]
        for dues in self.by_queue.values():
            dues.sort(key=lambda due: due.gpus)
            self.order += [due for due in dues if not due.promise.pinned]
        self.order.sort(key=lambda due: (-due.gpus, len(due.levels)))

    def _due(self, queue: QueueId, key: str, promise: CellPromise) -> Due:
        if not promise.pinned:
            levels = self.forest.eligible(promise)
            if levels and len({(c.kind, c.sizes[h]) for c, h in levels}) > 1:
                levels = _commonest(levels)
            return Due(queue, promise, key, levels)
        pin = self.forest.cells.get(promise.pinned)
        due = Due(queue, promise, key, [], pin)
        if pin is not None and pin.is_free:
            self.pins[pin] = due
            self.forest.take(pin)
        else:
            due.pin = None
        return due

    # -- whose they are ----------------------------------------------------------------------------

    def of(self, queue: QueueId) -> list[Due]:
        """What is due to a queue."""
        return self.by_queue.get(queue, [])

    def find(self, queue: QueueId, key: str) -> Due | None:
        """What is due to a queue of a sort of cells."""
        return next((due for due in self.by_queue.get(queue, ()) if due.key == key), None)

    def owed(self, job: Job) -> list[Due]:
        """The promises by which a job may have a cell: by name, if it asks for one."""
        if job.spec.priority < 0:
            return []
        dues = self.of(job.queue.spec.id)
        if job.spec.cell:
            return [due for due in dues if due.promise.pinned == job.spec.cell]
        return dues

    # -- what fits ---------------------------------------------------------------------------------

    def room(self, *, healthy: bool = False) -> Room:
        """What is left of all chains, to count with."""
        return {
            chain: chain.count(healthy=True) if healthy else list(chain.free)
            for chain in self.forest.chains
        }

    def shortage(self) -> dict[Due, int]:
        """Promises that do not fit into what is left, with how many of their cells do not."""
        room = self.room()
        short = {}
        for due in self.order:
            if due.open > 0 and (lacking := fit(due, room)):
                short[due] = lacking
        return short

    def broken(self) -> Iterator[tuple[Due, int]]:
        """Promises that could not be kept now for lack of healthy cells, and how many of each.

        Each promise counts alone: two queues that could both have the last cell are both well.
        """
        healthy = self.room(healthy=True)
        for dues in self.by_queue.values():
            room = {chain: list(counts) for chain, counts in healthy.items()}
            for due in reversed(dues):
                if due.promise.pinned:
                    lacking = int(due.pin is None or (not due.held and due.pin.bad))
                else:
                    lacking = fit(due, room) if due.open > 0 else 0
                if lacking:
                    yield due, lacking

    def allows(self, due: Due, cell: Cell) -> bool:
        """Whether a promise may be kept with a cell, and all others as well as before."""
        if due.open <= 0 or not due.suits(cell) or not cell.is_free:
            return False
        before = self.shortage()
        self.claim(due, cell)
        after = self.shortage()
        self.unclaim(due, cell)
        return no_worse(after, before)

    def claim(self, due: Due, cell: Cell) -> None:
        """Keep a promise with a free cell."""
        due.claimed += 1
        self.forest.take(cell)

    def unclaim(self, due: Due, cell: Cell) -> None:
        """Give a cell back by which a promise was kept."""
        due.claimed -= 1
        self.forest.give_back(cell)


def no_worse(after: Mapping[Due, int], before: Mapping[Due, int]) -> bool:
    """Whether no promise lacks more cells than before."""
    return all(count <= before.get(due, 0) for due, count in after.items())


def fit(due: Due, room: Room) -> int:
    """Take cells for what is open of a promise out of the free ones; returns how many lack."""
    need = due.open
    for chain, height in due.levels:
        counts = room[chain]
        took = min(need, counts[height])
        counts[height] -= took
        need -= took
        if not need:
            return 0
    while need:
        best: tuple[int, int, Chain, int] | None = None
        for order, (chain, height) in enumerate(due.levels):
            counts = room[chain]
            above = next((h for h in range(height + 1, len(counts)) if counts[h]), None)
            if above is not None and (best is None or (above - height, order) < best[:2]):
                best = (above - height, order, chain, height)
        if best is None:
            return need
        up, _, chain, height = best
        counts = room[chain]
        counts[height + up] -= 1
        for at in range(height + up, height, -1):
            counts[at - 1] += chain.parts[at] - (1 if at - 1 > height else 0)
        took = min(need, counts[height])
        counts[height] -= took
        need -= took
    return 0


def _sums(promises: Iterable[CellPromise]) -> dict[str, CellPromise]:
    """Promises of one queue by what they are of: what is said twice adds up."""
    sums: dict[str, CellPromise] = {}
    for one in promises:
        key = str(one) if one.pinned else str(one).partition("x")[2]
        count = one.count + (sums[key].count if key in sums else 0)
        sums[key] = CellPromise(count, one.level, one.kind, one.gpus, one.tree, one.pinned)
    return sums


def _commonest(levels: list[tuple[Chain, int]]) -> list[tuple[Chain, int]]:
    """Of sorts that would all do, the one of which there are most: nodes came since."""
    counts: dict[tuple[str, int], int] = {}
    for chain, height in levels:
        sort = (chain.kind, chain.sizes[height])
        counts[sort] = counts.get(sort, 0) + len(chain.cells[height])
    best = max(counts, key=lambda sort: (counts[sort], sort))
    return [(chain, h) for chain, h in levels if (chain.kind, chain.sizes[h]) == best]
