"""What users ask for, folded into the state.

A request that cannot be granted raises ``Conflict`` or ``NotFound`` and changes nothing. What needs
a place is only noted here: the controller serves it before the policy has its say.
"""

from __future__ import annotations

from dataclasses import replace

from roost.core.actions import Stop
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
from roost.core.lifecycle import Lifecycle
from roost.core.plan import Plan
from roost.core.state import Job, JobState
from roost.errors import Conflict, NotFound


class Requests(Lifecycle):
    """Folds requests; each fold says whether it may change a decision."""

    def _submitted(self, event: Submitted) -> bool:
        if event.job in self.jobs:
            msg = f"job {event.job!r} exists already"
            raise Conflict(msg)
        queue = self._queue(event.spec.queue)
        expected = self.history.expected_s(event.spec)
        job = Job(event.job, self.submitted, event.spec, queue, event.time, expected)
        job.history = self.history
        self.submitted += 1
        self.jobs[event.job] = job
        self.waiting.join(job, event.time)
        return True

    def _cancel(self, event: CancelRequested) -> bool:
        job = self.job(event.job)
        if job.state.over or job.cancelling:
            return False
        job.cancelling = True
        run = job.run
        if run is not None and not run.parked:
            self._end(run, event, "cancelled")
            return True
        if job.waiting:
            self.waiting.leave(job, event.time)
        if run is None:
            self._finish(job, JobState.CANCELLED)
        else:
            self._actions.append(Stop(run.id, "cancelled", event))
        return True

    def _hold_back(self, event: SuspendRequested) -> bool:
        job = self.job(event.job)
        if job.state.over or job.cancelling or job.held:
            return False
        job.held = True
        run = job.run
        if run is None or run.parked:
            if job.waiting:
                self.waiting.leave(job, event.time)
            job.state = JobState.SUSPENDED
        elif run.settled:
            self._set_aside(run, event)
        return True

    def _let_go(self, event: ResumeRequested) -> bool:
        job = self.job(event.job)
        if job.state.over or job.cancelling or not job.held:
            return False
        job.held = False
        run = job.run
        if run is None:
            self._requeue(job)
        elif run.parked:
            self.waiting.join(job, event.time)
        elif run.still:
            self._thaw(run, event)
        return True

    def _scale(self, event: ScaleRequested) -> bool:
        job = self.job(event.job)
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
            self.waiting.leave(job, event.time)
        job.spec, job.line = spec, None
        job.saved_s *= unit
        if job.run_time_s is not None:
            job.run_time_s *= unit
        if job.run is not None:
            job.run.account(self.now)
            job.run.done_s *= unit
            job.run.rate *= unit
            job.run.foresee(self.now)
            self.out_of_range[job.id] = job
        if waits:
            self.waiting.join(job, event.time)
        return True

    def _migrate(self, event: MigrateRequested) -> bool:
        job = self.job(event.job)
        if job.run is None or not job.run.settled:
            msg = f"job {job.id!r} is {job.state}: only a running job can be moved"
            raise Conflict(msg)
        if event.node is not None and not self.ledger.node(event.node).up:
            msg = f"node {event.node} is not in service"
            raise Conflict(msg)
        self._moves.append(event)
        return True

    def _delete(self, event: Deleted) -> bool:
        job = self.job(event.job)
        if not job.state.over:
            msg = f"job {job.id!r} is {job.state}: cancel it first"
            raise Conflict(msg)
        del self.jobs[job.id]
        return False

    def _queue_changed(self, event: QueueChanged) -> bool:
        queue = self._queue(event.queue.id)
        self.waiting.regroup(event.time, lambda: setattr(queue, "spec", event.queue))
        return True

    def _queue_deleted(self, event: QueueDeleted) -> bool:
        for job in self.jobs.values():
            if job.spec.queue == event.queue and not job.state.over:
                msg = f"queue {event.queue!r} has jobs that are not over, such as {job.id}"
                raise Conflict(msg)
        if event.queue not in self.queues:
            msg = f"no queue {event.queue!r}"
            raise NotFound(msg)
        self.waiting.regroup(event.time, lambda: None)
        del self.queues[event.queue]
        return True

    def _serve_users(self, plan: Plan) -> None:
        """Grant what users asked for and what needs a place, as far as there is one."""
        for job in list(self.out_of_range.values()):
            run = job.run
            low, high = job.spec.workers
            if run is None or (run.target is None and low <= run.workers <= high):
                del self.out_of_range[job.id]
            elif run.settled:
                plan.resize(run, min(max(run.workers, low), high))
        moves, self._moves = self._moves, []
        for asked in moves:
            found = self.jobs.get(asked.job)
            if found is not None and found.run is not None:
                plan.move(found.run, asked.node)
