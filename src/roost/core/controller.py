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
from typing import TypeAlias, assert_never

from roost.core.actions import Action, Stop, Suspend
from roost.core.allocation import beyond
from roost.core.decisions import Decision, Evict, Place, Reshape, SetAside
from roost.core.events import (
    Adopted,
    CancelRequested,
    Deleted,
    Event,
    Exited,
    GpuFailed,
    GpuRestored,
    Measured,
    MigrateRequested,
    NodeChanged,
    NodeJoined,
    NodeLost,
    PoolChanged,
    Progressed,
    Protected,
    QueueChanged,
    QueueDeleted,
    Resized,
    ResumeRequested,
    ScaleRequested,
    Shrank,
    Started,
    Submitted,
    Suspended,
    SuspendRequested,
    Woke,
)
from roost.core.folding.adoption import Adoption
from roost.core.folding.nodes import Machines
from roost.core.folding.reports import Reports
from roost.core.folding.requests import Requests
from roost.core.plan import Placer, Plan
from roost.core.reasons import NO_MATCH, Cause, Explanation, Reason, other_way
from roost.core.spec import JobId
from roost.core.state import JobState
from roost.errors import Fatal, RoostError

#: Decides who runs where, by writing on a plan.
Policy: TypeAlias = Callable[[Plan], None]


class Core(Reports, Requests, Machines, Adoption):
    """The scheduling core: one policy, one placer, and everything they know."""

    def __init__(self, policy: Policy, placer: Placer) -> None:
        super().__init__(placer)
        self.policy = policy
        self._judged_at = -1

    # -- the way in ----------------------------------------------------------------------------

    def handle(self, *events: Event) -> list[Action]:
        """Fold a batch of events, decide once, and say what to do.

        An event that cannot be (a second job of one name, a node that nobody knows) raises
        ``Conflict`` or ``NotFound`` and changes nothing; those before it in the batch stand, and
        what follows from them comes with the next call.
        """
        if self.withdrawn:
            self.withdrawn = []
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

    def fold(self, event: Event) -> None:
        """Fold one event and decide nothing: the next ``handle`` does.

        For a driver that has to know which of many events cannot be.
        """
        self._fold((event,))

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
        line = self.waiting.line_of(job)
        reason = line.reason
        if line.picky and line.said is None and self._plan.matches_nobody(line.shape):
            reason = reason._replace(text=NO_MATCH)
        elif reason.cause is Cause.FRAGMENTATION and line.said is None:
            text = other_way(self.ledger, line.shape.resources)
            reason = reason._replace(text=text or reason.text)
        if job_id in self._plan.latest_starts:
            text, starts_at = self._plan.latest_starts[job_id]
            reason = Reason(reason.cause, text, starts_at)
        return Explanation(reason, tuple(ahead))

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
            case Measured():
                return self._measured(event)
            case Resized():
                return self._resized(event)
            case Shrank():
                return self._shrank(event)
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
            case Adopted():
                return self._adopted(event)
            case Protected():
                return self._protected(event)
            case NodeJoined():
                return self._node_joined(event)
            case NodeLost():
                return self._node_lost(event)
            case NodeChanged():
                return self._node_changed(event)
            case PoolChanged():
                return self._pool_changed(event)
            case GpuFailed():
                return self._gpu_failed(event)
            case GpuRestored():
                return self._gpu_restored(event)
            case QueueChanged():
                return self._queue_changed(event)
            case QueueDeleted():
                return self._queue_deleted(event)
            case _:
                assert_never(event)

    def _try_again(self, event: Event) -> None:
        """Let those wait again whose back-off is over."""
        while self.backing_off and self.backing_off[0][0] <= self.now:
            at, _, job = heapq.heappop(self.backing_off)
            due = job.not_before == at and job.state is JobState.QUEUED
            if due and job.run is None and not job.waiting:
                self.waiting.join(job, self.now)
                self._replan = self._replan or event

    # -- 2. decisions --------------------------------------------------------------------------

    def _write(self, plan: Plan, decision: Decision) -> None:
        job = self.job(decision.job)
        match decision:
            case Place():
                plan.place_at(job, decision.allocation)
            case Reshape():
                plan.reshape(self._run_of(job), decision.allocation, decision.reason)
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
