"""Who has claimed which cells, and whether all that is promised still fits in what is left.

A run that is *within its queue's promise* has claims: cells that count as given to its queue for as
long as one of its runs is in them. Cells nobody has claimed are bound to no queue; anybody may run
there, but leaves when a queue claims its due. The one rule that keeps all promises:

    a cell may be claimed if, after it, no promise fits less into what is left than before

What is left is counted in cells that are free as a whole (buddies: they are split from the
smallest that will do, and are whole again when all parts are free). Broken cells count, for they
come back; which promises could not be kept today for lack of healthy ones is told by ``broken``.
A run that must not be disturbed and has no claim takes its devices out of what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from roost.core.cells.claim import CellClaim
from roost.core.cells.forest import Cell, Chain, Forest
from roost.core.cells.promise import CellPromise
from roost.core.node import Node, mask_of
from roost.core.spec import JobId, QueueId, QueueSpec, RunId
from roost.errors import Conflict

if TYPE_CHECKING:
    from roost.core.allocation import Allocation, Part
    from roost.core.ledger import Ledger
    from roost.core.state import Job, Queue, Run
    from roost.core.waiting import Line


#: Devices that are kept free, by node, for jobs of a queue with at least that priority.
Kept: TypeAlias = dict[tuple[QueueId, int], dict[Node, int]]


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


class CellBooks:
    """The claims of all queues on the cells of a cluster."""

    def __init__(
        self, ledger: Ledger, queues: Mapping[QueueId, Queue], runs: Mapping[RunId, Run]
    ) -> None:
        self.ledger, self.queues, self.runs = ledger, queues, runs
        self.forest = Forest(())
        #: What is due to each queue, smallest cells first; and all of it but pins, largest first.
        self.dues: dict[QueueId, list[Due]] = {}
        self.order: list[Due] = []
        self.pins: dict[Cell, Due] = {}
        #: The promise by which each claimed cell is held.
        self.holders: dict[Cell, Due] = {}
        self.claims: dict[JobId, tuple[CellClaim, ...]] = {}
        #: GPUs of runs without claims that must not be disturbed.
        self.squats: dict[JobId, list[Cell]] = {}
        #: What is kept free for queues, and jobs of some priority, until the end of a plan.
        self.kept: Kept = {}
        #: Grows whenever claims changed.
        self.version = 0
        self._stamp = -1
        #: Lines for which no room was found, and when: nothing has changed since.
        self.in_vain: dict[Line, tuple[int, int, int]] = {}
        #: When runs without claims were last looked at.
        self.looked_at = -1

    # -- what is promised --------------------------------------------------------------------------

    def refresh(self) -> None:
        """Begin anew if nodes are other than before: claims on cells that are gone lapse."""
        if self._stamp != self.ledger.regrouped:
            self.rebuild()

    def rebuild(self) -> None:
        """Work all out anew from nodes and queues, and keep the claims that can be kept."""
        self._stamp = self.ledger.regrouped
        self.forest = Forest(self.ledger.order)
        self._owe({name: queue.spec for name, queue in self.queues.items() if queue.spec.cells})
        before, self.claims, self.squats = self.claims, {}, {}
        self.holders.clear()
        self.version += 1
        known = [run for run in self.runs.values() if run.booked]
        for run in sorted(known, key=_firmness):
            job, booked = run.job, run.target or run.allocation
            claims = before.get(job.id, ())
            if claims or not job.preemptible:
                self.enter(job, booked, self._still(job, booked, claims) if claims else ())

    def check(self, spec: QueueSpec) -> None:
        """Refuse promises to a queue that cannot be kept beside all others; raises Conflict."""
        specs = {name: queue.spec for name, queue in self.queues.items() if queue.spec.cells}
        old, new = self._trial(specs), self._trial({**specs, spec.id: spec})
        for due in new.dues[spec.id]:
            new._check_sort(due)  # noqa: SLF001 - of the same class
        before = {(due.queue, due.key): count for due, count in old.shortage().items()}
        short = new.shortage()
        worse = [due for due in short if short[due] > before.get((due.queue, due.key), 0)]
        if worse:
            raise Conflict(new._too_much(spec, worse))  # noqa: SLF001 - of the same class

    def _trial(self, specs: Mapping[QueueId, QueueSpec]) -> CellBooks:
        """What is promised on the nodes that are here, with nothing claimed."""
        trial = CellBooks(self.ledger, self.queues, {})
        trial.forest = Forest(node for node in self.ledger.order if node.here)
        trial._owe(specs)
        return trial

    def _check_sort(self, due: Due) -> None:
        """Refuse a promise of cells of which there are none, or of several sorts."""
        whose, promise = f"queue {due.queue}", due.promise
        if promise.pinned:
            pin = self.forest.cells.get(promise.pinned)
            if pin is None:
                like = self._named_like(promise.pinned)
                raise Conflict(f"{whose}: there is no cell {promise.pinned!r}{like}")
            for other, owner in self.pins.items():
                overlaps = other in (pin, *pin.ancestors()) or pin in other.ancestors()
                if overlaps and owner is not due:
                    raise Conflict(
                        f"{whose}: cell {pin.name!r} overlaps {other.name!r},"
                        f" which is promised to {owner.queue}"
                    )
            return
        if not due.levels:
            raise Conflict(
                f"{whose}: there is no {promise.level} such as in {str(promise)!r}; {self._sorts()}"
            )
        kinds = sorted({chain.kind for chain, _ in due.levels})
        if len(kinds) > 1:
            raise Conflict(
                f"{whose}: {str(promise)!r} does not say of which kind of GPU: {', '.join(kinds)}"
            )
        sizes = sorted({chain.sizes[height] for chain, height in due.levels})
        if len(sizes) > 1:
            told = " or ".join(map(str, sizes))
            raise Conflict(
                f"{whose}: a {promise.level} of {kinds[0]} has {told} GPUs: say which,"
                f" like {str(promise) + '*' + str(sizes[-1])!r}"
            )

    def _named_like(self, name: str) -> str:
        some = [cell for cell in self.forest.cells if name in cell][:3]
        return f"; did you mean {', '.join(some)}?" if some else ""

    def _sorts(self) -> str:
        """The sorts of cells that there are."""
        found = {
            f"{level} of {chain.kind}"
            for chain in self.forest.chains
            for level in reversed(chain.levels)
        }
        return f"there are {', '.join(sorted(found))}" if found else "there are no nodes with GPUs"

    def _too_much(self, spec: QueueSpec, short: list[Due]) -> str:
        """What is left for a queue that is promised too much, by kind and level."""
        mine = [due for due in short if due.queue == spec.id] or self.dues[spec.id]
        asked = ", ".join(due.promise.title for due in mine)
        left = [
            f"{free} × {level} of {kind}" for (kind, level), free in self._left(spec.id).items()
        ]
        return (
            f"queue {spec.id} cannot be promised {asked}: beside what others are promised,"
            f" {', '.join(left) if left else 'nothing'} is left"
        )

    def _left(self, queue: QueueId) -> dict[tuple[str, str], int]:
        """How many cells of each sort are left beside what other queues are promised."""
        free = {id(chain): list(chain.free) for chain in self.forest.chains}
        for due in self.order:
            if due.queue != queue:
                _fit(due, free)
        found: dict[tuple[str, str], int] = {}
        for chain in self.forest.chains:
            whole = 0
            for height in reversed(range(len(chain.levels))):
                whole = whole * (chain.parts[height + 1] if height + 1 < len(chain.parts) else 0)
                whole += max(0, free[id(chain)][height])
                sort = (chain.kind, chain.levels[height])
                found[sort] = found.get(sort, 0) + whole
        return {sort: count for sort, count in found.items() if count}

    def _owe(self, specs: Mapping[QueueId, QueueSpec]) -> None:
        """Note what queues are promised."""
        self.dues, self.order, self.pins = {}, [], {}
        for name, spec in specs.items():
            sums: dict[str, CellPromise] = {}
            for promise in spec.cells:
                key = _key(promise)
                count = promise.count + (sums[key].count if key in sums else 0)
                sums[key] = CellPromise(
                    *(
                        count,
                        promise.level,
                        promise.kind,
                        promise.gpus,
                        promise.tree,
                        promise.pinned,
                    )
                )
            self.dues[name] = [self._due(name, key, promise) for key, promise in sums.items()]
        for dues in self.dues.values():
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

    # -- what fits ---------------------------------------------------------------------------------

    def shortage(self, *, healthy: bool = False) -> dict[Due, int]:
        """Promises that do not fit into what is left, with how many of their cells do not."""
        free = {
            id(chain): chain.count(healthy=True) if healthy else list(chain.free)
            for chain in self.forest.chains
        }
        short = {}
        for due in self.order:
            if due.open > 0 and (lacking := _fit(due, free)):
                short[due] = lacking
        return short

    def broken(self) -> list[tuple[QueueId, CellPromise, int]]:
        """Promises that could not be kept now for lack of healthy cells, and how many of each.

        Each promise counts alone: two queues that could both have the last cell are both well.
        """
        healthy = {id(chain): chain.count(healthy=True) for chain in self.forest.chains}
        found = []
        for dues in self.dues.values():
            free = {name: list(counts) for name, counts in healthy.items()}
            for due in reversed(dues):
                if due.promise.pinned:
                    lacking = int(due.pin is None or (not due.held and due.pin.bad))
                else:
                    lacking = _fit(due, free) if due.open > 0 else 0
                if lacking:
                    found.append((due.queue, due.promise, lacking))
        return found

    def claimable(self, due: Due, cell: Cell) -> bool:
        """Whether a promise may be kept with a cell, and all others as well as before."""
        if due.open <= 0 or not due.suits(cell) or not cell.is_free:
            return False
        before = self.shortage()
        self._try(due, cell, 1)
        after = self.shortage()
        self._try(due, cell, -1)
        return all(count <= before.get(one, 0) for one, count in after.items())

    def _try(self, due: Due, cell: Cell, sign: int) -> None:
        due.claimed += sign
        if sign > 0:
            self.forest.take(cell)
        else:
            self.forest.give_back(cell)

    def bind(self, dues: Iterable[Due], job: Job | None = None) -> list[tuple[Due, Cell]]:
        """Free cells by which promises could be kept now, those with fewest runs in them first.

        Next to whole cells go those whose larger cell is of no use as a whole, then parts of the
        smallest cells that have to be split. Cells that do not suit a job are left out.
        """
        found: list[tuple[Due, Cell]] = []
        for due in dues:
            if due.promise.pinned or due.open <= 0:
                continue
            for cell in sorted(self._candidates(due, job), key=_preference):
                if due.open <= 0:
                    break
                if cell.is_free and self.claimable(due, cell):
                    self._try(due, cell, 1)
                    found.append((due, cell))
        for due, cell in reversed(found):
            self._try(due, cell, -1)
        return found

    def _candidates(self, due: Due, job: Job | None) -> Iterator[Cell]:
        for chain, height in due.levels:
            for cell in chain.cells[height]:
                if cell.inside or not cell.is_free or cell.bad:
                    continue
                if job is None or _suits(self.ledger, job, cell):
                    yield cell

    # -- claims ------------------------------------------------------------------------------------

    def owed(self, job: Job) -> list[Due]:
        """The promises by which a job may have a cell: by name, if it asks for one."""
        if job.spec.priority < 0:
            return []
        dues = self.dues.get(job.queue.spec.id, [])
        if job.spec.cell:
            return [due for due in dues if due.promise.pinned == job.spec.cell]
        return dues

    def confines(self, job: Job) -> bool:
        """Whether a job may only be where its queue has a claim."""
        spec = job.queue.spec
        return bool(job.spec.cell) or (
            bool(spec.cells) and not spec.overflows and job.spec.priority >= 0
        )

    def cover(
        self, job: Job, parts: Iterable[Part], prefer: Iterable[tuple[Due, Cell]] = ()
    ) -> tuple[CellClaim, ...]:
        """The claims by which a job would have a place within its queue's promise; else none.

        An elastic job need only be covered with its least workers.
        """
        owed, parts = self.owed(job), tuple(parts)
        if not owed:
            return ()
        left = dict.fromkeys(self._leaves(parts))
        chosen: dict[Cell, Due] = {}
        tried: list[tuple[Due, Cell]] = []
        bare: set[Cell] = set()
        while left:
            leaf = next(iter(left))
            found = self._cover_one(leaf, left, owed, chosen, tried, prefer)
            if found is None:
                del left[leaf]
                bare.add(leaf)
                continue
            chosen[found[1]] = found[0]
            for other in list(left):
                if _is_in(other, found[1]):
                    del left[other]
        for due, cell in reversed(tried):
            self._try(due, cell, -1)
        if not chosen or (bare and not self._suffices(job, parts, bare)):
            return ()
        if self.confines(job) and _spans(parts, chosen, self.ledger):
            return ()
        return tuple(CellClaim(cell.name, due.key) for cell, due in chosen.items())

    def _cover_one(  # noqa: PLR0913 - a step of cover
        self,
        leaf: Cell,
        left: Mapping[Cell, None],
        owed: list[Due],
        chosen: Mapping[Cell, Due],
        tried: list[tuple[Due, Cell]],
        prefer: Iterable[tuple[Due, Cell]],
    ) -> tuple[Due, Cell] | None:
        """The cell by which a GPU is within a promise: one that is held, or a new one."""
        around = (leaf, *leaf.ancestors())
        for cell in around:
            due = self.holders.get(cell) or self.pins.get(cell) or chosen.get(cell)
            if due is not None:
                return (due, cell) if due in owed else None
        options = [(due, cell) for due, cell in prefer if cell in around]
        more = [(due, cell) for due in owed if due.open > 0 for cell in around if due.suits(cell)]
        more.sort(key=lambda one: (-sum(_is_in(each, one[1]) for each in left), one[1].gpus))
        for due, cell in (*options, *more):
            if due in owed and self.claimable(due, cell):
                self._try(due, cell, 1)
                tried.append((due, cell))
                return due, cell
        return None

    @staticmethod
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

    def admits(self, job: Job, parts: Iterable[Part], claims: Iterable[CellClaim]) -> bool:
        """Whether a run may stand there without these claims breaking a promise to others."""
        if self.confines(job) and not claims:
            return False
        mine = [self.forest.cells[claim.cell] for claim in claims]
        bare = [leaf for leaf in self._leaves(parts) if not any(_is_in(leaf, c) for c in mine)]
        if self.kept and any(self._is_kept(leaf, job, bare) for leaf in self._leaves(parts)):
            return False
        if job.preemptible or not bare:
            return True
        if any(not leaf.is_free for leaf in bare):
            return False
        before, taken = self.shortage(), list[tuple[Due, Cell]]()
        for claim, cell in zip(claims, mine, strict=True):
            due = self._by_key(job.queue.spec.id, claim.promise)
            if due is not None and cell not in self.holders and cell not in self.pins:
                self._try(due, cell, 1)
                taken.append((due, cell))
        for leaf in bare:
            self.forest.take(leaf)
        after = self.shortage()
        for leaf in bare:
            self.forest.give_back(leaf)
        for due, cell in reversed(taken):
            self._try(due, cell, -1)
        return all(count <= before.get(one, 0) for one, count in after.items())

    def _is_kept(self, leaf: Cell, job: Job, bare: list[Cell]) -> bool:
        """Whether a GPU is kept for others, or for claims and would be had without one."""
        ((node, mask),) = leaf.masks
        return any(
            kept.get(node, 0) & mask and (leaf in bare or not _may_have(job, whose))
            for whose, kept in self.kept.items()
        )

    def enter(self, job: Job, allocation: Allocation, claims: tuple[CellClaim, ...]) -> None:
        """Note where a job is, and by which claims; they replace those that it had."""
        self.leave(job)
        for claim in claims:
            cell = self.forest.cells[claim.cell]
            due = self._by_key(job.queue.spec.id, claim.promise)
            if due is None:
                continue
            if cell not in due.held:
                due.held[cell] = set()
                due.claimed += 1
                self.holders[cell] = due
                if cell not in self.pins:
                    self.forest.take(cell)
            due.held[cell].add(job.id)
        if claims:
            self.claims[job.id] = claims
        if not job.preemptible:
            mine = [self.forest.cells[claim.cell] for claim in claims]
            bare = [
                leaf
                for leaf in self._leaves(allocation.parts)
                if not any(_is_in(leaf, cell) for cell in mine)
            ]
            for leaf in bare:
                self.forest.take(leaf)
            if bare:
                self.squats[job.id] = bare
        self.version += 1

    def leave(self, job: Job) -> None:
        """A job gives up all that it has."""
        for claim in self.claims.pop(job.id, ()):
            cell = self.forest.cells.get(claim.cell)
            due = self._by_key(job.queue.spec.id, claim.promise)
            if cell is None or due is None or cell not in due.held:
                continue
            due.held[cell].discard(job.id)
            if not due.held[cell]:
                del due.held[cell]
                due.claimed -= 1
                del self.holders[cell]
                if cell not in self.pins:
                    self.forest.give_back(cell)
        for leaf in self.squats.pop(job.id, ()):
            self.forest.give_back(leaf)
        self.version += 1

    def refit(self, job: Job, allocation: Allocation) -> None:
        """A job has another allocation, or may be disturbed or not: its claims follow."""
        before = self.claims.get(job.id, ())
        self.leave(job)
        self.enter(job, allocation, self._still(job, allocation, before))

    def fitted(self, job: Job, allocation: Allocation) -> tuple[CellClaim, ...]:
        """The claims that a job would have with another allocation; its books stay as they are."""
        before, squats = self.claims.get(job.id, ()), self.squats.pop(job.id, [])
        for leaf in squats:
            self.forest.give_back(leaf)
        self.leave(job)
        found = self._still(job, allocation, before)
        self._put_back(job, before, squats)
        return found

    def _put_back(self, job: Job, claims: tuple[CellClaim, ...], squats: list[Cell]) -> None:
        for claim in claims:
            cell, due = (
                self.forest.cells[claim.cell],
                self._by_key(job.queue.spec.id, claim.promise),
            )
            if due is None:
                continue
            if cell not in due.held:
                due.held[cell] = set()
                due.claimed += 1
                self.holders[cell] = due
                if cell not in self.pins:
                    self.forest.take(cell)
            due.held[cell].add(job.id)
        if claims:
            self.claims[job.id] = claims
        for leaf in squats:
            self.forest.take(leaf)
        if squats:
            self.squats[job.id] = squats

    def _still(
        self, job: Job, allocation: Allocation, claims: Iterable[CellClaim]
    ) -> tuple[CellClaim, ...]:
        """The claims of a job with that allocation: those that it had, as far as they can be."""
        had = []
        for claim in claims:
            cell, due = (
                self.forest.cells.get(claim.cell),
                self._by_key(job.queue.spec.id, claim.promise),
            )
            if cell is not None and due is not None:
                had.append((due, cell))
        return self.cover(job, allocation.parts, had)

    def _by_key(self, queue: QueueId, key: str) -> Due | None:
        return next((due for due in self.dues.get(queue, ()) if due.key == key), None)

    def _leaves(self, parts: Iterable[Part]) -> Iterator[Cell]:
        leaves, nodes = self.forest.leaves, self.ledger.nodes
        for part in parts:
            if part.gpus:
                of_node = leaves.get(nodes[part.node], {})
                for gpu in part.gpus:
                    if gpu in of_node:
                        yield of_node[gpu]

    # -- places ------------------------------------------------------------------------------------

    def view(self, cells: Iterable[Cell]) -> dict[Node, int]:
        """The devices of some cells, by node."""
        found: dict[Node, int] = {}
        for cell in cells:
            for node, mask in cell.masks:
                found[node] = found.get(node, 0) | mask
        return found

    def own(self, job: Job) -> list[Cell]:
        """Cells that are its queue's now and that a job may be in."""
        owed = self.owed(job)
        if not job.spec.cell:
            return [cell for due in owed for cell in due.held if not due.promise.pinned]
        return self._pinned(owed)

    def named(self, job: Job) -> list[Cell]:
        """Cells that its queue has by name, for a job that asks for none; they come last."""
        return [] if job.spec.cell else self._pinned(self.owed(job))

    @staticmethod
    def _pinned(owed: Iterable[Due]) -> list[Cell]:
        return [due.pin for due in owed if due.pin is not None]

    def covered(self, job: Job) -> dict[Node, int]:
        """The devices on which a job is within its queue's promise."""
        claims = self.claims.get(job.id, ())
        return self.view(self.forest.cells[claim.cell] for claim in claims)

    def elsewhere(self, *, all_claims: bool) -> dict[Node, int]:
        """Devices where a job would be on what is left, without those that others have claimed.

        With ``all_claims`` also without those that no queue has claimed yet, but is due.
        """
        taken: dict[Node, int] = {}
        cells = [*self.holders, *self.pins]
        if all_claims:
            cells += [cell for _, cell in self.bind(self.order)]
        taken.update(self.view(cells))
        return self._rest(taken)

    def anywhere(self) -> dict[Node, int]:
        """All devices but those that are kept for claims in this plan."""
        return self._rest({})

    def _rest(self, taken: dict[Node, int]) -> dict[Node, int]:
        for kept in self.kept.values():
            for node, mask in kept.items():
                taken[node] = taken.get(node, 0) | mask
        return {
            node: ((1 << node.spec.gpus) - 1) & ~taken.get(node, 0)
            for node in self.ledger.order
            if node.up and (taken.get(node, 0) != (1 << node.spec.gpus) - 1 or not node.spec.gpus)
        }

    def keep(self, job: Job, devices_of: Mapping[Node, int]) -> None:
        """Keep devices free until the end of the plan: for a job, or others that may go before it.

        Otherwise it would take them back in the next plan.
        """
        whose = (job.queue.spec.id, job.spec.priority)
        kept = dict(self.kept.get(whose, {}))
        for node, mask in devices_of.items():
            kept[node] = kept.get(node, 0) | mask
        self.kept = {**self.kept, whose: kept}  # a plan may go back to what was kept before

    # -- what is told ------------------------------------------------------------------------------

    def promise_of(self, job: Job) -> str:
        """By which promise a job has its place; nothing, if it is a guest."""
        claims = self.claims.get(job.id)
        if not claims:
            return ""
        names = dict.fromkeys(claim.promise for claim in claims)
        dues = [due for name in names if (due := self._by_key(job.queue.spec.id, name))]
        return " and ".join(due.promise.title for due in dues)

    def why(self, queue: QueueId, dues: Iterable[Due]) -> str:
        """Which promise somebody makes room for."""
        told = " and ".join(dict.fromkeys(due.promise.title for due in dues))
        return f"{queue} is promised {told}"

    def standing(self, queue: QueueId) -> list[tuple[CellPromise, int, int]]:
        """Each promise to a queue, how many of its cells it uses, and how many are broken."""
        lacking = {_key(promise): count for name, promise, count in self.broken() if name == queue}
        return [
            (due.promise, len(due.held), lacking.get(due.key, 0))
            for due in self.dues.get(queue, ())
        ]

    def tell(self, queue: QueueId) -> str:
        """How it stands with the promises to a queue, in a sentence; nothing, if it has none."""
        told = []
        for promise, used, lacking in self.standing(queue):
            bad = (
                f", {lacking} cannot be kept: too little healthy hardware is left"
                if lacking
                else ""
            )
            told.append(f"{used} of {promise.title}{bad}")
        return f"its queue uses {'; '.join(told)}" if told else ""


