"""Affinity and anti-affinity between pods, and spread, with kube-scheduler's meaning.

- A pod must not go to a domain where a pod is that keeps it away, nor where one is that it keeps
  away. A node outside of the topology is in no domain.
- A pod that wants to be near others goes to domains in which pods are that *all* its terms mean. If
  there is none anywhere, it goes to any domain, provided that its terms mean itself.
- A spread counts the pods of its namespace by domain, on nodes that are in all its topologies and,
  unless it says otherwise, that the pod's node affinity names. It does not count pods that leave.
- What is preferred keeps no pod away: it gives points to nodes (``likings``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from roost.core import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import NAMESPACES, NODES, PODS
from roost.kubernetes.filters.division import Demand, Demands
from roost.kubernetes.filters.neighbours.census import Census, Domain, PodKey, Resident
from roost.kubernetes.filters.neighbours.likings import by_neighbours, by_spread
from roost.kubernetes.objects.constraints import constraints_of, selects, tolerated
from roost.kubernetes.objects.neighbours import Labels, Spread, Wishes, wishes_of
from roost.kubernetes.objects.nodes import NodeFacts, facts_of
from roost.kubernetes.objects.pods import is_bound, is_leaving, is_over
from roost.kubernetes.objects.preferences import NodePoints
from roost.kubernetes.objects.values import labels_of

if TYPE_CHECKING:
    from roost.kubernetes.client.kinds import Object, ResourceKind


class _Asking(NamedTuple):
    """A pod that looks for a node."""

    namespace: str
    labels: Labels
    wishes: Wishes


class _Bounds(NamedTuple):
    """A spread as it stands: pods by domain, and the most that a domain may have before."""

    spread: Spread
    counts: Counter[str]
    most: int


class NeighbourFilter:
    """Keeps pods where their neighbours, and those of others, want them."""

    kinds: tuple[ResourceKind, ...] = (NAMESPACES,)

    def __init__(self) -> None:
        self._census = Census()
        self._facts: dict[NodeId, NodeFacts] = {}
        #: Pods that the server says are on a node, and pods that are counted there before.
        self._there: dict[PodKey, Resident] = {}
        self._reserved: dict[PodKey, Resident] = {}

    def object_changed(self, kind: ResourceKind, old: Object | None, new: Object | None) -> bool:
        """Note a pod, a node or a namespace; whether verdicts may be others from now on."""
        found = new or old
        if found is None:
            return False
        if kind is PODS:
            key = _key(found)
            resident = None if new is None or not is_bound(new) or is_over(new) else _resident(new)
            if resident is None:
                self._there.pop(key, None)
            else:
                self._there[key] = resident
            return self._put(key)
        labels = {} if new is None else labels_of(new)
        if kind is NODES:
            return self._node(NodeId(found["metadata"]["name"]), new, labels)
        name = str(found["metadata"]["name"])
        if kind is not NAMESPACES or self._census.namespaces.get(name) == labels:
            return False
        self._census.namespaces[name] = labels
        self._census.forget_answers()
        return True

    def _node(self, name: NodeId, node: Object | None, labels: Labels) -> bool:
        before = self._facts.pop(name, None)
        if node is not None:
            self._facts[name] = facts_of(node)
        if node is not None and before is not None and before.labels == labels:
            return before != self._facts[name]  # more room may be what a gang waits for
        if node is None:
            self._census.nodes.pop(name, None)
        else:
            self._census.nodes[name] = labels
        self._census.forget_answers()
        return True

    def concerns(self, pod: Object) -> bool:
        """Whether it has wishes, or a pod keeps it away from somewhere."""
        spec = pod["spec"]
        if spec.get("topologySpreadConstraints"):
            return True
        affinity = spec.get("affinity") or {}
        if affinity.get("podAffinity") or affinity.get("podAntiAffinity"):
            return True
        census = self._census
        if not (census.apart or census.likings):
            return False
        asking = _asking_of(pod, Wishes())
        return any(
            census.is_meant((term,), asking.namespace, asking.labels)
            for terms in (census.apart, census.likings)
            for term in terms
        )

    def refusals(self, pod: Object, nodes: Iterable[Object]) -> dict[NodeId, str]:
        """Of these nodes those that a pod must not go to now, each with why."""
        asking = _asking_of(pod, wishes_of(pod))
        shut = set(self._keeping_away(asking))
        wishes = asking.wishes
        wanted = self._census.near(wishes.near) if wishes.near else Counter()
        alone = bool(wishes.near) and self._is_first(asking, wanted)
        apart = [(term.key, self._census.near((term,))) for term in wishes.apart]
        bounds = self._bounds(pod, asking, wishes.spread)
        refused: dict[NodeId, str] = {}
        for node in nodes:
            name, labels = NodeId(node["metadata"]["name"]), labels_of(node)
            if any(labels.get(key) == value for key, value in shut):
                refused[name] = "a pod there keeps it away"
            elif any(key in labels and found[key, labels[key]] > 0 for key, found in apart):
                refused[name] = "a pod is there that it keeps away from"
            elif any(
                term.key not in labels or not (alone or wanted[term.key, labels[term.key]] > 0)
                for term in wishes.near
            ):
                refused[name] = "no pod is there that it wants to be near"
            elif why := _crowded(labels, bounds):
                refused[name] = why
        return refused

    def preferences(self, pod: Object, nodes: Iterable[Object]) -> NodePoints:
        """How much better some of these nodes are than others; empty if all are equal."""
        asking = _asking_of(pod, wishes_of(pod))
        facts = [
            self._facts[name]
            for node in nodes
            if (name := NodeId(node["metadata"]["name"])) in self._facts
        ]
        found: Counter[NodeId] = Counter()
        domains = self._liked(asking)
        if domains:
            found.update(by_neighbours(facts, domains))
        if asking.wishes.soft_spread:
            bounds = self._bounds(pod, asking, asking.wishes.soft_spread)
            counts = [(spread, counts) for spread, counts, _ in bounds]
            found.update(by_spread(facts, counts))
        return found

    def _liked(self, asking: _Asking) -> Counter[Domain]:
        """How good domains are because of the pods there, by what they and this one like."""
        census = self._census
        found: Counter[Domain] = Counter()
        for weight, term in asking.wishes.likings:
            for domain, count in census.near((term,)).items():
                found[domain] += weight * count
        for term, domains in census.likings.items():
            if census.is_meant((term,), asking.namespace, asking.labels):
                found.update(domains)
        return found

    def demands(self, pods: Sequence[Object]) -> Demands | None:
        """What pods that wait ask of each other; None: they do not, or not all the same."""
        found = _asking_of(pods[0], wishes_of(pods[0]))
        wishes, census = found.wishes, self._census
        terms = [(term,) for term in wishes.apart]
        meant = [census.is_meant(term, found.namespace, found.labels) for term in terms]
        if wishes.near or not (any(meant) or any(_selects(one, found) for one in wishes.spread)):
            return None
        for pod in pods[1:]:
            other = _asking_of(pod, wishes_of(pod))
            if other.wishes != wishes or other.namespace != found.namespace:
                return None
            if [census.is_meant(term, other.namespace, other.labels) for term in terms] != meant:
                return None
            if any(_selects(one, other) != _selects(one, found) for one in wishes.spread):
                return None
        apart = [
            Demand(term.key, {}, 0) for term, own in zip(wishes.apart, meant, strict=True) if own
        ]
        spread = [
            Demand(one.key, counts, one.max_skew, one.min_domains)
            for one, counts, _ in self._bounds(pods[0], found, wishes.spread)
            if _selects(one, found)
        ]
        return Demands((*apart, *spread), len(spread) == len(wishes.spread))

    def together(self, pod: Object) -> str:
        """The topology in which it and its like gather, if none of them is there yet."""
        wishes = wishes_of(pod)
        if not wishes.near:
            return ""
        first = self._is_first(_asking_of(pod, wishes), self._census.near(wishes.near))
        return wishes.near[0].key if first else ""

    def reserve(self, pod: Object, node: NodeId) -> None:
        """Count a pod as being there from now on."""
        key = _key(pod)
        self._reserved[key] = _resident(pod)._replace(node=node)
        self._put(key)

    def release(self, pod: Object) -> None:
        """Count it only where the server says that it is."""
        key = _key(pod)
        self._reserved.pop(key, None)
        self._put(key)

    async def prepare(self, pod: Object, node: NodeId) -> None:
        """Nothing has to be written."""

    def _put(self, key: PodKey) -> bool:
        return self._census.put(key, self._there.get(key) or self._reserved.get(key))

    def _keeping_away(self, asking: _Asking) -> Iterable[Domain]:
        """Domains in which pods are that keep this one away."""
        for term, domains in self._census.apart.items():
            if self._census.is_meant((term,), asking.namespace, asking.labels):
                yield from domains

    def _is_first(self, asking: _Asking, wanted: Counter[Domain]) -> bool:
        """Whether no pod is there that it wants to be near, but for itself."""
        if any(count > 0 for count in wanted.values()):
            return False
        return self._census.is_meant(asking.wishes.near, asking.namespace, asking.labels)

    def _bounds(self, pod: Object, asking: _Asking, spreads: tuple[Spread, ...]) -> list[_Bounds]:
        if not spreads:
            return []
        constraints = constraints_of(pod["spec"])
        selected = selects(constraints)
        keys = [spread.key for spread in spreads]
        inside = [
            facts for facts in self._facts.values() if all(key in facts.labels for key in keys)
        ]
        found = []
        for spread in spreads:
            on = self._on(asking.namespace, spread)
            counts: Counter[str] = Counter()
            for facts in inside:
                if spread.honours_affinity and not selected(facts):
                    continue
                if spread.honours_taints and not all(
                    tolerated(taint, constraints.tolerations) for taint in facts.taints
                ):
                    continue
                counts[facts.labels[spread.key]] += on[facts.name]
            least = 0 if len(counts) < spread.min_domains else min(counts.values(), default=0)
            most = least + spread.max_skew - _selects(spread, asking)
            found.append(_Bounds(spread, counts, most))
        return found

    def _on(self, namespace: str, spread: Spread) -> Counter[NodeId]:
        if spread.selector is None:
            return Counter()
        return self._census.by_node(namespace, spread.selector)


def _selects(spread: Spread, pod: _Asking) -> bool:
    """Whether a spread counts the pod itself."""
    return spread.selector is not None and spread.selector.matches(pod.labels)


def _crowded(labels: Labels, bounds: Iterable[_Bounds]) -> str:
    """Why a spread keeps a pod off a node; empty if none does."""
    for spread, counts, most in bounds:
        if spread.key not in labels:
            return f"it has no label {spread.key}, over which the pod is spread"
        if counts[labels[spread.key]] > most:
            return f"too many pods like it are in its {spread.key}"
    return ""


def _asking_of(pod: Object, wishes: Wishes) -> _Asking:
    meta = pod["metadata"]
    return _Asking(str(meta.get("namespace") or ""), meta.get("labels") or {}, wishes)


def _resident(pod: Object) -> Resident:
    try:
        wishes = wishes_of(pod)
    except InvalidSpec:  # it is there, whatever it says
        wishes = Wishes()
    meta = pod["metadata"]
    node = NodeId(pod["spec"].get("nodeName") or "")
    namespace, labels = str(meta.get("namespace") or ""), meta.get("labels") or {}
    return Resident(node, namespace, labels, is_leaving(pod), wishes)


def _key(pod: Object) -> PodKey:
    meta = pod["metadata"]
    return str(meta.get("namespace") or ""), str(meta["name"])
