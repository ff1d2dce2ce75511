"""A gang of pods that others made: Kubeflow's, a batch Job's, or one plain pod.

Its pods exist before it is placed; all that Roost does is to bind them, all or none, and to evict
them when they have to make room. It is submitted when it is complete, it starts when all its pods
are bound, and it is over when none of them is left alive: then whatever its owner makes next is a
new gang. While it lives it keeps its seats, and a new pod of it takes one that is vacant.

What was decided stands on the bound pods (``plans``). Whoever leads next finds it there and goes on
where the last one stopped.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
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
from roost.kubernetes.gangs.roles import vacant
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


class PodGang(GangBinder):
    """One gang, between its pods and the core."""

    __slots__ = (*("problem", "since", "_aside", "_literal", "_undo", "_gives_way", "_homeless"),)

    def __init__(self, context: OperatorContext, job: JobId, source: GangSource) -> None:
        super().__init__(context, job, source)
        #: Why it is not even submitted; empty if it is.
        self.problem = ""
        #: Since when it waits; 0: it does not.
        self.since = 0.0
        #: Nodes on which it has pods and no room.
        self._aside: tuple[NodeId, ...] = ()
        #: Take it where it is, whatever its plan says; undo it, since it cannot be completed.
        self._literal = False
        self._undo = False
        #: Somebody else is where it has a seat that is vacant.
        self._gives_way = False
        #: Since when it has had no room where it is; 0: it has.
        self._homeless = 0.0

    def pod_changed(self, old: Object | None, new: Object | None) -> None:
        """Note a pod as it is now."""
        super().pod_changed(old, new)
        if new is None and old is not None:
            self._source.gone(old["metadata"]["uid"])

    def contested(self, node: NodeId) -> None:
        """Others have no room on a node: give up what is vacant there."""
        job = self._context.core.jobs.get(self.id)
        if job is None or job.run is None or self._busy or job.run.after:
            return
        if any(seat.node == node for seat in vacant(job.run.allocation, self._seats.values())):
            self._gives_way = True
            self._context.requeue(self.id)

    # -- what became of it -----------------------------------------------------------------------

    def reconcile(self, now: float) -> Iterable[Event]:
        """What the core has to hear."""
        job = self._context.core.jobs.get(self.id)
        held, waits = self._sorted()
        if job is None or job.state.over:
            events: Iterable[Event] = self._enter(held, waits, now)
        elif job.run is None or (job.run.after and job.run.started_at is None):
            events = self._wait(job, held, waits, now)
        else:
            events = self._live(job.run, held, waits, now)
        self._source.waits(self, now if waits and not self._seats else 0.0)
        return events

    def refused(self, event: Event, error: RoostError) -> None:
        """The core has no room where the gang is, or where it was meant to be."""
        if not isinstance(event, Adopted):
            _log.warning("%s: %s", self.id, error)
            return
        self._seats.clear()
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
        if not waits or self._busy:
            return []
        if now < self._not_before:
            self._context.requeue_at(self.id, self._not_before)
            return []
        try:
            lacks = self._source.lacks(self, len(waits))
            spec = None if lacks else self._spec(waits)
        except InvalidSpec as error:
            lacks, spec = str(error), None
        self.problem = lacks
        return [] if spec is None else [Submitted(now, self.id, spec)]

    def _wait(self, job: Job, held: list[str], waits: list[str], now: float) -> list[Event]:
        """It waits for its turn: it must stay what was submitted."""
        try:
            if not held and not self._source.lacks(self, len(waits)):
                same = _same(job.spec, len(waits)) or self._spec(waits) == job.spec
                if same:
                    return []
        except InvalidSpec as error:
            _log.info("%s: %s", self.id, error)
        return [
            CancelRequested(now, self.id),
            Deleted(now, self.id),
            *self._enter(held, waits, now),
        ]

    def _live(self, run: Run, held: list[str], waits: list[str], now: float) -> Iterable[Event]:
        """It has seats: fill them, and see who is left."""
        self._come_back()
        self._homeless = 0.0
        if not held and not self._busy:
            return self._end(run, waits, now)
        if run.leaves:
            self._leave(run)
            return []
        if any(self._misplaced(uid) for uid in held):
            if self._assumed or self._busy:  # the mirror does not know all of it yet
                self._context.requeue_at(self.id, now + _SOON_S)
                return []
            return self._afresh(run, held, waits, now)
        if self._gives_way and not self._busy:
            return self._afresh(run, held, waits, now, literal=True)
        if self._undo:
            self._undo = False
            return [CancelRequested(now, self.id)]
        if waits and now >= self._not_before:
            self._fill(run, waits)
            self._source.spill(self, [uid for uid in waits if uid not in self._seats])
        elif waits:
            self._context.requeue_at(self.id, self._not_before)
        if self._busy:
            return []
        events: list[Event] = [] if run.started_at is not None else [Started(now, run.id)]
        return itertools.chain(events, self._let_go(run, now)) if self._done else events

    def _let_go(self, run: Run, now: float) -> Iterator[Event]:
        """Give back the seats of those who have done their part, while others go on.

        What runs beside the main workers stays whole: to the core a gang without it is none.
        """
        there = list(seats(run.allocation))
        kept = [seat for seat in there if seat.role != WORKER or seat.name not in self._done]
        left = sum(seat.role == WORKER for seat in kept)
        if not left or not run.settled:
            return
        self._done.clear()
        if len(kept) < len(there):
            allocation, now_called = seat_plans.reduced(kept)
            self._seats = {uid: now_called[seat.name] for uid, seat in self._seats.items()}
            named = {place: now_called.get(name) for place, name in self._last.items()}
            self._last = {place: seat.name for place, seat in named.items() if seat is not None}
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
        """Nobody of it is alive: what comes next is another gang."""
        self._seats.clear()
        self._assumed.clear()
        self._last.clear()
        self._done.clear()
        self._literal = self._undo = self._gives_way = False
        ended = Exited(now, run.id, self._outcome(run), final=True)
        return [ended, Deleted(now, self.id), *self._enter([], waits, now)]

    def _outcome(self, run: Run) -> Outcome:
        phases = {pod["status"].get("phase") for pod in self.pods.values() if is_over(pod)}
        if run.leaves or not phases:
            return Outcome.CANCELLED
        return Outcome.FAILED if "Failed" in phases else Outcome.SUCCEEDED

    # -- as it was found -------------------------------------------------------------------------

    def _adopt(self, held: list[str], waits: list[str], now: float) -> list[Event]:
        """Take a gang over as its bound pods tell of it."""
        pods = [self.pods[uid] for uid in held]
        nodes = self._context.core.ledger.nodes
        known = [nodes.get(NodeId(self._node(uid))) for uid in held]
        if not all(node is not None and node.up for node in known):
            return self._orphaned(pods, now)
        try:
            found = None if self._literal else self._planned(held)
            if found is None:
                self._undo = self._literal and bool(waits)
                found = self._as_is(held)
        except InvalidSpec as error:
            _log.warning("%s is not understood: %s", self.id, error)
            return []
        if found is None:
            self._step_aside(tuple(NodeId(self._node(uid)) for uid in held))
            return []
        spec, allocation, self._seats = found
        self._remember()
        self.problem = ""
        self._context.requeue(self.id)  # to fill the seats that are left
        return [
            Adopted(
                now,
                self.id,
                spec,
                allocation,
                running=not (waits and vacant(allocation, self._seats.values())),
                attempts=max(1, *map(_attempt, pods)),
                submitted_at=min(created_at(pod) or now for pod in pods),
                started_at=None,
            )
        ]

    def _orphaned(self, pods: list[Object], now: float) -> list[Event]:
        """Pods of nodes that are gone: they run nowhere, and must not stay."""
        gone = [pod for pod in pods if self._context.is_node_gone(pod["spec"]["nodeName"])]
        if gone and not self._evicting:
            self._evicting = True
            self._context.spawn(self._remove(gone), f"removing what is left of {self.id}")
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
        if now - self._homeless >= _HOMELESS_S and not self._evicting:
            self._evicting = True
            self._context.spawn(self._yield(), f"{self.id} is where others are")

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
            self._fill(run, self._sorted()[1])
            if not self._busy:
                self._context.requeue(self.id)
        else:
            self._leave(run)


def _attempt(pod: Object) -> int:
    """The run that a pod says it is of; nonsense is none."""
    try:
        return attempt_of(pod)
    except InvalidSpec:
        return 0


def _same(spec: JobSpec, pods: int) -> bool:
    """Whether a job of one pod is still that: the usual case, and cheap to tell."""
    return pods == 1 and spec.workers.max == 1 and not spec.roles
