"""How runs begin, change, shrink, step aside and leave.

Every change is an action for the world; the books change at once, and what a run still uses is
noted as being left. A run with new devices that are not idle yet is *reserved* until the runs that
still use them have left.
"""

from __future__ import annotations

import heapq
from typing import Final

from roost.core.actions import Action, Launch, Migrate, Resize, Resume, Stop, Suspend
from roost.core.allocation import Allocation, beyond, survivors, without
from roost.core.cluster_state import ClusterState
from roost.core.decisions import Evict, SetAside
from roost.core.events import Event
from roost.core.node import Node
from roost.core.occupancy import pinned, uses
from roost.core.reasons import Cause
from roost.core.spec import JobSpec, RunId
from roost.core.state import Job, JobState, Run, needs
from roost.core.transitions import RunPhase, Trigger, advance

# A name of the module is found faster than a member of an enumeration.
_RUNNING: Final = RunPhase.RUNNING
_RESUMING: Final = RunPhase.RESUMING
_READY: Final = Trigger.READY
_EXITED: Final = Trigger.EXITED


# -- beginning and changing ----------------------------------------------------------------


def begin_run(state: ClusterState, job: Job, allocation: Allocation, cause: Event | None) -> None:
    """Give a job a run, or its suspended run a place; it waits if the place is not idle yet."""
    run = job.run
    job.state = JobState.STARTING
    if run is not None:
        advance(run, Trigger.PLACED)
        run.placed_at = state.now
    else:
        job.attempts += 1
        run = Run(RunId(job.id, job.attempts), job, allocation, 0, 0, state.now, job.saved_s, 1.0)
        job.run = state.runs[run.id] = run
    state.occupancy.settle(run, allocation)
    state.touch(run)
    run.rate = job.speed_up(run.workers, job.spec.workers.min)
    run.after = state.occupancy.in_the_way(allocation.parts, run)
    if run.after:
        run.foresee(state.now)
    else:
        proceed(state, run, cause)


def begin_reshape(state: ClusterState, run: Run, target: Allocation, cause: Event | None) -> None:
    """Let a run change to another allocation, as soon as that is idle."""
    run.job.state = JobState.RESIZING
    run.after = state.occupancy.in_the_way(beyond(target, run.allocation), run)
    state.occupancy.expect(run, target)
    if not run.after:
        proceed(state, run, cause)


def proceed(state: ClusterState, run: Run, cause: Event | None) -> None:
    """Let a run begin or change: nothing is in its way any more."""
    advance(run, _READY)
    _order(state, run, cause)


def _order(state: ClusterState, run: Run, cause: Event | None) -> None:
    """Ask the world for what a run is to do."""
    action: Action
    if run.target is not None:
        same = run.target.workers == run.workers
        action = (Migrate if same else Resize)(run.id, run.target, cause)
    else:
        run.job.waits[Cause.CAPACITY] += state.now - run.placed_at  # for others to leave
        run.foresee(state.now)
        if run.phase is _RESUMING:
            action = Resume(run.id, run.allocation, cause)
        else:
            action = Launch(run.id, run.job.spec, run.allocation, cause)
    state.actions.append(action)


def come_up(state: ClusterState, run: Run, event: Event) -> None:
    """Note that a run works, unless it has to leave; suspend it if its user holds the job."""
    if run.phase is _RUNNING:
        run.job.state = JobState.RUNNING
        if run.job.held:
            set_aside(state, run, event)


def call_off(state: ClusterState, run: Run, event: Event) -> None:
    """Let a run stay as large as it is that waited to become larger."""
    job, target = run.job, run.target or run.allocation
    for part in target.parts:
        state.ledger.release(part, needs(job, part))
    for part in run.allocation.parts:
        state.ledger.take(part, needs(job, part))
    job.queue.charge(job, target, -1)
    job.queue.charge(job, run.allocation)
    if state.ledger.cells is not None:
        state.ledger.cells.refit(job, run.allocation)
    state.occupancy.settle(run, run.allocation)
    run.after = set()
    advance(run, Trigger.KEPT)
    state.touch(run)
    come_up(state, run, event)


# -- failures ------------------------------------------------------------------------------


def lose(state: ClusterState, node: Node, event: Event, why: str, gpu: int | None = None) -> None:
    """End every run that a failure hit, or shrink it to the workers that are left."""
    for run in list(node.runs):
        if not run.leaves and (gpu is None or uses(run, node, gpu)):
            left = survivors(run.allocation, node.id, gpu)
            if run.settled and goes_on(run.job.spec, left):
                _shrink(state, run, left, event)
            elif not _on_its_way_out(run, node, gpu):
                end(state, run, event, why)


def _shrink(state: ClusterState, run: Run, left: Allocation, event: Event) -> None:
    """Let a run go on with less: what it loses is given back at once."""
    give_back(state, run, left)
    state.occupancy.leave(run, beyond(run.allocation, left))
    advance(run, Trigger.RESHAPED)
    run.target = left
    run.job.state = JobState.RESIZING
    proceed(state, run, event)


def give_back(state: ClusterState, run: Run, left: Allocation) -> None:
    """Take from a run, in the books, all but what is left of its allocation."""
    job = run.job
    for part in without(run.allocation, left) or ():
        state.ledger.release(part, needs(job, part))
    job.queue.charge(job, run.allocation, -1)
    job.queue.charge(job, left)
    if state.ledger.cells is not None:
        state.ledger.cells.refit(job, left)


# -- leaving -------------------------------------------------------------------------------


