"""Where jobs may be: in cells of their queue, in those that it may claim, or on what is left.

What somebody has to find free at the end of a plan is kept: otherwise it would be taken by others,
and taken back in the next plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from roost.core.cells.covering import confines
from roost.core.cells.dues import Due
from roost.core.cells.forest import Cell, Chain
from roost.core.cells.holdings import Holdings
from roost.core.node import Node
from roost.core.spec import QueueId, Resources

if TYPE_CHECKING:
    from roost.core.ledger import Ledger
    from roost.core.state import Job

#: Devices that are kept free, by node, for jobs of a queue with at least that priority.
Kept: TypeAlias = dict[tuple[QueueId, int], dict[Node, int]]


class _Asked(NamedTuple):
    """For whom cells are searched: a queue, and jobs of it that need the same."""

    queue: str
    cell: str
    negative: bool
    needs: tuple[Resources, ...] | None


_EVERYBODY: Final = _Asked("", "", False, None)  # noqa: FBT003 - a field


def view(cells: Iterable[Cell]) -> dict[Node, int]:
    """The devices of some cells, by node."""
    found: dict[Node, int] = {}
    for cell in cells:
        for node, mask in cell.masks:
            found[node] = found.get(node, 0) | mask
    return found


class Places:
    """The devices on which jobs may be, one choice after the other."""

    def __init__(self, ledger: Ledger, holdings: Holdings) -> None:
        self.ledger, self.holdings, self.dues = ledger, holdings, holdings.dues
        #: What is kept free for queues, and jobs of some priority, until the end of a plan.
        self.kept: Kept = {}
        #: Cells that were found for a queue and for needs of its jobs, and in what state of things.
        self._bound: dict[_Asked, list[tuple[Due, Cell]]] = {}
        self._state = (-1, -1, -1)

    def of(self, job: Job, *, spares: bool = True) -> Iterator[Mapping[Node, int]]:
        """Where a job may be: in cells of its queue, in those that it may claim, else anywhere.

        Elsewhere it comes first to what is due to nobody (``spares``), then to what nobody has
        claimed.
        """
        owed = self.dues.owed(job)
        if owed:
            own = self.own(job)
            if own:
                yield view(own)
            if bound := self.bind(job):
                own = [*own, *(cell for _, cell in bound)]
                yield view(own)
            if named := self.named(job):
                yield view([*own, *named])
        if confines(job):
            return  # nowhere else
        if spares or not job.preemptible:
            yield self._elsewhere(all_claims=True)
        if job.preemptible:
            yield self._elsewhere(all_claims=False)
            yield self._rest({})

    # -- of its queue ------------------------------------------------------------------------------

    def own(self, job: Job) -> list[Cell]:
        """Cells that are its queue's now and that a job may be in."""
        owed = self.dues.owed(job)
        if not job.spec.cell:
            return [cell for due in owed for cell in due.held if not due.promise.pinned]
        return _pinned(owed)

    def named(self, job: Job) -> list[Cell]:
        """Cells that its queue has by name, for a job that asks for none; they come last."""
        return [] if job.spec.cell else _pinned(self.dues.owed(job))

    def covered(self, job: Job) -> dict[Node, int]:
        """The devices on which a job is within its queue's promise."""
        cells = self.dues.forest.cells
        return view(cells[claim.cell] for claim in self.holdings.claims.get(job.id, ()))

    def bind(self, job: Job | None) -> list[tuple[Due, Cell]]:
        """Free cells by which promises could be kept now, those with fewest runs in them first.

        Next to whole cells go those whose larger cell is of no use as a whole, then parts of the
        smallest cells that have to be split. They are what is due to the queue of a job, but for
        those that do not suit it; without a job, what is due to all queues.
        """
        ledger = self.ledger
        state = (self.holdings.version, ledger.stamp, ledger.rewinds)
        if self._state != state:
            self._state = state
            self._bound.clear()
        asked = _asked(job)
        found = self._bound.get(asked)
        if found is None:
            dues = self.dues.order if job is None else self.dues.owed(job)[::-1]
            found = self._bound[asked] = self._bind(dues, asked.needs)
        return found

    def _bind(
        self, dues: Iterable[Due], needs: tuple[Resources, ...] | None
    ) -> list[tuple[Due, Cell]]:
        found: list[tuple[Due, Cell]] = []
        for due in dues:
            if due.promise.pinned or due.open <= 0:
                continue
            # Cells whose split takes as much from what is left: they would be refused, too.
            refused: set[tuple[Chain, int]] = set()
            for cell in sorted(self._candidates(due, needs), key=_preference):
                if due.open <= 0:
                    break
                if not cell.is_free or (sort := (cell.chain, cell.split)) in refused:
                    continue
                if self.dues.allows(due, cell):
                    self.dues.claim(due, cell)
                    found.append((due, cell))
                    refused.clear()
                else:
                    refused.add(sort)
        for due, cell in reversed(found):
            self.dues.unclaim(due, cell)
        return found

    def _candidates(self, due: Due, needs: tuple[Resources, ...] | None) -> Iterator[Cell]:
        for chain, height in due.levels:
            for cell in chain.cells[height]:
                if cell.inside or not cell.is_free or cell.bad:
                    continue
                if needs is None or _suits(self.ledger, needs, cell):
                    yield cell

    # -- elsewhere ---------------------------------------------------------------------------------

    def _elsewhere(self, *, all_claims: bool) -> dict[Node, int]:
        """Devices where a job would be on what is left, without those that others have claimed.

        With ``all_claims`` also without those that no queue has claimed yet, but is due.
        """
        cells = [*self.holdings.holders, *self.dues.pins]
        if all_claims:
            cells += [cell for _, cell in self.bind(None)]
        return self._rest(view(cells))

    def _rest(self, taken: dict[Node, int]) -> dict[Node, int]:
        """All devices but those taken, and those that are kept in this plan."""
        for kept in self.kept.values():
            for node, mask in kept.items():
                taken[node] = taken.get(node, 0) | mask
        return {
            node: ((1 << node.spec.gpus) - 1) & ~taken.get(node, 0)
            for node in self.ledger.order
            if node.up and (taken.get(node, 0) != (1 << node.spec.gpus) - 1 or not node.spec.gpus)
        }

    # -- what is kept ------------------------------------------------------------------------------

    def keep(self, job: Job, devices_of: Mapping[Node, int]) -> None:
        """Keep devices free until the end of the plan: for a job, or others that may go before it.

        Otherwise it would take them back in the next plan.
        """
        whose = (job.queue.spec.id, job.spec.priority)
        kept = dict(self.kept.get(whose, {}))
        for node, mask in devices_of.items():
            kept[node] = kept.get(node, 0) | mask
        self.kept = {**self.kept, whose: kept}  # a plan may go back to what was kept before

    def is_kept_from(self, job: Job, leaf: Cell, *, claimed: bool) -> bool:
        """Whether a GPU is kept for others, or for claims and would be had without one."""
        ((node, mask),) = leaf.masks
        return any(
            kept.get(node, 0) & mask and not (claimed and _may_have(job, whose))
            for whose, kept in self.kept.items()
        )


def _pinned(owed: Iterable[Due]) -> list[Cell]:
    return [due.pin for due in owed if due.pin is not None]


def _may_have(job: Job, whose: tuple[QueueId, int]) -> bool:
    """Whether a job may be where devices are kept for a queue and a priority."""
    return (job.queue.spec.id, True) == (whose[0], job.spec.priority >= whose[1])


def _asked(job: Job | None) -> _Asked:
    if job is None:
        return _EVERYBODY
    spec = job.spec
    needs = (spec.resources, *(role.resources for role in spec.roles))
    negative = spec.priority < 0
    return _Asked(job.queue.spec.id, spec.cell, negative, tuple(one for one in needs if one.gpus))


def _suits(ledger: Ledger, needs: tuple[Resources, ...], cell: Cell) -> bool:
    """Whether some worker of a job may be in a cell."""
    return any(ledger.suits(node, need) for node, _ in cell.masks for need in needs)


def _preference(cell: Cell) -> tuple[int, bool, int, int]:
    """Cells without runs first, then those of larger cells that are broken anyway, then buddies."""
    used, whole = 0, cell.whole
    for node, mask in cell.masks:
        used += (node.taken & mask).bit_count()
    return used, not (whole is not cell and whole.bad), whole.height, cell.index
