"""What the world says of runs, folded into the state.

A report that no longer fits (of an attempt that is over, of a change that was never asked for, or
for the second time) is old news and changes nothing.
"""

from __future__ import annotations

from roost.core.actions import Stop
from roost.core.allocation import Allocation, without
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
from roost.core.history import Spending
from roost.core.lifecycle import Lifecycle, whole_roles
from roost.core.observed import Observed
from roost.core.state import Job, JobState, Run

_ENDS = {
    Outcome.SUCCEEDED: JobState.SUCCEEDED,
    Outcome.FAILED: JobState.FAILED,
    Outcome.CANCELLED: JobState.CANCELLED,
}


class Reports(Lifecycle):
    """Folds reports on runs; each fold says whether it may change a decision."""

    def _started(self, event: Started) -> bool:
        run = self.runs.get(event.run)
        if run is None or run.started_at is not None or run.parked or run.after:
            return False
        if run.frozen and not run.resuming:
            return False
        job = run.job
        if event.took_s is not None:
            what = Spending.RESUME if run.resuming else Spending.START
            self.history.spend(job.spec, what, event.took_s)
        run.started_at = run.measured_at = run.changed_at = event.time
        run.resuming = run.frozen = False
        if job.started_at is None:
            job.started_at = event.time
        run.foresee(self.now)
        self._touch(run)
        self._up_again(run, event)
        return self._plan.awaits_starts and self.waiting.count > 0

    def _progressed(self, event: Progressed) -> bool:
        run = self.runs.get(event.run)
        if run is not None and run.started_at is not None and event.rate > 0:
            run.account(self.now)
            run.done_s, run.rate = event.done_s, event.rate
            run.foresee(self.now)
            self._touch(run)
        return False

    def _measured(self, event: Measured) -> bool:
        run = self.runs.get(event.run)
        if run is not None:
            job = run.job
            self.history.measure(job.spec, event)
            if job.observed is None:
                job.observed = Observed()
            job.observed.add(event)
        return False

    def _exited(self, event: Exited) -> bool:
        run = self.runs.get(event.run)
        if run is None:
            return False
        job = run.job
        if job.waiting:  # it was suspended
            self.waiting.leave(job, event.time)
        run.account(self.now)
        self._release(run)
        self._forget(run, event)
        job.run = None
        job.saved_s = event.saved_s
        outcome = Outcome.CANCELLED if job.cancelling else event.outcome
        if outcome is Outcome.FAILED:
            job.failures += 1
        for_good = outcome is not Outcome.FAILED or event.final or _retries_spent(job)
        if outcome in _ENDS and for_good:
            self._finish(job, _ENDS[outcome])
        else:
            job.not_before = event.time + event.delay_s if event.delay_s > 0 else 0.0
            self._requeue(job)
        return True

    def _resized(self, event: Resized) -> bool:
        run = self.runs.get(event.run)
        if run is None or run.target is None or run.after:
            return False
        self.history.spend(run.job.spec, Spending.RESIZE, event.took_s)
        self.history.spend(run.job.spec, Spending.PAUSE, event.pause_s)
        self._change_size(run, run.target)
        self._left(run, event)
        self._up_again(run, event)
        return True

    def _shrank(self, event: Shrank) -> bool:
        run = self.runs.get(event.run)
        if run is None or run.stopping is not None or run.target is not None or run.parked:
            return False
        job, left = run.job, event.allocation
        gone = without(run.allocation, left)
        if run.after or run.suspending or not gone or not left.workers:
            return False
        if not whole_roles(job.spec, left):
            return False
        self._give_back(run, left)
        self._change_size(run, left)
        low, high = job.spec.workers
        if not low <= left.workers <= high:
            self.out_of_range[job.id] = job
        return True

    def _suspended(self, event: Suspended) -> bool:
        run = self.runs.get(event.run)
        if run is None or not run.suspending:
            return False
        job = run.job
        self.history.spend(job.spec, Spending.SUSPEND, event.took_s)
        run.account(self.now)
        run.suspending, run.started_at = False, None
        run.done_s = job.saved_s = event.done_s
        if run.frozen:
            self._froze(run, event)
            return True
        self.occupancy.settle(run, None)
        run.suspended, run.stopping = True, None
        job.state = JobState.SUSPENDED
        self._left(run, event)
        if job.cancelling:
            self._actions.append(Stop(run.id, "cancelled", event))
        elif not job.held:
            self.waiting.join(job, event.time)
        return True

    # -- what they have in common --------------------------------------------------------------

    def _froze(self, run: Run, event: Event) -> None:
        """A run stands still where it is: it keeps its place, and nobody waits for it."""
        run.foresee(self.now)
        self._touch(run)
        run.job.state = JobState.SUSPENDED
        if run.still and not run.job.held:
            self._thaw(run, event)

    def _change_size(self, run: Run, allocation: Allocation) -> None:
        """From now on a run holds this, and goes at the pace of so many workers."""
        run.account(self.now)
        grown = run.job.speed_up(allocation.workers, run.workers)
        self.occupancy.settle(run, allocation)
        run.rate *= grown
        run.target = None
        run.changed_at = self.now
        run.foresee(self.now)
        self._touch(run)
        run.job.resizes += 1


def _retries_spent(job: Job) -> bool:
    return job.failures > job.spec.max_retries
