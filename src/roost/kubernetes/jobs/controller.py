"""The Jobs of a cluster as a source of the loop: their pods, and what is written of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roost import placement
from roost.core import (
    Event,
    Evict,
    Job,
    JobId,
    Launch,
    NodeChanged,
    NodeId,
    NodeJoined,
    PoolChanged,
    QueueChanged,
    RunId,
    SetAside,
)
from roost.core.reasons import Cause
from roost.engines import LogFile, Report
from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound, Retryable
from roost.jobs import history
from roost.jobs.explain import impossible
from roost.jobs.record import JobRecord
from roost.jobs.reports import ReportTranslator
from roost.jobs.views import view_of
from roost.kubernetes.autoscaling.node_requests import NodeRequests
from roost.kubernetes.autoscaling.ways import NodeWish
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    DISRUPTION_BUDGETS,
    JOBS,
    KUEUE_KINDS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    PROVISIONING_REQUESTS,
    QUEUES,
    Object,
    ResourceKind,
)
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.gangs.foreign_pods import OTHER, ForeignPod, foreign_id
from roost.kubernetes.jobs import queue_status
from roost.kubernetes.jobs.blueprint import Site
from roost.kubernetes.jobs.cell_promises import is_room
from roost.kubernetes.jobs.pod_ends import PodLogTail
from roost.kubernetes.jobs.rendezvous import RendezvousServer
from roost.kubernetes.jobs.request import (
    JobRequest,
    id_of,
    is_held,
    key_of,
    last_status,
    submitted_at,
)
from roost.kubernetes.jobs.status_writer import JobStatusWriter, WantedStatus
from roost.kubernetes.jobs.workload import JobWorkload
from roost.kubernetes.kueue.admission import Admission, QueueWish
from roost.kubernetes.objects.nodes import DEVICES, has_agent
from roost.kubernetes.operator.budgets import DisruptionBudgets
from roost.kubernetes.operator.queues import admitted
from roost.kubernetes.operator.status import Obstacle, status_of, status_without, word
from roost.kubernetes.operator.workload import DecisionBatch, OperatorContext

_log = logging.getLogger(__name__)

#: What may let a Job into one of Kueue's queues.
_KUEUE = (*KUEUE_KINDS, NAMESPACES)
#: How often the reasons of waiting jobs are looked at, in seconds, and how many then.
_REASONS_S = 5.0
_REASONS = 500
#: How often it is checked which jobs budgets protect, in seconds.
_BUDGETS_S = 1.0
#: What more nodes would help against.
_NO_ROOM = (Cause.CAPACITY, Cause.FRAGMENTATION)
#: What may make room for a job that could never run, or promise it what it asks for.
_ROOM = (NodeJoined, NodeChanged, PoolChanged, QueueChanged)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What the operator knows of itself that its Jobs need."""

    site: Site = field(default_factory=Site)
    #: The placer that says whether a job could ever be placed.
    placer: str = "topology"
    #: Where pods of elastic jobs call; None: nowhere, and they start anew to change their size.
    meeting_port: int | None = None
    #: Whether Jobs that wait for room ask an autoscaler for nodes: by ProvisioningRequests if
    #: their site names a class of them, else by placeholders.
    asks_for_nodes: bool = False


