"""A cluster of Kubernetes as the server serves it.

    reading   mirrors of the objects; lists of Jobs and Events in a store of our own, which is a
              view and nothing more; questions are asked of a core folded from the objects
    writing   requests to the API server with the rights of the caller: the operator sees them

Nothing here schedules. A command is durable when the API server has taken it; what comes of it is
the operator's business and appears when its status does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from roost.core import Core, Event, JobId, NodeId, RunId, snapshot
from roost.engines import Usage
from roost.errors import Conflict, NotFound, RoostError
from roost.jobs import explain as explaining
from roost.jobs.backlog import too_many
from roost.jobs.change_feed import ChangeFeed, ClusterChange
from roost.jobs.health import DecisionCounts, IntakeHealth
from roost.jobs.policy_guard import PolicyGuard, foreseen
from roost.jobs.profiles import profile_views
from roost.jobs.requests import CloneRequest, JobSubmission, check_submission
from roost.jobs.views import node_view, over_view, state_view, waiting_view
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    EVENTS,
    JOBS,
    KUEUE_LOCAL_QUEUES,
    NODES,
    PODS,
    QUEUES,
    Object,
    ResourceKind,
)
from roost.kubernetes.client.mirror import Mirror
from roost.kubernetes.gangs.discovery import OF_PARTS
from roost.kubernetes.gateway.commands import (
    ClusterCommands,
    NoNotifications,
    NoSnapshots,
    unavailable,
)
from roost.kubernetes.gateway.folders import ClusterFolders
from roost.kubernetes.gateway.folding import all_queues, workload_sources
from roost.kubernetes.gateway.gang_rows import GangRows
from roost.kubernetes.gateway.outputs import PodOutputs
from roost.kubernetes.gateway.rows import (
    EventJobs,
    event_rows,
    job_id,
    place_of,
    readable_rows,
)
from roost.kubernetes.objects.gang_refs import INDEX, ROLE
from roost.kubernetes.objects.pods import ATTEMPT
from roost.kubernetes.operator.announcement import Announcement, announced
from roost.kubernetes.operator.reconciler import fold
from roost.store import Store
from roost.store.rows import JobRow, JournalEntry, QueueRow, User

#: How long the first look at everything may take.
_SYNC_S = 60.0
#: Changes are gathered for so long before they are told.
_TICK_S = 0.1
#: How long an answer waits for the operator to heed a wish.
_HEED_S = 2.0
_LABELS = (ATTEMPT, ROLE, INDEX)


class KubernetesCluster:
    """A cluster of Kubernetes, for one server."""

    #: Kubernetes bounds its users: a quota of a namespace.
    bounds: None = None

    def __init__(self, api: Api, store: Store, folder: Path) -> None:
        self._api = api
        self.folders = ClusterFolders(api)
        self._commands = commands = ClusterCommands(api, self, self.folders)
        # What people ask for is written by the commands; this class answers questions.
        self.submit, self.cancel, self.delete = commands.submit, commands.cancel, commands.delete
        self.rerun = commands.rerun
        self.suspend, self.resume = commands.suspend, commands.resume
        self.scale, self.migrate = commands.scale, commands.migrate
        self.delete_queue = commands.delete_queue
        self.store, self.feed, self.counts = store, ChangeFeed(), DecisionCounts()
        self.health = IntakeHealth()
        self.snapshots = NoSnapshots()
        self.notifications = NoNotifications()
        self.engine = PodOutputs(api, self._pods, self._uid_of, folder)
        self.epoch = self.seq = 0
        self._decides = Announcement()
        self._policy, self._placer = self._decides.made()
        self._core = Core(self._policy, self._placer)
        self._folded = False
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news, self._noted, self._noting = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._changed: dict[JobId, None] = {}
        self._heard: list[Object] = []
        #: Gangs of others, which are listed beside Jobs.
        self._gangs = GangRows(lambda kind: self._mirrors[kind].objects)
        self._tasks: list[asyncio.Task[None]] = []
        self._sources = workload_sources()
        wanted = [kind for source in self._sources for kind in source.kinds]
        self._mirrors = {
            kind: Mirror(api, kind, self._listener(kind))
            for kind in dict.fromkeys((NODES, PODS, *wanted, EVENTS))
        }

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Look at everything once, and follow it from then on."""
        self.epoch = await asyncio.to_thread(self.store.journal.serve)
        self._tasks = [asyncio.create_task(mirror.run()) for mirror in self._mirrors.values()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SYNC_S):
                for mirror in self._mirrors.values():
                    await self._synced(mirror)
        await self._hear_operator()
        await self._note()
        self._tasks.append(asyncio.create_task(self._keep_noting()))

    async def _synced(self, mirror: Mirror) -> None:
        """Wait for the first list; one that may not be read is not waited for."""
        while not mirror.synced.is_set() and not mirror.trouble:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await mirror.synced.wait()
        if mirror.trouble and mirror.kind is JOBS:
            raise RoostError(mirror.trouble)

    async def close(self) -> None:
        """Let go of everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.engine.close()

    def stop(self) -> None:
        """Let the server that serves this end."""
        if not self._broken.done():
            self._broken.set_result(None)

    @property
    def broken(self) -> asyncio.Future[None]:
        """Done when it shall end."""
        return self._broken

    def halt(self, error: RoostError) -> None:
        """Stop: the views turned out to be broken."""
        if not self._broken.done():
            self._broken.set_exception(error)

    def now(self) -> float:
        """This machine's time."""
        return time.time()

    # -- following -----------------------------------------------------------------------------

    def _listener(self, kind: ResourceKind) -> Callable[[Object | None, Object | None], None]:
        def changed(old: Object | None, new: Object | None) -> None:
            found = new or old
            if kind is JOBS and found is not None:
                self._changed[job_id(found)] = None
            elif kind is EVENTS and new is not None:
                self._heard.append(new)
            elif kind is PODS:
                self._gangs.changed(old, new)
            elif kind in OF_PARTS:
                self._gangs.owner_changed()
            if kind is not EVENTS:
                self._folded = False
            self._news.set()

        return changed

    async def _keep_noting(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(_TICK_S)
            self._news.clear()
            await self._note()

    async def _note(self) -> None:
        """Bring the views up to date with what changed."""
        async with self._noting:
            await self._note_changes()

    async def _note_changes(self) -> None:
        names, self._changed = self._changed, {}
        heard, self._heard = self._heard, []
        jobs = self._mirrors[JOBS].objects
        there = {job_id(job): job for job in jobs.values()}
        for queue in self._queue_names():
            await asyncio.to_thread(self.store.accounts.set_queue, QueueRow(queue))
        seq = self.seq + 1
        rows = readable_rows([there[name] for name in names if name in there], seq)
        known = [await asyncio.to_thread(self.store.jobs.get, name) for name in names]
        gone = [row.id for row in known if row is not None and row.id not in there]
        for row in rows:
            if row.finished_at is not None:
                await self.engine.complete(JobId(row.id))
        gangs, over = self._gangs.news(seq)
        rows += gangs
        gone += [gang for gang in over if gang not in there]
        uids = {name: job["metadata"]["uid"] for name, job in there.items()}
        lines = event_rows(heard, seq, EventJobs(uids, self._gangs.of_pod))
        if not (rows or gone or lines):
            return
        entry = JournalEntry(seq, uuid4().hex, time.time(), {})
        await asyncio.to_thread(self.store.journal.append, [entry], rows, lines, gone)
        self.seq = seq
        self._noted.set()
        self.feed.publish(ClusterChange(seq, rows, lines, gone))

    def _queue_names(self) -> set[str]:
        """Queues that Jobs may name: one that is nowhere is refused by the operator, too."""
        kinds = (QUEUES, *KUEUE_LOCAL_QUEUES)
        names = {name for kind in kinds for _, name in self._mirrors[kind].objects}
        known = {row.id for row in self.store.accounts.queues()}
        return {"default", *names} - known

    # -- questions -----------------------------------------------------------------------------

    @property
    def core(self) -> Core:
        """The core as the objects tell it."""
        self._fold()
        return self._core

    @property
    def policy_name(self) -> str:
        """The policy of the operator, as far as it is known."""
        return self._decides.policy

    @property
    def placer_name(self) -> str:
        """The placer of the operator, as far as it is known."""
        return self._decides.placer

    async def _hear_operator(self) -> None:
        """Learn which policy and placer decide: an operator may have been started with others."""
        found = await announced(self._api)
        if found[:2] != self._decides[:2]:
            self._policy, self._placer = found.made()
            self._folded = False
        self._decides = found

    def _fold(self) -> None:
        if not self._folded:
            objects = {kind: mirror.objects.values() for kind, mirror in self._mirrors.items()}
            self._core = fold(objects, self._policy, self._placer, time.time(), self._sources)
            self._folded = True

    def view(self, row: JobRow) -> dict[str, Any]:
        """A job as all callers see it."""
        return dict(row.view)

    async def plan(self, request: JobSubmission) -> dict[str, Any]:
        """Where and when a job would start if it were submitted now; changes nothing."""
        await self.admit(request)
        # The operator tells users of one name in two namespaces apart.
        spec = request.job.spec(f"{self._api.namespace}/{request.user}")
        await self._hear_operator()
        guard, now = PolicyGuard(self._policy), time.time()
        if too_many(self.core):
            answer = explaining.estimate_plan(self.core, spec, self._placer, now)
            found = await foreseen(guard, lambda _: answer())
        else:
            core = self._copy()
            found = await foreseen(
                guard, lambda policy: explaining.plan(core(), spec, policy, self._placer, now)
            )
        silent = "notify: ignored on Kubernetes; nobody is notified" if request.job.notify else ""
        return {**found, "notes": [*filter(None, (self._decides.note, silent))]}

    async def explain(self, job: JobId) -> dict[str, Any]:
        """Why a job is where it is, who is ahead, when it will start, what would start it now."""
        row = await asyncio.to_thread(self.store.jobs.get, job)
        known = self.core.jobs.get(job)
        if row is None:
            raise NotFound(f"no job {job!r}")
        if row.finished_at is not None:
            return over_view(row)
        if known is None:  # it is no job to the core until something is changed
            return waiting_view(row)
        await self._hear_operator()
        guard, now = PolicyGuard(self._policy), time.time()
        if too_many(self.core):
            answer = explaining.estimate(self.core, job, guard, now)
            found = await foreseen(guard, lambda _: answer())
        else:
            core = self._copy()
            found = await foreseen(
                guard, lambda policy: explaining.explain(core(), job, policy, self._placer, now)
            )
        if row.view.get("reason"):  # the operator knows what its policy said
            found |= {"cause": row.view["cause"], "reason": row.view["reason"]}
        if self._decides.note:
            found["assumptions"] = [self._decides.note, *found["assumptions"]]
        if known.waiting:
            found["since"] = row.submitted_at
        return {**found, "verdict": row.view.get("verdict")}

    def _copy(self) -> Callable[[], Core]:
        state = snapshot.dump(self.core, over=False)
        return lambda: snapshot.load(state, self._policy, self._placer)

    def profiles(self, user: str | None = None, application: str = "") -> list[dict[str, Any]]:
        """What was learned of applications."""
        return profile_views(self.core, user, application)

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes with their devices and what is on them."""
        return [node_view(node) for node in self.core.ledger.order]

    async def queues(self) -> list[dict[str, Any]]:
        """All queues of the cluster with what they hold and what waits."""
        return all_queues(self.core, self._mirrors[CLUSTER_QUEUES].objects.values())

    def state(self) -> Iterator[str]:
        """Everything that the objects tell, for ``roost simulate --from live``."""
        told = state_view(self.core, self.seq, self.policy_name, self.placer_name)
        return iter([json.dumps(told)])

    def usage(self) -> Mapping[RunId, Usage]:
        """What processes use is known to their kubelets alone."""
        return {}

    def _pods(self, run: RunId) -> dict[str, Object]:
        """The pods of a run by the name of their worker, main ones first."""
        if gang := self._gangs.pods(run.job):
            return {pod["metadata"]["name"]: pod for pod in gang}
        namespace = run.job.partition(".")[0]
        uid = self._uid_of(run.job)
        found = {}
        for (space, _), pod in self._mirrors[PODS].objects.items():
            if space != namespace or not _is_owned(pod, uid):  # labels can be written by any user
                continue
            labels = pod["metadata"].get("labels") or {}
            attempt, role, index = (labels.get(label, "") for label in _LABELS)
            if attempt == str(run.attempt) and index.isdecimal():
                found[role != "worker", role, int(index)] = pod
        return {f"{role}-{index}": found[key] for key in sorted(found) for _, role, index in [key]}

    def _uid_of(self, job: JobId) -> str:
        found = self._mirrors[JOBS].objects.get(place_of(job))
        return "" if found is None else str(found["metadata"]["uid"])

    async def set_queue(self, queue: QueueRow, actor: str) -> QueueRow:
        """Create or change a queue; Jobs may name it from now on."""
        made = await self._commands.set_queue(queue, actor)
        await asyncio.to_thread(self.store.accounts.set_queue, QueueRow(queue.id))
        return made

    # -- for commands --------------------------------------------------------------------------

    async def admit(self, request: JobSubmission) -> None:
        """Raise where a job's queue or secrets are wrong."""
        check_submission(request, await asyncio.to_thread(self.store.accounts.queues))

    async def row(self, job: JobId) -> JobRow:
        """A job as it is listed."""
        row = await asyncio.to_thread(self.store.jobs.get, job)
        if row is None:
            raise NotFound(f"no job {job!r}")
        return row

    async def made(self, job: Object) -> JobRow:
        """A Job that was just made, as it is listed from now on."""
        self._mirrors[JOBS].objects.setdefault(
            (job["metadata"]["namespace"], job["metadata"]["name"]), job
        )
        self._folded = False
        self._changed[job_id(job)] = None
        await self._note()
        return await self.row(job_id(job))

    async def asked_before(self, user: str, key: str) -> JobRow | None:
        """The job that this request has made already."""
        return await asyncio.to_thread(self.store.jobs.by_request, user, key)

    async def newer(self, row: JobRow) -> JobRow:
        """A job once its operator has said something new of it; as it was, where it does not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEED_S):
                while (now := await self.row(JobId(row.id))).view.get("state") == row.state:
                    self._noted.clear()
                    await self._noted.wait()
                return now
        return await self.row(JobId(row.id))

    @property
    def own_users(self) -> bool:
        """Users are Kubernetes' business."""
        return False

    async def clone(self, clone: CloneRequest) -> tuple[JobRow, bool]:
        """There are no snapshots to begin from."""
        raise unavailable(f"snapshot {clone.point.job}@{clone.point.name}")

    async def user_changed(self, user: User, actor: str) -> None:
        """Users of a cluster are Kubernetes' business; ours are for one command line."""

    async def care_for(self, event: Callable[[float], Event], actor: str) -> None:  # noqa: ARG002
        """Machines are Kubernetes' business."""
        raise Conflict(
            "machines are cared for with kubectl here: kubectl cordon, drain and uncordon are "
            "respected"
        )

    async def restore_gpu(self, node: NodeId, gpu: int, actor: str) -> None:  # noqa: ARG002
        """Devices are Kubernetes' business."""
        raise unavailable(f"GPU {gpu} of {node}")

    async def prune(
        self, rules: Mapping[str, float], actor: str, *, dry_run: bool
    ) -> dict[str, Any]:
        """Objects of a cluster are kept as long as their owners want."""
        del rules, actor, dry_run
        raise Conflict(
            "jobs of a cluster are not pruned: delete them, with roost delete or kubectl"
        )


def _is_owned(pod: Object, uid: str) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(one.get("controller") and one.get("uid") == uid for one in owners)
