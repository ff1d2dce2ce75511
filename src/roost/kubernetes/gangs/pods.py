"""The pods of a gang as they are known, and what they make it: a job of so many workers.

What the API server answered counts before the mirror has it: a pod that was bound is bound, one
that was found gone is not tried again. What became of pods is for ``gang``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from roost.core import WORKER, JobId, JobSpec, Level, NodeId, Resources
from roost.core.allocation import Allocation, Seat
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.gangs import seat_plans
from roost.kubernetes.gangs.seat_plans import GangMember, GangRoles
from roost.kubernetes.kueue.admission import (
    Admission,
    QueueWish,
    has_local_queues,
    joined,
    restricted,
    wish_of,
)
from roost.kubernetes.kueue.promises import is_of_kueue
from roost.kubernetes.objects.gang_refs import gang_of, index_of, role_of
from roost.kubernetes.objects.gang_topology import within_of
from roost.kubernetes.objects.needs import Need, needs
from roost.kubernetes.objects.neighbours import is_alone_on_node
from roost.kubernetes.objects.nodes import APART
from roost.kubernetes.objects.pods import is_bound, is_gated, is_leaving, is_over
from roost.kubernetes.objects.values import labels_of
from roost.kubernetes.operator.queues import DEFAULT, admitted
from roost.kubernetes.operator.status import Obstacle

if TYPE_CHECKING:
    from roost.kubernetes.operator.workload import OperatorContext

#: A job, where it is, and the seat of each pod.
SeatedGang = tuple[JobSpec, Allocation, dict[str, Seat]]

#: How many sorts of pods a gang may have.
_MOST_ROLES = 64


class GangPods:
    """The pods of a gang, and their seats."""

    __slots__ = (
        *("assumed", "busy", "dead", "_context", "done", "last", "_needs", "seats"),
        *("admission", "apart", "id", "pods", "shunned", "_wish"),
    )

    def __init__(self, context: OperatorContext, job: JobId) -> None:
        self.id, self._context = job, context
        #: Its pods by uid.
        self.pods: dict[str, Object] = {}
        self._needs: dict[str, Need] = {}
        #: What its queue said of it when it was last asked.
        self.admission = Admission(DEFAULT)
        #: The queues that it names, as long as it has the same pods and waits.
        self._wish: QueueWish | None = None
        #: Nodes on which no pod of it is placed for now.
        self.shunned: tuple[NodeId, ...] = ()
        #: Whether no two of its pods are to be on one node: filters did not let them be.
        self.apart = False
        self.seats: dict[str, Seat] = {}
        #: The seat that a role and number had last, for those that come after them.
        self.last: dict[tuple[str, int], str] = {}
        #: Pods that the server says are bound, of which the mirror does not know yet.
        self.assumed: dict[str, str] = {}
        #: Pods that are being bound, and pods that were found gone.
        self.busy: set[str] = set()
        self.dead: set[str] = set()
        #: Seats whose pods have done their part: no pod comes to take them again.
        self.done: set[str] = set()

    @property
    def over(self) -> bool:
        """Whether it has no pod left."""
        return not self.pods and not self.busy

    def pod_changed(self, old: Object | None, new: Object | None) -> None:
        """Note a pod as it is now."""
        if old is None or new is None:
            self._wish = None
        if new is not None:
            uid = new["metadata"]["uid"]
            self.pods[uid] = new
            if uid in self.assumed and is_bound(new):
                del self.assumed[uid]
            if uid in self.seats and is_over(new):
                seat = self.seats.pop(uid)  # for the pod that comes next
                if new["status"].get("phase") == "Succeeded":
                    self.done.add(seat.name)
        elif old is not None:
            uid = old["metadata"]["uid"]
            for known in (self.pods, self._needs, self.seats, self.assumed):
                known.pop(uid, None)
            self.dead.discard(uid)

    def forget_needs(self) -> None:
        """Work out anew what pods need that are not bound: filters may say otherwise by now."""
        self._needs = {uid: need for uid, need in self._needs.items() if is_bound(self.pods[uid])}

    def is_filtered(self, uids: Iterable[str]) -> bool:
        """Whether filters have a say about some of these pods."""
        filters = self._context.filters
        return any(filters.concerns(self.pods[uid]) for uid in uids)

    @property
    def kept_off(self) -> str:
        """Why filters keep pods of it off some nodes, as it was worked out last."""
        return next((need.kept_off for need in self._needs.values() if need.kept_off), "")

    def shun(self, nodes: tuple[NodeId, ...]) -> None:
        """Place no pod on these nodes until told otherwise."""
        if nodes != self.shunned:
            self.shunned = nodes
            self._needs.clear()

    def waiting(self) -> list[Object]:
        """Pods that wait to be bound."""
        return [self.pods[uid] for uid in self.split()[1]]

    def split(self) -> tuple[list[str], list[str]]:
        """Pods that are bound and alive, and pods that wait to be bound."""
        held, waits = [], []
        for uid, pod in self.pods.items():
            if is_over(pod):
                continue
            if is_bound(pod) or uid in self.assumed:
                held.append(uid)
            elif not (uid in self.busy or uid in self.dead or is_leaving(pod) or is_gated(pod)):
                waits.append(uid)
        return held, waits

    def node_of(self, uid: str) -> str:
        """Where a pod is."""
        return str(self.pods[uid]["spec"].get("nodeName") or self.assumed.get(uid, ""))

    def is_misplaced(self, uid: str) -> bool:
        """Whether a pod is where Roost did not put it."""
        seat = self.seats.get(uid)
        return seat is None or seat.node != self.node_of(uid)

    # -- what they make it -----------------------------------------------------------------------

    def _need(self, uid: str) -> Need:
        found = self._needs.get(uid)
        if found is None:
            found = self._like(uid) or self._need_of(self.pods[uid])
            self._needs[uid] = found
        return found

    def _like(self, uid: str) -> Need | None:
        """What a pod that has its place needs, if it is like this one; None: there is none.

        A pod that comes after another takes a seat of their role, wherever filters would let it go
        by now: they are asked when it is bound.
        """
        if len(self.pods) == 1 or self._is_placed(uid):
            return None
        placed = [other for other in self.pods if self._is_placed(other)]
        wanted = needs(self.pods[uid]).resources if placed else None
        found = next((other for other in placed if self._asks(other) == wanted), None)
        return None if found is None else self._need(found)

    def _is_placed(self, uid: str) -> bool:
        return uid in self.seats or is_bound(self.pods[uid])

    def _asks(self, uid: str) -> Resources | None:
        try:
            return needs(self.pods[uid]).resources
        except InvalidSpec:
            return None

    def _share_out(self, uids: Sequence[str]) -> None:
        """Work out together what pods need that keep each other from their places."""
        if len(uids) == 1 or all(uid in self._needs for uid in uids):
            return
        pods = [restricted(self.pods[uid], self.admission.choices) for uid in uids]
        shares = self._context.share_out(pods, self.shunned, self._one_each)
        for uid, pod, share in zip(uids, pods, shares or (), strict=shares is not None):
            self._needs[uid] = self._context.need_of(pod, self.shunned, share=share)

    def in_turn(self, found: Mapping[str, Seat]) -> list[str]:
        """Pods with seats in an order in which no domain is filled before the others."""
        turns: Counter[object] = Counter()
        order: dict[str, int] = {}
        for uid, seat in found.items():
            parts = self._need(uid).constraints.contingents
            domain = next((nodes for _, nodes in parts if seat.node in nodes), seat.node)
            turns[domain] += 1
            order[uid] = turns[domain]
        return sorted(found, key=order.__getitem__)

    @property
    def _one_each(self) -> str:
        """What every node has one of for this gang."""
        return f"{APART}{self.id}"

    def _need_of(self, pod: Object) -> Need:
        try:
            # The core knows nothing of affinity, but it counts what a node has one of.
            is_alone = (self.apart and not is_bound(pod)) or is_alone_on_node(pod)
            alone = ((self._one_each, 1),) if is_alone else ()
            asked = pod if is_bound(pod) else restricted(pod, self.admission.choices)
            return self._context.need_of(asked, self.shunned, alone, likes=len(self.pods))
        except InvalidSpec:
            if not is_bound(pod):
                raise
            return seat_plans.taken(pod)  # it is there, whatever Roost thinks of it

    def roles(self, uids: Iterable[str] | None = None) -> GangRoles:
        """Some of them, or all, by their roles."""
        return GangRoles(
            GangMember(
                uid,
                self.pods[uid]["metadata"]["name"],
                *_place(self.pods[uid]),
                self._need(uid).resources,
            )
            for uid in (self.pods if uids is None else uids)
        )

    def first(self, uids: list[str], count: int) -> list[str]:
        """So many of them, those that lead others first."""
        if len(uids) <= count:
            return uids
        likes = [member for likes in self.roles(uids).roles.values() for member in likes]
        return [member.uid for member in sorted(likes, key=lambda member: member.rank)[:count]]

    def spec(self, uids: Iterable[str]) -> JobSpec:
        """The job that these pods make; raises InvalidSpec."""
        self._wish = None  # its owner may be another by now, or have other labels
        admission = self._admission()
        if isinstance(admission, Obstacle):
            raise InvalidSpec(admission.sentence)
        if admission != self.admission:
            self.admission = admission
            self.forget_needs()
        uids = list(uids)
        self._share_out(uids)
        roles = self.roles(uids)
        if len(roles.roles) > _MOST_ROLES:
            raise InvalidSpec(f"its pods ask for more than {_MOST_ROLES} different things")
        return roles.spec(self._template(admission, self._within()))

    def _template(self, admission: Admission, within: Level | None = None) -> JobSpec:
        """What of a job is not in the needs of its members."""
        needs, rank = self._needs.values(), admission.priority
        return JobSpec(
            queue=admission.queue,
            priority=max(need.priority for need in needs) if rank is None else rank,
            preempts=admission.preempts and all(need.preempts for need in needs),
            user=self._namespace,
            within=within,
        )

    def _within(self) -> Level | None:
        """The level of the domain that they have to stay inside; raises InvalidSpec."""
        if len(self.pods) == 1:
            return None
        return within_of(self.pods.values(), self._owner())

    @property
    def _namespace(self) -> str:
        return str(next(iter(self.pods.values()))["metadata"].get("namespace", ""))

    def is_readmitted(self) -> bool:
        """Whether its queue says something else of it than when it was asked last."""
        return is_of_kueue(self.admission.queue) and self._admission() != self.admission

    def has_to_leave(self) -> bool:
        """Whether what runs in its queue must go."""
        if not is_of_kueue(self.admission.queue):
            return False
        found = self._admission(stands=True)
        return not isinstance(found, Obstacle) and found.drains

    def _admission(self, *, stands: bool = False) -> Admission | Obstacle:
        """The core's queue behind the one that it asks for: to have a Queue is the permission."""
        try:
            wish = self._wish = self._wish or self._wished()
        except InvalidSpec as error:
            return Obstacle("contradictory-queues", str(error))
        return admitted(self._context, self._namespace, wish, stands=stands)

    def _wished(self) -> QueueWish:
        """The queues that its pods and their owner name; raises InvalidSpec."""
        wishes = [seat_plans.wish_of_pod(pod) for pod in self.pods.values()]
        if has_local_queues(self._context, self._namespace):
            wishes += [wish_of(labels) for labels in self._labels_of_owner()]
        return joined(wishes)

    def _labels_of_owner(self) -> Iterable[Object]:
        """Kueue's labels stand on what made the pods; raises InvalidSpec if that is not known."""
        pod = next(iter(self.pods.values()))
        owner = gang_of(pod).owner
        if owner is None or owner.resource_kind is None:
            return ()
        found = self._owner()
        if found is None and not is_bound(pod):
            raise InvalidSpec(f"waits for {owner.kind} {owner.name}, which may name its queue")
        return () if found is None else (labels_of(found),)

    def _owner(self) -> Object | None:
        """The object that made them, if it is known."""
        owner = gang_of(next(iter(self.pods.values()))).owner
        if owner is None or owner.resource_kind is None:
            return None
        return self._context.objects(owner.resource_kind).get((self._namespace, owner.name))

    def _there(self) -> JobSpec:
        """The template of what is bound already: that goes on, whatever became of its queue."""
        found = self._admission(stands=True)
        self.admission = Admission(DEFAULT) if isinstance(found, Obstacle) else found
        return self._template(self.admission)

    def remember(self) -> None:
        """Note the seats of roles and numbers, for pods that come after these."""
        for uid, seat in self.seats.items():
            self.last[_place(self.pods[uid])] = seat.name

    # -- as it was found -------------------------------------------------------------------------

    def planned(self, held: list[str]) -> SeatedGang | None:
        """The gang as the plan on its pods has it; None: there is none that fits them."""
        if len(self.pods) == 1:
            return None
        roles = self.roles()
        found = seat_plans.by_plan([self.pods[uid] for uid in held], roles, self.split()[1])
        if found is None:
            return None
        allocation, sitting, counts = found
        return roles.spec(self._there(), counts), allocation, sitting

    def as_is(self, held: list[str]) -> SeatedGang | None:
        """The gang where its bound pods are; None: there is no room for it."""
        roles = self.roles(held)
        places = {uid: self.node_of(uid) for uid in held}
        found = seat_plans.where_it_is(self.pods, places, roles, self._context.core.ledger)
        return None if found is None else (roles.spec(self._there()), *found)


def _place(pod: Object) -> tuple[str, int]:
    """Its role and number; a label that is no number orders nothing, and hides no pod."""
    try:
        return role_of(pod), index_of(pod)
    except InvalidSpec:
        return WORKER, 0
