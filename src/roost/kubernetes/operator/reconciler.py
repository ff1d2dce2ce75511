"""Folds the objects of a cluster into a core.

There is no journal: what the API server has is all there is. A new leader folds nodes, then the
workloads as their pods tell of them, and only then lets the core decide. From there on the same
code folds what changes.

A leader gives the reconciler a ``Writer``. A reader (the gateway, ``fold``) gives it none: then it
makes no requests, writes no Events and starts no tasks.
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
from roost.core.extras import Extras
from roost.errors import Fatal, RoostError
from roost.jobs.policy_guard import PolicyGuard
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import NODES, PODS, Object, ResourceKind
from roost.kubernetes.filters.division import OUTSIDE
from roost.kubernetes.filters.turns import FilterFactory, NodeFilters, summary
from roost.kubernetes.objects.constraints import Pools
from roost.kubernetes.objects.mismatches import mismatch
from roost.kubernetes.objects.needs import Need, needs
from roost.kubernetes.objects.neighbours import is_alone_on_node
from roost.kubernetes.objects.pods import is_bound
from roost.kubernetes.objects.preferences import stored
from roost.kubernetes.objects.values import labels_of
from roost.kubernetes.operator import gang_shares
from roost.kubernetes.operator.binding import Binder
from roost.kubernetes.operator.gang_shares import Kind, Share
from roost.kubernetes.operator.nodes import CLAIMED, LOST_S, ClusterNodes
from roost.kubernetes.operator.scope import NamespaceScope
from roost.kubernetes.operator.workload import PodWorkload, SourceFactory, WorkloadSource
from roost.kubernetes.operator.writer import Writer

_log = logging.getLogger(__name__)

#: Mirrored objects of a kind, by namespace and name.
Objects: TypeAlias = Callable[[ResourceKind], Mapping[tuple[str, str], Object]]

#: How long a workload that raised an error is left alone, in seconds.
_ERROR_PAUSE_S = 5.0
#: Pools and resources are swept when there are more than this beyond twice what was in use.
_LITTER = 256


class Reconciler:
    """A core, and the workloads between it and the objects; the ``OperatorContext`` of both."""

    def __init__(  # noqa: PLR0913 - it joins all parts
        self,
        policy: Policy,
        placer: Placer,
        objects: Objects,
        clock: Callable[[], float],
        sources: Sequence[SourceFactory],
        lost_s: float = LOST_S,
        writer: Writer | None = None,
        filters: Sequence[FilterFactory] = (),
        scope: NamespaceScope | None = None,
    ) -> None:
        self.scope = scope or NamespaceScope()
        self.policy = PolicyGuard(policy)
        self.core = Core(self.policy, placer)
        self.pools = Pools()
        #: Why pools have no node, and the version of the pools for which that is so.
        self._mismatches: dict[str, tuple[int, str]] = {}
        self.nodes = ClusterNodes(self.core, self.pools, lost_s, self.scope)
        self.workloads: dict[JobId, PodWorkload] = {}
        #: Set whenever there may be something to fold: the leader's loop waits for it.
        self.wake = asyncio.Event()
        self._objects, self._clock, self._writer = objects, clock, writer
        self._touched: dict[JobId, None] = {}
        self._due: list[tuple[float, JobId]] = []
        self._dates: set[tuple[float, JobId]] = set()
        self._reported: list[Event] = []
        self._resources: dict[Resources, Resources] = {}
        #: Pools that each workload asked for, the workload that asks now, and the sizes that the
        #: last sweep left.
        self._asked_for: dict[JobId, set[str]] = {}
        self._asking: JobId | None = None
        #: The domain of each topology in which the workload that asked last gathers.
        self._gathering: dict[str, tuple[JobId | None, str]] = {}
        self._left = (0, 0)
        #: Which source each workload belongs to, by its place in ``sources``.
        self._owner: dict[JobId, int] = {}
        self._node_closed: list[Callable[[NodeId], None]] = []
        #: Whether everything was folded once, and the workloads to reconcile again then.
        self.settled = False
        self._postponed: dict[JobId, None] = {}
        self.filters = NodeFilters([factory.make(self) for factory in filters])
        self._filter_kinds = {kind for factory in filters for kind in factory.kinds}
        self.sources: list[WorkloadSource] = [factory.make(self) for factory in sources]

    # -- what sources and workloads ask for ------------------------------------------------------

    @property
    def api(self) -> Api:
        """The API server, for a leader."""
        return self._leader.api

    @property
    def binder(self) -> Binder:
        """Writes, for a leader."""
        return self._leader.binder

    @property
    def _leader(self) -> Writer:
        if self._writer is None:
            raise Fatal("a reader makes no requests")
        return self._writer

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None] | None:
        """Run something beside the loop; a reader does not."""
        if self._writer is not None:
            return self._writer.spawn(work, what)
        _log.debug("%s is for the leader to do", what)
        work.close()
        return None

    def write_event(self, about: Object, reason: str, text: str, *, warning: bool = False) -> None:
        """Write an Event about an object, soon; a reader does not."""
        # Events about what has no namespace are kept in this one.
        namespace = about["metadata"].get("namespace") or "default"
        if self._writer is not None and self.scope.has(namespace):
            self._writer.events.put(about, reason, text, warning=warning)

    def now(self) -> float:
        """The core's time."""
        return max(self._clock(), self.core.now)

    def objects(self, kind: ResourceKind) -> Mapping[tuple[str, str], Object]:
        """Mirrored objects by namespace and name."""
        return self._objects(kind)

    def need_of(  # noqa: PLR0913 - what is known of a pod, a fact each
        self,
        pod: Object,
        shunned: tuple[NodeId, ...] = (),
        extras: Extras = (),
        *,
        is_placed: bool = False,
        share: Share | None = None,
        likes: int = 1,
    ) -> Need:
        """What a pod needs, from a pool that the core knows from now on; raises InvalidSpec."""
        need = needs(pod)
        if share is not None:
            pod = gang_shares.settled(pod)
            extras = ((share.apart, 1),) if share.apart else extras
            need = need._replace(constraints=need.constraints._replace(contingents=share.parts))
        if shunned:
            need = need._replace(constraints=need.constraints._replace(shunned=shunned))
        pool = self.pools.add(need.constraints)
        if not (is_placed or is_bound(pod)) and self.filters.concerns(pod):
            need = self._filtered(pod, need, pool)
            pool = self.pools.add(need.constraints)
            if likes > 1 and self._asking is not None:
                counted, why = self._counted(pod, pool, likes, self._asking)
                extras = (*extras, *counted)
                told = "; ".join(filter(None, (need.kept_off, why)))
                need = need._replace(kept_off=told)
        extras = (*extras, *self.filters.amounts(pod))
        if self._asking is not None:
            self._asked_for.setdefault(self._asking, set()).add(pool)
        resources = need.resources
        if resources.pool != pool or extras:
            extras = tuple(sorted((*resources.extras, *extras)))
            resources = replace(resources, pool=pool, extras=extras)
        # Equal resources are one object: the core finds their line without comparing them.
        return need._replace(resources=self._resources.setdefault(resources, resources))

    def mismatch(self, pool: str) -> str:
        """Why no node is in a pool, in words; empty: some are, or nobody asks for it."""
        if pool not in self.pools or self.pools[pool]:
            return ""
        version, told = self._mismatches.get(pool, (-1, ""))
        if version != self.pools.version:
            told = mismatch(self.pools.asked(pool), self.pools.known())
            self._mismatches[pool] = self.pools.version, told
        return told

    def share_out(
        self, pods: Sequence[Object], shunned: tuple[NodeId, ...], apart: str
    ) -> list[Share] | None:
        """The share of each pod of a gang whose pods keep each other away; None: they do not."""
        demands = self.filters.demands(pods)
        chosen = demands and gang_shares.topology(demands.each)
        if not (demands and demands.whole and chosen):
            return None
        key, over, is_alone = chosen
        alike: dict[Resources, list[int]] = {}
        for number, pod in enumerate(pods):
            need = needs(pod)
            pool = self.pools.add(need.constraints._replace(shunned=shunned))
            resources = replace(need.resources, pool=pool)
            if is_alone or is_alone_on_node(pod):
                resources = gang_shares.alone(resources, apart)
            alike.setdefault(resources, []).append(number)
        order = sorted(alike.items(), key=lambda each: -len(each[1]))
        kinds = [
            Kind(resources, self._domains(pods[numbers[0]], resources.pool, key), len(numbers))
            for resources, numbers in order
        ]
        found = gang_shares.shares(kinds, over, self.core.ledger, is_sure=not is_alone)
        if found is None:
            return None
        made: dict[int, Share] = {}
        for share, kind, (_, numbers) in zip(found, kinds, order, strict=True):
            lonely = any(extra == apart for extra, _ in kind.resources.extras)
            made |= dict.fromkeys(numbers, share._replace(apart=apart if lonely else ""))
        return [made[number] for number in range(len(pods))]

    def _domains(self, pod: Object, pool: str, key: str) -> dict[NodeId, str]:
        """The domain of each node that nothing but its own gang keeps a pod from."""
        there = self.nodes.objects
        labels = {name: labels_of(there[name]) for name in self.pools[pool] if name in there}
        nodes = {name: found.get(key, OUTSIDE) for name, found in labels.items()}
        given = gang_shares.settled(pod)
        if not self.filters.concerns(given):
            return nodes
        refusals = self.filters.refusals(given, [there[name] for name in nodes])
        return {name: domain for name, domain in nodes.items() if name not in refusals}

    def _filtered(self, pod: Object, need: Need, pool: str) -> Need:
        """A need without the nodes that filters refuse now."""
        there = self.nodes.objects
        nodes = {node: there[node] for node in self.pools[pool] if node in there}
        refusals = self.filters.refusals(pod, list(nodes.values()))
        shunned = {*need.constraints.shunned, *refusals}
        key = self.filters.together(pod)
        if key:
            left = {node: found for node, found in nodes.items() if node not in refusals}
            shunned |= self._elsewhere(key, left, need.resources)
        allowed = [found for node, found in nodes.items() if node not in shunned]
        points = stored(self.filters.preferences(pod, allowed))
        return need._replace(
            constraints=need.constraints._replace(shunned=tuple(sorted(shunned)), points=points),
            kept_off=summary(refusals),
        )

    def _counted(self, pod: Object, pool: str, likes: int, job: JobId) -> tuple[Extras, str]:
        """What a pod of a gang takes of what filters have only so much of, by a name of its own.

        And a sentence where that is not enough for all that may be like it.

        The core knows how much of it each node has from the next batch on.
        """
        known = self.core.jobs.get(job)
        if known is not None and known.run is not None:
            return (), ""
        there = self.nodes.objects
        found = self.filters.room(pod, [there[n] for n in self.pools[pool] if n in there], likes)
        if found is None:
            return (), ""
        name = f"{CLAIMED}{job}/{found.sort}"
        self.nodes.count(job, name, found.rooms)
        total = sum(found.rooms.values())
        short = f"the devices that are free are enough for {total} pods like it"
        return ((name, 1),), short if total < likes else ""

    def _elsewhere(self, key: str, nodes: Mapping[NodeId, Object], need: Resources) -> set[NodeId]:
        """All nodes but those of one domain: of what has to stay together, wherever that is.

        The first role of a gang chooses the domain with the most room; the others follow it.
        """
        domains: dict[str, set[NodeId]] = {}
        for name, node in nodes.items():
            if (domain := labels_of(node).get(key)) is not None:
                domains.setdefault(domain, set()).add(name)
        last = self._gathering.get(key)
        if last is not None and last[0] == self._asking and last[1] in domains:
            best = last[1]
        else:
            ledger = self.core.ledger
            rooms = {
                domain: sum(ledger.room(ledger.nodes[n], need) for n in found if n in ledger.nodes)
                for domain, found in domains.items()
            }
            best = max(sorted(rooms), key=rooms.__getitem__, default="")
            self._gathering[key] = self._asking, best
        return nodes.keys() - domains.get(best, set())

    def take_turn(self, job: JobId) -> bool:
        """Whether a workload that filters have a say about may come to the core in this batch."""
        if not self.settled:  # filters do not know all pods yet
            self.requeue(job)
            return False
        if not self.filters.take_turn(job, self.now()):
            return False
        self._asked_for.pop(job, None)  # its nodes are others from now on
        return True

    def admit(self, places: Sequence[tuple[Object, NodeId]]) -> str:
        """Let filters count pods on nodes from now on; or why that must not be."""
        there = self.nodes.objects
        missing = next((node for _, node in places if node not in there), None)
        if missing is not None:
            return f"node {missing} is gone"
        return self.filters.admit((pod, there[node]) for pod, node in places)

    def requeue(self, job: JobId) -> None:
        """Let a workload be reconciled in the next batch; at the start, once all others were."""
        if self.settled or job not in self._owner:
            self._touched[job] = None
        else:
            self._postponed[job] = None
        self.wake.set()

    def requeue_at(self, job: JobId, at: float) -> None:
        """The same at that time; a date that is asked for twice is kept once."""
        if (at, job) not in self._dates:
            self._dates.add((at, job))
            heapq.heappush(self._due, (at, job))
        self.wake.set()

    def report(self, event: Event) -> None:
        """Let the core handle an event that is of no workload."""
        self._reported.append(event)
        self.wake.set()

    def close_node(self, node: NodeId, because: JobId) -> None:
        """A pod of that workload is on a node without room for it: let nothing new go there."""
        self.nodes.close(node, because)
        for listener in self._node_closed:
            listener(node)

    def on_node_closed(self, listener: Callable[[NodeId], None]) -> None:
        """Call a source back when a node is closed."""
        self._node_closed.append(listener)

    def reopen_node(self, node: NodeId, because: JobId) -> None:
        """The books of a node add up again, as far as that workload is concerned."""
        self.nodes.reopen(node, because)

    def is_node_gone(self, node: str) -> bool:
        """Whether a node is gone, so that no kubelet there can end a pod."""
        return self.nodes.is_gone(node)

    # -- folding ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Look at everything there is, oldest first."""
        for node in self.objects(NODES).values():
            self.nodes.changed(None, node)
            self.filters.object_changed(NODES, None, node)
        for kind in self._filter_kinds - {NODES, PODS}:
            for found in self.objects(kind).values():
                self.filters.object_changed(kind, None, found)
        for source in self.sources:
            for job in source.initial_jobs():
                self.requeue(job)
        for pod in sorted(self.objects(PODS).values(), key=_age):
            try:
                self.observe(PODS, None, pod)
            except Exception:  # noqa: BLE001 - one odd pod must not keep this process from leading
                _log.exception("pod %s is left alone", "/".join(_key(pod)))
        # Foreign pods come last: which devices they have is guessed from what is left.
        last = len(self.sources)
        order = sorted(self._touched, key=lambda job: self._owner.get(job, last))
        self._touched = dict.fromkeys(order)

    def observe(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """An object came, changed or is gone."""
        self.filters.object_changed(kind, old, new)
        if kind is PODS:
            self._pod(old, new)
        elif kind is NODES:
            self.nodes.changed(old, new)
        for source in self.sources:
            if kind in source.kinds:
                source.object_changed(kind, old, new)
        self.wake.set()

    @property
    def open(self) -> bool:
        """Whether there is something left to fold."""
        return bool(self._touched or self._reported or self.nodes.dirty or self.filters.open)

    @property
    def due_at(self) -> float | None:
        """When the next workload asked to be reconciled again."""
        found = [due for due in (self.filters.due_at(), *(at for at, _ in self._due[:1])) if due]
        return min(found, default=None)

    def settle(self, limit: int) -> list[Event]:
        """Fold what changed, of so many workloads at most; the core decides nothing yet."""
        now = self.now()
        while self._due and self._due[0][0] <= now:
            date = heapq.heappop(self._due)
            self._dates.discard(date)
            self.requeue(date[1])
        if self.settled:
            self._touched |= dict.fromkeys(self.filters.begin_turns(now))
        folded: list[Event] = []
        for event in self.nodes.events(now):
            self._fold(event, folded, self.nodes.refused)
        reported, self._reported = self._reported, []
        for event in reported:  # they were reported some time before
            self._fold(replace(event, time=now), folded, _complain)
        for workload in self._next(limit):
            self._reconcile(workload, now, folded)
        if self._is_littered():
            self._sweep(now, folded)
        for event in self.nodes.pools(now):
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
        self._gathering.clear()
        try:
            for event in workload.reconcile(now):
                self._fold(event, folded, workload.refused)
            over = workload.over
        except Fatal:
            raise
        except Exception:  # noqa: BLE001 - one odd workload must not take everything down
            _log.exception("%s is left alone for a while", workload.id)
            self.requeue_at(workload.id, now + _ERROR_PAUSE_S)
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
        self.nodes.forget_counts(job_id)
        self.filters.forget(job_id)

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
        self._mismatches.clear()
        for event in self.nodes.keep_only(pools, now):
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
            workload.pod_changed(old, new)
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
    """A core as plain objects tell it, for readers: nothing is decided or written."""
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
