"""Claims of devices: on which nodes a pod can have those that it asks for, and giving them out.

A claim that has devices binds its pods to the nodes from which these can be used. One that has none
is given some on the node that its first pod goes to. What was decided counts at once, and is
written before the pod is bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from roost.core import NodeId
from roost.errors import InvalidSpec, Retryable
from roost.kubernetes.client.kinds import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Object,
    ResourceKind,
)
from roost.kubernetes.filters.claims.books import ClaimBooks, Decision, Key
from roost.kubernetes.filters.claims.inventory import Inventory
from roost.kubernetes.filters.claims.requests import counts_of
from roost.kubernetes.filters.claims.verdicts import Verdict, claimed, decisions_of
from roost.kubernetes.filters.claims.writing import ClaimWriter, quietly
from roost.kubernetes.filters.node_filter import PodRoom
from roost.kubernetes.objects.nodes import CLASSES, NodeFacts, facts_of
from roost.kubernetes.objects.pods import is_bound, is_over
from roost.kubernetes.objects.values import sections, text

if TYPE_CHECKING:
    from roost.core.extras import Extras
    from roost.kubernetes.operator.workload import OperatorContext

#: The kinds that it looks at.
KINDS: tuple[ResourceKind, ...] = (RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES)
_HOST_NAME = "kubernetes.io/hostname"


@dataclass(slots=True)
class _Plan:
    """A pod that goes to a node: its claims by uid, what is to be written, what was."""

    pod_uid: str
    claims: Mapping[Key, str]
    decided: Mapping[Key, Decision]
    #: Claims that were reserved for it, and whether they were given devices then.
    written: dict[Key, bool] = field(default_factory=dict)
    #: What was written is not to be taken back: it is bound, or gone.
    is_done: bool = False


class ClaimsFilter:
    """Sends pods where their claims can be had."""

    kinds: tuple[ResourceKind, ...] = KINDS

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._inventory = Inventory()
        self._books = ClaimBooks(self._inventory)
        self._writer = ClaimWriter(context, self._books)
        self._classes: dict[str, Object] = {}
        self._facts: dict[NodeId, NodeFacts] = {}
        self._plans: dict[Key, _Plan] = {}
        #: What was worked out since something changed last, for pods that claim the same.
        self._refused: dict[str, dict[NodeId, str]] = {}
        self._rooms: dict[tuple[str, int], dict[NodeId, int]] = {}
        #: Pods that wait, by the claims that they name: these can be several to one claim.
        self._sharers: dict[Key, set[Key]] = {}

    # -- what there is ---------------------------------------------------------------------------

    def object_changed(self, kind: ResourceKind, old: Object | None, new: Object | None) -> bool:
        """Note an object; whether verdicts may be others from now on."""
        is_news = self._noted(kind, old, new)
        if is_news:
            self._forget_answers()
        return is_news

    def _forget_answers(self) -> None:
        self._refused.clear()
        self._rooms.clear()

    def _noted(self, kind: ResourceKind, old: Object | None, new: Object | None) -> bool:
        found = new or old
        if found is None:
            return False
        if kind is PODS:
            return self._pod(found, old, new)
        name = str(found["metadata"]["name"])
        if kind is NODES:
            return self._node(NodeId(name), new)
        if kind is RESOURCE_CLAIMS:
            return self._books.learn(_key(found), new)
        if kind is RESOURCE_SLICES:
            self._inventory.put(name, new)
        elif kind is DEVICE_CLASSES and new is not None:
            self._classes[name] = new
        elif kind is DEVICE_CLASSES:
            self._classes.pop(name, None)
        return kind in self.kinds

    def _pod(self, found: Object, old: Object | None, new: Object | None) -> bool:
        plan = self._plans.get(_key(found))
        if plan is not None and (new is None or is_bound(new) or is_over(new)):
            plan.is_done = True
        if not found["spec"].get("resourceClaims"):
            # The one node where pods are to be together may have room by now.
            return bool(self._sharers) and (new is None or is_over(new))
        waits = new is not None and not is_bound(new) and not is_over(new)
        for key in _shared(found):
            pods = self._sharers.setdefault(key, set())
            (pods.add if waits else pods.discard)(_key(found))
            if not pods:
                del self._sharers[key]
        return old is None or new is None or _claimed(old) != _claimed(new)

    def _node(self, name: NodeId, node: Object | None) -> bool:
        before = self._facts.pop(name, None)
        if node is None:
            return before is not None
        self._facts[name] = facts_of(node)
        return before is None or before.labels != self._facts[name].labels

    # -- what it says ----------------------------------------------------------------------------

    def concerns(self, pod: Object) -> bool:
        """Whether it claims devices."""
        return bool(pod["spec"].get("resourceClaims"))

    def refusals(self, pod: Object, nodes: Iterable[Object]) -> dict[NodeId, str]:
        """Of these nodes those where its claims cannot be had, each with why."""
        verdict = self._verdict(pod)
        # What pods that claim the same are told is the same.
        known = self._refused.setdefault(verdict.sort, {}) if verdict.is_plain else {}
        found = {}
        for node in nodes:
            name = NodeId(node["metadata"]["name"])
            why = known.get(name)
            if why is None:
                placed = verdict.place(self._facts_of(node))
                why = known[name] = placed if isinstance(placed, str) else ""
            if why:
                found[name] = why
        return found

    def together(self, pod: Object) -> str:
        """The host, where pods share a claim with devices of one node."""
        if not self.concerns(pod) or not any(
            len(self._sharers.get(key, ())) > 1 for key in _shared(pod)
        ):
            return ""
        verdict = self._verdict(pod)
        shared = {one.key for one in verdict.undecided()}
        if not shared:
            return ""
        for facts in self._facts.values():
            placed = verdict.place(facts)
            if not isinstance(placed, str):
                local = any(_is_local(placed.given[key]) for key in shared & placed.given.keys())
                return _HOST_NAME if local else ""
        return ""

    def room(self, pod: Object, nodes: Iterable[Object], most: int) -> PodRoom | None:
        """For how many pods like it, each with claims of its own, nodes have devices."""
        verdict = self._verdict(pod)
        if not verdict.sort:
            return None
        known = self._rooms.setdefault((verdict.sort, most), {}) if verdict.is_plain else {}
        rooms = {}
        for node in nodes:
            facts = self._facts_of(node)
            if facts.name not in known:
                known[facts.name] = verdict.room(facts, _key(pod), most)
            rooms[facts.name] = known[facts.name]
        return PodRoom(verdict.sort, rooms)

    def amounts(self, pod: Object) -> Extras:
        """How many devices of each class its claims ask for; one that is not there, for none."""
        counts: Counter[str] = Counter()
        for claim in claimed(pod, self._books):
            counts.update(counts_of(claim))
        return tuple(sorted((f"{CLASSES}{name}", n) for name, n in counts.items() if n > 0))

    def _verdict(self, pod: Object) -> Verdict:
        return Verdict(pod, self._books, self._inventory, self._classes)

    def _facts_of(self, node: Object) -> NodeFacts:
        return self._facts.get(NodeId(node["metadata"]["name"])) or facts_of(node)

    # -- what is decided -------------------------------------------------------------------------

    def reserve(self, pod: Object, node: NodeId) -> None:
        """Give the pod's claims devices of a node, before the API server knows."""
        if not self.concerns(pod):
            return
        self._forget_answers()
        facts, key = self._facts.get(node), _key(pod)
        try:
            placed = self._verdict(pod).place(facts) if facts is not None else "it is gone"
        except InvalidSpec as error:
            placed = str(error)
        if isinstance(placed, str):
            return  # ``prepare`` says so
        decided = dict(decisions_of(placed, node, key))
        for claim, decision in decided.items():
            self._books.decide(claim, decision)
        for one in placed.claims:
            self._books.use(one.key, key)
            earlier = self._books.decisions.get(one.key)
            if earlier is not None and earlier.uid == one.uid and one.key not in decided:
                earlier.pods.add(key)
                decided[one.key] = earlier
        uids = {one.key: one.uid for one in placed.claims}
        self._plans[key] = _Plan(str(pod["metadata"].get("uid")), uids, decided)

    def release(self, pod: Object) -> None:
        """Forget what was decided; what was written for a pod that is not bound is taken back."""
        key = _key(pod)
        plan = self._plans.pop(key, None)
        if plan is None:
            return
        self._forget_answers()
        for claim in plan.claims:
            self._books.leave(claim, key)
        if plan.written and not plan.is_done:
            self._context.spawn(self._take_back(key, plan), f"taking back claims of {key[1]}")

    async def _take_back(self, key: Key, plan: _Plan) -> None:
        for claim, devices in plan.written.items():
            again = self._plans.get(key)
            if again is not None and claim in again.claims:
                continue  # it is used once more
            work = self._writer.give_back(claim, plan.claims[claim], plan.pod_uid, devices=devices)
            await quietly(work, f"claim {claim[1]}")

    async def prepare(self, pod: Object, node: NodeId) -> None:
        """Write the devices of its claims, and that they are reserved for it."""
        plan = self._plans.get(_key(pod))
        if plan is None:
            raise Retryable(f"the claims of {pod['metadata']['name']} cannot be had on {node}", 0.0)
        for claim, uid in plan.claims.items():
            # Perhaps: an answer may be lost.
            plan.written.setdefault(claim, claim in plan.decided)
            gave = await self._writer.reserve(claim, uid, plan.decided.get(claim), pod)
            plan.written[claim] = gave


def _is_local(given: Object) -> bool:
    terms = (given.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    return any(one.get("matchFields") for one in terms)


def _shared(pod: Object) -> list[Key]:
    """The claims that it names itself: others may, too."""
    namespace = str(pod["metadata"].get("namespace") or "")
    try:
        asked = sections(pod["spec"], "resourceClaims")
        return [(namespace, name) for one in asked if (name := text(one, "resourceClaimName"))]
    except InvalidSpec:  # ``refusals`` says so
        return []


def _claimed(pod: Object) -> object:
    return is_bound(pod), is_over(pod), (pod.get("status") or {}).get("resourceClaimStatuses")


def _key(found: Object) -> Key:
    meta = found["metadata"]
    return str(meta.get("namespace") or ""), str(meta["name"])