def begin_to_leave(state: ClusterState, decision: Evict | SetAside, cause: Event | None) -> None:
    """Stop or suspend a run because the policy wants its place."""
    run = state.run_of(decision.job)
    if run.phase in (RunPhase.RESERVED, RunPhase.RECALLED):
        run.recalled = False
        _lose_place(state, run, state.now, cause)
        return
    run.job.preemptions += 1
    state.occupancy.leave(run, run.allocation.parts)
    if isinstance(decision, SetAside):
        state.actions.append(Suspend(run.id, decision.reason, cause))
    else:
        state.actions.append(Stop(run.id, decision.reason, cause))


def end(state: ClusterState, run: Run, event: Event, why: str) -> None:
    """Stop a run for a reason outside any plan; one that never began is withdrawn."""
    if run.leaves:
        return
    if run.phase in (RunPhase.RESERVED, RunPhase.RECALLED):
        withdraw(state, run, event)
        return
    _vacate(state, run)
    advance(run, Trigger.STOP_ORDERED)
    run.reason = why
    state.actions.append(Stop(run.id, why, event))


def set_aside(state: ClusterState, run: Run, event: Event) -> None:
    """Suspend a run because its user wants it; one that is pinned keeps its place."""
    why = "suspended by its user"
    if pinned(run, state.ledger):
        advance(run, Trigger.FREEZE_ORDERED)
    else:
        _vacate(state, run)
        advance(run, Trigger.SUSPEND_ORDERED)
    run.reason = why
    state.actions.append(Suspend(run.id, why, event))


def thaw(state: ClusterState, run: Run, event: Event) -> None:
    """Let a run that was frozen in its place go on there."""
    advance(run, Trigger.THAWED)
    run.placed_at = state.now
    run.job.state = JobState.STARTING
    _order(state, run, event)


def _vacate(state: ClusterState, run: Run) -> None:
    """Promise to others what a run will give up soon."""
    release(state, run)
    held = (*run.allocation.parts, *(run.target.parts if run.target else ()))
    run.after = set()
    state.occupancy.leave(run, held)


def withdraw(state: ClusterState, run: Run, event: Event) -> None:
    """Take from a reserved run what was promised to it; its job waits again."""
    release(state, run)
    _lose_place(state, run, event.time, event)


def _lose_place(state: ClusterState, run: Run, now: float, cause: Event | None) -> None:
    """Let the job of a reserved run wait again; the books have nothing of it any more."""
    job = run.job
    state.withdrawn.append(job.id)
    job.waits[Cause.CAPACITY] += state.now - run.placed_at
    state.occupancy.settle(run, None)
    run.after = set()
    advance(run, Trigger.WITHDRAWN)
    if run.parked:
        job.state = JobState.SUSPENDED
        if job.cancelling:
            state.actions.append(Stop(run.id, "cancelled", cause))
        elif not job.held:
            state.waiting.join(job, now)
        return
    del state.runs[run.id]
    job.run = None
    job.attempts -= 1
    if job.cancelling:
        finish(state, job, JobState.CANCELLED)
    else:
        requeue(state, job)


def release(state: ClusterState, run: Run) -> None:
    """Give back in the books what a run holds, unless that was done when it had to leave."""
    if run.booked:
        booked = run.target or run.allocation
        for part in booked.parts:
            state.ledger.release(part, needs(run.job, part))
        run.job.queue.charge(run.job, booked, -1)
        if state.ledger.cells is not None:
            state.ledger.cells.leave(run.job)


def free_waiters(state: ClusterState, run: Run, event: Event) -> None:
    """Let the runs proceed that waited for this one to leave."""
    for waiter in state.occupancy.left(run):
        proceed(state, waiter, event)


def forget(state: ClusterState, run: Run) -> None:
    """Remove a run that is over; those that waited for it have yet to be told."""
    if state.actions:  # a run that is over cannot change or go on
        state.actions = [
            action
            for action in state.actions
            if action.run != run.id or not isinstance(action, Resize | Resume)
        ]
    del state.runs[run.id]
    run.after = set()
    state.occupancy.settle(run, None)
    advance(run, _EXITED)


def finish(state: ClusterState, job: Job, end_state: JobState) -> None:
    """Note that a job is over, and learn from it."""
    job.state, job.finished_at = end_state, state.now
    state.finished += 1
    state.history.add(job, succeeded=end_state is JobState.SUCCEEDED)


def requeue(state: ClusterState, job: Job) -> None:
    """Let a job without a run wait again: in its line, for its next try, or for its user."""
    if job.held:
        job.state = JobState.SUSPENDED
        return
    job.state = JobState.QUEUED
    if job.not_before > state.now:
        heapq.heappush(state.backing_off, (job.not_before, job.seq, job))
    else:
        state.waiting.join(job, state.now)


def goes_on(spec: JobSpec, left: Allocation) -> bool:
    """Whether a job that lost workers can go on with these: it is elastic, its roles are whole."""
    return spec.elastic and left.workers >= spec.workers.min and whole_roles(spec, left)


def whole_roles(spec: JobSpec, allocation: Allocation) -> bool:
    """Whether an allocation has as many workers of each role beside the main ones as it needs."""
    return all(role.workers <= allocation.count(role.name) <= role.sizes.max for role in spec.roles)


def _on_its_way_out(run: Run, node: Node, gpu: int | None) -> bool:
    """Whether a run only gives up workers, and those that a failure hit are among them."""
    target = run.target
    if target is None or beyond(target, run.allocation):
        return False
    return survivors(target, node.id, gpu).parts == target.parts
