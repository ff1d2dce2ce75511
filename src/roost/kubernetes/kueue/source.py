"""Follows Kueue's objects, and lets the core know what they promise.

A source without workloads. While Kueue's own controller runs, Kueue decides which jobs begin: its
queues then promise nothing to the core, and Roost places what was admitted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from roost.core import JobId, QueueChanged, QueueDeleted, QueueId, QueueSpec
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import (
    KUEUE_CLUSTER_QUEUES,
    KUEUE_COHORTS,
    KUEUE_FLAVORS,
    KUEUE_KINDS,
    NAMESPACES,
    NODES,
    PODS,
    Object,
    ResourceKind,
)
from roost.kubernetes.kueue import objects, promises
from roost.kubernetes.kueue.controller import GRACE_S, controllers, controls
from roost.kubernetes.kueue.objects import Flavour, KueueCohort, KueueQueue
from roost.kubernetes.objects.values import labels_of
from roost.kubernetes.operator.workload import DecisionBatch, OperatorContext, PodWorkload

_log = logging.getLogger(__name__)
_Read = TypeVar("_Read", KueueQueue, KueueCohort, Flavour)

#: What is told of every queue while Kueue's controller runs.
DEFERS: Final = (
    "Kueue's controller runs and decides which jobs begin: Roost places what it admitted, and "
    "applies none of its quotas"
)


class KueueQueues:
    """The queues of Kueue, as the core's."""

    kinds: tuple[ResourceKind, ...] = (*KUEUE_KINDS, NODES, PODS, NAMESPACES)

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        #: What the core was told of last.
        self._told: dict[QueueId, QueueSpec] = {}
        #: What was said about each object last.
        self._said: dict[str, str] = {}
        #: The pods of Kueue's controller; whether it decides, also for a while after the last.
        self._controllers: set[str] = set()
        self.defers = False
        #: Of which kinds the GPUs on nodes of a flavour are: how many nodes of each.
        self._kinds: dict[str, Counter[str]] = {}
        self._nodes: dict[str, list[tuple[str, str]]] = {}
        self._flavours: dict[str, Flavour] = {}

    # -- what the loop asks ----------------------------------------------------------------------

    def claim(self, pod: Object) -> JobId | None:  # noqa: ARG002 - whatever it is
        """No pod is of this source."""
        return None

    def open(self, job: JobId) -> PodWorkload | None:  # noqa: ARG002 - whatever it is
        """There are no workloads of this source."""
        return None

    def initial_jobs(self) -> Iterable[JobId]:
        """The core hears of queues before it hears of jobs."""
        self._controllers = set(controllers(self._context.objects(PODS).values()))
        self.defers = bool(self._controllers)
        self._refresh()
        return ()

    def object_changed(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """An object changed: what is promised may be something else now."""
        if kind is PODS:
            self._pod_changed(old, new)
        elif kind is NODES:
            self._node_changed(old, new)
        elif kind is NAMESPACES:
            if _labels(old) != _labels(new):
                self._look_again()
        elif not (old and new and _said_in(old) == _said_in(new)):
            self._refresh()
            self._look_again()

    def after_decision(self, batch: DecisionBatch) -> None:
        """Queues that nobody uses any more are forgotten."""
        if batch.jobs and any(name not in self._wanted for name in self._told):
            self._tell_core()

    # -- what is promised ------------------------------------------------------------------------

    _wanted: Mapping[QueueId, QueueSpec] = {}

    def _refresh(self) -> None:
        flavours = self._read(KUEUE_FLAVORS, objects.flavour)
        if flavours != self._flavours:
            self._flavours = flavours
            self._kinds, self._nodes = {}, {}
            for node in self._context.objects(NODES).values():
                self._count(node)
        queues = self._read(KUEUE_CLUSTER_QUEUES, objects.cluster_queue)
        cohorts = self._read(KUEUE_COHORTS, objects.cohort)
        for one in queues.values():
            self._say_notes(one)
        if self.defers:
            self._wanted = {
                promises.queue_id(name): QueueSpec(promises.queue_id(name)) for name in queues
            }
        else:
            kinds = {name: frozenset(+found) for name, found in self._kinds.items()}
            self._wanted = promises.queue_specs(queues.values(), cohorts, flavours, kinds)
        self._keep_unreadable()
        self._tell_core()

    def _read(
        self, versions: tuple[ResourceKind, ...], read: Callable[[Object], _Read]
    ) -> dict[str, _Read]:
        """All objects of a kind that can be read; what is wrong with others is said of them."""
        found: dict[str, _Read] = {}
        for (_, name), one in sorted(objects.every(self._context, versions).items()):
            try:
                found[name] = read(one)
            except InvalidSpec as error:
                self._say(one, "NotUnderstood", str(error), warning=True)
        return found

    def _keep_unreadable(self) -> None:
        """What can be read no longer keeps what it was promised; it may only be half written."""
        there = {name for _, name in objects.every(self._context, KUEUE_CLUSTER_QUEUES)}
        kept = {
            name: spec
            for name, spec in self._told.items()
            if name not in self._wanted
            and not promises.is_cohort(name)
            and promises.own_name(name) in there
        }
        if kept and not self.defers:
            parents = {spec.parent for spec in kept.values() if spec.parent is not None}
            bare = {name: QueueSpec(name) for name in parents if name not in self._wanted}
            self._wanted = {**bare, **self._wanted, **kept}

    def _tell_core(self) -> None:
        now = self._context.now()
        for name, spec in self._wanted.items():
            if self._told.get(name) != spec:
                self._told[name] = spec
                self._context.report(QueueChanged(now, spec))
        used: set[str] | None = None
        for name in [name for name in self._told if name not in self._wanted]:
            if used is None:
                used = {str(job.spec.queue) for job in self._context.core.jobs.values()}
            left = promises.stopped(name)
            if name not in used:
                del self._told[name]
                self._context.report(QueueDeleted(now, name))
            elif self._told[name] != left:
                self._told[name] = left
                self._context.report(QueueChanged(now, left))

    def _look_again(self) -> None:
        """Jobs in these queues may be held now, or go elsewhere, or have to leave."""
        for job in self._context.core.jobs.values():
            if promises.is_of_kueue(job.spec.queue) and not job.state.over:
                self._context.requeue(job.id)

    # -- nodes of flavours -----------------------------------------------------------------------

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        found = new or old
        if not self._flavours or found is None:
            return
        before = self._nodes.pop(found["metadata"]["name"], [])
        for flavour, kind in before:
            self._kinds[flavour][kind] -= 1
        if new is not None:
            self._count(new)
        if before != self._nodes.get(found["metadata"]["name"], []):
            self._refresh()

    def _count(self, node: Object) -> None:
        mine = promises.flavours_of(self._flavours.values(), node)
        for flavour, kind in mine:
            self._kinds.setdefault(flavour, Counter())[kind] += 1
        if mine:
            self._nodes[node["metadata"]["name"]] = mine

    # -- Kueue itself ----------------------------------------------------------------------------

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        before = bool(self._controllers)
        if old is not None and controls(old):
            self._controllers.discard(f"{old['metadata']['namespace']}/{old['metadata']['name']}")
        if new is not None and controls(new):
            self._controllers.add(f"{new['metadata']['namespace']}/{new['metadata']['name']}")
        if self._controllers and not self.defers:
            self._defer(defers=True)
        elif before and not self._controllers:
            self._context.spawn(self._take_over(), "taking over from Kueue's controller")

    async def _take_over(self) -> None:
        await asyncio.sleep(GRACE_S)
        if not self._controllers and self.defers:
            self._defer(defers=False)

    def _defer(self, *, defers: bool) -> None:
        self.defers = defers
        _log.warning(
            "%s", DEFERS if defers else "Kueue's controller is gone: Roost keeps its queues"
        )
        self._said.clear()
        self._refresh()
        self._look_again()

    # -- what is said ----------------------------------------------------------------------------

    def _say_notes(self, queue: KueueQueue) -> None:
        found = objects.one(self._context, KUEUE_CLUSTER_QUEUES, "", queue.name)
        if found is None:
            return
        if self.defers:
            self._say(found, "KueueDecides", DEFERS)
        elif queue.notes:
            self._say(found, "PartlyHonoured", "; ".join(queue.notes))

    def _say(self, about: Object, reason: str, sentence: str, *, warning: bool = False) -> None:
        """Write an Event about an object, once as long as it is the same."""
        meta = about["metadata"]
        key = str(meta.get("uid") or f"{about.get('kind')} {meta['name']}")
        if self._said.get(key) != sentence:
            self._said[key] = sentence
            self._context.write_event(about, reason, sentence, warning=warning)


def _said_in(found: Object) -> tuple[object, object]:
    return found.get("spec"), found.get("value")


def _labels(found: Object | None) -> Object:
    return {} if found is None else labels_of(found)
