"""A whole assignment made real: each job on the kind of GPU and with the workers it should have.

Policies that decide about all jobs at once (integer programs, genetic search) wish for a state of
the cluster; here it is reached with as little movement as possible. A run that keeps kind and size
keeps its place. Others are packed around it, and such runs move only if a job would not fit.

Some moves cannot be made in one plan, because two runs would wait for each other; and where a
change costs a run as much as starting again, its old devices had better be free at once. Then the
run steps aside, and is placed in a later plan, often of the same instant: ``carry_on`` does that,
and a policy calls it first. What was promised so is kept in the plan's memo; if that is lost the
job waits like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from roost.core.allocation import WORKER, Allocation, Part, beyond
from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId, NodeId, Shape
from roost.core.state import Job, Run
from roost.policies.kit.moves import (
    PendingMove,
    Wish,
    claim,
    free,
    held,
    movable,
    of_kind,
    pending_moves,
    place,
    somewhere,
    step_aside,
)
from roost.policies.kit.packing import Packing, Trial, devices_of, take, trial

# -- an assignment -------------------------------------------------------------------------------


def assign(
    plan: Plan, wishes: Mapping[JobId, Wish | None], reasons: Mapping[JobId, str] | None = None
) -> None:
    """Bring jobs to where they are wished to be, as far as there is room; others stay untouched.

    None: the job stands aside. A run that must not be disturbed (it is in motion, not preemptible,
    or younger than its minimum time) is at most resized where it is. A wish beyond a queue's limit
    is granted as far as that goes. A waiting job that does not fit waits, and a run that does not
    keeps its place. ``reasons`` are for people: why runs change, or for which jobs they stand
    aside.
    """
    _Assignment(plan, reasons=reasons).make(wishes)


def arrange(plan: Plan, seats: Mapping[JobId, Mapping[NodeId, int] | None]) -> None:
    """The same with so many workers on each node, for policies that choose the nodes themselves."""
    nodes, wishes = plan.ledger.nodes, dict[JobId, Wish | None]()
    for name, places in seats.items():
        kinds = {nodes[node].spec.kind for node in places or ()}
        wishes[name] = Wish(min(kinds), sum(places.values())) if places else None
    _Assignment(plan, {name: places for name, places in seats.items() if places}).make(wishes)


@dataclass(slots=True)
class _Assignment:
    """One assignment on its way from wishes to decisions."""

    plan: Plan
    told: Mapping[JobId, Mapping[NodeId, int]] = field(default_factory=dict)
    reasons: Mapping[JobId, str] | None = None
    keepers: dict[Run, None] = field(default_factory=dict)
    leavers: dict[Run, None] = field(default_factory=dict)
    movers: dict[JobId, Wish] = field(default_factory=dict)
    odd: dict[JobId, Wish] = field(default_factory=dict)

    def make(self, wishes: Mapping[JobId, Wish | None]) -> None:
        self._sort(wishes)
        self._keep_limits()
        for run in self.leavers:
            step_aside(self.plan, run, None, reason=(self.reasons or {}).get(run.job.id, ""))
        for name, wish in self.odd.items():
            self._shrink(self.plan.jobs[name], wish)
        targets = self._lay_out()
        self._reshape(targets)
        for name in self.movers:
            job = self.plan.jobs[name]
            if job.waiting and not self._start(
                job, PendingMove(self.movers[name], targets.get(name, ()))
            ):
                self._explain(job, self.movers[name])
        for name, wish in self.odd.items():
            self._serve(self.plan.jobs[name], wish)

    # -- roles --------------------------------------------------------------------------------

    def _sort(self, wishes: Mapping[JobId, Wish | None]) -> None:
        """Sort jobs: those that stay, leave, move or start, and those that the placer handles."""
        jobs = self.plan.jobs
        for name, wish in wishes.items():
            if name not in jobs:
                continue
            job, run = jobs[name], jobs[name].run
            if run is not None and run.settled:
                self._sort_run(run, wish)
            elif job.waiting and wish is not None:
                (self.movers if wish.kind and job.spec.uniform else self.odd)[name] = wish
            # Others are in motion: they are where they were promised to be.

    def _sort_run(self, run: Run, wish: Wish | None) -> None:
        able, uniform = movable(run, self.plan.now), run.job.spec.uniform
        if wish is None:
            if able:
                self.leavers[run] = None
        elif _same(held(self.plan, run), wish) and self._sits(run):
            if able and uniform:
                self.keepers[run] = None
        elif able and uniform and wish.kind:
            self.movers[run.job.id] = wish
        else:
            self.odd[run.job.id] = wish

    def _sits(self, run: Run) -> bool:
        """Whether a run is on the nodes where it was told to be, if it was."""
        told = self.told.get(run.job.id)
        return told is None or told == _by_node(run.allocation.parts)

    def _keep_limits(self) -> None:
        """Forget wishes beyond the limits of queues: smaller ones count first, then in order."""
        plan = self.plan
        limited = {q: room for q in plan.queues.values() if (room := q.room_milli) is not None}
        if not limited:
            return
        for run in self.leavers:
            if run.job.queue in limited:
                limited[run.job.queue] += run.gpu_milli
        extra = {}
        for name, wish in (*self.movers.items(), *self.odd.items()):
            job = plan.jobs[name]
            held = job.run.gpu_milli if job.run is not None and not job.run.parked else 0
            extra[name] = job.spec.gpu_milli(wish.workers) - held
        for name in sorted(extra, key=lambda name: extra[name] > 0):
            queue = plan.jobs[name].queue
            if queue not in limited:
                continue
            if extra[name] > max(0, limited[queue]):
                extra[name] = self._within(plan.jobs[name], extra[name], max(0, limited[queue]))
            limited[queue] -= extra[name]

    def _within(self, job: Job, extra: int, left: int) -> int:
        """Wish for as many workers as the limit of a queue allows, or for no change; what it takes.

        ``extra`` is what the wish would take.
        """
        wishes = self.movers if job.id in self.movers else self.odd
        wish = wishes[job.id]
        now = job.run.workers if job.run is not None and not job.run.parked else 0
        asked = job.spec.gpu_milli(wish.workers)
        least = max(job.spec.workers.min, now + 1)
        for workers in range(wish.workers - 1, least - 1, -1) if not self.told else ():
            taken = extra - asked + job.spec.gpu_milli(workers)
            if taken <= left:
                wishes[job.id] = wish._replace(workers=workers)
                return taken
        self._forget(job)
        return 0

    def _forget(self, job: Job) -> None:
        """Leave a job as it is."""
        wish = self.movers.pop(job.id, None)
        self.odd.pop(job.id, None)
        run = job.run
        if wish is not None and run is not None and run.settled:
            self.keepers[run] = None

    # -- where ---------------------------------------------------------------------------------

    def _lay_out(self) -> dict[JobId, tuple[Part, ...]]:
        """Seats for all jobs that move, and for those that have to make room for them."""
        while True:
            found, failed = self._try()
            stuck = [self.plan.jobs[name] for name in failed if self._runs(name)]
            if not stuck:
                return found
            for job in stuck:
                self._forget(job)  # it stays where it is, and the others move around it

    def _try(self) -> tuple[dict[JobId, tuple[Part, ...]], list[JobId]]:
        found: dict[JobId, tuple[Part, ...]] = {}
        failed: list[JobId] = []
        plan = self.plan
        with trial(plan.ledger) as changes:
            for name, promise in pending_moves(plan).items():
                claim(changes, plan.jobs[name], promise.parts)
            for name in self.movers:
                run = plan.jobs[name].run
                if run is not None and run.settled:
                    changes.release(run)
            if self.told:
                return self._seat(changes)
            for kind in dict.fromkeys(wish.kind for wish in self.movers.values()):
                packing = self._pack(changes, kind)
                found |= packing.found
                failed += packing.failed
        return found, failed

    def _seat(self, changes: Trial) -> tuple[dict[JobId, tuple[Part, ...]], list[JobId]]:
        """Take devices on the nodes that were told."""
        nodes, found, failed = self.plan.ledger.nodes, dict[JobId, tuple[Part, ...]](), []
        for name in self.movers:
            job, told = self.plan.jobs[name], self.told[name]
            need, own = job.spec.resources, devices_of(job.run)
            room = all(changes.ledger.room(nodes[node], need) >= n for node, n in told.items())
            if room and all(changes.ledger.suits(nodes[node], need) for node in told):
                found[name] = tuple(take(changes, nodes[n], need, w, own) for n, w in told.items())
            else:
                failed.append(name)
        return found, failed

    def _pack(self, changes: Trial, kind: str) -> Packing:
        """Pack one kind: around the runs that stay; else moving a few of them; else all anew."""
        plan = self.plan
        wants = [(plan.jobs[name], w.workers) for name, w in self.movers.items() if w.kind == kind]
        keepers = [run for run in self.keepers if held(plan, run).kind == kind]
        mark = len(changes.log)
        for anew in (False, True):
            packing = Packing(changes, kind, dict.fromkeys(keepers), sticky=not anew)
            for run in keepers if anew else ():
                packing.displace(run)
            if packing.pack(wants):
                break
            changes.back_to(mark)
        else:
            packing = Packing(changes, kind, dict.fromkeys(keepers), clears=False)
            packing.pack(wants)
        changes.back_to(mark)
        return packing

    def _runs(self, name: JobId) -> bool:
        run = self.plan.jobs[name].run
        return run is not None and run.settled

    # -- making it real ------------------------------------------------------------------------

    def _reshape(self, targets: Mapping[JobId, tuple[Part, ...]]) -> None:
        """Bring runs to their seats, in an order in which each finds its own free."""
        plan = self.plan
        left: list[tuple[Run, Allocation]] = []
        for name, parts in targets.items():
            run, target = plan.jobs[name].run, Allocation(parts)
            if run is None or not run.settled or target == run.allocation:
                continue
            if _restarts(run) and beyond(run.allocation, target):
                self._step_aside(run, target)
            else:
                left.append((run, target))
        while left:
            rest = [(run, target) for run, target in left if not self._moved(run, target)]
            if len(rest) == len(left):  # they wait for each other
                self._step_aside(*rest.pop(0))
            left = rest

    def _moved(self, run: Run, target: Allocation) -> bool:
        """Whether a run was brought to its seat, or steps aside for that."""
        if not free(self.plan, run.job, target.parts):
            return False
        extra = target.gpu_milli - run.gpu_milli
        if extra > 0 and self.plan.over_limit(run.job, extra):
            return False
        if not self.plan.reshape(run, target, self._why(run)) and self.plan.ledger.cells is None:
            self._step_aside(run, target)
        # Where promises of cells forbid it, a restart would change nothing: it stays as it is.
        return True

    def _step_aside(self, run: Run, target: Allocation) -> None:
        nodes = self.plan.ledger.nodes
        wish = Wish(nodes[target.parts[0].node].spec.kind, target.workers)
        step_aside(self.plan, run, wish, target.parts, self._why(run))

    def _why(self, run: Run) -> str:
        return self.reasons.get(run.job.id, "") if self.reasons else ""

    def _start(self, job: Job, promise: PendingMove) -> bool:
        return bool(promise.parts) and place(self.plan, job, promise)

    def _explain(self, job: Job, wish: Wish) -> None:
        plan = self.plan
        plan.say(
            plan.waiting.line_of(job), f"waits for room for {wish.workers} workers on {wish.kind}"
        )

    # -- jobs of other shapes, and runs that must stay -------------------------------------------

    def _serve(self, job: Job, wish: Wish) -> None:
        """Start, let grow or move a job by way of the placer."""
        plan, run = self.plan, job.run
        if job.waiting:
            if not place(plan, job, PendingMove(wish, ())):
                self._explain(job, wish)
        elif run is not None and run.settled:
            if wish.kind in ("", held(plan, run).kind):
                if wish.workers > run.workers:
                    self._grow(run, wish.workers)
            elif movable(run, plan.now) and somewhere(plan, job, wish) is not None:
                step_aside(plan, run, wish)

    def _shrink(self, job: Job, wish: Wish) -> None:
        run = job.run
        if run is None or not run.settled or wish.kind not in ("", held(self.plan, run).kind):
            return
        if job.spec.workers.min <= wish.workers < run.workers:
            self.plan.resize(run, wish.workers)

    def _grow(self, run: Run, workers: int) -> None:
        """Give a run more workers on nodes of its kind."""
        plan, spec = self.plan, run.job.spec
        kind = held(plan, run).kind
        if not kind or workers > spec.workers.max:
            return
        more = Shape(workers - run.workers, of_kind(run.job, Wish(kind, workers)))
        with plan.ledger.confined(run.allocation.parts, spec.within):
            parts = plan.placer(plan.ledger, more)
        if parts is not None:
            plan.reshape(run, Allocation(_merged((*run.allocation.parts, *parts))))


def _merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same with one part for all workers of a role that have whole devices of a node."""
    found: dict[tuple[NodeId, str, int], Part] = {}
    for index, part in enumerate(parts):
        key = (part.node, part.role, -1 if part.share_milli == WHOLE else index)
        had = found.get(key)
        if had is not None:
            gpus = tuple(sorted((*had.gpus, *part.gpus)))
            part = part._replace(gpus=gpus, workers=had.workers + part.workers)  # noqa: PLW2901
        found[key] = part
    return tuple(found.values())


def _by_node(parts: Iterable[Part]) -> dict[NodeId, int]:
    """Main workers on each node."""
    found: dict[NodeId, int] = {}
    for part in parts:
        if part.role == WORKER:
            found[part.node] = found.get(part.node, 0) + part.workers
    return found


def _same(held: Wish, wish: Wish) -> bool:
    return held.workers == wish.workers and wish.kind in ("", held.kind)


def _restarts(run: Run) -> bool:
    """Whether a change of size is declared to cost as much as stepping aside and coming back."""
    costs = run.job.spec.costs
    return 0 < costs.resize_s >= costs.suspend_s + costs.restart_s
