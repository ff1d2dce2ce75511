"""All filters of a leadership as one, and whose turn it is to ask them.

Verdicts change with every pod that is placed. So workloads that filters have a say about come to
the core a few at a time: each with nodes that nothing speaks against *now*. How many come at once
doubles while all that the core decides about them can be done, and begins again at one when a
decision has to be taken back, because another one of the same moment stands against it.

What waits in the core keeps its verdict for a while after something changed: looked at anew are
those whose verdict is the oldest, and the more there are the longer each one waits for it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from roost.core import JobId, NodeId
from roost.kubernetes.client.kinds import PODS, Object, ResourceKind
from roost.kubernetes.filters.node_filter import (
    CountingFilter,
    GangFilter,
    NodeFilter,
    PodRoom,
    PreferredNodes,
)
from roost.kubernetes.objects.pods import is_bound, is_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.core.extras import Extras
    from roost.kubernetes.filters.division import Demands
    from roost.kubernetes.objects.preferences import NodePoints
    from roost.kubernetes.operator.workload import OperatorContext

#: The most workloads that come to the core at once.
_WIDEST = 64
#: How long a verdict is kept after something changed, and how much longer for each that has one.
_KEPT_S, _KEPT_MORE_S = 0.5, 0.005
#: How many reasons are told.
_TOLD = 3


class FilterFactory(NamedTuple):
    """A filter: the kinds that it wants mirrored, and how it is made for a leadership."""

    kinds: tuple[ResourceKind, ...]
    make: Callable[[OperatorContext], NodeFilter]


class _Verdict(NamedTuple):
    version: int
    at: float


class NodeFilters:
    """What all filters say together; a pod is known by its namespace and name."""

    def __init__(self, filters: Sequence[NodeFilter] = ()) -> None:
        self._filters = filters
        self._of_gangs = [one for one in filters if isinstance(one, GangFilter)]
        self._preferring = [one for one in filters if isinstance(one, PreferredNodes)]
        self._version = 0
        #: Where pods are counted as being that the mirror does not have there yet.
        self._reserved: dict[tuple[str, str], tuple[Object, NodeId]] = {}
        #: Who waits for a turn, who has one now, and how many may have one at once.
        self._waiting: dict[JobId, None] = {}
        self._granted: set[JobId] = set()
        self._width, self._is_contradicted = 1, False
        #: Workloads that wait in the core, those with the oldest verdict first.
        self._standing: dict[JobId, _Verdict] = {}

    # -- what filters say ------------------------------------------------------------------------

    def object_changed(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """Note an object; a pod that is bound or gone is not reserved any more."""
        if not self._filters:
            return
        for one in self._filters:
            if (kind in one.kinds or kind.plural in ("pods", "nodes")) and one.object_changed(
                kind, old, new
            ):
                self._version += 1
        if kind is PODS and self._reserved:
            found = new or old
            if found is not None and (new is None or is_bound(new) or is_over(new)):
                self.release(found)

    def concerns(self, pod: Object) -> bool:
        """Whether any has a say about a pod."""
        return any(one.concerns(pod) for one in self._filters)

    def refusals(self, pod: Object, nodes: Sequence[Object]) -> dict[NodeId, str]:
        """Of these nodes those that a pod must not go to now, each with the first reason.

        InvalidSpec with a sentence if it can go nowhere.
        """
        found: dict[NodeId, str] = {}
        for one in self._filters:
            if one.concerns(pod):
                for node, why in one.refusals(pod, nodes).items():
                    found.setdefault(node, why)
        return found

    def preferences(self, pod: Object, nodes: Sequence[Object]) -> NodePoints:
        """How good each of these nodes is for a pod; empty: all alike.

        Pods that came at once would all choose the same node, so the next ones come by themselves.
        """
        found: Counter[NodeId] = Counter()
        for one in self._preferring:
            if one.concerns(pod):
                found.update(one.preferences(pod, nodes))
        self._is_contradicted |= len(set(found.values())) > 1
        return found

    def demands(self, pods: Sequence[Object]) -> Demands | None:
        """What the pods of a gang ask of each other; None: nothing, or not all the same."""
        return next((found for one in self._of_gangs if (found := one.demands(pods))), None)

    def together(self, pod: Object) -> str:
        """The label in which the nodes of all pods like this one must be alike; empty: none."""
        return next((key for one in self._filters if (key := one.together(pod))), "")

    def room(self, pod: Object, nodes: Sequence[Object], most: int) -> PodRoom | None:
        """For how many pods like this one there is room on each node; None: nothing is counted."""
        for one in self._filters:
            if isinstance(one, CountingFilter) and one.concerns(pod):
                found = one.room(pod, nodes, most)
                if found is not None:
                    return found
        return None

    def amounts(self, pod: Object) -> Extras:
        """What a pod takes of what filters count, by the names under which queues count it."""
        return tuple(
            amount
            for one in self._filters
            if isinstance(one, CountingFilter) and one.concerns(pod)
            for amount in one.amounts(pod)
        )

    def admit(self, places: Iterable[tuple[Object, Object]]) -> str:
        """Count pods as being on nodes, in an order in which each can go there; or none, and why.

        InvalidSpec with a sentence if one can go nowhere.
        """
        admitted: list[Object] = []
        left, refused = deque(places), 0
        refusal = ""
        try:
            # A pod may stand against another only until a third one is there: all are tried again.
            while left and refused < len(left):
                pod, node = left.popleft()
                name = NodeId(node["metadata"]["name"])
                why = self.refusals(pod, (node,)) if self.concerns(pod) else {}
                if why:
                    refusal = f"{pod['metadata']['name']} cannot go to {name}: {why[name]}"
                    left.append((pod, node))
                    refused += 1
                    continue
                self.reserve(pod, name)
                admitted.append(pod)
                refused = 0
            if left:
                self._is_contradicted = True
                return refusal
            admitted = []
            return ""
        finally:
            for pod in admitted:
                self.release(pod)

    def reserve(self, pod: Object, node: NodeId) -> None:
        """Count a pod as being on a node before the mirror has it there."""
        if not self._filters:
            return
        self.release(pod)
        self._reserved[_key(pod)] = pod, node
        for one in self._filters:
            one.reserve(pod, node)
        self._version += 1

    def release(self, pod: Object) -> None:
        """Forget where a pod was counted; the mirror knows, or it did not come to it."""
        reserved = self._reserved.pop(_key(pod), None)
        if reserved is not None:
            for one in self._filters:
                one.release(reserved[0])
            self._version += 1

    def is_reserved(self, pod: Object) -> bool:
        """Whether a pod is counted somewhere before the mirror has it there."""
        return bool(self._reserved) and _key(pod) in self._reserved

    async def prepare(self, pod: Object, node: NodeId) -> None:
        """Do what must be done before a pod is bound to a node; Retryable: it cannot be, now."""
        for one in self._filters:
            if one.concerns(pod):
                await one.prepare(pod, node)

    # -- turns -----------------------------------------------------------------------------------

    def take_turn(self, job: JobId, now: float) -> bool:
        """Whether a workload may come to the core now; if not, it is told when it may."""
        if job not in self._granted:
            if len(self._granted) >= self._width:
                self._waiting[job] = None
                return False
            self._granted.add(job)
        self._waiting.pop(job, None)
        self._standing.pop(job, None)  # to the end
        self._standing[job] = _Verdict(self._version, now)
        return True

    @property
    def open(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._waiting)

    def begin_turns(self, now: float) -> list[JobId]:
        """Those that have a turn in this batch: such as wait for it, then the oldest verdicts."""
        if self._granted:
            self._width = 1 if self._is_contradicted else min(2 * self._width, _WIDEST)
            self._is_contradicted = False
            self._granted = set()
        while self._waiting and len(self._granted) < self._width:
            job = next(iter(self._waiting))
            del self._waiting[job]
            self._granted.add(job)
        found = list(self._granted)
        for job, verdict in self._standing.items():
            if len(self._granted) >= self._width or now < self._due(verdict):
                break
            if verdict.version < self._version and job not in self._granted:
                self._granted.add(job)
                found.append(job)
        return found

    def due_at(self) -> float | None:
        """When the oldest verdict has to be looked at anew; None: none is out of date."""
        oldest = next(iter(self._standing.values()), None)
        if oldest is None or oldest.version == self._version:
            return None
        return self._due(oldest)

    def _due(self, verdict: _Verdict) -> float:
        return verdict.at + _KEPT_S + _KEPT_MORE_S * len(self._standing)

    def is_standing(self, job: JobId) -> bool:
        """Whether a workload waits in the core with a verdict."""
        return job in self._standing

    def is_stale(self, job: JobId) -> bool:
        """Whether a workload has a turn to look at its verdict anew."""
        verdict = self._standing.get(job)
        return verdict is not None and job in self._granted and verdict.version < self._version

    def forget(self, job: JobId) -> None:
        """A workload does not wait any more."""
        self._standing.pop(job, None)
        self._waiting.pop(job, None)


def summary(refusals: Mapping[NodeId, str]) -> str:
    """Why nodes are refused, in a few words: the most frequent reasons."""
    counts = Counter(refusals.values()).most_common(_TOLD + 1)
    told = [f"{n} node{'s' if n > 1 else ''}: {why}" for why, n in counts[:_TOLD]]
    return "; ".join([*told, "and others"] if len(counts) > _TOLD else told)


def _key(pod: Object) -> tuple[str, str]:
    meta = pod["metadata"]
    return meta.get("namespace") or "", meta["name"]
