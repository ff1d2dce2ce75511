"""The controller: state ← event; plan ← policy(state); actions ← commit(plan).

It does no I/O and reads no clock: time arrives with events. ``handle`` is the only way in. A
driver (the simulator's heap, the live loop) feeds it events, performs the actions it returns, and
calls it again at ``wake_at``.

    handle(events)   1. fold each event into the state
                     2. if one of them may change a decision, let the policy write on a plan
                     3. make the plan binding: runs begin, change or leave; return the actions

Between a decision and its effect stand the runs that still leave: policies plan on what is *free*
(stops under way count as done), and a run with devices that are not *idle* yet is *reserved* until
the last of those it waits for has gone.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeAlias, assert_never

from roost.core import lifecycle
from roost.core.actions import Action
from roost.core.allocation import beyond
from roost.core.cells.keeping import keep_promises
from roost.core.cells.telling import tell
from roost.core.cluster_state import ClusterState
from roost.core.decisions import Decision, Evict, Place, Reclaim, Reshape, SetAside
from roost.core.draining import drain
from roost.core.events import Event, Submitted
from roost.core.folding.dispatch import fold
from roost.core.folding.maintenance import pass_time
from roost.core.folding.requests import serve
from roost.core.plan import Placer, Plan
from roost.core.reasons import (
    NO_MATCH,
    Cause,
    Explanation,
    Reason,
    kept_back,
    other_use,
    other_way,
    short_of,
    too_late,
)
from roost.core.spec import JobId
from roost.core.state import Job, JobState
from roost.core.waiting import Line
from roost.errors import Fatal, RoostError

#: Decides which jobs run and where, by writing on a plan. A policy may have a method ``ignores``,
#: which says of a plan and a job that has just come that there is nothing to decide: it stands
#: behind others that find no room.
Policy: TypeAlias = Callable[[Plan], None]

#: With more jobs waiting than that, a policy is not asked about newcomers that it ignores.
_DEEP = 1000


class Core:
    """The scheduling core: one policy, one placer, and the state that they decide on.

    ``jobs``, ``runs``, ``ledger`` and the like are those of ``state``, to be read, not changed.
    """

    def __init__(self, policy: Policy, placer: Placer) -> None:
        self.policy = policy
        self.state = state = ClusterState()
        self.jobs = state.jobs
        self.runs = state.runs
        self.queues = state.queues
        self.ledger = state.ledger
        self.occupancy = state.occupancy
        self.waiting = state.waiting
        self.history = state.history
        self.backing_off = state.backing_off
        self.out_of_range = state.out_of_range
        #: When to call ``handle`` next, whatever happens; a driver may ask for later.
        self.wake_at = math.inf
        #: What the last ``handle`` decided, for the journal.
        self.decisions: list[Decision] = []
        #: The policy's notes between its decisions.
        self.memo: dict[str, Any] = {}
        #: The first event since the last decision that may change it.
        self.replan: Event | None = None
        self._judged_at = -1
        #: What nodes were short of at some moment of the ledger, by line.
        self._shortages: tuple[int, dict[Line, str]] = (-1, {})
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

    # -- what there is -------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time of the last event."""
        return self.state.now

    @property
    def submitted(self) -> int:
        """How many jobs were submitted, also those that are forgotten."""
        return self.state.submitted

    @property
    def finished(self) -> int:
        """How many jobs are over, also those that are forgotten."""
        return self.state.finished

    @property
    def withdrawn(self) -> list[JobId]:
        """Jobs that lost their reservation in the last ``handle``."""
        return self.state.withdrawn

    def job(self, job_id: JobId) -> Job:
        """The job of that name."""
        return self.state.job(job_id)

    # -- the way in ----------------------------------------------------------------------------

    def handle(self, *events: Event) -> list[Action]:
        """Fold a batch of events, decide once, and say what to do.

        An event that cannot be (a second job of one name, an unknown node) raises
        ``Conflict`` or ``NotFound`` and changes nothing; those before it in the batch stand, and
        what follows from them comes with the next call.
        """
        state = self.state
        if state.withdrawn:
            state.withdrawn = []
        asked = self.replan is not None
        self._fold(events)
        if not asked and self.waiting.count > _DEEP and self._is_ignored(events):
            self.replan = None
        if self.replan is None:
            self.decisions = []
        else:
            cause, self.replan = self.replan, None
            plan = self._plan
            plan.begin(now := state.now)
            state.awaits_starts = False
            if self.wake_at <= now:
                self.wake_at = math.inf
            if self.ledger.cordoned:
                drain(state, plan)
            serve(state, plan)
            keep_promises(plan)
            self.policy(plan)
            plan.close()
            state.awaits_starts = plan.awaits_starts
            self.decisions = plan.decisions
            self.waiting.returned.clear()
            stamp = self.ledger.stamp
            if plan.said or self.waiting.opened or stamp != self._judged_at:
                plan.judge()
                self._judged_at, self.waiting.opened = stamp, False
            self.wake_at = min(self.wake_at, plan.wake_at)
            if self.decisions:
                self._commit(self.decisions, cause)
            self.waiting.tidy(now)
        if self.backing_off:
            self.wake_at = min(self.wake_at, self.backing_off[0][0])
        for window in self.ledger.windows:
            due = window.ends_at if window.begun else window.starts_at
            self.wake_at = min(self.wake_at, due)
        actions, state.actions = state.actions, []
        return actions

    def fold(self, event: Event) -> None:
        """Fold one event and decide nothing: the next ``handle`` does.

        For a driver that has to know which of many events cannot be.
        """
        self._fold((event,))

    def refold(self, events: Iterable[Event], decisions: Iterable[Decision]) -> list[Action]:
        """Fold a batch as the journal has it: the policy is not asked again."""
        self._fold(events)
        state = self.state
        state.moves.clear()
        state.awaits_starts = False
        cause, self.replan = self.replan, None
        plan = self._plan
        plan.begin(state.now)
        for decision in decisions:
            self._write(plan, decision)
        plan.close()
        self._commit(plan.decisions, cause)
        self.wake_at = state.now  # what the policy asked for is not in the journal
        actions, state.actions = state.actions, []
        return actions

    def explain(self, job_id: JobId, *, limit: int = 20) -> Explanation | None:
        """Why a job waits and which jobs go first; None when it does not wait.

        At most ``limit`` of those are named; where none is to be, they are not counted.
        """
        job = self.state.job(job_id)
        if not job.waiting:
            return None
        lines = self.waiting.ahead(job) if limit else []
        first = islice(heapq.merge(*lines), limit)
        line = self.waiting.line_of(job)
        reason = line.reason
        account = job.queue.account
        if reason.cause is Cause.QUOTA and account is not None and line.said is None:
            asked = account.asked(job.spec, job.spec.workers.min)
            reason = reason._replace(text=account.tell(asked, job.spec))
        elif line.needs_pool and line.said is None and self._plan.matches_nobody(line.shape):
            reason = reason._replace(text=NO_MATCH)
        elif reason.cause is Cause.FRAGMENTATION and line.said is None:
            need = line.shape.resources
            text = other_way(self.ledger, need) or self._short_of(line)
            text = text or other_use(self.ledger, need)
            reason = reason._replace(text=text or reason.text)
        lacks_room = reason.cause in (Cause.CAPACITY, Cause.FRAGMENTATION)
        fits = reason.cause in (Cause.TURN, Cause.FRAGMENTATION)
        if fits and (late := too_late(self.ledger, line.shape, self.now, job.remaining_s)):
            reason = reason._replace(text=late)
        if lacks_room and (closed := kept_back(self.ledger, line.shape)):
            reason = reason._replace(text=f"{reason.text}; {closed}")
        if self.ledger.cells is not None and (told := tell(self.ledger.cells, job.spec.queue)):
            reason = reason._replace(text=f"{reason.text}; {told}")
        if job_id in self._plan.latest_starts:
            text, starts_at = self._plan.latest_starts[job_id]
            reason = Reason(reason.cause, text, starts_at)
        return Explanation(reason, tuple(entry[2].id for entry in first), sum(map(len, lines)))

    def _short_of(self, line: Line) -> str:
        """What nodes are short of; said of many jobs of one shape, and worked out once for them."""
        if not line.needs_extras:
            return ""
        stamp = self.ledger.stamp
        if self._shortages[0] != stamp:
            self._shortages = stamp, {}
        known = self._shortages[1]
        if line not in known:
            known[line] = short_of(self.ledger, line.shape)
        return known[line]

    # -- 1. events -----------------------------------------------------------------------------

    def _fold(self, events: Iterable[Event]) -> None:
        state = self.state
        for event in events:
            if event.time < state.now:
                msg = f"time ran backwards: {event} after {state.now}"
                raise Fatal(msg)
            before, state.now = state.now, event.time
            try:
                matters = fold(state, event)
            except RoostError:
                state.now = before  # it never was
                raise
            if matters and self.replan is None:
                self.replan = event
            if self.backing_off and self.backing_off[0][0] <= state.now:
                self._try_again(event)
            if self.ledger.windows and pass_time(state):
                self.replan = self.replan or event
        if self.ledger.cells is not None:
            self.ledger.cells.refresh()

    def _is_ignored(self, events: Iterable[Event]) -> bool:
        """Whether all that happened is that jobs came which the policy ignores for now."""
        ignores = getattr(self.policy, "ignores", None)
        if ignores is None or self.wake_at <= self.state.now or self.waiting.opened:
            return False
        return all(
            isinstance(event, Submitted) and ignores(self._plan, self.jobs[event.job])
            for event in events
        )

    def _try_again(self, event: Event) -> None:
        """Let jobs wait again after their back-off."""
        now = self.state.now
        while self.backing_off and self.backing_off[0][0] <= now:
            at, _, job = heapq.heappop(self.backing_off)
            due = job.not_before == at and job.state is JobState.QUEUED
            if due and job.run is None and not job.waiting:
                self.waiting.join(job, now)
                self.replan = self.replan or event

    # -- 2. decisions --------------------------------------------------------------------------

    def _write(self, plan: Plan, decision: Decision) -> None:
        job = self.state.job(decision.job)
        match decision:
            case Place():
                if not plan.place_at(job, decision.allocation, decision.claims):
                    raise Fatal(f"the quota of queue {job.queue.spec.id} has no room for {job.id}")
            case Reshape():
                run = self.state.run_of(job.id)
                plan.reshape(run, decision.allocation, decision.reason, decision.claims)
            case Evict():
                run = self.state.run_of(job.id)
                plan.recall(run, decision.reason) or plan.evict(run, decision.reason)
            case SetAside():
                plan.suspend(self.state.run_of(job.id), decision.reason)
            case Reclaim():
                plan.reclaim(self.state.run_of(job.id), decision.claims)
            case _:
                assert_never(decision)

    def _commit(self, decisions: Iterable[Decision], cause: Event | None) -> None:
        """Make a plan binding."""
        state = self.state
        places: list[Place] = []
        reshapes: list[Reshape] = []
        # Stops come first, so that a run that begins knows which runs it waits for.
        for decision in decisions:
            match decision:
                case Evict() | SetAside():
                    lifecycle.begin_to_leave(state, decision, cause)
                case Place():
                    places.append(decision)
                case Reshape():
                    reshapes.append(decision)
                case Reclaim():
                    pass  # the books have it, and the world need not know
                case _:
                    assert_never(decision)
        for reshape in reshapes:
            run = state.run_of(reshape.job)
            state.occupancy.leave(run, beyond(run.allocation, reshape.allocation))
        for reshape in reshapes:
            lifecycle.begin_reshape(state, state.run_of(reshape.job), reshape.allocation, cause)
        for place in places:
            lifecycle.begin_run(state, self.jobs[place.job], place.allocation, cause)