def _firmness(run: Run) -> tuple[bool, bool, int, int]:
    """Runs that stay where they are first, those without claims before all, then by priority."""
    job = run.job
    claims = bool(job.queue.spec.cells)
    return job.preemptible, claims, -job.spec.priority, job.seq


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


def _may_have(job: Job, whose: tuple[QueueId, int]) -> bool:
    """Whether a job may be where devices are kept for a queue and a priority."""
    return (job.queue.spec.id, True) == (whose[0], job.spec.priority >= whose[1])


def _key(promise: CellPromise) -> str:
    """A promise without its count."""
    return str(promise) if promise.pinned else str(promise).partition("x")[2]


def _is_in(leaf: Cell, cell: Cell) -> bool:
    ((node, mask),) = leaf.masks
    return any(other is node and mask & all_of for other, all_of in cell.masks)


def _suits(ledger: Ledger, job: Job, cell: Cell) -> bool:
    """Whether some worker of a job may be in a cell."""
    needs = (job.spec.resources, *(role.resources for role in job.spec.roles))
    return any(ledger.suits(node, need) for node, _ in cell.masks for need in needs if need.gpus)


def _preference(cell: Cell) -> tuple[int, bool, int, int]:
    """Cells without runs first, then those of larger cells that are broken anyway, then buddies."""
    used = sum((node.taken & mask).bit_count() for node, mask in cell.masks)
    split = cell.split
    largest = next((c for c in (cell, *cell.ancestors()) if c.height == split), cell)
    return used, not (split > cell.height and largest.bad), split, cell.index


