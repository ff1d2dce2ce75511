"""Objects of a cluster, folded into a core.

There is no journal: what the API server has is all there is. Whoever begins to lead folds nodes,
then the workloads as their pods tell of them, and only then lets the core decide. From there on the
same code folds what changes. It makes no requests and needs no lease, so that a reader can have a
core, too (``fold``).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

from roost.core import (
    Core,
    Deleted,
    Event,
    JobId,
    NodeId,
    Placer,
    Policy,
    Resources,
)
from roost.errors import Fatal, RoostError
from roost.kubernetes.client.kinds import NODES, PODS, Object, ResourceKind
from roost.kubernetes.objects.needs import Need, needs
from roost.kubernetes.objects.pools import Pools
from roost.kubernetes.operator.nodes import LOST_S, ClusterNodes
from roost.kubernetes.operator.workload import PodWorkload, SourceFactory, WorkloadSource

_log = logging.getLogger(__name__)

#: Mirrored objects of a kind, by namespace and name.
Objects: TypeAlias = Callable[[ResourceKind], Mapping[tuple[str, str], Object]]

#: How long a workload is left alone that raised an error.
_SULK_S = 5.0
#: So many pools and resources are kept without asking who needs them.
_LITTER = 256


class Reconciler:
    """A core, and the workloads between it and the objects; a ``Desk`` that makes no requests."""

    #: Requests are for those who lead (``term``); nobody asks a reader for them.
    api: Any = None
    binder: Any = None

    def __init__(  # noqa: PLR0913 - it joins all parts
        self,
        policy: Policy,
        placer: Placer,
        objects: Objects,
        clock: Callable[[], float],
        sources: Sequence[SourceFactory],
        lost_s: float = LOST_S,
    ) -> None:
        self.core = Core(policy, placer)
        self.pools = Pools()
        self.fleet = ClusterNodes(self.core, self.pools, lost_s)
        self.workloads: dict[JobId, PodWorkload] = {}
        self._objects, self._clock = objects, clock
        self._touched: dict[JobId, None] = {}
        self._due: list[tuple[float, JobId]] = []
        self._dates: set[tuple[float, JobId]] = set()
        self._reported: list[Event] = []
        self._resources: dict[Resources, Resources] = {}
        #: Pools that each workload asked for, who asks now, and what the last sweep left.
        self._asked_for: dict[JobId, set[str]] = {}
        self._asking: JobId | None = None
        self._left = (0, 0)
        self._owner: dict[JobId, int] = {}
        self._contested: list[Callable[[NodeId], None]] = []
        #: Whether everything was folded once, and who has to be looked at again then.
        self.settled = False
        self._postponed: dict[JobId, None] = {}
        self.sources: list[WorkloadSource] = [opening.make(self) for opening in sources]

    # -- what sources and workloads ask for ------------------------------------------------------

    def now(self) -> float:
        """The core's time."""
        return max(self._clock(), self.core.now)

    def objects(self, kind: ResourceKind) -> Mapping[tuple[str, str], Object]:
        """Mirrored objects by namespace and name."""
        return self._objects(kind)

    def needed(self, pod: Object) -> Need:
        """What a pod needs, from a pool that the core knows from now on; raises InvalidSpec."""
        need = needs(pod)
        pool = self.pools.add(need.constraints)
        if self._asking is not None:
            self._asked_for.setdefault(self._asking, set()).add(pool)
        resources = need.resources
        if resources.pool != pool:
            resources = replace(resources, pool=pool)
        # Equal resources are one object: the core finds their line without comparing them.
        return need._replace(resources=self._resources.setdefault(resources, resources))

    def pooled(self, pod: Object) -> Resources:
        """What a pod needs, with its pool; raises InvalidSpec."""
        return self.needed(pod).resources

    def touch(self, job: JobId) -> None:
        """Let a workload be reconciled in the next batch; at the start, once all others were."""
        if self.settled or job not in self._owner:
            self._touched[job] = None
        else:
            self._postponed[job] = None

    def later(self, job: JobId, at: float) -> None:
        """The same at that time; who says so again and again is heard once."""
        if (at, job) not in self._dates:
            self._dates.add((at, job))
            heapq.heappush(self._due, (at, job))

    def report(self, event: Event) -> None:
        """Let the core handle an event that is of no workload."""
        self._reported.append(event)

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None] | None:
        """Nothing goes on beside a reader."""
        _log.debug("%s is for the leader to do", what)
        work.close()
        return None

    def tell(self, about: Object, reason: str, text: str, *, warning: bool = False) -> None:
        """Nobody is told by a reader."""

    def shun(self, node: NodeId, because: JobId) -> None:
        """A pod of that workload is on a node without room for it: let nothing new go there."""
        self.fleet.shun(node, because)
        for told in self._contested:
            told(node)

    def contests(self, told: Callable[[NodeId], None]) -> None:
        """Let a source be told of nodes that are shunned."""
        self._contested.append(told)

    def forgive(self, node: NodeId, because: JobId) -> None:
        """The books of a node add up again, as far as that workload is concerned."""
        self.fleet.forgive(node, because)

    def deserted(self, node: str) -> bool:
        """Whether a node is gone, so that nobody there can end a pod."""
        return self.fleet.is_gone(node)

    # -- folding ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Look at everything there is, oldest first."""
        for node in self.objects(NODES).values():
            self.fleet.changed(None, node)
        for source in self.sources:
            for job in source.known():
                self.touch(job)
        for pod in sorted(self.objects(PODS).values(), key=_age):
            try:
                self.observe(PODS, None, pod)
            except Exception:  # noqa: BLE001 - one odd pod must not keep anybody from leading
                _log.exception("pod %s is left alone", "/".join(_key(pod)))
        # Others' pods come last: which devices they have is guessed from what is left.
        last = len(self.sources)
        order = sorted(self._touched, key=lambda job: self._owner.get(job, last))
        self._touched = dict.fromkeys(order)

    def observe(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """An object came, changed or is gone."""
        if kind is PODS:
            self._pod(old, new)
        elif kind is NODES:
            self.fleet.changed(old, new)
        for source in self.sources:
            if kind in source.kinds:
                source.changed(kind, old, new)

    @property
    def open(self) -> bool:
        """Whether there is something left to fold."""
        return bool(self._touched or self._reported or self.fleet.dirty)

    @property
    def due_at(self) -> float | None:
        """When somebody wants to be reconciled again."""
        return self._due[0][0] if self._due else None

    def settle(self, limit: int) -> list[Event]:
        """Fold what changed, of so many workloads at most; the core decides nothing yet."""
        now = self.now()
        while self._due and self._due[0][0] <= now:
            date = heapq.heappop(self._due)
            self._dates.discard(date)
            self.touch(date[1])
        folded: list[Event] = []
        for event in self.fleet.events(now):
            self._fold(event, folded, self.fleet.refused)
        reported, self._reported = self._reported, []
        for event in reported:  # they were told at some time before
            self._fold(replace(event, time=now), folded, _complain)
        for workload in self._next(limit):
            self._reconcile(workload, now, folded)
        if self._is_littered():
            self._sweep(now, folded)
        for event in self.fleet.pools(now):
            self._fold(event, folded, _complain)
        if not self.settled and not self._touched:
            self.settled = True
            self._touched, self._postponed = self._postponed, {}
        return folded

    def _next(self, limit: int) -> list[PodWorkload]:
        """Workloads to reconcile: first those that may give something back, others' pods last."""
        if len(self._touched) <= limit:
            touched, self._touched = self._touched, {}
        else:
            touched = dict.fromkeys(islice(self._touched, limit))
            for job in touched:
                del self._touched[job]
        known: list[PodWorkload] = []
        new: list[PodWorkload] = []
        for job in touched:
            workload = self._workload(job)
            if workload is not None:
                (known if job in self.core.jobs else new).append(workload)
        new.sort(key=lambda workload: self._owner[workload.id])
        return known + new

    def _reconcile(self, workload: PodWorkload, now: float, folded: list[Event]) -> None:
        self._asking = workload.id
        try:
            for event in workload.reconcile(now):
                self._fold(event, folded, workload.refused)
            over = workload.over
        except Fatal:
            raise
        except Exception:  # noqa: BLE001 - one odd workload must not take everything down
            _log.exception("%s is left alone for a while", workload.id)
            self.later(workload.id, now + _SULK_S)
            return
        finally:
            self._asking = None
        if over:
            self._forget(workload.id, now, folded)

    def _forget(self, job_id: JobId, now: float, folded: list[Event]) -> None:
        job = self.core.jobs.get(job_id)
        if job is not None and not job.state.over:
            return
        if job is not None:
            self._fold(Deleted(now, job_id), folded, _complain)
        self.workloads.pop(job_id, None)
        self._owner.pop(job_id, None)
        self._asked_for.pop(job_id, None)

    def _is_littered(self) -> bool:
        """Whether there may be more to forget by now than there is in use."""
        pools, resources = self._left
        return len(self.pools) > 2 * pools + _LITTER or (
            len(self._resources) > 2 * resources + _LITTER
        )

    def _sweep(self, now: float, folded: list[Event]) -> None:
        """Forget pools and resources of which nothing is left that asked for them."""
        used = [
            need
            for job in self.core.jobs.values()
            if not job.state.over
            for need in (job.spec.resources, *(role.resources for role in job.spec.roles))
        ]
        pools = {need.pool for need in used}.union(*self._asked_for.values())
        for event in self.fleet.keep_only(pools, now):
            self._fold(event, folded, _complain)
        self._resources = {need: need for need in used}
        self._left = len(self.pools), len(self._resources)

    def _fold(
        self, event: Event, folded: list[Event], refused: Callable[[Event, RoostError], None]
    ) -> None:
        try:
            self.core.fold(event)
        except Fatal:
            raise
        except RoostError as error:
            refused(event, error)
        else:
            folded.append(event)

    def _pod(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        if pod is None:
            return
        job = self._claimed(pod)
        if job is None:
            return
        workload = self._workload(job)
        if workload is not None:
            workload.saw(old, new)
            self._touched[job] = None

    def _claimed(self, pod: Object) -> JobId | None:
        for rank, source in enumerate(self.sources):
            job = source.claim(pod)
            if job is not None:
                self._owner.setdefault(job, rank)
                return job
        return None

    def _workload(self, job: JobId) -> PodWorkload | None:
        found = self.workloads.get(job)
        if found is not None:
            return found
        rank = self._owner.get(job)
        candidates = enumerate(self.sources) if rank is None else [(rank, self.sources[rank])]
        for number, source in candidates:
            found = source.open(job)
            if found is not None:
                self.workloads[job] = found
                self._owner[job] = number
                return found
        return None


def fold(
    objects: Mapping[ResourceKind, Iterable[Object]],
    policy: Policy,
    placer: Placer,
    now: float,
    sources: Sequence[SourceFactory],
) -> Core:
    """A core as plain objects tell it, for readers: nothing is decided and nobody is told."""
    keyed = {kind: {_key(each): each for each in found} for kind, found in objects.items()}
    folding = Reconciler(policy, placer, lambda kind: keyed.get(kind, {}), lambda: now, sources)
    folding.begin()
    for _ in range(8):  # what is refused at first may be told otherwise
        if not folding.open:
            break
        folding.settle(len(folding.workloads) + len(keyed.get(PODS, ())) + 1)
    return folding.core


def _key(found: Object) -> tuple[str, str]:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _age(pod: Object) -> tuple[str, str]:
    meta = pod["metadata"]
    return meta.get("creationTimestamp") or "", meta["name"]


def _complain(event: Event, error: RoostError) -> None:
    _log.warning("%s is of no use: %s", event, error)
