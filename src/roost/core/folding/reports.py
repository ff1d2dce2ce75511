"""What the world says of runs, folded into the state.

A report that no longer fits (of an attempt that is over, of a change that was never asked for, or
for the second time) is old news and changes nothing.
"""

from __future__ import annotations

from typing import Final

from roost.core import lifecycle
from roost.core.actions import Stop
from roost.core.allocation import Allocation, without
from roost.core.cluster_state import ClusterState
from roost.core.events import (
    Event,
    Exited,
    Measured,
    Outcome,
    Progressed,
    Resized,
    Shrank,
    Started,
    Suspended,
)
from roost.core.folding.maintenance import pass_time
from roost.core.history import Spending
from roost.core.lifecycle import whole_roles
from roost.core.observed import Observed
from roost.core.state import Job, JobState, Run
from roost.core.transitions import RunPhase, Trigger, accepts, advance

_ENDS = {
    Outcome.SUCCEEDED: JobState.SUCCEEDED,
    Outcome.FAILED: JobState.FAILED,
    Outcome.CANCELLED: JobState.CANCELLED,
}


# A name of the module is found faster than a member of an enumeration.
_STARTED: Final = Trigger.STARTED


def started(state: ClusterState, event: Started) -> bool:
    """All workers of a run are up."""
    run = state.runs.get(event.run)
    if run is None or not accepts(run, _STARTED):
        return False
    job = run.job
    if event.took_s is not None:
        what = Spending.RESUME if run.activity is RunPhase.RESUMING else Spending.START
        state.history.spend(job.spec, what, event.took_s)
    run.started_at = run.measured_at = run.changed_at = event.time
    advance(run, _STARTED)
    if job.started_at is None:
        job.started_at = event.time
    run.foresee(state.now)
    state.touch(run)
    lifecycle.come_up(state, run, event)
    return state.awaits_starts and state.waiting.count > 0


def progressed(state: ClusterState, event: Progressed) -> bool:
    """Takes over the work done so far, and its rate."""
    run = state.runs.get(event.run)
    if run is not None and run.started_at is not None and event.rate > 0:
        run.account(state.now)
        run.done_s, run.rate = event.done_s, event.rate
        run.foresee(state.now)
        state.touch(run)
    return False


def measured(state: ClusterState, event: Measured) -> bool:
    """Learns from what was observed of a run."""
    run = state.runs.get(event.run)
    if run is not None:
        job = run.job
        state.history.measure(job.spec, event)
        if job.observed is None:
            job.observed = Observed()
        job.observed.add(event)
    return False


def exited(state: ClusterState, event: Exited) -> bool:
    """Ends a run; its job is over, or waits again."""
    run = state.runs.get(event.run)
    if run is None:
        return False
    job = run.job
    if job.waiting:  # it was suspended
        state.waiting.leave(job, event.time)
    run.account(state.now)
    lifecycle.release(state, run)
    lifecycle.forget(state, run)
    _make_way(state, run, event)
    job.run = None
    job.saved_s = event.saved_s
    outcome = Outcome.CANCELLED if job.cancelling else event.outcome
    if outcome is Outcome.FAILED:
        job.failures += 1
    for_good = outcome is not Outcome.FAILED or event.final or _retries_spent(job)
    if outcome in _ENDS and for_good:
        lifecycle.finish(state, job, _ENDS[outcome])
    else:
        job.not_before = event.time + event.delay_s if event.delay_s > 0 else 0.0
        lifecycle.requeue(state, job)
    return True


def resized(state: ClusterState, event: Resized) -> bool:
    """Lets a run have the allocation that it was asked to change to."""
    run = state.runs.get(event.run)
    if run is None or run.target is None or not accepts(run, Trigger.RESIZED):
        return False
    state.history.spend(run.job.spec, Spending.RESIZE, event.took_s)
    state.history.spend(run.job.spec, Spending.PAUSE, event.pause_s)
    _change_size(state, run, run.target)
    advance(run, Trigger.RESIZED)
    _make_way(state, run, event)
    lifecycle.come_up(state, run, event)
    return True


def shrank(state: ClusterState, event: Shrank) -> bool:
    """Lets a run go on with the workers that it has left."""
    run = state.runs.get(event.run)
    if run is None or not accepts(run, Trigger.SHRANK):
        return False
    job, left = run.job, event.allocation
    gone = without(run.allocation, left)
    if not gone or not left.workers or not whole_roles(job.spec, left):
        return False
    lifecycle.give_back(state, run, left)
    _change_size(state, run, left)
    advance(run, Trigger.SHRANK)
    low, high = job.spec.workers
    if not low <= left.workers <= high:
        state.out_of_range[job.id] = job
    return True


def suspended(state: ClusterState, event: Suspended) -> bool:
    """Takes a run off its devices, or freezes it there."""
    run = state.runs.get(event.run)
    if run is None or not accepts(run, Trigger.SUSPENDED):
        return False
    job = run.job
    state.history.spend(job.spec, Spending.SUSPEND, event.took_s)
    run.account(state.now)
    advance(run, Trigger.SUSPENDED)
    run.started_at = None
    run.done_s = job.saved_s = event.done_s
    if not run.parked:
        _froze(state, run, event)
        return True
    state.occupancy.settle(run, None)
    job.state = JobState.SUSPENDED
    _make_way(state, run, event)
    if job.cancelling:
        state.actions.append(Stop(run.id, "cancelled", event))
    elif not job.held:
        state.waiting.join(job, event.time)
    return True


# -- what they have in common --------------------------------------------------------------


def _make_way(state: ClusterState, run: Run, event: Event) -> None:
    """Let the runs proceed that waited for this one, but to no node whose maintenance is due."""
    if state.ledger.windows:
        pass_time(state)
    lifecycle.free_waiters(state, run, event)


def _froze(state: ClusterState, run: Run, event: Event) -> None:
    """A run stands still where it is: it keeps its place, and no run waits for it."""
    run.foresee(state.now)
    state.touch(run)
    run.job.state = JobState.SUSPENDED
    if run.frozen and not run.job.held:
        lifecycle.thaw(state, run, event)


def _change_size(state: ClusterState, run: Run, allocation: Allocation) -> None:
    """From now on a run holds this, and goes at the pace of so many workers."""
    run.account(state.now)
    grown = run.job.speed_up(allocation.workers, run.workers)
    state.occupancy.settle(run, allocation)
    run.rate *= grown
    run.changed_at = state.now
    run.foresee(state.now)
    state.touch(run)
    run.job.resizes += 1


def _retries_spent(job: Job) -> bool:
    return job.failures > job.spec.max_retries
