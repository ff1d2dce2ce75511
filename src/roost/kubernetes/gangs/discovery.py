"""Finds the gangs of pods that ask for Roost by its scheduler name and are of no Roost Job.

A gang is known by its pods; how large it must be is told by the object that owns it. Owners are
mirrored where the server has such kinds. Budgets are looked at here, too: a gang that they protect
is not chosen to make room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from roost.core import JobId, NodeId, Protected
from roost.errors import InvalidSpec
from roost.kubernetes.client import kinds
from roost.kubernetes.client.kinds import DISRUPTION_BUDGETS, Object, ResourceKind
from roost.kubernetes.gangs.gang import PodGang
from roost.kubernetes.gangs.rejections import Rejections
from roost.kubernetes.objects.gang_refs import (
    GROUP,
    GROUP_SIZE,
    ROOST,
    GangOwner,
    GangRef,
    alone,
    gang_of,
)
from roost.kubernetes.objects.gang_sizes import completed
from roost.kubernetes.objects.pods import is_bound, scheduler_of
from roost.kubernetes.operator.budgets import DisruptionBudgets
from roost.kubernetes.operator.events import WaitingReasons
from roost.kubernetes.operator.workload import DecisionBatch, OperatorContext

#: The name by which pods ask for Roost.
SCHEDULER = "roost"

#: Owners of several gangs: what of them is one, only they say.
OF_PARTS = (kinds.JOB_SETS, kinds.LEADER_WORKER_SETS, kinds.WORKLOADS)
_QUEUES = (kinds.QUEUES, kinds.CLUSTER_QUEUES, *kinds.KUEUE_KINDS, kinds.NAMESPACES)
#: How long a pod waits for the object it is of before it is told that there is none.
_FORLORN_S = 5.0
#: How often budgets and waiting gangs are looked at, in seconds.
_LOOK_S = 1.0


class GangSource:
    """All gangs of pods that others made."""

    kinds: tuple[ResourceKind, ...] = (*kinds.GANG_OWNERS, DISRUPTION_BUDGETS, *_QUEUES)

    def __init__(self, context: OperatorContext, scheduler: str = SCHEDULER) -> None:
        self._context, self._scheduler = context, scheduler
        self._refs: dict[JobId, GangRef] = {}
        #: Pods of owners with parts that were not seen yet: only those say which gangs they are.
        self._unclaimed: dict[GangOwner, dict[str, tuple[Object, float]]] = {}
        self._claimed: dict[str, JobId] = {}
        #: Pods that came to a gang when all its seats were taken: each is a gang of its own.
        self._spilled: dict[str, JobId] = {}
        self.gangs: dict[JobId, PodGang] = {}
        #: Gangs with pods that wait, in the order in which they came.
        self.waiting: dict[JobId, PodGang] = {}
        self.budgets = DisruptionBudgets(context)
        #: Owners whose pods kubelets refused to run.
        self.rejections = Rejections()
        context.on_node_closed(self._contested)
        context.spawn(self._look(), "looking at waiting gangs and at budgets")

    async def _look(self) -> None:
        reasons = WaitingReasons(self._context, self)
        while True:
            await asyncio.sleep(_LOOK_S)
            for event in self.budgets.changes(self.gangs, self._context.now()):
                self._context.report(event)
            await reasons.tell()

    # -- the gang of a pod -----------------------------------------------------------------------

    def claim(self, pod: Object) -> JobId | None:
        """The gang of a pod, if it is Roost's to place."""
        if scheduler_of(pod) != self._scheduler:
            return None
        if not self._context.scope.has(pod["metadata"]["namespace"]):
            return None
        if self._spilled:
            alone = self._spilled.get(pod["metadata"]["uid"])
            if alone is not None:
                return alone
        try:
            ref = self._ref(pod)
        except InvalidSpec as error:
            return self._misfit(pod, error)
        if ref is None:
            return None
        self._refs.setdefault(ref.id, ref)
        return ref.id

    def _ref(self, pod: Object) -> GangRef | None:
        ref = gang_of(pod)
        if ref.kind == ROOST:
            # No Job has claimed it, whatever its labels say: it takes room, and so has to count.
            return alone(ref.namespace, pod["metadata"]["name"])
        if ref.part and ref.owner is not None:
            return self._part_of(pod, ref, ref.owner)
        return ref

    def _misfit(self, pod: Object, error: InvalidSpec) -> JobId:
        """A pod that says something senseless of its gang: it waits alone, and is told why."""
        meta = pod["metadata"]
        ref = alone(meta["namespace"], meta["name"])._replace(part=f"!{error}")
        self._refs.setdefault(ref.id, ref)
        return ref.id

    def _part_of(self, pod: Object, ref: GangRef, owner: GangOwner) -> GangRef | None:
        uid = pod["metadata"]["uid"]
        known = self._claimed.get(uid)
        if known is not None:
            return self._refs[known]
        found = self._owner(ref)
        if found is None and is_bound(pod):
            self._claimed[uid] = ref.id
            return ref
        if found is None:
            waiting = self._unclaimed.setdefault(owner._replace(uid=""), {})
            waiting.setdefault(uid, (pod, self._context.now()))
            return None
        whole = completed(ref, found)
        self._claimed[uid] = whole.id
        return whole._replace(size=None) if whole.id == ref.id else whole

    def open(self, job: JobId) -> PodGang | None:
        """The gang of that name, once one of its pods was seen."""
        if job not in self._refs:
            return None
        found = self.gangs[job] = PodGang(self._context, job, self)
        return found

    def initial_jobs(self) -> Iterable[JobId]:
        """Gangs are known by their pods alone."""
        return ()

    # -- how large it is -------------------------------------------------------------------------

    def lacks(self, gang: PodGang, pods: int) -> str:
        """What a gang with so many pods that wait lacks to be complete; nothing, if it is."""
        ref = self._refs[gang.id]
        if ref.part.startswith("!"):
            raise InvalidSpec(ref.part[1:])
        size = self.size(gang)
        if size is None:
            return self._unknown(ref)
        if pods >= size:
            return ""
        return f"waits for the whole gang: {pods} of {size} pods can be placed"

    def size(self, gang: PodGang) -> int | None:
        """How many of its pods start together; None while nobody knows. Raises InvalidSpec."""
        ref = self._refs[gang.id]
        if ref.size is not None:
            return ref.size
        owner = self._owner(ref)
        return None if owner is None else completed(ref, owner).size or 1

    def _owner(self, ref: GangRef) -> Object | None:
        owner = ref.owner
        if owner is None or owner.resource_kind is None:
            return None
        return self._context.objects(owner.resource_kind).get((ref.namespace, owner.name))

    @staticmethod
    def _unknown(ref: GangRef) -> str:
        """What is said of a gang of unknown size: its owner is not seen yet, or never read."""
        if ref.owner is None or ref.owner.resource_kind is not None:
            return f"waits for {ref.kind} {ref.name}, of which nothing is known yet"
        return (
            f"the size of its gang stands in a {ref.owner.kind} of {ref.owner.group}, which is "
            f"not read; say it on the pods with {GROUP} and {GROUP_SIZE}"
        )

    # -- what changes ----------------------------------------------------------------------------

    def object_changed(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """An owner, a budget or a queue changed."""
        found = new or old
        if found is None:
            return
        if kind is DISRUPTION_BUDGETS:
            self.budgets.changed(found)
            return
        if new is not None and old is not None and _wishes(old) == _wishes(new):
            return
        if kind in _QUEUES:
            for job in [job for job, gang in self.waiting.items() if gang.problem]:
                self._context.requeue(job)
        else:
            self._owner_changed(kind, found["metadata"])

    def _owner_changed(self, kind: ResourceKind, meta: Object) -> None:
        name = f"{meta['namespace']}.{kind.kind.lower()}.{meta['name']}"
        if JobId(name) in self.gangs:
            self._context.requeue(JobId(name))
        elif kind is kinds.BATCH_JOBS:  # whose pods may be on their own, and wait for its queue
            for job in [job for job, gang in self.waiting.items() if gang.problem]:
                if job.startswith(f"{meta['namespace']}.pod.{meta['name']}-"):
                    self._context.requeue(job)
        if kind in OF_PARTS:
            for job in [job for job in self.gangs if job.startswith(f"{name}.")]:
                self._context.requeue(job)
        owner = GangOwner(kind.group, kind.version, kind.kind, meta["name"])
        for pod, _ in self._unclaimed.pop(owner, {}).values():
            self._again(pod)

    def _again(self, pod: Object) -> None:
        """Look once more for the gang of a pod, if it is still there."""
        found = self._still_there(pod)
        if found is not None:
            self._context.observe(kinds.PODS, None, found)

    def _still_there(self, pod: Object) -> Object | None:
        """A pod as it is now; None if it is gone, or another of its name is there."""
        meta = pod["metadata"]
        found = self._context.objects(kinds.PODS).get((meta["namespace"], meta["name"]))
        return found if found is not None and found["metadata"]["uid"] == meta["uid"] else None

    def forlorn(self, now: float) -> list[tuple[Object, str]]:
        """Pods that wait for an owner that does not come, and what to say to them."""
        told: list[tuple[Object, str]] = []
        for owner, waiting in list(self._unclaimed.items()):
            for uid, (pod, since) in list(waiting.items()):
                if self._still_there(pod) is None:
                    del waiting[uid]
                elif now - since >= _FORLORN_S:
                    told.append(
                        (pod, f"there is no {owner.kind} {owner.name}, of which it says it is")
                    )
            if not waiting:
                del self._unclaimed[owner]
        return told

    def spill(self, gang: PodGang, uids: Iterable[str]) -> None:
        """Let pods for which a gang has no seat be placed one by one."""
        for uid in uids:
            pod = gang.pods[uid]
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            ref = alone(namespace, name)
            self._refs[ref.id] = ref
            gang.pod_changed(pod, None)
            self._spilled[uid] = ref.id
            self._again(pod)

    def _contested(self, node: NodeId) -> None:
        """A workload has no room on a node: perhaps a gang keeps a vacant seat there."""
        known = self._context.core.ledger.nodes.get(node)
        for run in list(known.runs) if known is not None else ():
            gang = self.gangs.get(run.job.id)
            if gang is not None:
                gang.contested(node)

    def requeue_paused(self) -> None:
        """Kubelets rejected pods of an owner: its others that wait must not follow at once."""
        if self.rejections:
            for job, gang in self.waiting.items():
                if gang.pause().until:
                    self._context.requeue(job)

    def protect(self, gang: JobId, why: str) -> None:
        """A budget that was not known keeps a gang from being evicted: it stays."""
        self._context.report(Protected(self._context.now(), gang, why))

    def gone(self, uid: str) -> None:
        """A pod is no more."""
        if self._claimed or self._spilled:
            self._claimed.pop(uid, None)
            self._spilled.pop(uid, None)

    def after_decision(self, batch: DecisionBatch) -> None:
        """Nothing is written about gangs but reasons, and those by ``telling``."""

    def waits(self, gang: PodGang, since: float) -> None:
        """Note since when a gang waits; 0: it does not."""
        if not since:
            if gang.since:
                gang.since = 0.0
                self.waiting.pop(gang.id, None)
        elif not gang.since:
            gang.since = since
            self.waiting[gang.id] = gang
        if gang.over:
            self.forget(gang)

    def forget(self, gang: PodGang) -> None:
        """A gang has no pods any more."""
        self.waiting.pop(gang.id, None)
        self.gangs.pop(gang.id, None)
        self._refs.pop(gang.id, None)


def _wishes(found: Object) -> tuple[object, ...]:
    """What of an owner or a queue matters here: labels may name a queue, or select a namespace.

    Annotations may say that a gang has to stay together.
    """
    meta = found["metadata"]
    return found.get("spec") or found.get("value"), meta.get("labels"), meta.get("annotations")
