"""Disruption budgets: which workloads must not be chosen to make room.

The server refuses an eviction that a budget does not allow, but then the core has already counted
on it. So gangs and Jobs are protected before: they may only be evicted as a whole, and are
protected if a budget allows fewer disruptions than they have pods under it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from roost.core import JobId, Protected
from roost.kubernetes.client.kinds import DISRUPTION_BUDGETS, Object
from roost.kubernetes.objects.pods import is_bound, is_over

if TYPE_CHECKING:
    from roost.kubernetes.operator.workload import OperatorContext


class PodHolder(Protocol):
    """A workload that has pods."""

    @property
    def pods(self) -> Mapping[str, Object]:
        """All of them, by whatever name."""
        ...


class DisruptionBudgets:
    """Which workloads budgets protect."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        #: Namespaces in which budgets or pods changed.
        self._dirty: set[str] = set()

    def changed(self, budget: Object) -> None:
        """A budget came, changed or is gone."""
        self._dirty.add(budget["metadata"]["namespace"])

    def changes(self, workloads: Mapping[JobId, PodHolder], now: float) -> Iterator[Protected]:
        """What is said of those that hold something, where that is another than before."""
        found = self._by_namespace()
        dirty, self._dirty = self._dirty | found.keys(), set()
        if not dirty:
            return
        for job, workload in workloads.items():
            pods = [pod for pod in workload.pods.values() if is_bound(pod) and not is_over(pod)]
            known = self._context.core.jobs.get(job)
            if not pods or known is None:
                continue
            namespace = pods[0]["metadata"]["namespace"]
            if namespace not in dirty:
                continue
            why = _protection(found.get(namespace, []), pods)
            if why != known.protected:
                yield Protected(now, job, why)

    def forbids(self, pods: Sequence[Object]) -> str:
        """Why pods of one namespace may not go together, as far as is known; empty if they may."""
        if not pods:
            return ""
        namespace = pods[0]["metadata"]["namespace"]
        return _protection(self._by_namespace().get(namespace, []), pods)

    def _by_namespace(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for (namespace, _), budget in self._context.objects(DISRUPTION_BUDGETS).items():
            found.setdefault(namespace, []).append(budget)
        return found


def _protection(budgets: Sequence[Object], pods: Sequence[Object]) -> str:
    """Why these pods must not be evicted together; nothing, if they may."""
    seen: dict[str, str] = {}
    for budget in budgets:
        selector = budget.get("spec", {}).get("selector")
        under = [pod for pod in pods if matches(selector, pod["metadata"].get("labels") or {})]
        allowed = int(budget.get("status", {}).get("disruptionsAllowed") or 0)
        if under and len(under) > allowed:
            name = budget["metadata"]["name"]
            return f"the disruption budget {name} allows {allowed} of its {len(under)} pods to go"
        for pod in under:  # the server evicts no pod that has two, and no time will mend that
            uid, name = pod["metadata"]["uid"], budget["metadata"]["name"]
            if uid in seen:
                return f"two disruption budgets, {seen[uid]} and {name}, are about one pod of it"
            seen[uid] = name
    return ""


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector of labels selects these; one that is not there selects nothing."""
    if selector is None:
        return False
    if not (selector.get("matchLabels") or {}).items() <= labels.items():
        return False
    return all(_meets(each, labels) for each in selector.get("matchExpressions") or ())


def _meets(wanted: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = wanted["key"], wanted.get("values") or ()
    match wanted["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
