"""Pods of a gang as workers of a job: their roles, and their seats, written on pods and read back.

To the core a gang is so many workers of a main role and so many of others, all of one role alike.
Pods are told apart by what they need, not by what they are called: a master that needs the same as
the workers is one of them, and the first. The role that needs most is the main one. None of this
depends on how many pods there are, so a later leader gives what is left the same names.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from roost.core import WORKER, JobSpec, Range, Resources, Role, Run
from roost.core.allocation import Allocation, Part, Seat, seats
from roost.core.ledger import Ledger
from roost.core.node import Node, lowest, mask_of
from roost.core.spec import WHOLE, NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.autoscaling.disruption import STAY
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.kueue.admission import QueueWish, wish_of
from roost.kubernetes.objects.constraints import Constraints
from roost.kubernetes.objects.needs import Need, needs
from roost.kubernetes.objects.pods import (
    ATTEMPT,
    GPUS,
    PLAN,
    SEAT,
    decode_plan,
    devices_of,
    encode_gpus,
    encode_plan,
)
from roost.kubernetes.objects.values import annotations_of, labels_of
from roost.kubernetes.operator.binding import Binding
from roost.kubernetes.operator.queues import DEFAULT

_log = logging.getLogger(__name__)

_QUEUE = "roost.dev/queue"
#: What decides where a pod may go, and is of no interest once it is there.
_WISHES = ("affinity", "topologySpreadConstraints", "resourceClaims", "nodeSelector")


def queue_named(pod: Object) -> str:
    """The queue of its namespace that a pod asks for."""
    wish = wish_of_pod(pod)
    return wish.roost or wish.kueue or DEFAULT


def wish_of_pod(pod: Object) -> QueueWish:
    """The queues and classes that a pod names; what is no text is none."""
    labels = {name: text for name, text in labels_of(pod).items() if isinstance(text, str)}
    return wish_of(labels, str(labels.get(_QUEUE) or annotations_of(pod).get(_QUEUE) or ""))


def taken(pod: Object) -> Need:
    """What a pod takes where it is, wherever it may go and whatever else it asks for."""
    spec = {name: value for name, value in pod["spec"].items() if name not in _WISHES}
    meta = pod["metadata"]
    # Annotations may say anything: what its containers are given by number is there all the same.
    for notes in (meta.get("annotations"), None):
        try:
            need = needs({"metadata": {**meta, "annotations": notes}, "spec": spec})
        except InvalidSpec as error:
            _log.debug("%s/%s is not understood: %s", meta["namespace"], meta["name"], error)
        else:
            return need._replace(resources=replace(need.resources, pool="", kinds=()))
    return Need(Resources(gpus=0), Constraints())


def bindings(
    run: Run, found: Mapping[str, Seat], pods: Mapping[str, Object], most_plans: int
) -> dict[str, Binding]:
    """The bindings of pods to seats; what is bound first knows where all the others belong.

    For tidiness no autoscaler takes the node of one of several, unless the pod itself allows it.
    """
    several = len(run.allocation.parts) > 1 or run.allocation.parts[0].workers > 1
    plan = encode_plan(run.allocation) if several else ""
    made: dict[str, Binding] = {}
    for uid, seat in found.items():
        notes = {
            GPUS: encode_gpus(seat.gpus),
            SEAT: seat.name,
            ATTEMPT: str(run.id.attempt),
        }
        if plan and (not made or len(found) <= most_plans):
            notes[PLAN] = plan
        meta = pods[uid]["metadata"]
        if several:
            said = annotations_of(pods[uid])
            notes |= {name: text for name, text in STAY.items() if name not in said}
        made[uid] = Binding(meta["namespace"], meta["name"], uid, seat.node, notes)
    return made


def by_plan(
    pods: Sequence[Object], crew: GangRoles, waits: Iterable[str]
) -> tuple[Allocation, dict[str, Seat], dict[str, int]] | None:
    """The allocation that bound pods tell of, the seat of each pod, and the count of each role.

    Seats are kept for pods that wait, and no others: a plan that a user wrote may
    claim the whole cluster. None if there is no plan, or one that does not fit what is there.
    """
    text = next((notes[PLAN] for pod in pods if PLAN in (notes := annotations_of(pod))), None)
    if text is None:
        return None
    try:
        allocation = decode_plan(text)
    except InvalidSpec:
        return None
    if not counts_of(allocation).keys() <= crew.roles.keys():
        return None
    places = {seat.name: seat for seat in seats(allocation)}
    sitting: dict[str, Seat] = {}
    for pod in pods:
        uid, seat = pod["metadata"]["uid"], places.pop(annotations_of(pod).get(SEAT, ""), None)
        if seat is None or seat.node != pod["spec"].get("nodeName"):
            return None
        if crew.role_of.get(uid) != seat.role or devices_of(pod) != seat.gpus:
            return None
        sitting[uid] = seat
    allocation, sitting = _needed(allocation, sitting, Counter(crew.role_of[uid] for uid in waits))
    counts = counts_of(allocation)
    return (allocation, sitting, counts) if WORKER in counts else None


def _needed(
    allocation: Allocation, sitting: dict[str, Seat], waits: Counter[str]
) -> tuple[Allocation, dict[str, Seat]]:
    """An allocation with the seats that are taken, and as many vacant ones as pods wait for."""
    taken = {seat.name for seat in sitting.values()}
    kept: list[Seat] = []
    for seat in seats(allocation):
        if seat.name in taken:
            kept.append(seat)
        elif waits[seat.role] > 0:
            waits[seat.role] -= 1
            kept.append(seat)
    if len(kept) == sum(part.workers for part in allocation.parts):
        return allocation, sitting
    fewer, now = reduced(kept)
    return fewer, {uid: now[seat.name] for uid, seat in sitting.items()}


def reduced(kept: Sequence[Seat]) -> tuple[Allocation, dict[str, Seat]]:
    """An allocation of these seats alone, and each of them there by the name that it had."""
    fewer = Allocation(tuple(Part(s.node, s.gpus, s.share_milli, 1, s.role) for s in kept))
    return fewer, {old.name: new for old, new in zip(kept, seats(fewer), strict=True)}


def where_it_is(
    pods: Mapping[str, Object], places: Mapping[str, str], crew: GangRoles, ledger: Ledger
) -> tuple[Allocation, dict[str, Seat]] | None:
    """The allocation of pods where they are bound; None: there is no room for them."""
    parts: list[Part] = []
    order: list[str] = []
    taken: dict[str, int] = {}
    for role, members in crew.roles.items():
        for member in members:
            node = ledger.nodes[NodeId(places[member.uid])]
            gpus = _devices(pods[member.uid], node, member.resources, taken.get(node.id, 0))
            if gpus is None:
                return None
            if member.resources.share_milli == WHOLE:
                for gpu in gpus:
                    taken[node.id] = taken.get(node.id, 0) | 1 << gpu
            parts.append(Part(node.id, gpus, member.resources.share_milli, 1, role))
            order.append(member.uid)
    allocation = Allocation(tuple(parts))
    # Parts of one worker each: seats come in the order of parts, main ones first, as roles do.
    return allocation, dict(zip(order, seats(allocation), strict=True))


def _devices(pod: Object, node: Node, need: Resources, taken: int) -> tuple[int, ...] | None:
    """The devices of a pod: those it was given, or such as are not known to be used."""
    if not need.gpus:
        return ()
    try:
        given = devices_of(pod)
    except InvalidSpec:
        given = ()
    if len(given) == need.gpus and _is_free(node, need, given, taken):
        return given
    return pick(node, need, taken)


def _is_free(node: Node, need: Resources, given: tuple[int, ...], taken: int) -> bool:
    """Whether devices have room for such a need, as far as is known."""
    wanted = mask_of(given)
    if not wanted & ~(node.free & ~taken):
        return True
    shared = node.shared.get(given[0]) if need.share_milli < WHOLE else None
    return shared is not None and shared.left_milli >= need.share_milli


def pick(node: Node, need: Resources, taken: int = 0) -> tuple[int, ...] | None:
    """Devices of a node that are free for such a need; None: there are not enough."""
    free = node.free & ~taken
    if need.share_milli < WHOLE:
        for gpu, device in sorted(node.shared.items()):
            if device.way is need.way and device.left_milli >= need.share_milli:
                return (gpu,)
    return lowest(free, need.gpus) if free.bit_count() >= need.gpus else None


#: Roles that lead others, and so come first.
_FIRST = ("master", "chief", "launcher", "driver", "head", "headgroup")


class GangMember(NamedTuple):
    """A pod as its gang sees it."""

    uid: str
    name: str
    role: str
    number: int
    resources: Resources

    @property
    def rank(self) -> tuple[bool, str, int, str]:
        """Its place among its likes."""
        return self.role not in _FIRST, self.role, self.number, self.name


class GangRoles:
    """The members of a gang by their role in the core."""

    def __init__(self, members: Iterable[GangMember]) -> None:
        by_need: dict[Resources, list[GangMember]] = {}
        for member in members:
            by_need.setdefault(member.resources, []).append(member)
        self.roles: dict[str, list[GangMember]] = {}
        for need in sorted(by_need, key=_weight, reverse=True) if len(by_need) > 1 else by_need:
            likes = by_need[need]
            if len(likes) > 1:
                likes.sort(key=lambda member: member.rank)
            self.roles[self._name(likes[0])] = likes
        self.role_of = {m.uid: name for name, likes in self.roles.items() for m in likes}

    def _name(self, first: GangMember) -> str:
        if not self.roles:
            return WORKER
        name = first.role if first.role not in ("", WORKER) else "other"
        return f"{name}-{len(self.roles)}" if name in self.roles else name

    def spec(self, template: JobSpec, counts: Mapping[str, int] | None = None) -> JobSpec:
        """The job that they are, or of which there are so many of each role."""
        have = {name: len(likes) for name, likes in self.roles.items()}
        wanted = {name: n for name, n in (counts or have).items() if n}
        main = wanted.pop(WORKER, 0)
        return JobSpec(
            workers=Range(main, main),
            resources=self.roles[WORKER][0].resources,
            roles=tuple(
                Role(name, count, self.roles[name][0].resources) for name, count in wanted.items()
            ),
            queue=template.queue,
            priority=template.priority,
            user=template.user,
            application=template.application,
            preemptible=template.preemptible,
            preempts=template.preempts,
            within=template.within,
        )

    def seat(
        self, uids: Iterable[str], vacant: Sequence[Seat], last: Mapping[tuple[str, int], str]
    ) -> dict[str, Seat]:
        """Seats for some of them, in their order; a pod that had a seat before gets it back."""
        free: dict[str, list[Seat]] = {}
        for seat in vacant:
            free.setdefault(seat.role, []).append(seat)
        wanted = set(uids)
        found: dict[str, Seat] = {}
        for role, likes in self.roles.items():
            mine = [member for member in likes if member.uid in wanted]
            left = free.get(role, [])
            if last:
                for member in mine:
                    name = last.get((member.role, member.number))
                    again = next((seat for seat in left if seat.name == name), None)
                    if again is not None:
                        found[member.uid] = again
                        left.remove(again)
            rest = [member.uid for member in mine if member.uid not in found]
            found.update(zip(rest, left, strict=False))
        return found


def counts_of(allocation: Allocation) -> dict[str, int]:
    """How many workers of each role an allocation has."""
    counts: dict[str, int] = {}
    for part in allocation.parts:
        counts[part.role] = counts.get(part.role, 0) + part.workers
    return counts


def vacant(allocation: Allocation, taken: Iterable[Seat]) -> list[Seat]:
    """The seats without a pod."""
    names = {seat.name for seat in taken}
    return [seat for seat in seats(allocation) if seat.name not in names]


def _weight(need: Resources) -> tuple[int, int, int, str]:
    return need.gpu_milli, need.cpu_milli, need.memory_mib, repr(need)
