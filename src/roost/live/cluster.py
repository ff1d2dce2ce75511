"""The cluster as the server sees it: commands that return when they are durable, and questions.

The server checks permissions, except who may submit to which queue: that is part of what a queue
is (``roost.jobs.requests``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from roost import placement, policies
from roost.api.snapshots import reference
from roost.core import (
    CancelRequested,
    Core,
    Deleted,
    Event,
    GpuRestored,
    JobId,
    MigrateRequested,
    NodeId,
    Queue,
    QueueChanged,
    QueueDeleted,
    QueueId,
    QueueSpec,
    Range,
    Reshape,
    ResumeRequested,
    RunId,
    ScaleRequested,
    SuspendRequested,
    Woke,
    snapshot,
)
from roost.core.demand import Counts
from roost.core.wire import decode_decision
from roost.defaults import PLACER, POLICY
from roost.engines import Engine, Usage
from roost.errors import (
    Conflict,
    InvalidSpec,
    NotFound,
    RoostError,
)
from roost.jobs import explain as explaining
from roost.jobs.amounts import counted
from roost.jobs.backlog import too_many
from roost.jobs.change_feed import ChangeFeed
from roost.jobs.clock import WallClock
from roost.jobs.health import DecisionCounts, IntakeHealth
from roost.jobs.policy_guard import PolicyGuard, foreseen
from roost.jobs.profiles import known, profile_views, unheld
from roost.jobs.record import JobRecord
from roost.jobs.requests import CloneRequest, JobSubmission, RerunRequest, check_submission
from roost.jobs.views import node_view, over_view, queue_views, view_of
from roost.live.batches import DecidedBatch
from roost.live.disk_reserve import DiskReserve
from roost.live.driver import Driver
from roost.live.intake import Command
from roost.live.notifications.service import NotificationService
from roost.live.private_files import PrivateFiles
from roost.live.queue_rows import QueueRows
from roost.live.reruns import RerunService
from roost.live.retention import PRUNED_AT_ONCE, RetentionRule, RetentionService, pruned_view
from roost.live.sent_folders import SentFolders
from roost.live.snapshot_files import SnapshotFiles
from roost.live.snapshots import SnapshotService
from roost.live.state_text import state_pieces
from roost.live.submissions import SubmissionService
from roost.live.user_bounds import BoundService, UserBounds
from roost.store import Fenced, Store, StoreBroken
from roost.store.rows import HomeRow, JobRow, QueueRow, User

T = TypeVar("T")

#: How often folders that nobody needs any more are looked for.
_COLLECT_S = 600.0


class Cluster:
    """One machine, or several: its jobs, queues and nodes."""

    def __init__(  # noqa: PLR0913 - what a cluster is made of
        self,
        store: Store,
        engine: Engine,
        home: Path,
        *,
        policy: str = POLICY,
        placer: str = PLACER,
        typical: Counts = (),
        clock: WallClock | None = None,
        by_account: bool = False,
        identity: HomeRow | None = None,
        adopt: bool = False,
        copied: bool = False,
        retention: RetentionRule | None = None,
        bounds: UserBounds | None = None,
        reserve: DiskReserve | None = None,
    ) -> None:
        self._by_account, self._reserve = by_account, reserve
        self._identity, self._adopt, self._copied = identity, adopt, copied
        self.policy_name, self.placer_name = policy, placer
        self.store, self.engine, self.home = store, engine, home
        self.clock = clock or WallClock()
        self._driver = Driver(
            store,
            engine,
            policies.policy(policy),
            placement.placer(placer, typical),
            PrivateFiles(home),
            self.clock,
        )
        self._reruns = RerunService(self._driver)
        self.snapshots = SnapshotService(self._driver, SnapshotFiles(home), self._ask_store)
        self.retention = RetentionService(
            self._driver,
            retention or RetentionRule(),
            self._ask_store,
            self.delete,
            self.snapshots.is_taking,
        )
        self._tidying: asyncio.Task[None] | None = None
        self.notifications = NotificationService(store, home, self.clock)
        self.folders = SentFolders(home)
        self._collecting: asyncio.Task[None] | None = None
        self.bounds = BoundService(
            self._driver, self.folders, bounds or UserBounds(), self._ask_store
        )
        self.folders.check_room = self.bounds.check_disk
        self.snapshots.check_room = self.bounds.check_disk
        self._dumped: tuple[int, dict[str, Any]] | None = None
        self._queues = QueueRows(store.accounts.queues, self._ask_store)
        self._submissions = SubmissionService(
            self._driver, self.bounds, self._queues, self._ask_store, lambda: self.health
        )

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Become the one server of the store, come back to where the last one was, and go on.

        A start that is refused has changed nothing.
        """
        foreign = await asyncio.to_thread(
            self.store.journal.claim, self._identity, adopt=self._adopt
        )
        if self._by_account:
            users = await self._ask_store(self.store.accounts.users)
            self._driver.effects.accounts = {u.name: u.unix for u in users if u.active}
        await self._driver.start(foreign=foreign, copied=self._copied)
        if foreign:
            await self._ask(Woke, "roost")  # behind the reports of what is lost
            await self._ask_store(self.store.journal.settle_home)
        rows = await self._ask_store(self.store.accounts.queues)
        if not any(row.id == "default" for row in rows):
            await self.set_queue(QueueRow("default"), "roost")
        for row in rows:  # the last server may have been killed between row and journal
            queue = self.core.queues.get(QueueId(row.id))
            if queue is None or queue.spec != _spec(row):
                await self._settle_queue(row, queue)
        await asyncio.to_thread(self.engine.sweep, self._is_known)
        await asyncio.to_thread(self._driver.private_files.sweep_payloads, self._is_known)
        await self.snapshots.sweep()
        await self.notifications.start(self.feed, self.seq)
        self._tidying = asyncio.create_task(self.retention.run(), name="retention")
        await asyncio.to_thread(self.folders.sweep, self._is_known)
        self._collecting = asyncio.create_task(self._keep_collecting())
        await self.bounds.start()

    async def _keep_collecting(self) -> None:
        """Remove folders that were sent, and that no job refers to any more, now and then."""
        while True:
            await asyncio.sleep(_COLLECT_S)
            await asyncio.to_thread(self.folders.collect)

    def _is_known(self, job: JobId) -> bool:
        """Whether a job is in the core or in the lists: its files are needed."""
        try:
            return job in self.core.jobs or self.store.jobs.get(job) is not None
        except RoostError:
            return True

    async def close(self) -> None:
        """Let go; jobs go on."""
        if self._tidying is not None:
            self._tidying.cancel()
            with suppress(asyncio.CancelledError):
                await self._tidying
        await self.bounds.close()
        await self.notifications.close()
        if self._collecting is not None:
            self._collecting.cancel()
        await self.snapshots.close()
        await self._driver.close()
        await asyncio.to_thread(self.store.close)

    @property
    def broken(self) -> asyncio.Future[None]:
        """Fails when the cluster cannot go on; the process should end then."""
        if self._driver.broken is None:
            raise Conflict("the cluster was not started")
        return self._driver.broken

    def halt(self, error: RoostError) -> None:
        """Stop everything: the store turned out to be broken, or another server's."""
        self._driver.halt(error)

    @property
    def own_users(self) -> bool:
        """Users are this server's."""
        return True

    @property
    def epoch(self) -> int:
        """The number of this server among all that ever served the store."""
        return self._driver.epoch

    @property
    def core(self) -> Core:
        """The scheduling core; look, do not touch."""
        return self._driver.core

    @property
    def health(self) -> IntakeHealth:
        """Whether new work is accepted, and whether the policy works.

        Commands that are no new work are also accepted while no run can begin.
        """
        health, trouble, failing = self._driver.health, self._driver.trouble, self._driver.policy
        if health.ok and trouble is not None:
            why = f"nothing new is accepted now: {trouble.why}"
            health = IntakeHealth(ok=False, why=why, full=trouble.full)
        elif health.ok and self._reserve is not None and self._reserve.why:
            why = f"nothing new is accepted now: {self._reserve.why}"
            health = IntakeHealth(ok=False, why=why, full=True)
        said = "" if failing.trouble is None else failing.trouble.text
        told = self.clock.trouble
        return replace(health, policy=said, clock=told) if said or told else health

    @property
    def feed(self) -> ChangeFeed:
        """Tells of every change."""
        return self._driver.feed

    @property
    def guard(self) -> PolicyGuard:
        """What stands between the policy and the server."""
        return self._driver.policy

    def change_policy(self, name: str) -> None:
        """Let another policy decide from now on; raises InvalidSpec where there is no such one."""
        self._driver.change_policy(policies.policy(name))
        self.policy_name = name

    @property
    def counts(self) -> DecisionCounts:
        """Figures about the driver itself."""
        return self._driver.counts

    @property
    def seq(self) -> int:
        """The number of the journal's last entry."""
        return self._driver.seq

    def now(self) -> float:
        """The journal's time, which never runs backwards."""
        return self.clock.now()

    # -- commands ------------------------------------------------------------------------------

    async def submit(self, request: JobSubmission) -> tuple[JobRow, bool]:
        """Accept a job; the row, and whether it is new: a repeated request finds the first one."""
        return await self._submissions.submit(request)

    async def clone(self, clone: CloneRequest) -> tuple[JobRow, bool]:
        """Submit a new job that begins from a snapshot; see ``submit``."""
        ref = reference(clone.point.job, clone.point.name)
        async with self.snapshots.lock:
            await self.snapshots.check(ref)
            file = await self.snapshots.job_of(clone)
            own = clone.user == clone.point.user == (clone.actor or clone.user)
            job = JobId(clone.point.job)
            return await self.submit(
                JobSubmission(
                    file,
                    clone.user,
                    clone.unix,
                    await self._reruns.secrets(job, file, clone.secrets, own=own),
                    await self.snapshots.payload_of(clone.point),
                    clone.key,
                    ref,
                    clone.actor,
                )
            )

    async def rerun(self, rerun: RerunRequest) -> tuple[JobRow, bool]:
        """Submit a new job with the job file of an earlier one; see ``submit``."""
        request = await self._reruns.submission(rerun)
        if not request.clone_of:
            return await self.submit(request)
        async with self.snapshots.lock:  # or the snapshot may be deleted meanwhile
            await self.snapshots.check(request.clone_of)
            return await self.submit(request)

    async def cancel(self, job: JobId, actor: str) -> JobRow:
        """End a job; one that is over stays as it is."""
        return await self._about(job, actor, lambda now: CancelRequested(now, job))

    async def suspend(self, job: JobId, actor: str) -> JobRow:
        """Take a job off its devices until it is resumed."""
        self._must_live(job, "suspended")
        return await self._about(job, actor, lambda now: SuspendRequested(now, job))

    async def resume(self, job: JobId, actor: str) -> JobRow:
        """Let a suspended job go on."""
        self._must_live(job, "resumed")
        return await self._about(job, actor, lambda now: ResumeRequested(now, job))

    async def scale(self, job: JobId, workers: Range, actor: str) -> JobRow:
        """Give a job another size, within what it was declared for."""
        record = self._must_live(job, "scaled")
        low, high = record.workers
        if low == high and workers != (low, high):
            raise Conflict(
                f"job {job} is not elastic: it was submitted for exactly {counted(low, 'worker')}; "
                f"submit it with --workers MIN..MAX"
            )
        if not low <= workers.min <= workers.max <= high:
            raise InvalidSpec(f"job {job} can run with {low}..{high} workers, not {workers}")
        return await self._about(job, actor, lambda now: ScaleRequested(now, job, workers))

    async def migrate(self, job: JobId, node: NodeId | None, actor: str) -> JobRow:
        """Move a running job elsewhere; raises Conflict where there is no other place."""
        self._must_live(job, "moved")
        batch = await self._ask(lambda now: MigrateRequested(now, job, node), actor)
        decided = map(decode_decision, batch.entry.body["decisions"])
        if not any(isinstance(decision, Reshape) and decision.job == job for decision in decided):
            where = f"on node {node}" if node else "anywhere else"
            raise Conflict(f"job {job} stays where it is: there is no room for it {where}")
        return await self._row(job, batch)

    async def delete(self, job: JobId, actor: str) -> JobRow:
        """Forget a job that is over, with its logs."""
        row = await self._ask_store(self.store.jobs.get, job)
        if row is None:
            raise NotFound(f"no job {job!r}")
        known = self.core.jobs.get(job)
        if known is not None and not known.state.over:
            raise Conflict(f"job {job} is {known.state}: cancel it first")
        await self._ask(self._deletion(job), actor, notes={"deleted": job}, deletes=job)
        await asyncio.to_thread(self.engine.forget, job)
        await asyncio.to_thread(self._driver.private_files.drop, job)
        await asyncio.to_thread(self.folders.release, row.user, job)
        return row

    async def prune(
        self, rules: Mapping[str, float], actor: str, *, dry_run: bool
    ) -> dict[str, Any]:
        """Forget jobs that were kept long enough, or say which; ``rules`` replace the server's."""
        rule = replace(self.retention.rule, **rules)  # type: ignore[arg-type]
        found = await self.retention.outlived(rule, PRUNED_AT_ONCE)
        if not dry_run:
            await self.retention.prune(found, actor)
        return pruned_view(found, more=len(found) >= PRUNED_AT_ONCE)

    async def set_queue(self, queue: QueueRow, actor: str) -> QueueRow:
        """Create a queue, or change its promises and its submitters."""
        spec = _spec(queue)
        before = {row.id: row for row in await self._queues.all()}.get(queue.id)
        await self._write_queue(self.store.accounts.set_queue, queue, actor)
        try:
            await self._ask(lambda now: QueueChanged(now, spec), actor)
        except RoostError:
            with suppress(RoostError):  # what is shown is what is enforced
                if before is not None:
                    await self._write_queue(self.store.accounts.set_queue, before, actor)
                elif spec.id not in self.core.queues:
                    await self._write_queue(self.store.accounts.delete_queue, spec.id, actor)
            raise
        return queue

    async def promise(self, spec: QueueSpec, actor: str = "roost up") -> None:
        """Have a queue with these promises; who may submit to it stays as it is."""
        known = {row.id: row for row in await self._queues.all()}.get(spec.id, QueueRow(spec.id))
        row = replace(
            known,
            quota_milli=spec.quota_milli,
            limit_milli=spec.limit_milli,
            weight=spec.weight,
            priority=spec.priority,
            cells=spec.cells,
            overflows=spec.overflows,
        )
        if row != known or spec.id not in self.core.queues:
            await self.set_queue(row, actor)

    async def delete_queue(self, queue: QueueId, actor: str) -> None:
        """Let a queue be no more; raises Conflict while it has jobs that are not over."""
        if queue == "default":
            raise Conflict("the queue 'default' always exists")
        await self._ask(lambda now: QueueDeleted(now, queue), actor)
        await self._write_queue(self.store.accounts.delete_queue, queue, actor)

    async def _settle_queue(self, row: QueueRow, known: Queue | None) -> None:
        """Tell the core of a row that it does not know; what it refuses was never promised."""
        try:
            await self.set_queue(row, "roost")
        except (Conflict, InvalidSpec):
            cells = () if known is None else known.spec.cells
            await self.set_queue(replace(row, cells=cells), "roost")

    async def _write_queue(self, write: Callable[..., object], queue: object, actor: str) -> None:
        try:
            await self._ask_store(write, queue, actor=actor)
        finally:
            self._queues.changed()

    async def user_changed(self, user: User, actor: str) -> None:
        """Take note of another Unix account; cancel the jobs of a user that was switched off."""
        self.bounds.user_changed(user)
        if self._driver.effects.accounts is not None:
            self._driver.effects.accounts[user.name] = user.unix
        if not user.active:
            for job in self._driver.records.owned(user.name):
                with suppress(NotFound):
                    await self.cancel(job, actor)

    async def care_for(self, event: Callable[[float], Event], actor: str) -> None:
        """Take a machine out of service, or put it back, as an event of the core tells."""
        await self._ask(event, actor)

    async def restore_gpu(self, node: NodeId, gpu: int, actor: str) -> None:
        """Use a device again that was taken out of service."""
        await self._ask(lambda now: GpuRestored(now, node, gpu), actor)
        self._driver.trust(node, gpu)

    # -- questions -----------------------------------------------------------------------------

    def view(self, row: JobRow) -> dict[str, Any]:
        """The view of a job, with what is known just now."""
        job, record = self.core.jobs.get(JobId(row.id)), self._driver.records.get(JobId(row.id))
        if job is None or record is None:
            return dict(row.view)
        return view_of(self.core, job, record, row.rev)

    async def plan(self, request: JobSubmission) -> dict[str, Any]:
        """Where and when a job would start if it were submitted now; changes nothing."""
        check_submission(request, await self._queues.all())
        spec, program = request.job.spec(request.user), request.job.program()
        driver, now = self._driver, self.clock.now()
        if too_many(self.core):
            answer = explaining.estimate_plan(self.core, spec, driver.placer, now)
            found = await foreseen(driver.policy, lambda _: answer())
        else:
            copy = self._copy()
            found = await foreseen(
                driver.policy,
                lambda policy: explaining.plan(copy(), spec, policy, driver.placer, now),
            )
        if not found["never"] and (refused := self._submissions.refusal(spec, program)):
            found |= {"never": True, "fits": False, "reason": refused, "placement": []}
        notes = list(request.job.notes())
        notes += filter(None, (known(self.core, spec), unheld(self.core, spec)))
        if spec.elastic and not policies.resizes(driver.policy):
            notes.append(
                f"policy {self.policy_name} starts it with {counted(spec.workers.min, 'worker')} "
                "and leaves it at that; roost scale changes it, and policies such as roost and "
                "alnair do so by themselves"
            )
        return {**found, "notes": notes}

    async def explain(self, job: JobId) -> dict[str, Any]:
        """Why a job is where it is, what is ahead, when it starts, what would start it now."""
        record = self._driver.records.get(job)
        if record is None:
            row = await self._ask_store(self.store.jobs.get, job)
            if row is None:
                raise NotFound(f"no job {job!r}")
            return over_view(row)
        queues = await self._queues.all()
        open_to = {queue.id for queue in queues if queue.admits(record.user)}
        if job not in self.core.jobs:
            raise NotFound(f"no job {job!r} any more")
        found = await self._explained(job)
        found["remedies"] = [
            remedy
            for remedy in found["remedies"]
            if remedy["kind"] != "queue" or remedy["value"] in open_to
        ]
        if found["cause"] == "back-off" and record.verdict is not None:
            found["reason"] = str(record.verdict["sentence"])
        elif self._driver.trouble is not None and found["cause"] != "running":
            found |= {"cause": "server", "reason": self._driver.trouble.why}
        elif record.delay:
            found |= {"cause": "server", "reason": record.delay}
        return {**found, "verdict": record.verdict}

    async def _explained(self, job: JobId) -> dict[str, Any]:
        """What the core and a forecast tell of a job; where there are too many, an estimate."""
        driver, now = self._driver, self.clock.now()
        if too_many(self.core):
            answer = explaining.estimate(self.core, job, driver.policy, now)
            return await foreseen(driver.policy, lambda _: answer())
        copy = self._copy()
        said = self.core.explain(job)
        return await foreseen(
            driver.policy,
            lambda policy: explaining.explain(copy(), job, policy, driver.placer, now, said=said),
        )

    def profiles(self, user: str | None = None, application: str = "") -> list[dict[str, Any]]:
        """What was learned of applications: of a user's, or of all."""
        return profile_views(self.core, user, application)

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes with their devices and the jobs on them."""
        ledger = self.core.ledger
        return [node_view(node, ledger.windows, self._busy) for node in ledger.order]

    def _busy(self, job: JobId) -> float | None:
        record = self._driver.records.get(job)
        return None if record is None else record.busy

    async def queues(self) -> list[dict[str, Any]]:
        """All queues with what they hold and how many jobs wait."""
        return queue_views(self.core, await self._queues.all())

    def state(self) -> Iterator[str]:
        """Everything the core knows, for ``roost simulate --from live``, in pieces of JSON."""
        about = {"seq": self.seq, "policy": self.policy_name, "placer": self.placer_name}
        return state_pieces(self._driver.text.lines(), about)

    def usage(self) -> Mapping[RunId, Usage]:
        """What the processes of each run use now."""
        return self.engine.usage()

    # -- how it is done ------------------------------------------------------------------------

    def _copy(self) -> Callable[[], Core]:
        """The core as it is now, without jobs that are over, for another thread to play with."""
        if self._dumped is None or self._dumped[0] != self.seq:
            self._dumped = self.seq, snapshot.dump(self.core, over=False)
        state = self._dumped[1]
        return lambda: snapshot.load(state, self._driver.policy, self._driver.placer)

    async def _ask_store(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        """Ask the store; one that is broken is as bad as one that cannot be written to."""
        try:
            return await asyncio.to_thread(call, *given, **named)
        except (StoreBroken, Fenced) as error:
            self.halt(error)
            raise

    async def _about(self, job: JobId, actor: str, event: Callable[[float], Event]) -> JobRow:
        if job not in self.core.jobs:
            row = await self._ask_store(self.store.jobs.get, job)
            if row is None:
                raise NotFound(f"no job {job!r}")
            return row  # it is over, and the core has forgotten it
        return await self._row(job, await self._ask(event, actor))

    async def _ask(
        self,
        event: Callable[[float], Event],
        actor: str,
        *,
        record: JobRecord | None = None,
        notes: dict[str, Any] | None = None,
        deletes: str = "",
    ) -> DecidedBatch:
        answer: asyncio.Future[DecidedBatch] = asyncio.get_running_loop().create_future()
        command = Command(event, actor, answer, record, notes or {}, deletes)
        return await self._driver.ask(command)

    async def _row(self, job: JobId, batch: DecidedBatch) -> JobRow:
        row = batch.rows.get(job) or await self._ask_store(self.store.jobs.get, job)
        if row is None:
            raise NotFound(f"job {job!r} was deleted meanwhile (entry {batch.entry.seq})")
        return row

    def _deletion(self, job: JobId) -> Callable[[float], Event]:
        """Let the core forget a job; where it has done so, the entry only names the actor."""
        return lambda now: Deleted(now, job) if job in self.core.jobs else Woke(now)

    def _must_live(self, job: JobId, what: str) -> JobRecord:
        record = self._driver.records.get(job)
        if record is None:
            raise Conflict(f"job {job} is over: it cannot be {what}")
        return record


def _spec(row: QueueRow) -> QueueSpec:
    return QueueSpec(
        QueueId(row.id),
        row.quota_milli,
        row.limit_milli,
        row.weight,
        row.priority,
        cells=row.cells,
        overflows=row.overflows,
    )
