"""Which runs have claimed which cells, and whether all that is promised still fits beside them.

A run that is *within its queue's promise* has claims: cells that count as given to its queue for as
long as one of its runs is in them. Cells nobody has claimed are bound to no queue; anybody may run
there, but leaves when a queue claims its due. The one rule that keeps all promises:

    a cell may be claimed if, after it, no promise fits less into what is left than before

A run that must not be disturbed and has no claim takes its devices out of what is left. What is due
and what fits is known to ``dues``, who holds what to ``holdings``, and where a job may be to
``places``; here is what follows when a run comes, changes and goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from roost.core.cells.claim import CellClaim
from roost.core.cells.covering import confines, cover, is_in, leaves_of
from roost.core.cells.dues import Due, Dues, no_worse
from roost.core.cells.forest import Cell, Forest
from roost.core.cells.holdings import Holdings
from roost.core.cells.places import Places
from roost.core.cells.refused_lines import ClaimVersion, RefusedLines
from roost.core.spec import JobId, QueueId, RunId

if TYPE_CHECKING:
    from roost.core.allocation import Allocation, Part
    from roost.core.ledger import Ledger
    from roost.core.state import Job, Queue, Run


class CellBooks:
    """The claims of all queues on the cells of a cluster."""

    def __init__(
        self, ledger: Ledger, queues: Mapping[QueueId, Queue], runs: Mapping[RunId, Run]
    ) -> None:
        self.ledger, self.queues, self.runs = ledger, queues, runs
        self.dues = Dues(Forest(()), {})
        self.holdings = Holdings(self.dues)
        self.places = Places(ledger, self.holdings)
        #: Grows whenever cells are others, or runs may be disturbed that might not be before.
        self._cells = 0
        self._stamp = -1
        self.refused = RefusedLines(ledger)
        #: When runs without claims were last looked at.
        self.looked_at = -1

    @property
    def version(self) -> int:
        """Grows whenever claims changed."""
        return self.holdings.version

    def claims_of(self, job: Job) -> tuple[CellClaim, ...]:
        """The claims by which a job has its place; none, if it is a guest."""
        return self.holdings.claims.get(job.id, ())

    def version_for(self, queue: QueueId) -> ClaimVersion:
        """What claims are like, as far as a queue's jobs are concerned; see ``back_to``."""
        return ClaimVersion(self.version, self.holdings.versions.get(queue, 0), self._cells)

    def back_to(self, version: ClaimVersion, queue: QueueId) -> None:
        """All claims are again as they were then, and only that queue's were others meanwhile."""
        self.holdings.version = version.all_claims
        self.holdings.versions[queue] = version.of_queue

    # -- what there is -----------------------------------------------------------------------------

    def refresh(self) -> None:
        """Begin anew if nodes are other than before: claims on cells that are gone lapse."""
        if self._stamp != self.ledger.regrouped:
            self.rebuild()

    def rebuild(self) -> None:
        """Work all out anew from nodes and queues, and keep the claims that can be kept."""
        self._stamp = self.ledger.regrouped
        specs = {name: queue.spec for name, queue in self.queues.items() if queue.spec.cells}
        before, kept = self.holdings.claims, self.places.kept
        self.dues = Dues(Forest(self.ledger.order), specs)
        self.holdings = Holdings(self.dues, self.version + 1)
        self.places = Places(self.ledger, self.holdings)
        self.places.kept = kept
        self._cells += 1
        known = sorted((run for run in self.runs.values() if run.booked), key=_rank)
        stay = [run for run in known if not run.job.preemptible]
        for run in stay:  # nobody is to be promised the place of one that cannot leave it
            self.enter(run.job, run.target or run.allocation, ())
        for queue in specs:
            self._resume([run for run in stay if run.job.queue.spec.id == queue], before)
        for run in known:
            if run.job.preemptible:
                self._resume([run], before)

    def _resume(self, runs: Iterable[Run], claims: Mapping[JobId, tuple[CellClaim, ...]]) -> None:
        """Give runs of one queue the claims that they had, as far as they can be."""
        mine = [run for run in runs if claims.get(run.job.id)]
        for run in mine:
            self.leave(run.job)
        for run in mine:
            booked = run.target or run.allocation
            self.enter(run.job, booked, self._still(run.job, booked, claims[run.job.id]))

    # -- whether a run may stand there -------------------------------------------------------------

    def cover(
        self, job: Job, parts: Iterable[Part], prefer: Iterable[tuple[Due, Cell]] = ()
    ) -> tuple[CellClaim, ...]:
        """The claims by which a job would have a place within its queue's promise; else none."""
        return cover(self.holdings, self.ledger, job, parts, prefer)

    def admits(self, job: Job, parts: Iterable[Part], claims: Iterable[CellClaim]) -> bool:
        """Whether a run may stand there without these claims breaking a promise to others."""
        claims, leaves = tuple(claims), self._leaves(parts)
        if confines(job) and not claims:
            return False
        bare = self._bare(leaves, claims)
        if self.places.kept and any(
            self.places.is_kept_from(job, leaf, claimed=leaf not in bare) for leaf in leaves
        ):
            return False
        if job.preemptible or not bare:
            return True
        return all(leaf.is_free for leaf in bare) and self._has_room_for(job, bare, claims)

    def _has_room_for(self, job: Job, bare: list[Cell], claims: Iterable[CellClaim]) -> bool:
        """Whether what is promised fits as well as before beside GPUs that cannot be had back."""
        dues, holdings = self.dues, self.holdings
        before = dues.shortage()
        new = [
            (due, cell)
            for due, cell in holdings.known(job.queue.spec.id, claims)
            if holdings.owner(cell) is None
        ]
        for due, cell in new:
            dues.claim(due, cell)
        for leaf in bare:
            dues.forest.take(leaf)
        after = dues.shortage()
        for leaf in bare:
            dues.forest.give_back(leaf)
        for due, cell in reversed(new):
            dues.unclaim(due, cell)
        return no_worse(after, before)

    def _leaves(self, parts: Iterable[Part]) -> list[Cell]:
        return list(leaves_of(self.dues.forest, self.ledger, parts))

    def _bare(self, leaves: Iterable[Cell], claims: Iterable[CellClaim]) -> list[Cell]:
        """GPUs that are in no cell of some claims."""
        mine = [self.dues.forest.cells[claim.cell] for claim in claims]
        return [leaf for leaf in leaves if not any(is_in(leaf, cell) for cell in mine)]

    # -- runs come, change and go ------------------------------------------------------------------

    def enter(self, job: Job, allocation: Allocation, claims: tuple[CellClaim, ...]) -> None:
        """Note where a job is, and by which claims; they replace those that it had."""
        self.leave(job)
        bare = [] if job.preemptible else self._bare(self._leaves(allocation.parts), claims)
        self.holdings.hold(job, claims, bare)

    def leave(self, job: Job) -> None:
        """A job gives up all that it has."""
        self.holdings.leave(job)

    def refit(self, job: Job, allocation: Allocation) -> None:
        """A job has another allocation, or may be disturbed or not: its claims follow."""
        before = self.claims_of(job)
        self._cells += 1
        self.leave(job)
        self.enter(job, allocation, self._still(job, allocation, before))

    def fitted(self, job: Job, allocation: Allocation) -> tuple[CellClaim, ...]:
        """The claims that a job would have with another allocation; its books stay as they are."""
        version = self.version_for(job.queue.spec.id)
        before, squats = self.holdings.leave(job)
        found = self._still(job, allocation, before)
        self.holdings.hold(job, before, squats)
        self.back_to(version, job.queue.spec.id)
        return found

    def _still(
        self, job: Job, allocation: Allocation, claims: Iterable[CellClaim]
    ) -> tuple[CellClaim, ...]:
        """The claims of a job with that allocation: those that it had, as far as they can be."""
        return self.cover(job, allocation.parts, self.holdings.known(job.queue.spec.id, claims))


def _rank(run: Run) -> tuple[int, int]:
    """Higher priorities first."""
    return -run.job.spec.priority, run.job.seq
