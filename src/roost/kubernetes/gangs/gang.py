"""A gang of pods that others made: Kubeflow's, a batch Job's, or one plain pod.

Its pods exist before it is placed; all that Roost does is to bind them, all or none, and to evict
them when they have to make room. It is submitted when it is complete, it starts when all its pods
are bound, and it is over when none of them is left alive: then whatever its owner makes next is a
new gang. While it lives it keeps its seats, and a new pod of it takes one that is vacant.

What was decided stands on the bound pods (``seat_plans``). The next leader finds it there and
goes on where the last one stopped.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from roost.core import (
    WORKER,
    Action,
    Adopted,
    CancelRequested,
    Deleted,
    Event,
    Exited,
    Job,
    JobId,
    JobSpec,
    Launch,
    NodeId,
    Outcome,
    Range,
    Run,
    ScaleRequested,
    Shrank,
    Started,
    Submitted,
)
from roost.core.allocation import seats
from roost.errors import InvalidSpec, RoostError
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.gangs import seat_plans
from roost.kubernetes.gangs.binding import AGAIN_S, GangBinder
from roost.kubernetes.gangs.pods import GangPods
from roost.kubernetes.gangs.rejections import NO_PAUSE, Pause
from roost.kubernetes.gangs.seat_plans import vacant
from roost.kubernetes.objects.pods import (
    attempt_of,
    created_at,
    is_over,
)

if TYPE_CHECKING:
    from roost.kubernetes.gangs.discovery import GangSource
    from roost.kubernetes.operator.workload import OperatorContext

_log = logging.getLogger(__name__)

#: How long the mirror may take to show what the server said.
_SOON_S = 0.2
#: So long a gang is where others are before it has to leave: its node may refuse it before.
_HOMELESS_S = 5.0


class PodGang:
    """One gang, between its pods and the core."""

    __slots__ = (
        *("_aside", "_binder", "_context", "_gives_way", "_homeless", "_literal", "_members"),
        *("_source", "_submitted_at", "_undo", "id", "problem", "since"),
    )

    def __init__(self, context: OperatorContext, job: JobId, source: GangSource) -> None:
        self.id, self._context, self._source = job, context, source
        self._members = GangPods(context, job)
        self._binder = GangBinder(context, self._members, source)
        #: Why it is not even submitted, or not to all nodes that match; empty if it is.
        self.problem = ""
        #: Since when it waits; 0: it does not.
        self.since = 0.0
        #: Nodes on which it has pods and no room.
        self._aside: tuple[NodeId, ...] = ()
        #: Take it where it is, whatever its plan says; undo it, since it cannot be completed.
        self._literal = False
        self._undo = False
        #: Another workload is where it has a vacant seat.
        self._gives_way = False
        #: Since when it has had no room where it is; 0: it has.
        self._homeless = 0.0
        #: When it was submitted; 0: it is not, or has seats.
        self._submitted_at = 0.0

    @property
    def pods(self) -> Mapping[str, Object]:
        """Its pods by uid."""
        return self._members.pods

    @property
    def over(self) -> bool:
        """Whether it has no pod left."""
        return self._members.over

    @property
    def kept_off(self) -> str:
        """Why filters keep it off some nodes; empty if they do not."""
        return self._members.kept_off

    def waiting(self) -> list[Object]:
        """Pods that wait to be bound."""
        return self._members.waiting()

    def pod_changed(self, old: Object | None, new: Object | None) -> None:
        """Note a pod as it is now."""
        self._members.pod_changed(old, new)
        if self._source.rejections.observe(old, new, self._context.now()):
            self._source.requeue_paused()
        if new is None and old is not None:
            self._source.gone(old["metadata"]["uid"])

    def contested(self, node: NodeId) -> None:
        """Others have no room on a node: give up what is vacant there."""
        job = self._context.core.jobs.get(self.id)
        if job is None or job.run is None or self._members.busy or job.run.after:
            return
        if any(
            seat.node == node for seat in vacant(job.run.allocation, self._members.seats.values())
        ):
            self._gives_way = True
            self._context.requeue(self.id)

    def pause(self, waits: Sequence[str] | None = None, now: float = 0.0) -> Pause:
        """What it respects since kubelets rejected pods of its owner, if some of its pods wait."""
        waits = self._members.split()[1] if waits is None else waits
        if not waits:
            return NO_PAUSE
        now = now or self._context.now()
        return self._source.rejections.pause(self._members.pods[waits[0]], now)

    # -- what became of it -----------------------------------------------------------------------

    def reconcile(self, now: float) -> Iterable[Event]:
        """What the core has to hear."""
        job = self._context.core.jobs.get(self.id)
        held, waits = self._members.split()
        if held:
            self._submitted_at = 0.0
        if job is None or job.state.over:
            events: Iterable[Event] = self._enter(held, waits, now)
        elif job.run is None or (job.run.after and job.run.started_at is None):
            events = self._wait(job, held, waits, now)
        else:
            events = self._live(job.run, held, waits, now)
        self._source.waits(self, now if waits and not self._members.seats else 0.0)
        return events

    def refused(self, event: Event, error: RoostError) -> None:
        """The core has no room where the gang is, or where it was meant to be."""
        if not isinstance(event, Adopted):
            _log.warning("%s: %s", self.id, error)
            return
        self._members.seats.clear()
        if not self._literal:
            self._literal = True
            self._context.requeue(self.id)
            return
        assert event.allocation is not None  # noqa: S101 - a queued job is never refused
        _log.info("%s has no room where it is: %s", self.id, error)
        self._step_aside(event.allocation.nodes)

    def _enter(self, held: list[str], waits: list[str], now: float) -> list[Event]:
        """It is not in the core: adopt it as it is, or submit it if it is complete."""
        if held:
            return self._adopt(held, waits, now)
        self._come_back()
        if not waits or self._members.busy:
            return []
        if now < self._binder.not_before:
            self.problem = self._binder.trouble
            self._context.requeue_at(self.id, self._binder.not_before)
            return []
        pause = self.pause(waits, now)
        self._members.shun(pause.shunned)
        if pause.changes_at:
            self._context.requeue_at(self.id, pause.changes_at)
        if now < pause.until:
            self.problem = pause.why
            self._context.requeue_at(self.id, pause.until)
            return []
        try:
            lacks = self._source.lacks(self, len(waits))
            waits = self._together(waits)
            if not lacks and self._members.is_filtered(waits):
                self._members.forget_needs()
                if not self._context.take_turn(self.id):
                    return []
            spec = None if lacks else self._members.spec(waits)
        except InvalidSpec as error:
            lacks, spec = str(error), None
        # Where it shuns nodes, that is why it waits, though it is submitted.
        self.problem = lacks or pause.why
        return [] if spec is None else [self._submitted(spec, now)]

    def _submitted(self, spec: JobSpec, now: float) -> Event:
        """It waits; what waited before with other nodes keeps its place in the line."""
        if not self._submitted_at:
            self._submitted_at = now
            return Submitted(now, self.id, spec)
        return Adopted(now, self.id, spec, submitted_at=self._submitted_at)

    def _wait(self, job: Job, held: list[str], waits: list[str], now: float) -> list[Event]:
        """It waits for its turn: it must stay what was submitted."""
        try:
            pause = self.pause(waits, now)
            fresh = now >= pause.until and pause.shunned == self._members.shunned
            if not held and fresh and not self._source.lacks(self, len(waits)):
                chosen = self._together(waits)
                stale = self._is_stale(chosen) or self._members.is_readmitted()
                if (not stale and _same(job.spec, len(chosen))) or (
                    self._members.spec(chosen) == job.spec
                ):
                    return []
        except InvalidSpec as error:
            _log.info("%s: %s", self.id, error)
        return [
            CancelRequested(now, self.id),
            Deleted(now, self.id),
            *self._enter(held, waits, now),
        ]

    def _together(self, waits: list[str]) -> list[str]:
        """Those that start together; more of them are placed when these have their seats."""
        size = self._source.size(self) if len(waits) > 1 else None
        return waits if size is None else self._members.first(waits, size)

    def _is_stale(self, waits: list[str]) -> bool:
        """Whether it is its turn to ask filters anew where it may go."""
        filters = self._context.filters
        if not filters.is_standing(self.id):
            return self._members.is_filtered(waits) and self._context.take_turn(self.id)
        if not filters.is_stale(self.id):
            return False
        self._context.take_turn(self.id)
        self._members.forget_needs()
        return True

    def _live(self, run: Run, held: list[str], waits: list[str], now: float) -> Iterable[Event]:
        """It has seats: fill them, and see what is left."""
        self._come_back()
        self._homeless = 0.0
        if not held and not self._members.busy:
            return self._end(run, waits, now)
        if run.leaves:
            self._binder.leave(run)
            return []
        if any(self._members.is_misplaced(uid) for uid in held):
            # The mirror may not know all of it yet.
            if self._members.assumed or self._members.busy:
                self._context.requeue_at(self.id, now + _SOON_S)
                return []
            return self._afresh(run, held, waits, now)
        if self._gives_way and not self._members.busy:
            return self._afresh(run, held, waits, now, literal=True)
        if self._undo or self._members.has_to_leave():
            self._undo = False
            return [CancelRequested(now, self.id)]
        not_before = max(self._binder.not_before, self.pause(waits, now).until) if waits else 0.0
        if waits and now >= not_before:
            self._binder.fill(run, waits)
            self._source.spill(self, [uid for uid in waits if uid not in self._members.seats])
        elif waits:
            self._context.requeue_at(self.id, not_before)
        if self._members.busy:
            return []
        events: list[Event] = [] if run.started_at is not None else [Started(now, run.id)]
        return itertools.chain(events, self._let_go(run, now)) if self._members.done else events

    def _let_go(self, run: Run, now: float) -> Iterator[Event]:
        """Give back the seats of pods that have done their part, while others go on.

        What runs beside the main workers stays whole: to the core a gang without it is none.
        """
        there = list(seats(run.allocation))
        kept = [
            seat for seat in there if seat.role != WORKER or seat.name not in self._members.done
        ]
        left = sum(seat.role == WORKER for seat in kept)
        if not left or not run.settled:
            return
        self._members.done.clear()
        if len(kept) < len(there):
            allocation, now_called = seat_plans.reduced(kept)
            self._members.seats = {
                uid: now_called[seat.name] for uid, seat in self._members.seats.items()
            }
            named = {place: now_called.get(name) for place, name in self._members.last.items()}
            self._members.last = {
                place: seat.name for place, seat in named.items() if seat is not None
            }
            yield ScaleRequested(now, self.id, Range(left, left))
            yield Shrank(now, run.id, allocation, "some of its pods are done")

    def _afresh(
        self, run: Run, held: list[str], waits: list[str], now: float, *, literal: bool = False
    ) -> Iterator[Event]:
        """Take it over anew as it is, once the core has forgotten how it was."""
        yield from self._end(run, [], now)
        self._literal = literal
        yield from self._enter(held, waits, now)

    def _end(self, run: Run, waits: list[str], now: float) -> list[Event]:
        """None of its pods is alive: what comes next is another gang."""
        self._members.seats.clear()
        self._members.assumed.clear()
        self._members.last.clear()
        self._members.done.clear()
        self._literal = self._undo = self._gives_way = False
        ended = Exited(now, run.id, self._outcome(run), final=True)
        return [ended, Deleted(now, self.id), *self._enter([], waits, now)]

    def _outcome(self, run: Run) -> Outcome:
        phases = {pod["status"].get("phase") for pod in self._members.pods.values() if is_over(pod)}
        if run.leaves or not phases:
            return Outcome.CANCELLED
        return Outcome.FAILED if "Failed" in phases else Outcome.SUCCEEDED

    # -- as it was found -------------------------------------------------------------------------

    def _adopt(self, held: list[str], waits: list[str], now: float) -> list[Event]:
        """Take a gang over as its bound pods tell of it."""
        pods = [self._members.pods[uid] for uid in held]
        nodes = self._context.core.ledger.nodes
        known = [nodes.get(NodeId(self._members.node_of(uid))) for uid in held]
        if not all(node is not None and node.here for node in known):
            return self._orphaned(pods, now)
        try:
            found = None if self._literal else self._members.planned(held)
            if found is None:
                self._undo = self._literal and bool(waits)
                found = self._members.as_is(held)
        except InvalidSpec as error:
            _log.warning("%s is not understood: %s", self.id, error)
            return []
        if found is None:
            self._step_aside(tuple(NodeId(self._members.node_of(uid)) for uid in held))
            return []
        spec, allocation, self._members.seats = found
        self._members.remember()
        self.problem = ""
        self._context.requeue(self.id)  # to fill the seats that are left
        return [
            Adopted(
                now,
                self.id,
                spec,
                allocation,
                running=not (waits and vacant(allocation, self._members.seats.values())),
                attempts=max(1, *map(_attempt, pods)),
                submitted_at=min(created_at(pod) or now for pod in pods),
                started_at=None,
            )
        ]

    def _orphaned(self, pods: list[Object], now: float) -> list[Event]:
        """Pods of nodes that are gone: they run nowhere, and must not stay."""
        gone = [pod for pod in pods if self._context.is_node_gone(pod["spec"]["nodeName"])]
        if gone and not self._binder.evicting:
            self._binder.evicting = True
            self._context.spawn(self._binder.remove(gone), f"removing what is left of {self.id}")
        self._context.requeue_at(self.id, now + AGAIN_S)
        return []

    def _step_aside(self, nodes: tuple[NodeId, ...]) -> None:
        """Keep out of the books what has no room in them, and try again."""
        self._come_back()
        self._aside = tuple(dict.fromkeys(nodes))
        for node in self._aside:
            self._context.close_node(node, self.id)
        now = self._context.now()
        self._context.requeue_at(self.id, now + AGAIN_S)
        self._homeless = self._homeless or now
        if now - self._homeless >= _HOMELESS_S and not self._binder.evicting:
            self._binder.evicting = True
            self._context.spawn(self._binder.give_way(), f"{self.id} is where others are")

    def _come_back(self) -> None:
        for node in self._aside:
            self._context.reopen_node(node, self.id)
        self._aside = ()

    # -- what is to be done with it --------------------------------------------------------------

    def perform(self, action: Action) -> None:
        """Bind it or evict it; those are the only two things that can be done with such pods."""
        run = self._context.core.runs[action.run]
        if isinstance(action, Launch):
            self._source.waits(self, 0.0)
            self._context.filters.forget(self.id)
            waits = self._members.split()[1]
            chosen = self._members.first(waits, sum(p.workers for p in run.allocation.parts))
            self._source.spill(self, [uid for uid in waits if uid not in chosen])
            self._binder.fill(run, chosen)
            if not self._members.busy:
                self._context.requeue(self.id)
        else:
            self._binder.leave(run)


def _attempt(pod: Object) -> int:
    """The run that a pod says it is of; nonsense is none."""
    try:
        return attempt_of(pod)
    except InvalidSpec:
        return 0


def _same(spec: JobSpec, pods: int) -> bool:
    """Whether a job of one pod is still that: the usual case, and cheap to tell."""
    return pods == 1 and spec.workers.max == 1 and not spec.roles
