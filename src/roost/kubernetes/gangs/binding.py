"""What can be done with pods that others made: bind them to seats, and ask them to leave.

Requests go on beside the loop. What came of them is noted here and told by the gang, which is
requeued when it is known.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roost.core import NodeId, Run
from roost.core.allocation import Seat
from roost.errors import Forbidden, InvalidSpec, NotFound, Retryable
from roost.failpoints import hit
from roost.kubernetes.client.api import Disrupted
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.gangs import seat_plans
from roost.kubernetes.gangs.pods import GangPods
from roost.kubernetes.gangs.seat_plans import vacant
from roost.kubernetes.objects.pods import attempt_of, devices_of, is_bound, is_leaving
from roost.kubernetes.operator.binding import Binding, BindingFate

if TYPE_CHECKING:
    from roost.kubernetes.gangs.discovery import GangSource
    from roost.kubernetes.operator.workload import OperatorContext

_log = logging.getLogger(__name__)

#: How often pods that did not go are evicted again, and a place that is taken is asked for again.
AGAIN_S = 2.0
#: A gang with pods that the server does not let be bound is left alone for so long.
_REFUSED_S = 10.0
#: How long to wait before places are looked for once more that filters did not allow, in seconds.
_FIRST_S, _LONGEST_S = 0.2, 10.0
#: Up to so many seats, every pod carries the plan; of more, the one that is bound first.
_PLANS = 64


class GangBinder:
    """Binds and evicts the pods of a gang."""

    __slots__ = ("_context", "_pods", "_source", "_strikes", "evicting", "not_before", "trouble")

    def __init__(self, context: OperatorContext, pods: GangPods, source: GangSource) -> None:
        self._context, self._pods, self._source = context, pods, source
        #: Whether pods are being asked to leave: one task does that at a time.
        self.evicting = False
        #: No pod is bound before this time.
        self.not_before = 0.0
        #: What stood against its seats the last time; empty: nothing.
        self.trouble = ""
        #: How often filters did not let it go to its seats, one time after the other.
        self._strikes = 0

    def leave(self, run: Run) -> None:
        """Ask all pods to leave, unless that is under way."""
        if not self.evicting:
            self.evicting = True
            self._context.spawn(self._evict(run), f"evicting {self._pods.id}")

    def fill(self, run: Run, waits: list[str]) -> None:
        """Bind those that wait to the seats that are vacant."""
        free = vacant(run.allocation, self._pods.seats.values())
        if not free:
            return
        if len(waits) == 1 and len(free) == 1 and not self._pods.last:
            found = {waits[0]: free[0]}
        else:
            found = self._pods.roles().seat(waits, free, self._pods.last)
        if not found or not self._is_admitted(found):
            return
        self._pods.seats.update(found)
        self._pods.done.difference_update(seat.name for seat in found.values())
        self._pods.busy.update(found)
        if len(self._pods.pods) > 1:
            self._pods.remember()
        self._context.spawn(self._bind(run, found), f"binding {self._pods.id}")

    def _is_admitted(self, found: dict[str, Seat]) -> bool:
        """Whether filters let the pods go to their seats; if not, places are looked for anew."""
        pods = self._pods.pods
        try:
            order = self._pods.in_turn(found) if len(found) > 1 else list(found)
            why = self._context.admit([(pods[uid], found[uid].node) for uid in order])
        except InvalidSpec as error:
            why = str(error)
        if not why:
            self._strikes, self.trouble = 0, ""
            return True
        _log.info("%s is placed anew: %s", self._pods.id, why)
        # The first time at once: most likely something else has just been placed there.
        self.trouble = why
        pause_s = min(_FIRST_S * 2.0**self._strikes, _LONGEST_S) if self._strikes else 0.0
        self._strikes += 1
        if len(found) > 1:
            # Its own pods may be in each other's way, which the core does not know: where one node
            # had several of them none has now, and the other way round the next time.
            self._pods.apart = not self._pods.apart
        self.not_before = self._context.now() + pause_s
        self._context.requeue_at(self._pods.id, self.not_before)
        return False

    async def _bind(self, run: Run, found: dict[str, Seat]) -> None:
        bindings = seat_plans.bindings(run, found, self._pods.pods, _PLANS)
        try:
            if not await self._prepared(found):
                return
            first = next(iter(bindings))
            if len(bindings) == 1 or len(found) > _PLANS:
                await self._bind_one(first, bindings.pop(first))
            if bindings:
                await asyncio.gather(*(self._bind_one(uid, b) for uid, b in bindings.items()))
        finally:
            self._pods.busy.difference_update(found)
            self._context.requeue(self._pods.id)

    async def _prepared(self, found: dict[str, Seat]) -> bool:
        """Whether all is done that filters have to do before pods are bound."""
        pods, filters = self._pods.pods, self._context.filters
        known = {uid: pods[uid] for uid in found if uid in pods}
        wanted = {uid: pod for uid, pod in known.items() if filters.is_reserved(pod)}
        if not wanted:
            return True
        try:
            await asyncio.gather(
                *(filters.prepare(pod, found[uid].node) for uid, pod in wanted.items())
            )
        except (Retryable, InvalidSpec, Forbidden, NotFound) as error:
            if isinstance(error, Deposed):
                raise
            _log.info("%s is placed anew: %s", self._pods.id, error)
            self.not_before = self._context.now() + AGAIN_S
            self.trouble = str(error)
            for uid, pod in known.items():
                filters.release(pod)
                self._pods.seats.pop(uid, None)
            return False
        return True

    async def _bind_one(self, uid: str, binding: Binding) -> None:
        hit("pods.before-bind")
        fate = await self._context.binder.bind(binding)
        hit("pods.after-bind")
        pod = self._pods.pods.get(uid)
        if fate is BindingFate.BOUND:
            if pod is not None and not is_bound(pod):
                self._pods.assumed[uid] = binding.node
                self._context.write_event(pod, "Scheduled", f"bound to {binding.node}")
            return
        self._pods.seats.pop(uid, None)
        if pod is not None:
            self._context.filters.release(pod)
        if pod is not None and fate in (BindingFate.GONE, BindingFate.ELSEWHERE):
            self._pods.dead.add(uid)  # until the mirror knows better
        elif fate is BindingFate.REFUSED:
            self.not_before = self._context.now() + _REFUSED_S
            why = self._context.binder.why_refused(uid) or "it is not as it was"
            self.trouble = f"cannot be bound to {binding.node}: {why}"
        _log.info("%s/%s was not bound to %s: %s", *binding[:2], binding.node, fate)

    async def _evict(self, run: Run) -> None:
        """Ask all pods of a run to leave, again and again, until none is left."""
        reason = run.reason or "it has to move"
        try:
            # The run itself and not its name: the next gang of this name begins to count anew.
            while self._context.core.runs.get(run.id) is run and run.leaves:
                held = self._pods.split()[0]
                await asyncio.gather(*(self._evict_one(uid, reason) for uid in held))
                await asyncio.sleep(AGAIN_S)
        finally:
            self.evicting = False
            self._context.requeue(self._pods.id)

    async def _evict_one(self, uid: str, reason: str) -> None:
        pod = self._pods.pods.get(uid)
        if pod is None:
            return
        try:
            if self._context.is_node_gone(self._pods.node_of(uid)):
                await self._context.binder.remove(pod, 0)
            elif not is_leaving(pod):
                await self._context.binder.evict(pod)
                self._context.write_event(pod, "Preempted", f"evicted: {reason}", warning=True)
        except Disrupted as error:
            self._context.write_event(pod, "EvictionRefused", str(error), warning=True)
            if not any(map(is_leaving, self._pods.pods.values())):
                self._source.protect(
                    self._pods.id, str(error)
                )  # else it has begun, and must be ended
        except Retryable as error:
            _log.info("%s: %s", self._pods.id, error)
        except Forbidden as error:  # an administrator has to act first; it is asked again
            _log.warning("%s cannot be evicted: %s", self._pods.id, error)

    async def give_way(self) -> None:
        """Let those leave that a binding of ours put where others are: it came late."""
        try:
            ours = [uid for uid in self._pods.split()[0] if self._is_late(uid)]
            reason = "it was bound to where others are by now"
            await asyncio.gather(*(self._evict_one(uid, reason) for uid in ours))
        finally:
            self.evicting = False

    def _is_late(self, uid: str) -> bool:
        """Whether Roost bound a pod to devices that its node has: then they are others' by now."""
        pod, node = (
            self._pods.pods[uid],
            self._context.core.ledger.nodes.get(NodeId(self._pods.node_of(uid))),
        )
        try:
            given = devices_of(pod) if attempt_of(pod) else ()
        except InvalidSpec:
            return False
        return node is not None and bool(given) and max(given) < node.spec.gpus

    async def remove(self, pods: list[Object]) -> None:
        """Delete pods of nodes that are gone, without waiting for their kubelets."""
        try:
            for pod in pods:
                await self._context.binder.remove(pod, 0)
        except (Retryable, Forbidden) as error:
            _log.info("%s: %s", self._pods.id, error)
        finally:
            self.evicting = False