def _fit(due: Due, free: dict[int, list[int]]) -> int:
    """Take cells for what is open of a promise out of the free ones; returns how many lack."""
    need = due.open
    for chain, height in due.levels:
        counts = free[id(chain)]
        took = min(need, counts[height])
        counts[height] -= took
        need -= took
        if not need:
            return 0
    while need:
        best: tuple[int, int, Chain, int] | None = None
        for order, (chain, height) in enumerate(due.levels):
            counts = free[id(chain)]
            above = next((h for h in range(height + 1, len(counts)) if counts[h]), None)
            if above is not None and (best is None or (above - height, order) < best[:2]):
                best = (above - height, order, chain, height)
        if best is None:
            return need
        up, _, chain, height = best
        counts = free[id(chain)]
        counts[height + up] -= 1
        for at in range(height + up, height, -1):
            counts[at - 1] += chain.parts[at] - (1 if at - 1 > height else 0)
        took = min(need, counts[height])
        counts[height] -= took
        need -= took
    return 0


def _commonest(levels: list[tuple[Chain, int]]) -> list[tuple[Chain, int]]:
    """Of sorts that would all do, the one of which there are most: nodes came since."""
    counts: dict[tuple[str, int], int] = {}
    for chain, height in levels:
        sort = (chain.kind, chain.sizes[height])
        counts[sort] = counts.get(sort, 0) + len(chain.cells[height])
    best = max(counts, key=lambda sort: (counts[sort], sort))
    return [(chain, h) for chain, h in levels if (chain.kind, chain.sizes[h]) == best]


def masks_of(ledger: Ledger, parts: Iterable[Part]) -> dict[Node, int]:
    """The devices of parts, by node."""
    found: dict[Node, int] = {}
    for part in parts:
        node = ledger.nodes[part.node]
        found[node] = found.get(node, 0) | mask_of(part.gpus)
    return found
