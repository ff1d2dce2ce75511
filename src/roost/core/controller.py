"""The controller: state ← event; plan ← policy(state); actions ← commit(plan).

It does no I/O and reads no clock: time arrives with events. ``handle`` is the only way in. A
driver (the simulator's heap, the live loop) feeds it events, performs the actions it returns, and
calls it again at ``wake_at``.

    handle(events)   1. fold each event into the state
                     2. if one of them may change a decision, let the policy write on a plan
                     3. make the plan binding: runs begin, change or leave; return the actions

Between a decision and its effect stand the runs that still leave: policies plan on what is *free*
(stops under way count as done), and a run whose devices are not *idle* yet is *reserved* until the
last of those it waits for has gone.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias, assert_never

from roost.core.actions import Action, Launch, Migrate, Resize, Resume, Stop, Suspend
from roost.core.allocation import Allocation, beyond
from roost.core.decisions import Decision, Evict, Place, Reshape, SetAside
from roost.core.events import (
    CancelRequested,
    Deleted,
    Event,
    Exited,
    GpuFailed,
    GpuRestored,
    MigrateRequested,
    NodeJoined,
    NodeLost,
    Outcome,
    Progressed,
    QueueChanged,
    QueueDeleted,
    Resized,
    ResumeRequested,
    ScaleRequested,
    Started,
    Submitted,
    Suspended,
    SuspendRequested,
    Woke,
)
from roost.core.history import History
from roost.core.ledger import Ledger
from roost.core.node import Node
from roost.core.occupancy import Occupancy, uses
from roost.core.plan import Placer, Plan
from roost.core.reasons import Cause, Explanation, Reason
from roost.core.spec import JobId, QueueId, QueueSpec, RunId
from roost.core.state import Job, JobState, Queue, Run, needs
from roost.core.waiting import Waiting
from roost.errors import Conflict, Fatal, NotFound, RoostError

#: Decides who runs where, by writing on a plan.
Policy: TypeAlias = Callable[[Plan], None]

_ENDS = {
    Outcome.SUCCEEDED: JobState.SUCCEEDED,
    Outcome.FAILED: JobState.FAILED,
    Outcome.CANCELLED: JobState.CANCELLED,
}


class Core:
    """The scheduling core: one policy, one placer, and everything they know."""

    def __init__(self, policy: Policy, placer: Placer) -> None:
        self.policy = policy
        self.now = -math.inf
        self.wake_at = math.inf
        self.jobs: dict[JobId, Job] = {}
        self.runs: dict[RunId, Run] = {}
        self.queues: dict[QueueId, Queue] = {}
        self.ledger = Ledger()
        self.occupancy = Occupancy(self.ledger)
        self.waiting = Waiting()
        #: Jobs that were submitted, and jobs that are over, also those that are forgotten.
        self.submitted = 0
        self.finished = 0
        #: Failed jobs that have to wait for their next try: when, number, job.
        self.backing_off: list[tuple[float, int, Job]] = []
        #: Jobs whose run has fewer or more workers than its user now wants.
        self.misfits: dict[JobId, Job] = {}
        self.history = History()
        #: What the last ``handle`` decided, for the journal.
        self.decisions: list[Decision] = []
        #: Jobs that lost their reservation in the last ``handle``, for whom there is no action.
        self.taken_back: list[JobId] = []
        self.memo: dict[str, Any] = {}
        self._actions: list[Action] = []
        self._replan: Event | None = None
        self._moves: list[MigrateRequested] = []
        self._judged_at = -1
        self._plan = Plan(
            self.ledger,
            self.waiting,
            self.jobs,
            self.runs,
            self.queues,
            placer,
            self.memo,
            self.history.service,
        )

    # -- the way in ----------------------------------------------------------------------------

    def handle(self, *events: Event) -> list[Action]:
        """Fold a batch of events, decide once, and say what to do.

        An event that cannot be (a second job of one name, a node that nobody knows) raises
        ``Conflict`` or ``NotFound`` and changes nothing; those before it in the batch stand, and
        what follows from them comes with the next call.
        """
        if self.taken_back:
            self.taken_back = []
        self._fold(events)
        if self._replan is None:
            self.decisions = []
        else:
            cause, self._replan = self._replan, None
            plan = self._plan
            plan.begin(self.now)
            if self.wake_at <= self.now:
                self.wake_at = math.inf
            self._serve_users(plan)
            self.policy(plan)
            plan.close()
            self.decisions = plan.decisions
            self.waiting.returned.clear()
            stamp = self.ledger.stamp
            if plan.said or self.waiting.opened or stamp != self._judged_at:
                plan.judge()
                self._judged_at, self.waiting.opened = stamp, False
            self.wake_at = min(self.wake_at, plan.wake_at)
            if self.decisions:
                self._commit(self.decisions, cause)
            self.waiting.tidy(self.now)
        if self.backing_off:
            self.wake_at = min(self.wake_at, self.backing_off[0][0])
        actions, self._actions = self._actions, []
        return actions

    def refold(self, events: Iterable[Event], decisions: Iterable[Decision]) -> list[Action]:
        """Fold a batch as the journal has it: the policy is not asked again."""
        self._fold(events)
        self._moves.clear()
        cause, self._replan = self._replan, None
        plan = self._plan
        plan.begin(self.now)
        for decision in decisions:
            self._write(plan, decision)
        plan.close()
        self._commit(plan.decisions, cause)
        self.wake_at = self.now  # what the policy asked for is not in the journal
        actions, self._actions = self._actions, []
        return actions

    def explain(self, job_id: JobId, *, limit: int = 20) -> Explanation | None:
        """Why a job waits and who goes first; None when it does not wait."""
        job = self.job(job_id)
        if not job.waiting:
            return None
        ahead: list[JobId] = []
        for other in self.waiting:
            if other is job or len(ahead) == limit:
                break
            ahead.append(other.id)
        reason = self.waiting.line_of(job).reason
        if job_id in self._plan.promises:
            text, starts_at = self._plan.promises[job_id]
            reason = Reason(reason.cause, text, starts_at)
        return Explanation(reason, tuple(ahead))

    def job(self, job_id: JobId) -> Job:
        """The job of that name."""
        try:
            return self.jobs[job_id]
        except KeyError:
            msg = f"no job {job_id!r}"
            raise NotFound(msg) from None

    # -- 1. events -----------------------------------------------------------------------------

    def _fold(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.time < self.now:
                msg = f"time ran backwards: {event} after {self.now}"
                raise Fatal(msg)
            before, self.now = self.now, event.time
            try:
                matters = self._observe(event)
            except RoostError:
                self.now = before  # it never was
                raise
            if matters and self._replan is None:
                self._replan = event
            if self.backing_off and self.backing_off[0][0] <= self.now:
                self._try_again(event)

    def _observe(self, event: Event) -> bool:  # noqa: C901, PLR0912 - one case per event
        """Fold one event; say whether it may change a decision."""
        match event:
            case Submitted():
                return self._submitted(event)
            case Started():
                return self._started(event)
            case Exited():
                return self._exited(event)
            case Progressed():
                return self._progressed(event)
            case Resized():
                return self._resized(event)
            case Suspended():
                return self._suspended(event)
            case Woke():
                return True
            case CancelRequested():
                return self._cancel(event)
            case SuspendRequested():
                return self._hold_back(event)
            case ResumeRequested():
                return self._let_go(event)
            case ScaleRequested():
                return self._scale(event)
            case MigrateRequested():
                return self._migrate(event)
            case Deleted():
                return self._delete(event)
            case NodeJoined():
                self.ledger.join(event.node)
                return True
            case NodeLost():
                self._lose(self.ledger.lose(event.node), event, f"node {event.node} was lost")
                return True
            case GpuFailed():
                node = self.ledger.set_health(event.node, event.gpu, healthy=False)
                why = f"GPU {event.gpu} of node {event.node} failed"
                self._lose(node, event, why, event.gpu)
                return True
            case GpuRestored():
                self.ledger.set_health(event.node, event.gpu, healthy=True)
                return True
            case QueueChanged():
                return self._queue_changed(event)
            case QueueDeleted():
                return self._queue_deleted(event)
            case _:
                assert_never(event)

    def _submitted(self, event: Submitted) -> bool:
        if event.job in self.jobs:
            msg = f"job {event.job!r} exists already"
            raise Conflict(msg)
        queue = self._queue(event.spec.queue)
        expected = self.history.expected_s(event.spec)
        job = Job(event.job, self.submitted, event.spec, queue, event.time, expected)
        self.submitted += 1
        self.jobs[event.job] = job
        self.waiting.join(job, event.time)
        return True

    def _started(self, event: Started) -> bool:
        run = self.runs.get(event.run)
        if run is None or run.started_at is not None or run.parked or run.after:
            return False
        job = run.job
        run.started_at = run.measured_at = run.changed_at = event.time
        run.resuming = False
        if job.started_at is None:
            job.started_at = event.time
        run.foresee(self.now)
        self._touch(run)
        if run.stopping is None:
            job.state = JobState.RUNNING
            if job.held:
                self._set_aside(run, event)
        return self._plan.awaits_starts and self.waiting.count > 0

    def _progressed(self, event: Progressed) -> bool:
        run = self.runs.get(event.run)
        if run is not None and run.started_at is not None and event.rate > 0:
            run.account(self.now)
            run.done_s, run.rate = event.done_s, event.rate
            run.foresee(self.now)
            self._touch(run)
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
        for_good = outcome is not Outcome.FAILED or event.final or self._retries_spent(job)
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
        job = run.job
        run.account(self.now)
        grown = run.target.workers / run.workers
        self.occupancy.settle(run, run.target)
        run.rate *= grown
        run.target = None
        run.changed_at = event.time
        run.foresee(self.now)
        self._touch(run)
        self._left(run, event)
        job.resizes += 1
        if run.stopping is None:
            job.state = JobState.RUNNING
            if job.held:
                self._set_aside(run, event)
        return True

    def _suspended(self, event: Suspended) -> bool:
        run = self.runs.get(event.run)
        if run is None or not run.suspending:
            return False
        job = run.job
        run.account(self.now)
        self.occupancy.settle(run, None)
        run.suspending, run.suspended, run.stopping = False, True, None
        run.started_at = None
        run.done_s = job.saved_s = event.done_s
        job.state = JobState.SUSPENDED
        self._left(run, event)
        if job.cancelling:
            self._actions.append(Stop(run.id, "cancelled", event))
        elif not job.held:
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
        return True

    def _scale(self, event: ScaleRequested) -> bool:
        job = self.job(event.job)
        if job.state.over or job.cancelling:
            msg = f"job {job.id!r} is over or about to be: it cannot be scaled"
            raise Conflict(msg)
        spec = replace(job.spec, workers=event.workers)  # refuses an impossible range
        # Work is counted in seconds at the least workers (docs/decisions/0011): so is what is done.
        unit = job.spec.workers.min / event.workers.min
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
            self.misfits[job.id] = job
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

    def _try_again(self, event: Event) -> None:
        """Let those wait again whose back-off is over."""
        while self.backing_off and self.backing_off[0][0] <= self.now:
            at, _, job = heapq.heappop(self.backing_off)
            due = job.not_before == at and job.state is JobState.QUEUED
            if due and job.run is None and not job.waiting:
                self.waiting.join(job, self.now)
                self._replan = self._replan or event

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

    # -- 2. what users asked for, before the policy has its say ---------------------------------

    def _serve_users(self, plan: Plan) -> None:
        for job in list(self.misfits.values()):
            run = job.run
            low, high = job.spec.workers
            if run is None or (run.target is None and low <= run.workers <= high):
                del self.misfits[job.id]
            elif run.settled:
                plan.resize(run, min(max(run.workers, low), high))
        moves, self._moves = self._moves, []
        for asked in moves:
            found = self.jobs.get(asked.job)
            if found is not None and found.run is not None:
                plan.move(found.run, asked.node)

    # -- 3. decisions --------------------------------------------------------------------------

    def _write(self, plan: Plan, decision: Decision) -> None:
        job = self.job(decision.job)
        match decision:
            case Place():
                plan.place_at(job, decision.allocation)
            case Reshape():
                plan.reshape(self._run_of(job), decision.allocation)
            case Evict():
                plan.evict(self._run_of(job), decision.reason)
            case SetAside():
                plan.suspend(self._run_of(job), decision.reason)
            case _:
                assert_never(decision)

    def _commit(self, decisions: Iterable[Decision], cause: Event | None) -> None:
        """Make a plan binding. Stops come first, so that what follows knows whom it waits for."""
        later: list[Place | Reshape] = []
        for decision in decisions:
            match decision:
                case Evict() | SetAside():
                    self._begin_to_leave(decision, cause)
                case Place() | Reshape():
                    later.append(decision)
                case _:
                    assert_never(decision)
        reshapes = [d for d in later if isinstance(d, Reshape)]
        for reshape in reshapes:
            run = self._run_of(self.jobs[reshape.job])
            self.occupancy.leave(run, beyond(run.allocation, reshape.allocation))
        for reshape in reshapes:
            self._begin_reshape(self._run_of(self.jobs[reshape.job]), reshape.allocation, cause)
        for decision in later:
            if isinstance(decision, Place):
                self._begin_run(self.jobs[decision.job], decision.allocation, cause)

    def _begin_to_leave(self, decision: Evict | SetAside, cause: Event | None) -> None:
        job = self.jobs[decision.job]
        run = self._run_of(job)
        job.preemptions += 1
        run.stopping = decision.reason
        self.occupancy.leave(run, run.allocation.parts)
        if isinstance(decision, SetAside):
            run.suspending = True
            self._actions.append(Suspend(run.id, decision.reason, cause))
        else:
            self._actions.append(Stop(run.id, decision.reason, cause))

    def _begin_reshape(self, run: Run, target: Allocation, cause: Event | None) -> None:
        run.job.state = JobState.RESIZING
        run.after = self.occupancy.in_the_way(beyond(target, run.allocation), run)
        self.occupancy.expect(run, target)
        if not run.after:
            self._go(run, cause)

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
        run.rate = run.workers / job.spec.workers.min
        run.after = self.occupancy.in_the_way(allocation.parts, run)
        if run.after:
            run.foresee(self.now)
        else:
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

    # -- leaving -------------------------------------------------------------------------------

    def _lose(self, node: Node, event: Event, why: str, gpu: int | None = None) -> None:
        """End every run that a failure hit."""
        for run in list(node.runs):
            if run.stopping is None and (gpu is None or uses(run, node, gpu)):
                self._end(run, event, why)

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
        """Suspend a run because its user wants it."""
        self._vacate(run)
        run.stopping, run.suspending = "suspended by its user", True
        self._actions.append(Suspend(run.id, run.stopping, event))

    def _vacate(self, run: Run) -> None:
        """Promise to others what a run will give up soon."""
        self._release(run)
        held = (*run.allocation.parts, *(run.target.parts if run.target else ()))
        run.target, run.after = None, set()
        self.occupancy.leave(run, held)

    def _take_back(self, run: Run, event: Event) -> None:
        """A reserved run gives back what it was promised; its job waits again."""
        job = run.job
        self.taken_back.append(job.id)
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

    # -- small things --------------------------------------------------------------------------

    def _queue(self, queue_id: QueueId) -> Queue:
        queue = self.queues.get(queue_id)
        if queue is None:
            queue = self.queues[queue_id] = Queue(QueueSpec(queue_id))
        return queue

    @staticmethod
    def _run_of(job: Job) -> Run:
        if job.run is None:
            msg = f"job {job.id} does not run"
            raise Fatal(msg)
        return job.run

    def _touch(self, run: Run) -> None:
        """What is known of a run changed, and so what can be said of its nodes."""
        for part in run.allocation.parts:
            self.ledger.touch(self.ledger.nodes[part.node])

    @staticmethod
    def _retries_spent(job: Job) -> bool:
        return job.failures > job.spec.max_retries
