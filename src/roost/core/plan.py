"""The plan: the scratch pad a policy writes on.

Every verb changes the books at once and can be undone until the policy returns, so a policy may
try things. It cannot over-commit, break a queue's limit, place a job twice, give it other devices
than it asks for or move one that is still in motion: such a call returns ``False`` (or raises
``Fatal`` if it is a policy's own slip).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from roost.core.allocation import WORKER, Allocation, Part, beyond
from roost.core.cells.claim import CellClaim
from roost.core.decisions import Decision, Evict, Place, Reclaim, Reshape, SetAside
from roost.core.ledger import Ledger
from roost.core.node import taken
from roost.core.occupancy import pinned
from roost.core.quota_tree import Account
from roost.core.reasons import Cause
from roost.core.spec import WHOLE, JobId, NodeId, QueueId, Resources, RunId, Shape
from roost.core.state import Job, Queue, Run, needs
from roost.core.transitions import LEAVING, RESHAPING, RunPhase, Trigger, advance
from roost.core.waiting import KeyOf, Line, Waiting
from roost.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import ValuesView

    from roost.core.cells.books import CellBooks
    from roost.core.cells.places import Kept

#: Chooses devices for a gang, or says that there is no room. It must not change the ledger.
Placer: TypeAlias = Callable[[Ledger, Shape], tuple[Part, ...] | None]


# A name of the module is found faster than a member of an enumeration.
_STOP_ORDERED: Final = Trigger.STOP_ORDERED
_KEPT: Final = Trigger.KEPT


class Plan:
    """What a policy sees and writes on, for one batch of events."""

    __slots__ = (
        "_undo",
        "awaits_starts",
        "check_time",
        "consolidates",
        "decisions",
        "history",
        "jobs",
        "latest_starts",
        "ledger",
        "memo",
        "now",
        "placer",
        "queues",
        "runs",
        "said",
        "spares",
        "waiting",
        "wake_at",
    )

    def __init__(  # noqa: PLR0913 - the core builds it, nobody else
        self,
        ledger: Ledger,
        waiting: Waiting,
        jobs: dict[JobId, Job],
        runs: Mapping[RunId, Run],
        queues: Mapping[QueueId, Queue],
        placer: Placer,
        memo: dict[str, Any],
        history: Sequence[float],
    ) -> None:
        self.ledger = ledger
        self.waiting = waiting
        self.jobs = jobs
        self.runs = runs
        self.queues = queues
        self.placer = placer
        #: Whether the placer puts a gang that could fit on one node only ever on one node.
        self.consolidates: bool = getattr(placer, "consolidates", False)
        #: Whether it leaves alone what is due to queues while there is room elsewhere.
        self.spares: bool = getattr(placer, "spares", True)
        #: Raises when a policy has taken too long; every verb asks, for it may be stopped there.
        self.check_time: Callable[[], None] | None = None
        #: A policy's own notes between plans. They may vanish at any restart.
        self.memo = memo
        #: GPU-seconds that each job which is over has held, oldest first.
        self.history = history
        self.said: dict[Line, tuple[str, Cause | None]] = {}
        self.latest_starts: dict[JobId, tuple[str, float]] = {}
        self._undo: list[Callable[[], None]] = []
        self.begin(-math.inf)

    def begin(self, now: float) -> None:
        """Start on a clean sheet."""
        self.now = now
        self.decisions: list[Decision] = []
        self.wake_at = math.inf
        self.awaits_starts = False
        self.said.clear()
        self.latest_starts.clear()
        self._undo.clear()
        if self.ledger.cells is not None:
            self.ledger.cells.places.kept = {}

    # -- what there is -------------------------------------------------------------------------

    @property
    def pending(self) -> list[Job]:
        """Waiting jobs, first come first."""
        if self.check_time is not None:
            self.check_time()
        return list(self.waiting)

    @property
    def running(self) -> ValuesView[Run]:
        """Runs that hold something, also those that are starting or leaving."""
        if self.check_time is not None:
            self.check_time()
        return self.runs.values()

    def lines(self, key: KeyOf, *, by_queue: bool = False, apart: bool = False) -> Collection[Line]:
        """Lines of waiting jobs, each sorted by ``key``; one per queue and shape if asked for.

        ``apart``: jobs that can change their size or kind stand in lines of their own.
        """
        if self.check_time is not None:
            self.check_time()
        self.waiting.order_by(key, self.now, by_queue=by_queue, apart=apart)
        return self.waiting.open

    @property
    def free_gpus(self) -> float:
        """GPUs that will be unused once the stops under way are done."""
        return self.ledger.free_milli / WHOLE

    # -- what a policy does --------------------------------------------------------------------

    def place(self, job: Job, workers: int | None = None) -> bool:
        """Start a waiting job where the placer finds room, with its least workers or so many."""
        if self.check_time is not None:
            self.check_time()
        if not job.waiting:
            return False
        line = self.waiting.line_of(job)
        shape, milli = line.shape, line.gpu_milli
        if workers is not None and workers != shape.workers:
            self._check_size(job, workers)
            shape = replace(shape, workers=workers)
            milli = shape.gpu_milli
        if milli > self.ledger.free_milli or (workers is None and self._has_node(line) is False):
            return False  # most refusals are that simple
        if line.queue is not None and self.over_limit(job, milli):
            return False
        with self.in_time(job.remaining_s):
            parts = self._find(job, shape)
        return parts is not None and self.place_at(job, Allocation(parts))

    def _find(self, job: Job, shape: Shape) -> tuple[Part, ...] | None:
        """Room for a gang: within what its queue was promised, else where it is in nobody's way."""
        if self._awaits_cell(job):
            return None
        if self.ledger.cells is None or not shape.gpu_milli:
            return self.find_kind(job, shape)
        for view in self.ledger.cells.places.of(job, spares=self.spares):
            with self.ledger.within(view):
                parts = self.find_kind(job, shape)
            if parts is not None:
                return parts
        return None

    def _awaits_cell(self, job: Job) -> bool:
        """Whether the cell that a job asks for is promised no more: it waits until it is again."""
        return bool(job.spec.cell) and self.ledger.cells is None

    def _find_more(self, job: Job, more: Shape) -> tuple[Part, ...] | None:
        """Room for workers that a run is to have beside those that it has."""
        if self.ledger.cells is None:
            return self.placer(self.ledger, more)
        for view in self.ledger.cells.places.of(job, spares=self.spares):
            with self.ledger.within(view):
                parts = self.placer(self.ledger, more)
            if parts is not None:
                return parts
        return None

    def find_kind(self, job: Job, shape: Shape) -> tuple[Part, ...] | None:
        """Room for a gang, on GPUs of a kind that its queue may have more of."""
        account = job.queue.account
        if account is None or not account.tree.kinds or not shape.gpu_milli:
            return self.placer(self.ledger, shape)
        for nodes in account.places(job.spec, shape.gpu_milli, self.ledger):
            with self.ledger.only(nodes):
                parts = self.placer(self.ledger, shape)
            if parts is not None:
                return parts
        return None

    @contextmanager
    def in_time(self, lasts_s: float) -> Iterator[None]:
        """Hide nodes whose maintenance begins before a run that lasts so long is over.

        Nothing may be taken, released or hidden otherwise meanwhile: it is for a placer.
        """
        ledger = self.ledger
        if not ledger.windows:
            yield
            return
        with ledger.only(ledger.up & ~ledger.closing(self.now + taken(lasts_s))):
            yield

    def probe(self, job: Job) -> tuple[Part, ...] | None:
        """Where a waiting job would be placed now, if anywhere."""
        if self.check_time is not None:
            self.check_time()
        line = self.waiting.line_of(job)
        if line.queue is not None and self.over_limit(job, line.gpu_milli):
            return None
        with self.in_time(job.remaining_s):
            return self._find(job, line.shape)

    def place_at(
        self, job: Job, allocation: Allocation, claims: tuple[CellClaim, ...] | None = None
    ) -> bool:
        """Start a waiting job exactly there, unless its quotas or promises to others forbid it.

        ``claims`` are those by which it has its place; None: as they are found.
        """
        if self.check_time is not None:
            self.check_time()
        if not job.waiting:
            raise Fatal(f"job {job.id} does not wait for a place")
        self._check_size(job, allocation.workers)
        self._check_roles(job, allocation)
        limit, account = job.queue.spec.limit_milli, job.queue.account
        if limit is not None and job.queue.used_milli + allocation.gpu_milli > limit:
            raise Fatal(f"job {job.id} would take queue {job.queue.spec.id} over its limit")
        if account is not None and not account.admits(account.held(job, allocation)):
            return False
        if self._awaits_cell(job):
            return False
        self._check_parts(job, allocation)
        if closed := self._closed(job, allocation.parts):
            raise Fatal(f"job {job.id} cannot begin on {closed}")
        if self.ledger.cells is None:
            self._exchange(job, (), allocation.parts)
        elif not self._settle_in(self.ledger.cells, job, allocation, claims):
            return False
        else:
            claims = self.ledger.cells.claims_of(job)
        job.queue.charge(job, allocation)
        self.waiting.leave(job, self.now)
        self.decisions.append(Place(job.id, allocation, claims or ()))
        self._undo.append(lambda: self._unplace(job, allocation))
        return True

    def _settle_in(
        self,
        cells: CellBooks,
        job: Job,
        allocation: Allocation,
        claims: tuple[CellClaim, ...] | None,
    ) -> bool:
        """Take a place in the books, and enter by which claims; False: promises forbid it."""
        if claims is None:
            claims = cells.cover(job, allocation.parts)
            if not cells.admits(job, allocation.parts, claims):
                return False
        self._exchange(job, (), allocation.parts)
        cells.enter(job, allocation, claims)
        return True

    def evict(self, run: Run, reason: str) -> bool:
        """Stop a run to make room, also one that stands still; its job will wait again."""
        return self._clear(run, Evict(run.job.id, reason))

    def suspend(self, run: Run, reason: str) -> bool:
        """Take a run off its devices, keeping its state; its job waits to be resumed.

        A run that is pinned cannot leave them so: only its end gives them back. One that is
        protected is neither suspended nor evicted.
        """
        return not pinned(run, self.ledger) and self._clear(run, SetAside(run.job.id, reason))

    def resize(self, run: Run, workers: int) -> bool:
        """Grow or shrink a run to that many workers, as near to where it is as can be."""
        job = run.job
        self._check_size(job, workers)
        if not run.settled or workers == run.workers:
            return False
        if workers < run.workers:
            return self.reshape(run, _shrunk(run.allocation, workers))
        more = Shape(workers - run.workers, job.spec.resources)
        if self.over_limit(job, more.gpu_milli):
            return False
        ledger, lasts_s = self.ledger, run.remaining_s(self.now)
        with ledger.confined(run.allocation.parts, job.spec.within), self.in_time(lasts_s):
            parts = self._find_more(job, more)
        if parts is None:
            return False
        return self.reshape(run, Allocation((*run.allocation.parts, *parts)))

    def move(self, run: Run, node: NodeId | None = None) -> bool:
        """Give a run as much elsewhere: on other devices, and on that node if one is named."""
        job, held = run.job, run.allocation
        if not run.settled:
            return False
        roles = tuple(
            replace(role, workers=held.count(role.name), most=0) for role in job.spec.roles
        )
        shape = Shape(run.workers, job.spec.resources, roles, job.spec.within)
        ledger, nothing = self.ledger, Resources(gpus=0)
        with ledger.hidden([(part, nothing) for part in held.parts]):
            if node is None:
                with self.in_time(run.remaining_s(self.now)):
                    parts = self.placer(ledger, shape)
            else:
                with ledger.only(ledger.node(node).bit):
                    parts = self.placer(ledger, shape)
        return parts is not None and parts != held.parts and self.reshape(run, Allocation(parts))

    def reshape(  # noqa: C901 - one question after the other
        self,
        run: Run,
        allocation: Allocation,
        reason: str = "",
        claims: tuple[CellClaim, ...] | None = None,
    ) -> bool:
        """Give a run another allocation; what it keeps stays untouched.

        ``claims`` are those by which it has its place then; None: as they are found.
        """
        if self.check_time is not None:
            self.check_time()
        if not run.settled:
            return False
        job, old = run.job, run.allocation
        if allocation.workers != old.workers:  # a user may have asked for less or more meanwhile
            self._check_size(job, allocation.workers)
        self._check_roles(job, allocation)
        extra = allocation.gpu_milli - old.gpu_milli
        if (extra > 0 and self.over_limit(job, extra)) or not _admitted(job, allocation, old):
            return False
        self._check_parts(job, allocation)
        if not self._may_become(job, old, allocation):
            return False
        cells, had = self.ledger.cells, tuple[CellClaim, ...]()
        if cells is not None:
            had = cells.claims_of(job)
            if claims is None and (claims := _claims_of(cells, job, old, allocation)) is None:
                return False
        gone, new = _difference(old.parts, allocation.parts)
        self._exchange(job, gone, new)
        if cells is not None:
            cells.enter(job, allocation, claims or ())
        job.queue.charge(job, old, -1)
        job.queue.charge(job, allocation)
        advance(run, Trigger.RESHAPED)
        run.target = allocation
        self.decisions.append(Reshape(job.id, allocation, reason, claims or ()))

        def undo() -> None:
            for part in new:
                self.ledger.release(part, needs(job, part))
            for part in gone:
                self.ledger.take(part, needs(job, part))
            job.queue.charge(job, allocation, -1)
            job.queue.charge(job, old)
            if cells is not None:
                cells.enter(job, old, had)
            advance(run, _KEPT)
            self.decisions.pop()

        self._undo.append(undo)
        return True

    def reclaim(self, run: Run, claims: tuple[CellClaim, ...]) -> None:
        """Let a run have its place by these claims on cells; by none, as long as others let it."""
        cells, job = self.ledger.cells, run.job
        if cells is None:
            raise Fatal(f"job {job.id} has no claims: no queue is promised cells")
        had, booked = cells.claims_of(job), run.target or run.allocation
        cells.enter(job, booked, claims)
        self.decisions.append(Reclaim(job.id, claims))

        def undo() -> None:
            cells.enter(job, booked, had)
            self.decisions.pop()

        self._undo.append(undo)

    def hold(self, line: Line) -> None:
        """Leave a line waiting because there is no room for its shape."""
        line.refused_at = self.ledger.releases

    def say(self, line: Line, text: str, cause: Cause | None = None) -> None:
        """Say why a line waits, where the policy knows more than what is free."""
        self.said[line] = (text, cause)

    def latest_start(self, job: Job, text: str, starts_at: float) -> None:
        """Say of one job that it will start at that time at the latest."""
        self.latest_starts[job.id] = (text, starts_at)

    def close(self) -> None:
        """All is decided, and cannot be undone any more. The core calls this, not the policy."""
        self._undo.clear()

    def judge(self) -> None:
        """Note what each line lacks, when all is decided. The core calls this, not the policy."""
        now, said = self.now, self.said
        for line in self.waiting.open:
            text, cause = said.get(line, _NOTHING)
            line.said = text
            line.blame(self.lack(line) if cause is None else cause, now)

    def await_starts(self) -> None:
        """Ask to be called when a run that is starting is up: only then can it be disturbed."""
        self.awaits_starts = True

    def wake(self, at: float) -> None:
        """Ask to be called again at that time, whatever happens."""
        self.wake_at = min(self.wake_at, at)

    def reconsider(self) -> None:
        """Forget what was refused: runs deserve their places less than they did."""
        self.waiting.forget_refusals()
        self.ledger.forget_changes()

    # -- trying and going back -----------------------------------------------------------------

    def mark(self) -> int:
        """A point to come back to."""
        if self.check_time is not None:
            self.check_time()
        return len(self._undo)

    def start_over(self, mark: int) -> None:
        """Forget all since ``mark``, and what the policy noted, said and asked for: it failed."""
        self.check_time = None
        self.waiting.order_by_arrival()  # before anything is undone: its key may fail, too
        self.undo(mark)
        self.memo.clear()
        self.said.clear()
        self.latest_starts.clear()
        self.wake_at, self.awaits_starts = math.inf, False

    def undo(self, mark: int) -> None:
        """Forget everything since ``mark``."""
        while len(self._undo) > mark:
            self._undo.pop()()

    # -- questions -----------------------------------------------------------------------------

    def is_full(self, line: Line) -> bool:
        """Whether there is no room for a line's shape, as far as is known without a search."""
        ledger = self.ledger
        return line.refused_at == ledger.releases or line.gpu_milli > ledger.free_milli

    def over_limit(self, job: Job, extra_milli: int) -> bool:
        """Whether so much more would take a job's queue over its limit."""
        if self.check_time is not None:
            self.check_time()
        limit, account = job.queue.spec.limit_milli, job.queue.account
        if limit is not None and job.queue.used_milli + extra_milli > limit:
            return True
        return account is not None and self._over_quota(job, extra_milli, account)

    @staticmethod
    def _over_quota(job: Job, extra_milli: int, account: Account) -> bool:
        """The same of all that is counted in the tree of its queue, for workers with so much."""
        spec, starts = job.spec, job.waiting
        each = spec.resources.gpu_milli
        workers = spec.workers.min if starts else 0
        if each and not (starts and extra_milli == spec.gpu_milli(workers)):
            roles = spec.gpu_milli(0) if starts else 0
            workers = max(0, extra_milli - roles) // each
        return account.refuses(spec, workers, roles=starts)

    def lack(self, line: Line) -> Cause:
        """What a line lacks: its turn, if there is room for it."""
        if line.queue is not None and self.over_limit(line.head, line.gpu_milli):
            return Cause.QUOTA
        ledger, need = self.ledger, line.shape.resources
        free, wanted = ledger.free_milli, line.gpu_milli
        if line.needs_pool and self.matches_nobody(line.shape):
            return Cause.CAPACITY
        if (need.kinds or need.pool) and free >= wanted:
            free = sum(node.shown_milli for node in ledger.select(ledger.eligible(need)))
            if need.pool:  # other roles may go elsewhere
                wanted = line.shape.workers * need.gpu_milli
        if free < wanted:
            return Cause.CAPACITY
        if line.refused_at != ledger.releases:
            fits = self._has_node(line)
            if fits or (fits is None and self.placer(ledger, line.shape) is not None):
                return Cause.TURN
            line.refused_at = ledger.releases
        return Cause.FRAGMENTATION

    def matches_nobody(self, shape: Shape) -> bool:
        """Whether a gang asks for nodes of a pool in which there is none in service."""
        needs = (shape.resources, *(role.resources for role in shape.roles))
        return any(need.pool and not self.ledger.eligible(need) for need in needs)

    # -- how it is done ------------------------------------------------------------------------

    def _exchange(self, job: Job, gone: Sequence[Part], new: Sequence[Part]) -> None:
        """Give back and take in the books, entirely or not at all."""
        ledger, released, taken = self.ledger, 0, 0
        try:
            for part in gone:
                ledger.release(part, needs(job, part))
                released += 1
            for part in new:
                ledger.take(part, needs(job, part))
                taken += 1
        except Exception:
            for part in new[:taken]:
                ledger.release(part, needs(job, part))
            for part in gone[:released]:
                ledger.take(part, needs(job, part))
            raise

    def _clear(self, run: Run, decision: Evict | SetAside) -> bool:
        if self.check_time is not None:
            self.check_time()
        job = run.job
        suspends = isinstance(decision, SetAside)
        if not (run.settled or (run.frozen and not suspends)) or job.protected:
            return False
        kept = self._kept()
        claims = self._give_up(run)
        advance(run, Trigger.SUSPEND_ORDERED if suspends else _STOP_ORDERED)
        run.reason = decision.reason
        self.decisions.append(decision)

        def undo() -> None:
            self._take_back(run, claims, kept)
            advance(run, _KEPT)
            self.decisions.pop()

        self._undo.append(undo)
        return True

    def recall(self, run: Run, reason: str) -> bool:
        """Take from a run the place that it still waits for; its job waits again."""
        if run.phase not in _PLACELESS or not run.booked:
            return False
        kept = self._kept()
        claims = self._give_up(run)
        run.recalled = True
        self.decisions.append(Evict(run.job.id, reason))

        def undo() -> None:
            self._take_back(run, claims, kept)
            run.recalled = False
            self.decisions.pop()

        self._undo.append(undo)
        return True

    def _give_up(self, run: Run) -> tuple[CellClaim, ...]:
        """Take out of the books what a run holds; returns its claims on cells."""
        job, cells = run.job, self.ledger.cells
        for part in run.allocation.parts:
            self.ledger.release(part, needs(job, part))
        job.queue.charge(job, run.allocation, -1)
        if cells is None:
            return ()
        claims = cells.claims_of(job)
        if claims:  # nobody gains by it but its own queue
            cells.places.keep(job, cells.places.covered(job))
        cells.leave(job)
        return claims

    def _kept(self) -> Kept:
        """What is kept free for claims so far."""
        return self.ledger.cells.places.kept if self.ledger.cells is not None else {}

    def _take_back(self, run: Run, claims: tuple[CellClaim, ...], kept: Kept) -> None:
        for part in run.allocation.parts:
            self.ledger.take(part, needs(run.job, part))
        run.job.queue.charge(run.job, run.allocation)
        if self.ledger.cells is not None:
            self.ledger.cells.enter(run.job, run.allocation, claims)
            self.ledger.cells.places.kept = kept

    def _unplace(self, job: Job, allocation: Allocation) -> None:
        for part in allocation.parts:
            self.ledger.release(part, needs(job, part))
        job.queue.charge(job, allocation, -1)
        if self.ledger.cells is not None:
            self.ledger.cells.leave(job)
        self.waiting.rejoin(job, self.now)
        self.decisions.pop()

    def _has_node(self, line: Line) -> bool | None:
        """Whether a node has room for a gang that has to be on one; None: it takes more."""
        gpus = line.only_gpus
        if not gpus or not self.consolidates or gpus > self.ledger.largest or self.ledger.crowded:
            return None
        return bool(self.ledger.at_least[gpus])

    def _may_become(self, job: Job, old: Allocation, new: Allocation) -> bool:
        """Whether a run may come to what it does not hold yet."""
        more = beyond(new, old)
        if self._closed(job, more):
            return False
        # Two runs that wait for each other's places would wait for ever.
        return not (beyond(old, new) and any(map(self._in_motion, more)))

    def _closed(self, job: Job, parts: Iterable[Part]) -> str:
        """A node among these that takes nothing new or not this job, and why; else nothing."""
        ledger = self.ledger
        for part in parts:
            node, need = ledger.node(part.node), needs(job, part)
            if node.cordon is not None:
                return f"node {node.id}: it is cordoned"
            if not ledger.suits(node, need):
                wrong = need.kinds and node.spec.kind not in need.kinds
                why = f"it is a {node.spec.kind}" if wrong else f"it is outside of pool {need.pool}"
                return f"node {node.id}: {why}"
        return ""

    def _in_motion(self, part: Part) -> bool:
        runs = self.ledger.nodes[part.node].runs
        return any(run.phase in _UNSETTLED for run in runs)

    @staticmethod
    def _check_roles(job: Job, allocation: Allocation) -> None:
        """All workers of all roles, or none."""
        for role in job.spec.roles:
            low, high = role.sizes
            if not low <= allocation.count(role.name) <= high:
                raise Fatal(f"job {job.id} needs {role.sizes} workers of role {role.name!r}")

    @staticmethod
    def _check_parts(job: Job, allocation: Allocation) -> None:
        """As many devices, and as much of each, as the workers ask for."""
        for part in allocation.parts:
            need = needs(job, part)
            wrong_share = need.gpus and part.share_milli != need.share_milli
            if wrong_share or len(part.gpus) != part.workers * need.gpus:
                raise Fatal(f"{part} is not what a worker of job {job.id} asks for")

    @staticmethod
    def _check_size(job: Job, workers: int) -> None:
        low, high = job.spec.workers
        if not low <= workers <= high:
            msg = f"job {job.id} runs with {low}..{high} workers, not {workers}"
            raise Fatal(msg)


