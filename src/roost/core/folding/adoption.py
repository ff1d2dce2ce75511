"""Jobs that the world knows already, and jobs that it protects, folded into the state.

A world that keeps jobs itself tells of them as they stand: a driver that starts anew has each of
them *adopted*, run and all, instead of folding a journal.
"""

from __future__ import annotations

from roost.core import lifecycle
from roost.core.allocation import WORKER, Allocation
from roost.core.cluster_state import ClusterState
from roost.core.events import Adopted, Protected
from roost.core.node import mask_of
from roost.core.spec import WHOLE, JobSpec, Resources, RunId
from roost.core.state import Job, JobState, Run, needs
from roost.core.transitions import RunPhase, Trigger, advance
from roost.errors import Conflict


def adopted(state: ClusterState, event: Adopted) -> bool:
    """Takes over a job as the world knows it."""
    known = state.jobs.get(event.job)
    if known is not None and not known.state.over:
        raise Conflict(f"job {event.job!r} exists already")
    if event.allocation is not None:
        _check_free(state, event, event.allocation)
    job = _as_it_stands(state, event)
    # What waits was counted when it was submitted. Runs that nobody may disturb may be of others,
    # one on each node of a cluster: they say nothing of what will ask for room here.
    if known is None and event.allocation is not None and event.spec.preemptible:
        state.note_demand(event.spec)
    if event.allocation is None:
        lifecycle.requeue(state, job)
    else:
        _take_over(state, job, event, event.allocation)
    return True


def _check_free(state: ClusterState, event: Adopted, allocation: Allocation) -> None:
    """Refuse an allocation that is not the job's own, or that another run holds."""
    asks, why = _asks(event.spec), misshapen(event.spec, allocation)
    if not why:
        parts = [(part, asks[part.role]) for part in allocation.parts]
        why = state.ledger.claim(parts)
        if not why:
            with state.ledger.trial():
                for part, need in parts:
                    state.ledger.release(part, need)
            others = state.occupancy.still_there(allocation.parts)
            why = f"{others[0]} has yet to leave it" if others else ""
    if why:
        raise Conflict(f"job {event.job!r} cannot have what it holds: {why}")


def _as_it_stands(state: ClusterState, event: Adopted) -> Job:
    """Note a job with its past."""
    state.jobs.pop(event.job, None)  # so that it comes last, as a new one does
    spec, now = event.spec, event.time
    since = now if event.submitted_at is None else min(event.submitted_at, now)
    expected = state.history.expected_s(spec)
    job = Job(event.job, state.submitted, spec, state.queue(spec.queue), since, expected)
    job.history = state.history
    job.attempts, job.failures = event.attempts, event.failures
    job.saved_s, job.held = event.done_s, event.held
    if event.allocation is None:
        job.not_before = event.not_before
    if event.started_at is not None:
        job.started_at = min(event.started_at, now)
    state.submitted += 1
    state.jobs[job.id] = job
    return job


def _take_over(state: ClusterState, job: Job, event: Adopted, allocation: Allocation) -> None:
    """Let a job have its run, and book what it holds."""
    for part in allocation.parts:
        state.ledger.take(part, needs(job, part))
    job.queue.charge(job, allocation)
    if state.ledger.cells is not None:
        state.ledger.cells.refit(job, allocation)
    since = event.time if job.started_at is None else job.started_at
    run = Run(RunId(job.id, job.attempts), job, allocation, 0, 0, since, event.done_s, 1.0)
    job.run = state.runs[run.id] = run
    state.occupancy.settle(run, allocation)
    run.rate = job.speed_up(run.workers, job.spec.workers.min)
    low, high = job.spec.workers
    if not low <= run.workers <= high:
        state.out_of_range[job.id] = job
    job.state = JobState.STARTING
    advance(run, Trigger.READY)
    if event.running:
        advance(run, Trigger.STARTED)
        job.started_at = run.started_at = since
        run.measured_at, run.changed_at = event.time, since
        job.attained_gpu_s = (event.time - since) * run.gpu_milli / WHOLE
    run.foresee(state.now)
    state.touch(run)
    if event.running:
        lifecycle.come_up(state, run, event)


def protected(state: ClusterState, event: Protected) -> bool:
    """Protects a job from eviction, or no longer."""
    job = state.job(event.job)
    if job.state.over or job.protected == event.why:
        return False
    free, job.protected = bool(job.protected and not event.why), event.why
    run = job.run
    if run is None or run.parked:
        return False
    state.touch(run)
    if state.ledger.cells is not None and run.booked:
        state.ledger.cells.refit(job, run.target or run.allocation)
    return _stay(state, run, event) if event.why else free


def _stay(state: ClusterState, run: Run, event: Protected) -> bool:
    """Let a run keep its place that was asked to leave; False, if it was not or cannot."""
    waiters = state.occupancy.waiters(run)
    if not _may_stay(state, run) or any(waiter.leaving for waiter in waiters):
        return False
    for waiter in waiters:
        if waiter.phase is RunPhase.EXPECTING:
            lifecycle.call_off(state, waiter, event)
        else:
            lifecycle.withdraw(state, waiter, event)
    parts = run.allocation.parts
    if state.ledger.claim((part, needs(run.job, part)) for part in parts):
        return True  # a run that need not wait for it is there now
    run.job.queue.charge(run.job, run.allocation)
    if state.ledger.cells is not None:
        state.ledger.cells.refit(run.job, run.allocation)
    advance(run, Trigger.KEPT)
    lifecycle.free_waiters(state, run, event)
    state.touch(run)
    lifecycle.come_up(state, run, event)
    return True


def _may_stay(state: ClusterState, run: Run) -> bool:
    """Whether a run is up and was asked to leave for others, not because of what it is on."""
    nodes = state.ledger.nodes
    return (
        run.phase is RunPhase.STOPPING
        and run.was is RunPhase.RUNNING
        and not run.job.cancelling
        and run.leaving == run.allocation.parts  # else a failure hit what it was to become
        and all(
            nodes[part.node].here
            and not nodes[part.node].draining
            and not mask_of(part.gpus) & ~nodes[part.node].healthy
            for part in run.allocation.parts
        )
    )


def misshapen(spec: JobSpec, allocation: Allocation) -> str:
    """Why an allocation is not one that such a job could have been given; nothing, if it is."""
    asks = _asks(spec)
    for part in allocation.parts:
        need = asks.get(part.role)
        if need is None:
            return f"it has no role {part.role!r}"
        gpus = part.workers * need.gpus
        share = need.share_milli if need.gpus else WHOLE
        alone = share == WHOLE or part.workers == 1
        if part.workers < 1 or part.share_milli != share or not alone:
            return f"{part} is not what its workers ask for"
        if len(part.gpus) != gpus or len(set(part.gpus)) != gpus:
            return f"{part} has {len(part.gpus)} GPUs, not {gpus}"
    for role in spec.roles:
        if sum(p.workers for p in allocation.parts if p.role == role.name) != role.workers:
            return f"it needs {role.workers} workers of role {role.name!r}"
    return "" if allocation.workers else "none of its workers has a place"


def _asks(spec: JobSpec) -> dict[str, Resources]:
    """What a worker of each role needs."""
    return {WORKER: spec.resources, **{role.name: role.resources for role in spec.roles}}
