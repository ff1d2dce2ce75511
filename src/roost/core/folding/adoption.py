"""Jobs that the world knows already, and jobs that it protects, folded into the state.

A world that keeps jobs itself tells of them as they stand: a driver that starts anew has each of
them *adopted*, run and all, instead of folding a journal.
"""

from __future__ import annotations

from roost.core.allocation import WORKER, Allocation
from roost.core.events import Adopted, Protected
from roost.core.lifecycle import Lifecycle
from roost.core.node import mask_of
from roost.core.spec import WHOLE, JobSpec, Resources, RunId
from roost.core.state import Job, JobState, Run, needs
from roost.errors import Conflict


class Adoption(Lifecycle):
    """Folds what the world says of jobs; each fold says whether it may change a decision."""

    def _adopted(self, event: Adopted) -> bool:
        known = self.jobs.get(event.job)
        if known is not None and not known.state.over:
            raise Conflict(f"job {event.job!r} exists already")
        if event.allocation is not None:
            self._check_free(event, event.allocation)
        job = self._as_it_stands(event)
        if event.allocation is None:
            self._requeue(job)
        else:
            self._take_over(job, event, event.allocation)
        return True

    def _check_free(self, event: Adopted, allocation: Allocation) -> None:
        """Refuse an allocation that is not the job's own, or that somebody else holds."""
        asks, why = _asks(event.spec), misshapen(event.spec, allocation)
        if not why:
            parts = [(part, asks[part.role]) for part in allocation.parts]
            why = self.ledger.claim(parts)
            if not why:
                with self.ledger.trial():
                    for part, need in parts:
                        self.ledger.release(part, need)
                others = self.occupancy.still_there(allocation.parts)
                why = f"{others[0]} has yet to leave it" if others else ""
        if why:
            raise Conflict(f"job {event.job!r} cannot have what it holds: {why}")

    def _as_it_stands(self, event: Adopted) -> Job:
        """Note a job with its past."""
        self.jobs.pop(event.job, None)  # so that it comes last, as a new one does
        spec, now = event.spec, event.time
        since = now if event.submitted_at is None else min(event.submitted_at, now)
        expected = self.history.expected_s(spec)
        job = Job(event.job, self.submitted, spec, self._queue(spec.queue), since, expected)
        job.history = self.history
        job.attempts, job.failures = event.attempts, event.failures
        job.saved_s, job.held = event.done_s, event.held
        if event.allocation is None:
            job.not_before = event.not_before
        if event.started_at is not None:
            job.started_at = min(event.started_at, now)
        self.submitted += 1
        self.jobs[job.id] = job
        return job

    def _take_over(self, job: Job, event: Adopted, allocation: Allocation) -> None:
        """Let a job have its run, and book what it holds."""
        for part in allocation.parts:
            self.ledger.take(part, needs(job, part))
        job.queue.charge(job, allocation)
        since = event.time if job.started_at is None else job.started_at
        run = Run(RunId(job.id, job.attempts), job, allocation, 0, 0, since, event.done_s, 1.0)
        job.run = self.runs[run.id] = run
        self.occupancy.settle(run, allocation)
        run.rate = job.speed_up(run.workers, job.spec.workers.min)
        low, high = job.spec.workers
        if not low <= run.workers <= high:
            self.out_of_range[job.id] = job
        job.state = JobState.STARTING
        if event.running:
            job.started_at = run.started_at = since
            run.measured_at, run.changed_at = event.time, since
            job.attained_gpu_s = (event.time - since) * run.gpu_milli / WHOLE
        run.foresee(self.now)
        self._touch(run)
        if event.running:
            self._up_again(run, event)

    def _protected(self, event: Protected) -> bool:
        job = self.job(event.job)
        if job.state.over or job.protected == event.why:
            return False
        free, job.protected = bool(job.protected and not event.why), event.why
        run = job.run
        if run is None or run.parked:
            return False
        self._touch(run)
        return self._stay(run, event) if event.why else free

    def _stay(self, run: Run, event: Protected) -> bool:
        """Let a run keep its place that was asked to leave; False, if it was not or cannot."""
        waiters = self.occupancy.waiters(run)
        if not self._may_stay(run) or any(waiter.leaving for waiter in waiters):
            return False
        for waiter in waiters:
            if waiter.target is None:
                self._take_back(waiter, event)
            else:
                self._call_off(waiter, event)
        parts = run.allocation.parts
        if self.ledger.claim((part, needs(run.job, part)) for part in parts):
            return True  # somebody who need not wait for it is there now
        run.job.queue.charge(run.job, run.allocation)
        run.stopping = None
        self._left(run, event)
        self._touch(run)
        self._up_again(run, event)
        return True

    def _may_stay(self, run: Run) -> bool:
        """Whether a run is up and was asked to leave for others, not because of what it is on."""
        nodes = self.ledger.nodes
        return (
            run.stopping is not None
            and run.started_at is not None
            and not (run.suspending or run.frozen or run.job.cancelling)
            and run.leaving == run.allocation.parts  # else a failure hit what it was to become
            and all(
                nodes[part.node].up and not mask_of(part.gpus) & ~nodes[part.node].healthy
                for part in run.allocation.parts
            )
        )

    def _call_off(self, run: Run, event: Protected) -> None:
        """Let a run stay as large as it is that waited to become larger."""
        job, target = run.job, run.target or run.allocation
        for part in target.parts:
            self.ledger.release(part, needs(job, part))
        for part in run.allocation.parts:
            self.ledger.take(part, needs(job, part))
        job.queue.charge(job, target, -1)
        job.queue.charge(job, run.allocation)
        self.occupancy.settle(run, run.allocation)
        run.target, run.after = None, set()
        self._touch(run)
        self._up_again(run, event)


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
