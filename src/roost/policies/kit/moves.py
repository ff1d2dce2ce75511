"""Runs that step aside and go on elsewhere, and what every job holds or was promised.

Some changes cannot be made in one plan: the run has to leave its devices first. It is suspended,
what it was promised is kept in the plan's memo, and a later plan, often of the same instant, lets
it go on there. If the memo is lost the job waits like any other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from roost.core.allocation import WORKER, Allocation, Part
from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId, NodeId, Resources, Shape
from roost.core.state import Job, Run, needs
from roost.policies.kit.packing import Packing, Trial, trial

_PROMISES = "assign.promises"


class Wish(NamedTuple):
    """So many workers on GPUs of one kind, on as few nodes as can be; any kind, if none is named.

    Where nodes are of one size these are whole nodes, and one remainder on one node.
    """

    kind: str
    workers: int


class PendingMove(NamedTuple):
    """A run that stepped aside, and where it is to go on; nowhere in particular, if empty."""

    wish: Wish
    parts: tuple[Part, ...]


# -- what there is -------------------------------------------------------------------------------


def standing(plan: Plan, among: Collection[JobId] | None = None) -> dict[JobId, Wish]:
    """What each job holds or was promised: where it is, or is on its way to.

    ``among``: of these jobs at least.
    """
    found: dict[JobId, Wish] = {}
    for run in plan.running:
        if run.booked and (among is None or run.job.id in among):
            found[run.job.id] = held(plan, run)
    for name, promise in pending_moves(plan).items():
        found[name] = promise.wish
    return found


def movable(run: Run, now: float) -> bool:
    """Whether a run may be moved or made to step aside now."""
    started_at = run.started_at if run.started_at is not None else math.inf
    free_at = started_at + run.job.spec.min_run_s
    return run.settled and run.job.preemptible and free_at <= now


def rooms(plan: Plan, jobs: Iterable[JobId] = ()) -> dict[NodeId, int]:
    """GPUs of each node in service that are free or held by these jobs' movable runs.

    What was promised to a run that stepped aside is not among them.
    """
    ledger = plan.ledger
    free = {node.id: node.free.bit_count() for node in ledger.select(ledger.up)}
    for name in jobs:
        run = plan.jobs[name].run
        if run is not None and movable(run, plan.now):
            for part in run.allocation.parts:
                if part.node in free and part.share_milli == WHOLE:
                    free[part.node] += len(part.gpus)
    for promise in pending_moves(plan).values():
        for part in promise.parts:
            if part.node in free:
                free[part.node] = max(0, free[part.node] - len(part.gpus))
    return free


def capacity(plan: Plan, jobs: Iterable[JobId] = ()) -> dict[str, list[int]]:
    """The same by kind: GPUs of each of its nodes."""
    found: dict[str, list[int]] = {}
    for name, gpus in rooms(plan, jobs).items():
        found.setdefault(plan.ledger.nodes[name].spec.kind, []).append(gpus)
    return found


# -- carrying on ---------------------------------------------------------------------------------


def carry_on(plan: Plan) -> None:
    """Place runs that stepped aside to go on elsewhere, as soon as they have."""
    under_way = pending_moves(plan)
    for name, promise in list(under_way.items()):
        job = plan.jobs.get(name)
        if job is not None and job.waiting:
            del under_way[name]
            place(plan, job, promise)
        elif job is None or job.run is None or not job.run.leaves:
            del under_way[name]  # it is over, or its user holds it back


def place(plan: Plan, job: Job, promise: PendingMove) -> bool:
    """Start a waiting job where it was promised, or else wherever its wish can be granted."""
    (low, high), wish = job.spec.workers, promise.wish
    if not low <= wish.workers <= high:
        return False  # its user has changed that meanwhile
    if plan.over_limit(job, job.spec.gpu_milli(wish.workers)):
        return False
    parts: tuple[Part, ...] | None = promise.parts
    if not parts or not free(plan, job, parts):
        parts = somewhere(plan, job, wish)
    return parts is not None and plan.place_at(job, Allocation(parts))


def somewhere(plan: Plan, job: Job, wish: Wish) -> tuple[Part, ...] | None:
    """A place that no pending move needs."""
    ledger = plan.ledger
    with ledger.hidden(promised(plan)), plan.in_time(job.remaining_s):
        if job.spec.uniform and wish.kind:
            with trial(ledger) as changes:
                packing = Packing(changes, wish.kind, {})
                packing.pack([(job, wish.workers)])
                return packing.found.get(job.id)
        spec = job.spec
        return plan.placer(ledger, Shape(wish.workers, of_kind(job, wish), spec.roles, spec.within))


def of_kind(job: Job, wish: Wish) -> Resources:
    """What a worker needs, on the kind that is wished for; on none if its user rules it out."""
    need = job.spec.resources
    if not wish.kind:
        return need
    return replace(need, kinds=(wish.kind,) if wish.kind in (need.kinds or (wish.kind,)) else ("",))


def free(plan: Plan, job: Job, parts: tuple[Part, ...]) -> bool:
    """Whether a job could have all of these parts now; its own count as free."""
    ledger, run = plan.ledger, job.run
    with trial(ledger) as changes:
        if run is not None and not run.parked:
            changes.release(run)
        return claim(changes, job, parts)


def claim(changes: Trial, job: Job, parts: Iterable[Part]) -> bool:
    """Book parts for a job, for the time of a trial, if all of them are free."""
    wanted = [(part, needs(job, part)) for part in parts]
    if changes.ledger.claim(wanted):
        return False
    changes.log += [(True, part, need) for part, need in wanted]
    return True


def held(plan: Plan, run: Run) -> Wish:
    """What a run holds, or will when the change under way is done."""
    allocation = run.target or run.allocation
    nodes = plan.ledger.nodes
    kinds = {nodes[part.node].spec.kind for part in allocation.parts if part.role == WORKER}
    return Wish(kinds.pop() if len(kinds) == 1 else "", allocation.workers)


def pending_moves(plan: Plan) -> dict[JobId, PendingMove]:
    """What was promised to jobs that have stepped aside, or are about to have."""
    found: dict[JobId, PendingMove] = plan.memo.setdefault(_PROMISES, {})
    return found


def promised(plan: Plan) -> list[tuple[Part, Resources]]:
    """What is to be kept free for runs that have stepped aside: their devices."""
    nothing = Resources(gpus=0)
    return [(part, nothing) for move in pending_moves(plan).values() for part in move.parts]


def step_aside(
    plan: Plan, run: Run, wish: Wish | None, parts: tuple[Part, ...] = (), reason: str = ""
) -> bool:
    """Take a run off its devices, keeping its state if it can be, to go on as wished.

    The ``reason`` says for which job it makes room, or what it changes to and why.
    """
    if wish is None:
        why = f"makes room for {reason or 'others'}"
    elif reason:
        why = f"changes {reason}"
    else:
        why = f"goes on with {wish.workers} workers on {wish.kind}"
    if not (plan.suspend(run, why) or plan.evict(run, why)):
        return False
    if wish is not None:
        pending_moves(plan)[run.job.id] = PendingMove(wish, parts)
    return True
