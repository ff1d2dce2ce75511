"""What users ask for, folded into the state.

A request that cannot be granted raises ``Conflict`` or ``NotFound`` and changes nothing. What needs
a place is only noted here: the controller serves it before the policy has its say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from roost.core import lifecycle
from roost.core.actions import Stop
from roost.core.cells.requests import check_claim
from roost.core.cluster_state import ClusterState
from roost.core.events import (
    CancelRequested,
    Deleted,
    MigrateRequested,
    QueueChanged,
    QueueDeleted,
    ResumeRequested,
    ScaleRequested,
    Submitted,
    SuspendRequested,
)
from roost.core.plan import Plan
from roost.core.spec import QueueId
from roost.core.state import Job, JobState, Queue
from roost.errors import Conflict, NotFound


def check_wish(queues: Mapping[QueueId, Queue], event: Submitted) -> None:
    """Refuse a job that asks for what its queue was not promised; Conflict or NotFound."""
    if event.spec.cell and event.spec.queue not in queues:
        raise Conflict(
            f"job {event.job!r}: queue {event.spec.queue} has no cell {event.spec.cell!r}:"
            " there is no such queue"
        )
    check_claim(queues, event)


def submitted(state: ClusterState, event: Submitted) -> bool:
    """Lets a new job wait in its line."""
    if event.job in state.jobs:
        msg = f"job {event.job!r} exists already"
        raise Conflict(msg)
    if event.spec.cell or state.ledger.cells is not None:
        check_wish(state.queues, event)
    queue = state.queue(event.spec.queue)
    expected = state.history.expected_s(event.spec)
    job = Job(event.job, state.submitted, event.spec, queue, event.time, expected)
    job.history = state.history
    state.submitted += 1
    state.jobs[event.job] = job
    state.waiting.join(job, event.time)
    state.note_demand(event.spec)
    return True


def cancel_requested(state: ClusterState, event: CancelRequested) -> bool:
    """Ends a job, at once or when its run has left."""
    job = state.job(event.job)
    if job.state.over or job.cancelling:
        return False
    job.cancelling = True
    run = job.run
    if run is not None and not run.parked:
        lifecycle.end(state, run, event, "cancelled")
        return True
    if job.waiting:
        state.waiting.leave(job, event.time)
    if run is None:
        lifecycle.finish(state, job, JobState.CANCELLED)
    else:
        state.actions.append(Stop(run.id, "cancelled", event))
    return True


def suspend_requested(state: ClusterState, event: SuspendRequested) -> bool:
    """Holds a job back until its user lets it go."""
    job = state.job(event.job)
    if job.state.over or job.cancelling or job.held:
        return False
    job.held = True
    run = job.run
    if run is None or run.parked:
        if job.waiting:
            state.waiting.leave(job, event.time)
        job.state = JobState.SUSPENDED
    elif run.settled:
        lifecycle.set_aside(state, run, event)
    return True


def resume_requested(state: ClusterState, event: ResumeRequested) -> bool:
    """Lets a job go on that was held back."""
    job = state.job(event.job)
    if job.state.over or job.cancelling or not job.held:
        return False
    job.held = False
    run = job.run
    if run is None:
        lifecycle.requeue(state, job)
    elif run.parked:
        state.waiting.join(job, event.time)
    elif run.frozen:
        lifecycle.thaw(state, run, event)
    return True


def scale_requested(state: ClusterState, event: ScaleRequested) -> bool:
    """Changes how many workers a job may have."""
    job = state.job(event.job)
    if job.state.over or job.cancelling:
        msg = f"job {job.id!r} is over or about to be: it cannot be scaled"
        raise Conflict(msg)
    spec = replace(job.spec, workers=event.workers)  # refuses an impossible range
    # Work is counted in seconds at the least workers (docs/decisions/0011): so is what is done.
    unit = job.speed_up(job.spec.workers.min, event.workers.min)
    if spec.run_time_s is not None:
        spec = replace(spec, run_time_s=spec.run_time_s * unit)
    waits = job.waiting
    if waits:
        state.waiting.leave(job, event.time)
    job.spec, job.line = spec, None
    job.saved_s *= unit
    if job.run_time_s is not None:
        job.run_time_s *= unit
    if job.run is not None:
        job.run.account(state.now)
        job.run.done_s *= unit
        job.run.rate *= unit
        job.run.foresee(state.now)
        state.out_of_range[job.id] = job
        state.touch(job.run)
    if waits:
        state.waiting.join(job, event.time)
    return True


def migrate_requested(state: ClusterState, event: MigrateRequested) -> bool:
    """Notes that a run is to move."""
    job = state.job(event.job)
    if job.run is None or not job.run.settled:
        msg = f"job {job.id!r} is {job.state}: only a running job can be moved"
        raise Conflict(msg)
    if event.node is not None and not (node := state.ledger.node(event.node)).up:
        doing = "takes nothing new" if node.here else "is not in service"
        msg = f"node {event.node} {doing}"
        raise Conflict(msg)
    state.moves.append(event)
    return True


def deleted(state: ClusterState, event: Deleted) -> bool:
    """Forgets a job that is over."""
    job = state.job(event.job)
    if not job.state.over:
        msg = f"job {job.id!r} is {job.state}: cancel it first"
        raise Conflict(msg)
    del state.jobs[job.id]
    return False


def queue_changed(state: ClusterState, event: QueueChanged) -> bool:
    """Creates a queue, or changes it."""
    before = state.queues.get(event.queue.id)
    new = before is None or before.spec.cells != event.queue.cells
    if event.queue.cells and new:
        state.check_cells(event.queue)
    queue = state.queue(event.queue.id)

    def change() -> None:
        queue.spec = event.queue
        state.regrow()
        if new:
            state.reclaim()

    state.waiting.regroup(event.time, change)
    return True


def queue_deleted(state: ClusterState, event: QueueDeleted) -> bool:
    """Forgets a queue that no job needs."""
    for job in state.jobs.values():
        if job.spec.queue == event.queue and not job.state.over:
            msg = f"queue {event.queue!r} has jobs that are not over, such as {job.id}"
            raise Conflict(msg)
    if event.queue not in state.queues:
        msg = f"no queue {event.queue!r}"
        raise NotFound(msg)
    had_cells = bool(state.queues[event.queue].spec.cells)
    del state.queues[event.queue]
    if had_cells:
        state.reclaim()
    state.waiting.regroup(event.time, state.regrow)
    return True


def serve(state: ClusterState, plan: Plan) -> None:
    """Grant what users asked for and what needs a place, as far as there is one."""
    for job in list(state.out_of_range.values()):
        run = job.run
        low, high = job.spec.workers
        if run is None or (run.target is None and low <= run.workers <= high):
            del state.out_of_range[job.id]
        elif run.settled:
            plan.resize(run, min(max(run.workers, low), high))
    moves, state.moves = state.moves, []
    for asked in moves:
        found = state.jobs.get(asked.job)
        if found is not None and found.run is not None:
            plan.move(found.run, asked.node)
