"""Runs in motion: how they begin, change, shrink, step aside and leave.

Every change is an action for the world; the books change at once, and what a run still uses is
noted as being left. A run whose new devices are not idle yet is *reserved* until those it waits for
have gone.
"""

from __future__ import annotations

import heapq

from roost.core.actions import Action, Launch, Migrate, Resize, Resume, Stop, Suspend
from roost.core.allocation import Allocation, beyond, survivors, without
from roost.core.cluster_state import ClusterState
from roost.core.events import Event
from roost.core.node import Node
from roost.core.occupancy import pinned, uses
from roost.core.reasons import Cause
from roost.core.spec import JobSpec, RunId
from roost.core.state import Job, JobState, Run, needs


class Lifecycle(ClusterState):
    """The ways in which a run comes, changes and goes."""

    # -- beginning and changing ----------------------------------------------------------------

    def _begin_run(self, job: Job, allocation: Allocation, cause: Event | None) -> None:
        run = job.run
        job.state = JobState.STARTING
        if run is not None and run.suspended:
            run.resuming = True
            run.placed_at = self.now
        else:
            job.attempts += 1
            run = Run(
                RunId(job.id, job.attempts), job, allocation, 0, 0, self.now, job.saved_s, 1.0
            )
            job.run = self.runs[run.id] = run
        self.occupancy.settle(run, allocation)
        self._touch(run)
        run.rate = job.speed_up(run.workers, job.spec.workers.min)
        run.after = self.occupancy.in_the_way(allocation.parts, run)
        if run.after:
            run.foresee(self.now)
        else:
            self._go(run, cause)

    def _begin_reshape(self, run: Run, target: Allocation, cause: Event | None) -> None:
        run.job.state = JobState.RESIZING
        run.after = self.occupancy.in_the_way(beyond(target, run.allocation), run)
        self.occupancy.expect(run, target)
        if not run.after:
            self._go(run, cause)

    def _go(self, run: Run, cause: Event | None) -> None:
        """Everyone who was in the way has left: let the run begin or change."""
        action: Action
        if run.target is not None:
            same = run.target.workers == run.workers
            action = (Migrate if same else Resize)(run.id, run.target, cause)
        else:
            run.job.waits[Cause.CAPACITY] += self.now - run.placed_at  # for others to leave
            run.foresee(self.now)
            if run.resuming:
                run.suspended = False
                action = Resume(run.id, run.allocation, cause)
            else:
                action = Launch(run.id, run.job.spec, run.allocation, cause)
        self._actions.append(action)

    def _up_again(self, run: Run, event: Event) -> None:
        """A run works, unless it has to leave, or its user wanted it to stand aside."""
        if run.stopping is None:
            run.job.state = JobState.RUNNING
            if run.job.held:
                self._set_aside(run, event)

    # -- failures ------------------------------------------------------------------------------

    def _lose(self, node: Node, event: Event, why: str, gpu: int | None = None) -> None:
        """End every run that a failure hit, or shrink it to the workers that are left."""
        for run in list(node.runs):
            if run.stopping is None and (gpu is None or uses(run, node, gpu)):
                left = survivors(run.allocation, node.id, gpu)
                if run.settled and goes_on(run.job.spec, left):
                    self._shrink(run, left, event)
                elif not _on_its_way_out(run, node, gpu):
                    self._end(run, event, why)

    def _shrink(self, run: Run, left: Allocation, event: Event) -> None:
        """Let a run go on with less: what it loses is given back at once."""
        self._give_back(run, left)
        self.occupancy.leave(run, beyond(run.allocation, left))
        run.target = left
        run.job.state = JobState.RESIZING
        self._actions.append(Resize(run.id, left, event))

    def _give_back(self, run: Run, left: Allocation) -> None:
        """Take from a run, in the books, all but what is left of its allocation."""
        job = run.job
        for part in without(run.allocation, left) or ():
            self.ledger.release(part, needs(job, part))
        job.queue.charge(job, run.allocation, -1)
        job.queue.charge(job, left)

    # -- leaving -------------------------------------------------------------------------------

    def _end(self, run: Run, event: Event, why: str) -> None:
        """Stop a run for a reason outside any plan; one that never began is just taken back."""
        if run.stopping is not None:
            return
        if run.after and run.target is None:
            self._take_back(run, event)
            return
        self._vacate(run)
        run.stopping = why
        self._actions.append(Stop(run.id, why, event))

    def _set_aside(self, run: Run, event: Event) -> None:
        """Suspend a run because its user wants it; one that is pinned keeps its place."""
        why = "suspended by its user"
        run.suspending = True
        if pinned(run, self.ledger):
            run.frozen = True
        else:
            self._vacate(run)
            run.stopping = why
        self._actions.append(Suspend(run.id, why, event))

    def _thaw(self, run: Run, event: Event) -> None:
        """Let a run that was frozen in its place go on there."""
        run.resuming = True
        run.placed_at = self.now
        run.job.state = JobState.STARTING
        self._go(run, event)

    def _vacate(self, run: Run) -> None:
        """Promise to others what a run will give up soon."""
        self._release(run)
        held = (*run.allocation.parts, *(run.target.parts if run.target else ()))
        run.target, run.after = None, set()
        self.occupancy.leave(run, held)

    def _take_back(self, run: Run, event: Event) -> None:
        """A reserved run gives back what it was promised; its job waits again."""
        job = run.job
        self.withdrawn.append(job.id)
        job.waits[Cause.CAPACITY] += self.now - run.placed_at
        self._release(run)
        self.occupancy.settle(run, None)
        run.after = set()
        if run.resuming:
            run.resuming = False
            job.state = JobState.SUSPENDED
            if job.cancelling:
                self._actions.append(Stop(run.id, "cancelled", event))
            elif not job.held:
                self.waiting.join(job, event.time)
            return
        del self.runs[run.id]
        job.run = None
        job.attempts -= 1
        if job.cancelling:
            self._finish(job, JobState.CANCELLED)
        else:
            self._requeue(job)

    def _release(self, run: Run) -> None:
        """Give back in the books what a run holds, unless that was done when it had to leave."""
        if run.stopping is None and not run.parked:
            booked = run.target or run.allocation
            for part in booked.parts:
                self.ledger.release(part, needs(run.job, part))
            run.job.queue.charge(run.job, booked, -1)

    def _left(self, run: Run, event: Event) -> None:
        """A run holds nothing of others any more: those it kept waiting may go."""
        for waiter in self.occupancy.left(run):
            self._go(waiter, event)

    def _forget(self, run: Run, event: Event) -> None:
        if self._actions:  # nobody is left to change or to go on
            self._actions = [
                action
                for action in self._actions
                if action.run != run.id or not isinstance(action, Resize | Resume)
            ]
        del self.runs[run.id]
        run.after = set()
        self.occupancy.settle(run, None)
        self._left(run, event)

    def _finish(self, job: Job, state: JobState) -> None:
        job.state, job.finished_at = state, self.now
        self.finished += 1
        self.history.add(job, succeeded=state is JobState.SUCCEEDED)

    def _requeue(self, job: Job) -> None:
        if job.held:
            job.state = JobState.SUSPENDED
            return
        job.state = JobState.QUEUED
        if job.not_before > self.now:
            heapq.heappush(self.backing_off, (job.not_before, job.seq, job))
        else:
            self.waiting.join(job, self.now)


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