class JobController:
    """The source of Roost Jobs."""

    kinds = (JOBS, QUEUES, CLUSTER_QUEUES, PRIORITY_CLASSES, DISRUPTION_BUDGETS, *_KUEUE)
    #: Those that the operator wants mirrored to ask for nodes; who only reads does not.
    asking_kinds = (PROVISIONING_REQUESTS,)

    def __init__(self, context: OperatorContext, options: JobOptions | None = None) -> None:
        self.context = context
        self._options = options or JobOptions()
        self.records: dict[JobId, JobRecord] = {}
        self._workloads: dict[JobId, JobWorkload] = {}
        self._tails: dict[RunId, dict[str, bytes]] = {}
        #: Pods of no run that goes on, by uid, and where they are.
        self._released: dict[str, tuple[str, str]] = {}
        self._statuses = JobStatusWriter(context, self._wanted)
        self._reports = ReportTranslator(self, lambda _: ())
        self._chronicle: history.HistoryWriter | None = None
        self._never: dict[Any, str] = {}
        self._seq = 0
        port = self._options.meeting_port
        self.meeting = None if port is None else RendezvousServer(self._heard, self._polled)
        self._placer = placement.placer(self._options.placer)
        where = "" if port is None else self._options.site.meeting
        self._site = replace(
            self._options.site,
            meeting=where,
            vendors=_Vendors(context),
            agents=_WithAgents(context),
        )
        self._budgets = DisruptionBudgets(context)
        self._nodes = NodeRequests(context, self.site, self._lacking_room, self.mark_status)
        #: Jobs that the policy has just chosen to make room.
        self._victims: frozenset[JobId] = frozenset()

    # -- what the loop asks ----------------------------------------------------------------------

    def claim(self, pod: Object) -> JobId | None:
        """The Job that controls a pod."""
        meta = pod["metadata"]
        if meta["uid"] in self._released:
            return foreign_id(pod)
        if not self.context.scope.has(meta["namespace"]):
            return None  # its Job is not seen: it must not look like an orphan
        for one in meta.get("ownerReferences") or ():
            ours = one.get("kind") == JOBS.kind and one.get("apiVersion") == JOBS.api_version
            if ours and one.get("controller"):
                job = id_of(meta["namespace"], one["name"])
                return job if key_of(job) is not None else None  # no Job can be called so
        return None

    def open(self, job: JobId) -> JobWorkload | ForeignPod | None:
        """The workload of that name."""
        key = key_of(job)
        if key is None:
            mine = any(job == f"{space}.{OTHER}.{name}" for space, name in self._released.values())
            return ForeignPod(self.context, job) if mine else None
        found = self._workloads.get(job)
        if found is None or found.over:
            found = self._workloads[job] = JobWorkload(self, job, key)
        return found

    def initial_jobs(self) -> Iterable[JobId]:
        """All Jobs there are, oldest first; the core hears of their queues before that."""
        for found in self.context.objects(CLUSTER_QUEUES).values():
            self._queue_changed(None, found)
        if self.meeting is not None and self._options.meeting_port is not None:
            work = self._meet(self.meeting, self._options.meeting_port)
            self.context.spawn(work, "the meeting of elastic jobs")
        self.context.spawn(self._keep_reasons(), "reasons of waiting jobs")
        self.context.spawn(self._look_at_budgets(), "budgets of jobs")
        asks = self._options.asks_for_nodes
        asking = self._nodes.run() if asks else self._nodes.withdraw_all()
        self.context.spawn(asking, "asking for nodes")
        jobs = sorted(
            self.context.objects(JOBS).items(), key=lambda one: (submitted_at(one[1]), one[0])
        )
        return [id_of(*key) for key, _ in jobs]

    def object_changed(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """An object of one of its kinds changed."""
        found = new or old
        if found is None:
            return
        meta = found["metadata"]
        if kind is JOBS:
            job = id_of(meta["namespace"], meta["name"])
            if new is None:
                self._statuses.forget(job)
            elif old is not None and _generation(old) != _generation(new):
                self.mark_status(job)
            self.context.requeue(job)
            return
        if kind is DISRUPTION_BUDGETS:
            self._budgets.changed(found)
            return
        if kind is CLUSTER_QUEUES:
            self._queue_changed(old, new)
        self._look_again()

    def after_decision(self, batch: DecisionBatch) -> None:
        """Say what the core decided: Events of what happened, statuses of how it stands."""
        core = self.context.core
        self._seq += 1
        self._nodes.decided(one.run.job for one in batch.actions if isinstance(one, Launch))
        aside = (one for one in batch.decisions if isinstance(one, Evict | SetAside))
        self._victims = frozenset(one.job for one in aside)
        if any(isinstance(event, _ROOM) for event in batch.events):
            self._never.clear()
            self._look_again()
        if is_room(batch.events):
            for event in queue_status.unpromised(self.context):
                self.context.report(event)
        jobs = [job for job in batch.jobs if job in self.records]
        if self._chronicle is None:
            self._chronicle = history.HistoryWriter(core)
        mine = [event for event in batch.events if _job_of(event) in self.records]
        decisions = [one for one in batch.decisions if one.job in self.records]
        for line in self._chronicle.lines(core, mine, decisions, jobs, self.records):
            self._tell(line)
        for job_id in jobs:
            self.mark_status(job_id)
            job = core.jobs.get(job_id)
            if job is not None and job.state.over:
                self.context.requeue(job_id)

    # -- what workloads ask ----------------------------------------------------------------------

    def site(self) -> Site:
        """What is known of the cluster: the operator, and the vendors of devices."""
        return self._site

    def admitted(
        self, namespace: str, wish: QueueWish, *, stands: bool = False
    ) -> Admission | Obstacle:
        """The core's queue behind those that a Job names, or why it may be in none."""
        return admitted(self.context, namespace, wish, stands=stands)

    def why_impossible(self, asked: JobRequest) -> str | None:
        """Why a job can never run here, empty if it can; None: that is not known yet."""
        spec, core = asked.spec, self.context.core
        needs = (spec.resources, *(role.resources for role in spec.roles))
        if any(need.pool and need.pool not in core.ledger.pools for need in needs):
            return None
        shape = (spec.workers.min, spec.resources, spec.roles, spec.within, spec.queue, spec.cell)
        if shape not in self._never:
            nowhere = next(filter(None, (self.context.mismatch(need.pool) for need in needs)), "")
            self._never[shape] = nowhere or impossible(core, spec, self._placer) or ""
        return self._never[shape]

    def interpret(self, report: Report, now: float) -> list[Event]:
        """What a report means to the core."""
        return self._reports.understood(self.context.core, self.records, report, now)

    def keep_tails(self, run: RunId, tails: dict[str, bytes]) -> None:
        """Keep the ends of logs until they are understood; none: forget them."""
        if tails:
            self._tails[run] = tails
        else:
            self._tails.pop(run, None)

    def workers(self, run: RunId) -> tuple[str, ...]:
        """The workers of a run with known output."""
        return tuple(self._tails.get(run, ()))

    def logs(self, run: RunId, worker: str = "worker-0") -> LogFile:
        """The end of the output of a worker."""
        tail = self._tails.get(run, {}).get(worker)
        if tail is None:
            raise NotFound(f"no output of {worker} of {run}")
        return PodLogTail(tail)

    def is_victim(self, job: JobId) -> bool:
        """Whether the policy has just chosen a job to make room for others."""
        return job in self._victims

    def eviction_forbidden(self, pods: Sequence[Object]) -> str:
        """Why disruption budgets do not let pods go; empty if they do."""
        return self._budgets.forbids(pods)

    def is_status_written(self, job: JobId) -> bool:
        """Whether the status of a job says all that there is to say."""
        return self._statuses.is_told(job)

    def mark_status(self, job: JobId) -> None:
        """Something is to be said about a job."""
        self._statuses.mark(job)

    def release_pod(self, pod: Object) -> None:
        """A pod is no part of its job any more: until it is gone it takes room, and no more."""
        meta = pod["metadata"]
        there = self.context.objects(PODS)
        self._released = {
            uid: key
            for uid, key in self._released.items()
            if key in there and there[key]["metadata"]["uid"] == uid
        }
        self._released[meta["uid"]] = meta["namespace"], meta["name"]
        self.context.observe(PODS, None, pod)

    async def save_members(self, job: JobId, text: str) -> None:
        """Write down what the next leader has to know of a run."""
        workload = self._workloads.get(job)
        found = None if workload is None else workload.object
        if workload is None or found is None:
            return
        workload.kept = text
        meta = found["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": {"members": text}}
        await self.context.binder.write(
            lambda: self.context.api.patch(
                JOBS, meta["name"], body, meta["namespace"], sub="status"
            )
        )

    # -- pods that call --------------------------------------------------------------------------

    async def _meet(self, meeting: RendezvousServer, port: int) -> None:
        await meeting.start(port=port)
        try:
            await asyncio.Event().wait()
        finally:
            await meeting.stop()

    def _heard(self, run: RunId, member: str, line: dict[str, Any]) -> None:
        if (workload := self._workloads.get(run.job)) is not None:
            workload.heard(run, member, line)

    def _polled(self, run: RunId, member: str, version: int) -> None:
        if (workload := self._workloads.get(run.job)) is not None:
            workload.polled(run, member, version)

    # -- what is said ----------------------------------------------------------------------------

    def _wanted(self, job_id: JobId) -> WantedStatus | None:
        """The object of a job, and the status that it should have."""
        workload = self._workloads.get(job_id)
        found = None if workload is None else workload.object
        if workload is None or found is None:
            return None
        said = last_status(found, self._statuses.said(job_id, found))
        core, now = self.context.core, self.context.now()
        if workload.trouble is not None:
            sentence = _joined(workload.trouble.sentence, self._nodes.told(job_id))
            trouble = workload.trouble._replace(sentence=sentence)
            return WantedStatus(found, status_without(trouble, job_id, said, now))
        job, record = core.jobs.get(job_id), self.records.get(job_id)
        if job is None or record is None:
            return None
        view = view_of(core, job, record, self._seq)
        view["queue"] = record.file.queue
        if job.waiting:
            view["reason"] = _joined(view["reason"] or "", self._nodes.told(job_id))
        kept = {"members": workload.kept} if workload.kept else {}
        return WantedStatus(found, {**status_of(view, said, now), **kept})

    def _tell(self, line: history.HistoryLine) -> None:
        workload = self._workloads.get(JobId(line.job))
        found = None if workload is None else workload.object
        if found is None or line.kind == "submitted":
            return
        reason = word(line.new or line.kind)
        text = line.text or f"it is {line.new}"
        self.context.write_event(found, reason, text, warning=line.new == "failed")

    async def _keep_reasons(self) -> None:
        """Tell waiting jobs why they wait, and queues what they hold; forget what is gone."""
        cursor = 0
        while True:
            await asyncio.sleep(_REASONS_S)
            for job_id in [one for one, found in self._workloads.items() if found.over]:
                del self._workloads[job_id]
            core = self.context.core
            waiting = [job for job in self.records if job in core.jobs and core.jobs[job].waiting]
            cursor = cursor + _REASONS if cursor + _REASONS < len(waiting) else 0
            for job_id in waiting[cursor : cursor + _REASONS]:
                self._statuses.mark(job_id)
            for told in queue_status.stale_queues(self.context, self.records):
                try:
                    await queue_status.write_report(self.context, told)
                except (NotFound, Retryable, Forbidden, Conflict, InvalidSpec) as error:
                    if isinstance(error, Deposed):
                        raise
                    _log.info("the status of a queue was not written: %s", error)

    async def _look_at_budgets(self) -> None:
        """Let the core know which jobs budgets protect, before it chooses one to make room."""
        while True:
            await asyncio.sleep(_BUDGETS_S)
            for event in self._budgets.changes(self._workloads, self.context.now()):
                self.context.report(event)

    def _lacking_room(self) -> Iterator[NodeWish]:
        """Jobs that more nodes would help, the first in line first."""
        if not self._options.asks_for_nodes:
            return
        core = self.context.core
        waiting = [core.jobs[job] for job in self.records if job in core.jobs]
        for job in sorted(waiting, key=lambda job: (-job.spec.priority, job.seq)):
            workload = self._workloads.get(job.id)
            if workload is None or workload.asked is None or not job.waiting or job.held:
                continue
            why = core.explain(job.id, limit=0)
            if (why is not None and why.reason.cause in _NO_ROOM) or _is_promised(job):
                yield NodeWish(job.id, workload.asked, job.spec.workers.min)
        for job_id, workload in self._workloads.items():
            found, asked = workload.object, workload.homeless
            if found is not None and asked is not None and not is_held(found):
                yield NodeWish(job_id, asked, asked.workers(found).min)

    # -- queues and nodes ------------------------------------------------------------------------

    def _queue_changed(self, old: Object | None, new: Object | None) -> None:
        for event in queue_status.events_of(self.context, old, new, self.context.now()):
            self._never.clear()
            self.context.report(event)

    def _look_again(self) -> None:
        """Something changed that jobs may have waited for which the core does not know."""
        for job_id, workload in self._workloads.items():
            if workload.trouble is not None and not workload.trouble.final:
                self.context.requeue(job_id)


def _is_promised(job: Job) -> bool:
    """Whether a job is within the promise of a queue that lends: given nodes, it has room."""
    account = job.queue.account
    if account is None or not job.spec.preempts:
        return False
    return any(map(account.promised, account.claims(job.spec)))


class _Vendors(Mapping[NodeId, str]):
    """What a GPU of a node is called, read when it is asked for."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context

    def __getitem__(self, node: NodeId) -> str:
        found = self._context.objects(NODES)["", node]
        offered = (found.get("status") or {}).get("allocatable") or {}
        return next(name for name in (*DEVICES, "nvidia.com/gpu") if name in offered)

    def get(self, node: NodeId, default: Any = None) -> Any:
        """The same; ``default`` where it is not known."""
        try:
            return self[node]
        except (KeyError, StopIteration):
            return default

    def __iter__(self) -> Iterator[NodeId]:
        return (NodeId(name) for _, name in self._context.objects(NODES))

    def __len__(self) -> int:
        return len(self._context.objects(NODES))


class _WithAgents(Container[NodeId]):
    """The nodes with an agent, looked up when it is asked for."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context

    def __contains__(self, node: object) -> bool:
        found = self._context.objects(NODES).get(("", str(node)))
        return found is not None and has_agent(found)


def _generation(found: Object) -> Any:
    return found["metadata"].get("generation")


def _joined(*sentences: str) -> str:
    return "; ".join(filter(None, sentences))


def _job_of(event: Event) -> JobId | None:
    run = getattr(event, "run", None)
    return run.job if run is not None else getattr(event, "job", None)