#: Runs in these phases give something up or take something, on nodes where they are.
_UNSETTLED = RESHAPING | LEAVING
#: Runs in these phases wait for a place, and nothing else can be asked of them.
_PLACELESS = frozenset({RunPhase.RESERVED, RunPhase.RECALLED})
_NOTHING: tuple[None, None] = (None, None)


def _claims_of(
    cells: CellBooks, job: Job, old: Allocation, new: Allocation
) -> tuple[CellClaim, ...] | None:
    """The claims of a run with another allocation; None: promises forbid that."""
    claims = cells.fitted(job, new)
    if not claims and cells.claims_of(job) and new.gpu_milli >= old.gpu_milli:
        return None  # it would give up its place for one that others may want
    return claims if cells.admits(job, beyond(new, old), claims) else None


def _admitted(job: Job, new: Allocation, old: Allocation) -> bool:
    """Whether the tree of a job's queue, if it is in one, has room for what a run is to have."""
    account = job.queue.account
    return account is None or account.admits(account.held(job, new), account.held(job, old))


def _shrunk(allocation: Allocation, workers: int) -> Allocation:
    """The allocation without its last workers."""
    surplus = allocation.workers - workers
    kept: list[Part] = []
    for part in reversed(allocation.parts):
        if part.role != WORKER or not surplus:
            kept.append(part)
            continue
        drop = min(surplus, part.workers)
        surplus -= drop
        stay = part.workers - drop
        if stay:
            each = len(part.gpus) // part.workers
            kept.append(part._replace(workers=stay, gpus=part.gpus[: stay * each]))
    return Allocation(tuple(reversed(kept)))


def _difference(old: Iterable[Part], new: Iterable[Part]) -> tuple[list[Part], list[Part]]:
    """What to give back and what to take to get from one allocation to another."""
    gone, added = list(old), []
    for part in new:
        if part in gone:
            gone.remove(part)
        else:
            added.append(part)
    return gone, added
