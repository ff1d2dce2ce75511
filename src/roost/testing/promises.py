"""Promises of cells, checked the slow and obvious way, and random histories to check them in.

``broken_promises`` looks at a core from outside. It tries all ways to lay what queues are due into
what nobody has claimed, and it lays each waiting job into its queue's private cluster: cells of its
own, with nothing in them but the runs that are there by the queue's promise. What fits there must
not wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from roost.core import (
    Action,
    CancelRequested,
    Core,
    Event,
    Exited,
    GpuFailed,
    GpuRestored,
    Job,
    JobId,
    JobSpec,
    Launch,
    Ledger,
    Migrate,
    Node,
    NodeId,
    NodeJoined,
    NodeLost,
    NodeSpec,
    Outcome,
    Part,
    Placer,
    Policy,
    QueueChanged,
    QueueId,
    QueueSpec,
    Range,
    Resize,
    Resized,
    Resources,
    Resume,
    Run,
    RunId,
    RunPhase,
    Shape,
    Started,
    Stop,
    Submitted,
    Suspend,
    Suspended,
    Woke,
)
from roost.core.cells import format_promises, parse_promise
from roost.core.cells.books import CellBooks
from roost.core.cells.dues import Due
from roost.core.cells.forest import Cell
from roost.core.state import needs
from roost.errors import Conflict

__all__ = ["PromiseWalk", "broken_promises", "unfit_promises"]

_Masks = dict[Node, int]


def broken_promises(core: Core, *, fits: bool = True) -> list[str]:
    """What is wrong with promises of cells in a core, in sentences.

    ``fits=False``: they were made when runs that cannot be disturbed stood in the way.
    """
    books = core.ledger.cells
    if books is None:
        return []
    found = [*_claims(core, books, fits=fits), *(unfit_promises(core, books) if fits else ())]
    if fits and _at_rest(core):
        found += _anomalies(core, books)
    return found


def _at_rest(core: Core) -> bool:
    """Whether all is well with the hardware, and no run is on its way anywhere."""
    if any(not node.up or node.healthy != (1 << node.spec.gpus) - 1 for node in core.ledger.order):
        return False
    return all(run.phase in (RunPhase.RUNNING, RunPhase.SUSPENDED) for run in core.runs.values())


# -- claims ----------------------------------------------------------------------------------------


def _claims(core: Core, books: CellBooks, *, fits: bool) -> Iterator[str]:  # noqa: C901 - sums
    """Claims against runs: each GPU of a claimed cell is used by its queue, or by guests."""
    owners: dict[tuple[NodeId, int], tuple[str, QueueId]] = {}
    counts: dict[tuple[QueueId, str], set[str]] = {}
    for name, claims in books.holdings.claims.items():
        job = core.jobs[name]
        if job.run is None or not job.run.booked:
            yield f"{name} has claims and no place"
        for claim in claims:
            cell = books.dues.forest.cells[claim.cell]
            counts.setdefault((job.spec.queue, claim.promise), set()).add(claim.cell)
            for node, mask in cell.masks:
                for gpu in range(node.spec.gpus):
                    if mask >> gpu & 1:
                        owner = owners.setdefault((node.id, gpu), (claim.cell, job.spec.queue))
                        if owner != (claim.cell, job.spec.queue):
                            yield f"GPU {gpu} of {node.id} is in {owner} and {claim.cell}"
    for (queue, key), cells in counts.items():
        most = sum(d.promise.count for d in books.dues.of(queue) if d.key == key)
        if len(cells) > most:
            yield f"queue {queue} has {sorted(cells)} of {most} {key}"
    if fits:
        yield from _trespassers(core, books, owners)


def _trespassers(
    core: Core, books: CellBooks, owners: Mapping[tuple[NodeId, int], tuple[str, QueueId]]
) -> Iterator[str]:
    """Runs that cannot be disturbed where others have a claim."""
    pins = {
        cell.name for cell in books.dues.pins
    }  # these are where they are, whatever is in the way
    for run in core.runs.values():
        if not run.booked or run.job.preemptible:
            continue
        for node, mask in _held(core, run).items():
            covered = books.places.covered(run.job).get(node, 0)
            for gpu in range(node.spec.gpus):
                there = owners.get((node.id, gpu)) if mask & ~covered & 1 << gpu else None
                if there is not None and there[0] not in pins:
                    yield f"{run.id} cannot leave GPU {gpu} of {node.id}, which is in {there}"


def _held(core: Core, run: Run) -> _Masks:
    found: _Masks = {}
    for part in (run.target or run.allocation).parts:
        node = core.ledger.nodes[part.node]
        for gpu in part.gpus:
            found[node] = found.get(node, 0) | 1 << gpu
    return found


# -- what is due still fits ------------------------------------------------------------------------


def unfit_promises(core: Core, books: CellBooks) -> list[str]:  # noqa: C901 - sums
    """Whether what queues have not claimed fits into what is left, tried in all ways."""
    taken: _Masks = {}
    for name, claims in books.holdings.claims.items():
        if core.jobs[name].run is not None:
            _add(taken, (books.dues.forest.cells[claim.cell] for claim in claims))
    for run in core.runs.values():
        if run.booked and not run.job.preemptible:
            for node, mask in _held(core, run).items():
                taken[node] = taken.get(node, 0) | mask
    wanted: list[list[Cell]] = []
    for dues in books.dues.by_queue.values():
        for due in dues:
            if due.pin is not None and not due.held:
                wanted.append([due.pin])
            elif not due.promise.pinned:
                wanted += [_sort(due)] * (due.promise.count - len(due.held))
    wanted.sort(key=len)
    if _packs(wanted, taken, 0):
        return []
    promised = {q.spec.id: format_promises(q.spec.cells) for q in core.queues.values()}
    held = {node.id: bin(mask) for node, mask in taken.items()}
    return [f"what is promised, {promised}, does not fit beside {held}"]


def _is_in_the_way(core: Core, books: CellBooks) -> bool:
    """Whether runs that cannot be disturbed are where promises should be kept."""
    pins: _Masks = {}
    _add(pins, books.dues.pins)
    for run in core.runs.values():
        if run.booked and not run.job.preemptible:
            covered = books.places.covered(run.job)
            for node, mask in _held(core, run).items():
                if mask & pins.get(node, 0) & ~covered.get(node, 0):
                    return True
    return bool(unfit_promises(core, books))


def _sort(due: Due) -> list[Cell]:
    return [cell for chain, height in due.levels for cell in chain.cells[height]]


def _add(masks: _Masks, cells: Iterable[Cell]) -> None:
    for cell in cells:
        for node, mask in cell.masks:
            masks[node] = masks.get(node, 0) | mask


def _packs(wanted: Sequence[Sequence[Cell]], taken: _Masks, start: int) -> bool:
    """Whether each sort has a cell of its own: few of a sort first, then every choice in turn."""
    if not wanted:
        return True
    sort, rest = wanted[0], wanted[1:]
    same = bool(rest) and rest[0] is sort
    for at in range(start, len(sort)):
        cell = sort[at]
        if any(taken.get(node, 0) & mask for node, mask in cell.masks):
            continue
        after = dict(taken)
        _add(after, [cell])
        if _packs(rest, after, at + 1 if same else 0):
            return True
    return False


# -- nobody waits who would run alone --------------------------------------------------------------


def _anomalies(core: Core, books: CellBooks) -> Iterator[str]:
    tried: set[tuple[object, ...]] = set()
    for job in core.waiting:
        if not books.dues.owed(job):
            continue
        shape = Shape(job.spec.workers.min, job.spec.resources, job.spec.roles, job.spec.within)
        key = (job.spec.queue, job.spec.cell, shape)
        if key not in tried and _fits_alone(core, books, job, shape):
            yield f"{job.id} waits, though its queue {job.spec.queue} could run it alone"
        tried.add(key)


def _fits_alone(core: Core, books: CellBooks, job: Job, shape: Shape) -> bool:
    """Whether a job would begin in its queue's private cluster."""
    cells: list[tuple[Cell, bool]] = []
    for due in books.dues.owed(job):
        cells += [(cell, True) for cell in due.held]
        if due.pin is not None and not due.held:
            cells.append((due.pin, False))
        elif not due.promise.pinned:
            sort = _sort(due)
            cells += [(sort[0], False)] * (due.promise.count - len(due.held))
    ledger = Ledger()
    for at, (cell, held) in enumerate(cells):
        for node, mask in cell.masks:
            gpus = [gpu for gpu in range(node.spec.gpus) if mask >> gpu & 1]
            own = ledger.join(
                replace(
                    node.spec,
                    id=NodeId(f"{at}/{node.id}"),
                    gpus=len(gpus),
                    sockets=1,
                    site=None,
                    switch=f"{at}",
                )
            )
            for run in node.runs if held else ():
                if run.job.spec.queue == job.spec.queue and _is_claimed(books, run, cell):
                    _fill(ledger, own, run, node, gpus)
    return core._plan.placer(ledger, shape) is not None  # noqa: SLF001 - the core's own placer


