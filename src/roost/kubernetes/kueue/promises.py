"""A tree of Kueue's queues and cohorts as queues of the core.

A ClusterQueue or Cohort may be called as a queue of Roost's own: theirs have names of their own in
the core, ``kueue:NAME`` and ``kueue-cohort:NAME``. A cohort that is only named needs no object.

Promises are made by flavour there and by kind of GPU here. A flavour is of the kind that all GPUs
of its nodes are; its CPUs and memory are added to those of the queue's other flavours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from roost.core import QueueId, QueueSpec
from roost.core.quota import GPU, KIND, Quota
from roost.core.quota_tree import PLENTY
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.kueue.objects import Flavour, FlavourQuota, KueueCohort, KueueQueue
from roost.kubernetes.objects.nodes import KIND_LABELS, node_spec
from roost.kubernetes.objects.values import labels_of

_QUEUE: Final = "kueue:"
_COHORT: Final = "kueue-cohort:"

#: The kinds of GPU on the nodes of each flavour.
Kinds = Mapping[str, frozenset[str]]


def queue_id(name: str) -> QueueId:
    """What a ClusterQueue is called in the core."""
    return QueueId(_QUEUE + name)


def cohort_id(name: str) -> QueueId:
    """What a Cohort is called in the core."""
    return QueueId(_COHORT + name)


def is_of_kueue(queue: str) -> bool:
    """Whether a queue of the core is one of Kueue's."""
    return queue.startswith((_QUEUE, _COHORT))


def is_cohort(queue: str) -> bool:
    """Whether a queue of the core is a cohort of Kueue's."""
    return queue.startswith(_COHORT)


def own_name(queue: str) -> str:
    """What one of Kueue's queues is called there."""
    return queue.partition(":")[2]


def queue_specs(
    queues: Iterable[KueueQueue],
    cohorts: Mapping[str, KueueCohort],
    flavours: Mapping[str, Flavour],
    kinds: Kinds,
) -> dict[QueueId, QueueSpec]:
    """The queues of the core, cohorts first."""
    queues = list(queues)
    named = {one.cohort for one in queues if one.cohort}
    named |= {one.parent for one in cohorts.values() if one.parent} | set(cohorts)
    found: dict[QueueId, QueueSpec] = {}
    for name in sorted(named):
        found[cohort_id(name)] = _cohort(cohorts.get(name) or KueueCohort(name), flavours, kinds)
    for one in queues:
        found[queue_id(one.name)] = _queue(one, flavours, kinds)
    return found


def kinds_of(flavours: Iterable[Flavour], nodes: Iterable[Object]) -> dict[str, frozenset[str]]:
    """The kinds of GPU on the nodes of each flavour."""
    known = list(flavours)
    found: dict[str, set[str]] = {one.name: set() for one in known}
    for node in nodes:
        for name, kind in flavours_of(known, node):
            found[name].add(kind)
    return {name: frozenset(kinds) for name, kinds in found.items()}


def flavours_of(flavours: Iterable[Flavour], node: Object) -> list[tuple[str, str]]:
    """The flavours that a node is of, each with the kind of its GPUs."""
    try:
        spec = node_spec(node)
    except InvalidSpec:
        return []
    labels = labels_of(node)
    return [
        (one.name, spec.kind)
        for one in flavours
        if spec.gpus and all(labels.get(key) == value for key, value in one.labels)
    ]


def shown(queue: str) -> str:
    """One of Kueue's queues as people know it."""
    return f"{'Cohort' if is_cohort(queue) else 'ClusterQueue'} {own_name(queue)}"


def stopped(name: QueueId) -> QueueSpec:
    """A queue in which nothing may begin: what runs in it goes on, and nobody lends from it."""
    return QueueSpec(name, quota_milli=0, limit_milli=0)


def kind_of(flavour: Flavour | None, kinds: frozenset[str]) -> str:
    """The kind of GPU that a flavour is; empty if it is none, or of several."""
    if flavour is None or not flavour.labels:
        return ""
    if kinds:
        return next(iter(kinds)) if len(kinds) == 1 else ""
    labels = dict(flavour.labels)
    return next((labels[name] for name in KIND_LABELS if labels.get(name)), "")


@dataclass(slots=True)
class _Sum:
    """What several flavours promise of one resource."""

    nominal: int = 0
    borrowing: int | None = 0
    lending: int = 0
    is_bounded: bool = False

    def add(self, quota: FlavourQuota) -> None:
        """Count one more flavour."""
        self.nominal = min(self.nominal + quota.nominal, PLENTY)
        if quota.borrowing is None or self.borrowing is None:
            self.borrowing = None
        else:
            self.borrowing = min(self.borrowing + quota.borrowing, PLENTY)
        self.is_bounded = self.is_bounded or quota.lending is not None
        self.lending += quota.nominal if quota.lending is None else quota.lending

    @property
    def lent(self) -> int | None:
        """What others may have of it; None: all of it."""
        return min(self.lending, self.nominal) if self.is_bounded else None


def _sums(
    quotas: Iterable[FlavourQuota], flavours: Mapping[str, Flavour], kinds: Kinds
) -> dict[str, _Sum]:
    found: dict[str, _Sum] = {}
    for quota in quotas:
        found.setdefault(quota.resource, _Sum()).add(quota)
        if quota.resource == GPU:
            kind = kind_of(flavours.get(quota.flavour), kinds.get(quota.flavour, frozenset()))
            if kind:
                found.setdefault(KIND + kind, _Sum()).add(quota)
    return found


def _queue(one: KueueQueue, flavours: Mapping[str, Flavour], kinds: Kinds) -> QueueSpec:
    if one.stop:
        return stopped(queue_id(one.name))
    sums = _sums(one.quotas, flavours, kinds)
    gpus = sums.pop(GPU, _Sum())  # what it does not cover it may not have
    parent = cohort_id(one.cohort) if one.cohort else None
    return QueueSpec(
        queue_id(one.name),
        quota_milli=gpus.nominal,
        limit_milli=_limit(gpus, parent),
        weight=one.weight,
        parent=parent,
        lending_milli=gpus.lent if parent else None,
        quotas=_promises(sums, parent),
    )


def _cohort(one: KueueCohort, flavours: Mapping[str, Flavour], kinds: Kinds) -> QueueSpec:
    sums = _sums(one.quotas, flavours, kinds)
    gpus = sums.pop(GPU, None)
    # A core refuses a queue that is its own parent; a circle of two it tells of.
    parent = cohort_id(one.parent) if one.parent and one.parent != one.name else None
    return QueueSpec(
        cohort_id(one.name),
        quota_milli=None if gpus is None else gpus.nominal,
        limit_milli=None if gpus is None or parent is None else _limit(gpus, parent),
        weight=one.weight,
        parent=parent,
        lending_milli=gpus.lent if parent and gpus is not None else None,
        quotas=_promises(sums, parent),
    )


def _limit(gpus: _Sum, parent: QueueId | None) -> int | None:
    """What it may have of all GPUs: without a cohort what it was promised."""
    borrowing = gpus.borrowing if parent is not None else 0
    return None if borrowing is None else gpus.nominal + borrowing


def _promises(sums: Mapping[str, _Sum], parent: QueueId | None) -> tuple[Quota, ...]:
    if parent is None:
        return tuple(Quota(name, each.nominal, 0) for name, each in sums.items())
    return tuple(
        Quota(name, each.nominal, each.borrowing, each.lent) for name, each in sums.items()
    )
