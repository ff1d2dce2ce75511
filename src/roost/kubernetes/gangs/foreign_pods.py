"""Pods of other schedulers, of daemon sets and of nodes themselves: they take room, no more.

Each that is bound is a job of its own that is never disturbed. Which devices it uses is known
to its node alone; such as are free are counted as its own. If there is no room for it (two
schedulers were at work at once), its node is shunned, and it is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from roost.core import (
    Action,
    Adopted,
    Deleted,
    Event,
    Exited,
    JobId,
    JobSpec,
    Outcome,
    QueueId,
)
from roost.core.allocation import Allocation, Part
from roost.core.spec import NodeId
from roost.errors import RoostError
from roost.kubernetes.client.kinds import Object, ResourceKind
from roost.kubernetes.gangs.seat_plans import pick, taken
from roost.kubernetes.objects.pods import (
    created_at,
    is_bound,
    is_over,
    node_of,
    scheduler_of,
    uid_of,
)
from roost.kubernetes.operator.workload import DecisionBatch, OperatorContext

_log = logging.getLogger(__name__)

#: The queue in which all of them are counted.
QUEUE = QueueId("kubernetes-others")
#: What stands in the names of all of them.
OTHER = "other"
#: How often one is tried again for which there is no room.
_AGAIN_S = 2.0


def foreign_id(pod: Object) -> JobId:
    """The name in the core of a pod that is never disturbed."""
    meta = pod["metadata"]
    return JobId(f"{meta['namespace']}.{OTHER}.{meta['name']}")


class ForeignPod:
    """One pod that another scheduler placed."""

    __slots__ = ("_aside", "_context", "_counted", "_pod", "id")

    def __init__(self, context: OperatorContext, job: JobId) -> None:
        self.id, self._context = job, context
        self._pod: Object | None = None
        self._aside: NodeId | None = None
        #: The uid of the pod that the core counts.
        self._counted = ""

    @property
    def over(self) -> bool:
        """Whether it is gone."""
        return self._pod is None

    def pod_changed(self, old: Object | None, new: Object | None) -> None:
        """Note it as it is now; another of its name may have come before the first was gone."""
        if new is not None:
            self._pod = new
        elif self._pod is not None and old is not None and uid_of(self._pod) == uid_of(old):
            self._pod = None

    def reconcile(self, now: float) -> Sequence[Event]:
        """Count it while it is on a node."""
        job = self._context.core.jobs.get(self.id)
        pod = self._pod
        lives = pod is not None and is_bound(pod) and not is_over(pod)
        if job is not None and not job.state.over:
            self._come_back()
            same = pod is not None and uid_of(pod) == self._counted
            if (lives and same) or job.run is None:
                return ()
            self._context.requeue(self.id)  # another of its name may be there by now
            ended = Exited(now, job.run.id, Outcome.SUCCEEDED, final=True)
            return (ended, Deleted(now, self.id))
        if pod is None or not lives:
            self._come_back()
            return ()
        return self._adopt(pod, now)

    def perform(self, action: Action) -> None:
        """Nothing is asked of it, unless its node is lost: then it goes without us."""
        _log.debug("%s is left alone: %s", self.id, action)

    def refused(self, event: Event, error: RoostError) -> None:
        """There is no room where it is."""
        if isinstance(event, Adopted) and event.allocation is not None:
            _log.info("%s has no room where it is: %s", self.id, error)
            self._step_aside(event.allocation.parts[0].node)

    def _adopt(self, pod: Object, now: float) -> Sequence[Event]:
        node = self._context.core.ledger.nodes.get(node_of(pod) or NodeId(""))
        if node is None or not node.here:
            self._context.requeue_at(self.id, now + _AGAIN_S)
            return ()
        need = taken(pod).resources
        gpus = pick(node, need) if need.gpus else ()
        if gpus is None:
            self._step_aside(node.id)
            return ()
        if self._aside is not None:
            self._context.requeue(self.id)  # to be forgiven, if there is room now
        spec = JobSpec(
            resources=need,
            queue=QUEUE,
            user=str(pod["metadata"].get("namespace", "")),
            preemptible=False,
        )
        self._counted = uid_of(pod)
        part = Part(node.id, gpus, need.share_milli)
        created = created_at(pod) or now
        return (Adopted(now, self.id, spec, Allocation((part,)), attempts=1, submitted_at=created),)

    def _step_aside(self, node: NodeId) -> None:
        self._aside = node
        self._context.close_node(node, self.id)
        self._context.requeue_at(self.id, self._context.now() + _AGAIN_S)

    def _come_back(self) -> None:
        if self._aside is not None:
            self._context.reopen_node(self._aside, self.id)
            self._aside = None


class ForeignPods:
    """All pods that are not Roost's to place."""

    kinds: tuple[ResourceKind, ...] = ()

    def __init__(self, context: OperatorContext, scheduler: str) -> None:
        self._context, self._scheduler = context, scheduler

    def claim(self, pod: Object) -> JobId | None:
        """Every pod that asks for another scheduler, or is of a namespace that is not served."""
        served = self._context.scope.has(pod["metadata"]["namespace"])
        return None if served and scheduler_of(pod) == self._scheduler else foreign_id(pod)

    def open(self, job: JobId) -> ForeignPod | None:
        """The pod of that name; no other workload has such a name."""
        _, _, rest = job.partition(".")
        return ForeignPod(self._context, job) if rest.startswith(f"{OTHER}.") else None

    def initial_jobs(self) -> Iterable[JobId]:
        """Pods are known by themselves."""
        return ()

    def object_changed(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """Nothing else is of interest."""

    def after_decision(self, batch: DecisionBatch) -> None:
        """Nothing is written about them."""