def _is_claimed(books: CellBooks, run: Run, cell: Cell) -> bool:
    return any(claim.cell == cell.name for claim in books.claims_of(run.job))


def _fill(ledger: Ledger, own: Node, run: Run, node: Node, gpus: list[int]) -> None:
    """Let a run have in a private cluster what it has of a cell."""
    if not run.booked:
        return
    for part in (run.target or run.allocation).parts:
        here = tuple(gpus.index(gpu) for gpu in part.gpus if gpu in gpus)
        if part.node == node.id and here:
            need = replace(needs(run.job, part), gpus=1)
            ledger.take(Part(own.id, here, part.share_milli, len(here)), need)


# -- random histories ------------------------------------------------------------------------------

#: Chances, and how many jobs wait at most.
_MOSTLY, _USUALLY, _HALF, _SELDOM = 0.9, 0.7, 0.5, 0.15
_CROWD = 12
#: How often in an instant the world may be asked for something anew.
_ROUNDS = 60
_SORTS = ("1xnode:A", "2xnode:A", "1xswitch:A", "1xgpu:A", "2xsocket:A", "1xnode:B", "1xgpu:B")
_QUEUES = (QueueId("red"), QueueId("blue"), QueueId("green"), QueueId("open"))


@dataclass(slots=True)
class PromiseWalk:
    """A random history of a small cluster whose queues are promised cells.

    Each step is an event: jobs come, end and are cancelled, nodes and GPUs fail and heal, promises
    change. The world answers what it is asked for at once, or some steps later.
    """

    seed: int
    core: Core
    #: Whether jobs that are over are dropped, so that a long walk stays quick.
    forgets: bool = True
    rng: random.Random = field(init=False)
    now: float = 0.0
    jobs: int = 0
    steps: int = 0
    refused: int = 0
    #: How often a run had to leave for a promise.
    evictions: int = 0
    #: Whether runs that cannot be disturbed were in the way of promises when these were made.
    in_the_way: bool = False
    late: list[Action] = field(default_factory=list)
    down: set[NodeId] = field(default_factory=set)
    broken: set[tuple[NodeId, int]] = field(default_factory=set)
    nodes: list[NodeSpec] = field(init=False)

    @classmethod
    def of(cls, seed: int, policy: Policy, placer: Placer) -> PromiseWalk:
        """A walk with a core of its own."""
        return cls(seed, Core(policy, placer))

    def __post_init__(self) -> None:
        """Build the cluster."""
        self.rng = random.Random(self.seed)  # noqa: S311 - a game
        rack = self.rng.choice((1, 2, 3))
        self.nodes = [
            NodeSpec(
                NodeId(f"n{at}"),
                gpus=4 if at < rack * 2 else 2,
                kind="A" if at < rack * 2 else "B",
                sockets=2,
                switch=f"s{at // rack}" if self.rng.random() < _MOSTLY else "",
            )
            for at in range(rack * 2 + 1)
        ]
        for spec in self.nodes:
            self._tell(NodeJoined(0.0, spec))
        for _ in range(3):
            self._change()

    def walk(self, steps: int, *, every: int = 1) -> list[str]:
        """Take so many steps; returns what was wrong after the first that broke a promise."""
        for _ in range(steps):
            self.step()
            if self.steps % every:
                continue
            if self.in_the_way:
                books = self.core.ledger.cells
                self.in_the_way = books is not None and _is_in_the_way(self.core, books)
            if found := broken_promises(self.core, fits=not self.in_the_way):
                return [f"seed {self.seed}, step {self.steps}: {one}" for one in found]
        return []

    def step(self) -> None:
        """Let something happen."""
        self.steps += 1
        self.now += 1.0
        self._answer(all_of_them=self.rng.random() < _USUALLY)
        self.rng.choices(_STEPS, _WEIGHTS)[0](self)

    def _tell(self, event: Event) -> None:
        actions = self.core.handle(event)
        self.evictions += sum(
            isinstance(action, Stop) and "is promised" in action.reason for action in actions
        )
        self.late += actions

    def _answer(self, *, all_of_them: bool) -> None:
        """Report what became of what was asked for: of all of it, or of some."""
        rounds = 0
        while self.late:
            rounds += 1
            if rounds > _ROUNDS:
                told = [type(action).__name__ + " " + str(action.run) for action in self.late]
                raise AssertionError(f"seed {self.seed}, step {self.steps}: no end of {told}")
            asked, self.late = self.late, []
            for action in asked:
                if not all_of_them and self.rng.random() < _HALF:
                    self.late.append(action)
                elif (event := self._answered(action)) is not None:
                    self._tell(event)
            if not all_of_them:
                return

    def _answered(self, action: Action) -> Event | None:
        run = self.core.runs.get(action.run)
        if run is None:
            return None
        match action:
            case Launch() | Resume():
                return Started(self.now, action.run)
            case Resize() | Migrate():
                return Resized(self.now, action.run)
            case Stop():
                return Exited(self.now, action.run, Outcome.STOPPED)
            case Suspend():
                return Suspended(self.now, action.run, run.done_s)

    def _submit(self) -> None:
        rng = self.rng
        if self.core.waiting.count > _CROWD:  # some never fit anywhere
            gone = rng.choice([job.id for job in self.core.waiting])
            self._tell(CancelRequested(self.now, gone))
            self._forget()
        least = rng.choice((1, 1, 1, 2, 2, 3))
        spec = JobSpec(
            Range(least, least + rng.choice((0, 0, 2))),
            Resources(gpus=rng.choice((1, 1, 2, 4)), kinds=rng.choice(((), ("A",), ("B",)))),
            queue=rng.choice(_QUEUES),
            priority=rng.choice((-1, 0, 0, 0, 1, 2)),
            run_time_s=float(rng.randrange(1, 50)),
            preemptible=rng.random() < _MOSTLY,
        )
        self.jobs += 1
        self._tell(Submitted(self.now, JobId(f"j{self.jobs}"), spec))

    def _finish(self) -> None:
        runs = [run.id for run in self.core.runs.values() if run.settled]
        if runs:
            self._tell(Exited(self.now, self.rng.choice(runs), Outcome.SUCCEEDED))
            self._forget()

    def _cancel(self) -> None:
        names = [job.id for job in self.core.jobs.values() if not job.state.over]
        if names:
            self._tell(CancelRequested(self.now, self.rng.choice(names)))

    def _forget(self) -> None:
        """Drop jobs that are over."""
        over = [job.id for job in self.core.jobs.values() if job.state.over] if self.forgets else []
        for name in over:
            del self.core.jobs[name]

    def _change(self) -> None:
        name = self.rng.choice(_QUEUES[:3])
        sorts = self.rng.sample(_SORTS, self.rng.choice((0, 1, 1, 2)))
        if self.rng.random() < _SELDOM:
            sorts.append(f"pin:{self.rng.choice(self.nodes).id}")
        promises = tuple(parse_promise(sort) for sort in sorts)
        try:
            self._tell(QueueChanged(self.now, QueueSpec(name, cells=promises)))
            self.in_the_way = True  # perhaps
        except Conflict:
            self.refused += 1

    def _break_or_heal(self) -> None:
        if self.down or self.broken:
            for name in self.down:
                spec = next(spec for spec in self.nodes if spec.id == name)
                self._tell(NodeJoined(self.now, spec))
            for name, gpu in self.broken:
                self._tell(GpuRestored(self.now, name, gpu))
            self.down, self.broken = set(), set()
            return
        spec = self.rng.choice(self.nodes)
        if self.rng.random() < _HALF:
            self.down.add(spec.id)
            runs = list(self.core.ledger.nodes[spec.id].runs)
            self._tell(NodeLost(self.now, spec.id))
            self._lose(runs)
        else:
            gpu = self.rng.randrange(spec.gpus)
            self.broken.add((spec.id, gpu))
            self._tell(GpuFailed(self.now, spec.id, gpu))

    def _lose(self, runs: Iterable[Run]) -> None:
        """What was on a node that was lost is over."""
        for run in runs:
            if self._is_known(run.id) and run.leaves:
                self._tell(Exited(self.now, run.id, Outcome.LOST))

    def _is_known(self, run: RunId) -> bool:
        return run in self.core.runs


def _wake(walk: PromiseWalk) -> None:
    walk._tell(Woke(walk.now))  # noqa: SLF001 - a step of it


#: What may happen in a step, and how likely that is.
_STEPS: tuple[Callable[[PromiseWalk], None], ...] = (
    PromiseWalk._submit,  # noqa: SLF001 - steps of it
    PromiseWalk._finish,  # noqa: SLF001
    PromiseWalk._change,  # noqa: SLF001
    PromiseWalk._cancel,  # noqa: SLF001
    PromiseWalk._break_or_heal,  # noqa: SLF001
    _wake,
)
_WEIGHTS = (45, 32, 6, 4, 8, 5)
