"""Who is where: pods on nodes, and how many of those that a term means are in each domain.

What was counted once is kept up to date as pods come and go. So a gang of many pods, each of which
changes what the next one finds, does not count all pods of the cluster for every one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from roost.core import NodeId
from roost.kubernetes.objects.neighbours import Labels, PodTerm, Selector, Wishes

#: How many different questions are remembered.
_MOST = 256

PodKey: TypeAlias = tuple[str, str]
#: A topology and a domain in it.
Domain: TypeAlias = tuple[str, str]


class Resident(NamedTuple):
    """A pod on a node, as its neighbours see it."""

    node: NodeId
    namespace: str
    labels: Labels
    leaves: bool
    wishes: Wishes


class _ByNode(NamedTuple):
    """The question of a spread: pods of a namespace, by node."""

    namespace: str
    selector: Selector


class Census:
    """Pods and nodes, and answers about them."""

    def __init__(self) -> None:
        self.nodes: dict[NodeId, Labels] = {}
        self.namespaces: dict[str, Labels] = {}
        self._pods: dict[PodKey, Resident] = {}
        #: Terms of pods that keep others away, and how many pods do so in each domain.
        self.apart: dict[PodTerm, Counter[Domain]] = {}
        #: Terms of pods that like or dislike others, and how much they do so in each domain.
        self.likings: dict[PodTerm, Counter[Domain]] = {}
        self._near: dict[tuple[PodTerm, ...], Counter[Domain]] = {}
        self._by_node: dict[_ByNode, Counter[NodeId]] = {}

    def forget_answers(self) -> None:
        """Nodes or namespaces are others: count anew."""
        self._near.clear()
        self._by_node.clear()
        self.apart.clear()
        self.likings.clear()
        for pod in self._pods.values():
            self._keep_away(pod, 1)

    def put(self, key: PodKey, pod: Resident | None) -> bool:
        """A pod is there, or is not any more; whether that changes anything."""
        before = self._pods.get(key)
        if before == pod:
            return False
        if before is not None:
            del self._pods[key]
            self._count(before, -1)
        if pod is not None:
            self._pods[key] = pod
            self._count(pod, 1)
        return True

    def domains(self, node: NodeId, terms: tuple[PodTerm, ...]) -> Iterator[Domain]:
        """The domains of a node that terms speak of."""
        labels = self.nodes.get(node) or {}
        for key in {term.key for term in terms}:
            if key in labels:
                yield key, labels[key]

    def is_meant(self, terms: tuple[PodTerm, ...], namespace: str, labels: Labels) -> bool:
        """Whether all terms mean a pod."""
        there = self.namespaces.get(namespace) or {}
        return all(term.matches(namespace, labels, there) for term in terms)

    def near(self, terms: tuple[PodTerm, ...]) -> Counter[Domain]:
        """How many pods that all of these terms mean are in each domain."""
        found = self._near.get(terms)
        if found is None:
            _make_room(self._near)
            found = self._near[terms] = Counter()
            for pod in self._pods.values():
                if self.is_meant(terms, pod.namespace, pod.labels):
                    found.update(self.domains(pod.node, terms))
        return found

    def by_node(self, namespace: str, selector: Selector) -> Counter[NodeId]:
        """How many pods of a namespace that are to stay are selected, on each node."""
        question = _ByNode(namespace, selector)
        found = self._by_node.get(question)
        if found is None:
            _make_room(self._by_node)
            found = self._by_node[question] = Counter()
            for pod in self._pods.values():
                if _is_asked_for(pod, question):
                    found[pod.node] += 1
        return found

    def _count(self, pod: Resident, by: int) -> None:
        for terms, counter in self._near.items():
            if self.is_meant(terms, pod.namespace, pod.labels):
                for domain in self.domains(pod.node, terms):
                    counter[domain] += by
        for question, counts in self._by_node.items():
            if _is_asked_for(pod, question):
                counts[pod.node] += by
        self._keep_away(pod, by)

    def _keep_away(self, pod: Resident, by: int) -> None:
        """Count what a pod wants of others: to be kept away, or to be near rather than far."""
        for term in pod.wishes.apart:
            self._add(self.apart, term, pod, by)
        for weight, term in pod.wishes.likings:
            self._add(self.likings, term, pod, weight * by)

    def _add(
        self, to: dict[PodTerm, Counter[Domain]], term: PodTerm, pod: Resident, many: int
    ) -> None:
        counter = to.setdefault(term, Counter())
        for domain in self.domains(pod.node, (term,)):
            counter[domain] += many
            if not counter[domain]:
                del counter[domain]
        if not counter:
            del to[term]


def _is_asked_for(pod: Resident, question: _ByNode) -> bool:
    return (
        not pod.leaves
        and pod.namespace == question.namespace
        and question.selector.matches(pod.labels)
    )


def _make_room(answers: dict[Any, Any]) -> None:
    if len(answers) >= _MOST:
        del answers[next(iter(answers))]
