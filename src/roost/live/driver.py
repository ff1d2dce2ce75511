"""The loop between users, core, journal and engine.

    1. take what users asked and engines reported
    2. let the core decide on each; the core changes at once; nothing is told yet
    3. append all of it to the journal in one transaction
    4. answer the users, tell the feed, give the actions to the engine

A failed append is *unknown*, not failed: nothing is answered or carried out, the store is opened
again and asked what it has. If the batch is there, the loop goes on; if not, the core is folded
from the journal anew, users are told to try again and reports are handled again. Meanwhile intake
is stopped (``health``), running jobs and readers are not. An I/O error of the disk, or another
server that took over, ends the driver (``broken``): the next one reads everything again.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roost.core import (
    Action,
    CancelRequested,
    Core,
    Deleted,
    Event,
    JobId,
    JobState,
    NodeId,
    Placer,
    Policy,
    ResumeRequested,
    Woke,
)
from roost.core.wire import encode_decision, encode_event
from roost.engines import Delayed, Engine, LaunchTrouble, ProgressReport, Report
from roost.errors import Conflict, Fatal, InvalidSpec, Retryable, RoostError
from roost.failpoints import hit
from roost.jobs import history
from roost.jobs.change_feed import ChangeFeed, ClusterChange
from roost.jobs.clock import WallClock
from roost.jobs.health import DecisionCounts, IntakeHealth
from roost.jobs.policy_guard import PolicyGuard
from roost.jobs.record import OpenRecords
from roost.jobs.reports import ReportTranslator
from roost.jobs.views import row_of
from roost.live.adoption import assigned, begun, check_hardware, left_behind
from roost.live.background import resting
from roost.live.batches import DecidedBatch
from roost.live.effects import Effects
from roost.live.held_usage import restored
from roost.live.intake import Command, Inbox, Item, StartupReports
from roost.live.private_files import PrivateFiles
from roost.live.recovery import FORMAT, check_past, recover
from roost.live.snapshot_files import SnapshotFiles
from roost.live.state_text import StateText, packed
from roost.store import Store, StoreFull
from roost.store.jobs import StoredJob
from roost.store.rows import EventRow, JobRow, JournalEntry
from roost.usage.meter import Meter

if TYPE_CHECKING:
    from roost.live.budgets import BudgetService

_log = logging.getLogger(__name__)

#: Names entries of the journal. It is its own: a policy may seed the generator that all share, and
#: two servers would give the same names.
_CHANCE = random.Random()  # noqa: S311 - names, no secrets

#: The most that goes into one transaction.
_BATCH = 256
#: Entries between snapshots, and the finished jobs that the core remembers.
SNAPSHOT_EVERY = 2000
KEEP_FINISHED = 1000
#: How long to wait before trying a store again that failed, at first and at most, in seconds.
_RETRY_S = (0.5, 5.0)
#: How often viewers are told how far jobs are, in seconds.
_PROGRESS_S = 1.0
#: What cancels the jobs that began in the home that this one is a copy of.
_COPY = "roost up --as-copy"
#: A journal of so many entries is checked as a whole before anything is served.
_SHORT = 5000
#: A longer one is checked beside, so many seconds after the start.
_LATER_S = 5.0


class Driver:
    """Runs one core in the real world."""

    def __init__(  # noqa: PLR0913 - it joins all parts
        self,
        store: Store,
        engine: Engine,
        policy: Policy,
        placer: Placer,
        private_files: PrivateFiles,
        clock: WallClock,
    ) -> None:
        self.store, self.engine, self.clock = store, engine, clock
        self.policy, self.placer, self.private_files = PolicyGuard(policy), placer, private_files
        self.core = Core(self.policy, placer)
        self.records = OpenRecords()
        self.seq = 0
        #: The number of this server among all that ever served the store.
        self.epoch = 0
        self.feed = ChangeFeed()
        self.health = IntakeHealth(ok=False, why="the server is starting")
        self.counts = DecisionCounts()
        #: Why no run can begin now, if that is so; it does not concern other commands.
        self.trouble: LaunchTrouble | None = None
        #: Set when the driver cannot go on; the process should end and be started again.
        self.broken: asyncio.Future[None] | None = None
        self._reports = ReportTranslator(
            engine, lambda job: self.private_files.secrets(job).values()
        )
        self._history = history.HistoryWriter(self.core)
        #: Says who holds what, for the journal.
        self.meter = Meter()
        #: Says which jobs have to wait for a budget, once it is there.
        self.budgets: BudgetService | None = None
        self._inbox = Inbox()
        self._taken: list[Item] = []
        #: What the engine reports while it starts.
        self._arriving: list[Report] | None = []
        self.effects = Effects(
            engine, private_files, SnapshotFiles(private_files.home), clock, self.report
        )
        self._writer = ThreadPoolExecutor(1, "journal")
        self._tasks: list[asyncio.Task[None]] = []
        #: The core as the store keeps it.
        self.text = StateText(self.core)
        self._snapshot_at = 0
        self._saving: asyncio.Task[None] | None = None
        #: The last entry of which the core and the journal both know all; -1: they may differ.
        self._durable = -1
        self._over: deque[JobId] = deque()
        self._fresh: set[JobId] = set()
        self._closing = False
        #: How many things are still to be handled one by one.
        self._singly = 0

    # -- life ----------------------------------------------------------------------------------

    async def start(self, *, foreign: bool = False, copied: bool = False) -> None:
        """Read the journal, become its server, adopt what survived, and begin.

        Nothing is written before everything was read. ``foreign``: what the engine knows nothing
        of ran in another home, and is lost. ``copied``: it goes on there, and is cancelled here.
        """
        self.broken = asyncio.get_running_loop().create_future()
        await self._recover(whole=False)
        self._snapshot_at = self.seq
        upto = self.seq
        if upto <= _SHORT:
            await self._read_past(upto)
        self.epoch = await self._in_writer(self.store.journal.serve)
        open_jobs = {job.id for job in self.core.jobs.values() if not job.state.over}
        self.private_files.sweep_secrets(open_jobs)
        alive = await asyncio.to_thread(
            assigned, self.core, self.records, self.effects.order, foreign=foreign
        )
        await self.engine.start(self.report, alive)
        arrivals, self._arriving = self._arriving or [], None
        check_hardware(self.core, arrivals)
        if foreign:
            arrivals += left_behind(self.core, arrivals, self.clock.now())
        left = begun(self.core) if foreign and copied else ()
        self._inbox.put(StartupReports(tuple(arrivals), left))
        self.health = IntakeHealth()
        self._tasks = [
            asyncio.create_task(self._drive(), name="driver"),
            asyncio.create_task(self.effects.run(), name="effects"),
        ]
        if upto > _SHORT:
            self._tasks.append(asyncio.create_task(self._read_later(upto), name="past"))

    async def _read_later(self, upto: int) -> None:
        """Read a long past once everything else has begun: it takes a while."""
        await asyncio.sleep(_LATER_S)
        await self._read_past(upto)
        # Records of jobs that wait stay. A look for garbage among them would silence the server.
        gc.freeze()

    async def _read_past(self, upto: int) -> None:
        """Read what a start can do without, and what none needs: damage must not go unnoticed."""
        loop, records = asyncio.get_running_loop(), self.records
        # Nobody waits for a long past, and everybody for a short one.
        rest = resting(lambda: self._closing) if upto > _SHORT else lambda: None

        def take(some: list[StoredJob]) -> None:
            loop.call_soon_threadsafe(records.take, some)

        try:
            await asyncio.to_thread(check_past, self.store, upto, rest, take)
        except Fatal as error:
            if upto <= _SHORT:
                raise
            self._break(error)
        except Retryable as error:
            _log.warning("the beginning of the journal was not checked: %s", error)

    async def close(self) -> None:
        """Stop taking commands, write what is open, let go of the engine; jobs go on."""
        self._closing = True
        self.health = IntakeHealth(ok=False, why="the server is stopping")
        for _ in range(100):  # let what is under way be written and carried out
            if not self._inbox and not self._taken and self.effects.idle:
                break
            await asyncio.sleep(0.01)
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        for _ in range(2):  # the one under way, and one of the end
            if self._saving is not None:
                await self._saving
            self._save_snapshot()
        await self.engine.close()
        self._inbox.put_back(self._taken)
        self._inbox.refuse(Retryable("the server is stopping", after=2.0))
        self._writer.shutdown(wait=False)

    def report(self, report: Report) -> None:
        """Take a report from the engine."""
        if isinstance(report, LaunchTrouble):
            self.trouble = report if report.why else None
        elif isinstance(report, Delayed):
            self._delayed(report)
        elif self._arriving is not None:
            self._arriving.append(report)
        else:
            self._inbox.put(report)

    def _delayed(self, report: Delayed) -> None:
        """Note why a run does not begin. The journal need not know, and may be what is in trouble.

        A run that begins, or ends, has no such reason any more.
        """
        record = self.records.get(report.run.job)
        if record is not None:
            record.delay = report.why
            self._progressed(report.run.job)

    def restrained(self, job: JobId, why: str) -> None:
        """Note which bound the user of a job is beyond; without a reason, that it is not."""
        record = self.records.get(job)
        if record is not None and record.restraint != why:
            record.restraint = why
            self._progressed(job)

    async def ask(self, command: Command) -> DecidedBatch:
        """Let a user's command take its course; returns when it is durable."""
        if not self.health.ok:
            raise self.health.refusal(after=2.0)
        hit("command.received")
        self._inbox.put(command)
        return await command.answer

    # -- the loop ------------------------------------------------------------------------------

    async def _drive(self) -> None:
        try:
            while True:
                left = self.core.wake_at - self.clock.now()
                await self._inbox.wait(None if math.isinf(left) else max(0.0, left))
                if self.core.wake_at <= self.clock.now():
                    self._inbox.put(Woke(self.clock.now()))
                await self._handle(self._inbox.take(_BATCH if not self._singly else 1))
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be told any more
            self._break(error)

    async def _handle(self, items: list[Item]) -> None:
        """Decide on some things, and make what was decided durable."""
        self._taken = items
        self._singly = max(0, self._singly - len(items))
        durable, self._durable = self._durable, -1
        batches = [batch for item in items if (batch := self._decide(item))]
        if batches:
            await self._make_durable(batches)
        else:
            self._durable = durable
        self._taken = []

    def _decide(self, item: Item) -> DecidedBatch | None:
        """Let the core decide on one thing; what cannot be is answered at once."""
        if isinstance(item, Command) and item.answer.done():
            return None  # the caller has gone
        now = max(self.clock.now(), self.core.now)
        events: tuple[Event, ...] = ()
        try:
            events = self._events(item, now)
            if not events:
                return None
            began = time.perf_counter()
            actions = self.policy.watched(self.core.handle, *events)
            self.counts.decided(time.perf_counter() - began)
        except Fatal:
            raise
        except RoostError as error:
            if len(events) > 1:  # those before the one that was refused stand
                raise Fatal(f"{item} cannot be: {error}") from error
            if isinstance(item, Command):
                if item.record is not None and item.record.id not in self.core.jobs:
                    self.records.drop(JobId(item.record.id))
                item.refuse(error)
            else:
                _log.warning("%s is of no use: %s", item, error)
            return None
        return self._batch(item, events, actions, now)

    def _events(self, item: Item, now: float) -> tuple[Event, ...]:
        if isinstance(item, Command):
            event = self._asked(item, now)
            return (event, *(self.budgets.held_back(event, now) if self.budgets else ()))
        if isinstance(item, StartupReports):
            hit("report.received")
            for job in item.left:
                self.records[job].cancelled_by = _COPY
            arrivals = self._reports.arrivals(self.core, self.records, item.reports, now)
            # Cancelled before they are lost: nothing of the original is started again here.
            begun_at = self.core.now
            return (*(CancelRequested(begun_at, job) for job in item.left), *arrivals)
        if isinstance(item, Woke):
            return (Woke(now),)
        if isinstance(item, Deleted):
            return (Deleted(now, item.job),) if item.job in self.core.jobs else ()
        hit("report.received")
        if isinstance(item, ProgressReport):
            self._progressed(item.run.job)
        return tuple(self._reports.understood(self.core, self.records, item, now))

    def _asked(self, command: Command, now: float) -> Event:
        event = command.event(now)
        if isinstance(event, ResumeRequested) and self.budgets is not None:
            self.budgets.check_resume(event.job, now)
        if command.record is not None:
            self.records[JobId(command.record.id)] = command.record
        if isinstance(event, CancelRequested) and event.job in self.records:
            record = self.records[event.job]
            record.cancelled_by = record.cancelled_by or command.actor
        return event

    def _progressed(self, job: JobId) -> None:
        """Tell the feed of progress, which is not worth an entry in the journal, now and then."""
        if not self._fresh:
            asyncio.get_running_loop().call_later(_PROGRESS_S, self._tell_progress)
        self._fresh.add(job)

    def _tell_progress(self) -> None:
        jobs, self._fresh = self._fresh, set()
        known = [(self.core.jobs.get(job), self.records.get(job)) for job in sorted(jobs)]
        rows = [row_of(self.core, job, record, self.seq) for job, record in known if job and record]
        if rows:
            self.feed.publish(ClusterChange(self.seq, rows))

    def _batch(
        self,
        item: Item,
        events: tuple[Event, ...],
        actions: list[Action],
        now: float,
    ) -> DecidedBatch:
        core = self.core
        self.seq += 1
        decisions = core.decisions
        command = item if isinstance(item, Command) else None
        actor = command.actor if command is not None else "roost"
        jobs = list(history.touched(core, events, actions))
        # As they are now: a later batch may change them before this one is written.
        spells = [replace(spell) for spell in self.meter.fold(core, events, jobs)]
        if self.budgets is not None:
            self.budgets.ended(spells)
        self.text.touch(jobs)
        lines = self._history.lines(core, events, decisions, jobs, self.records)
        body = {
            "v": FORMAT,
            "actor": actor,
            "events": [encode_event(event) for event in events],
            "decisions": [encode_decision(decision) for decision in decisions],
            "notes": (command.notes if command is not None else self._verdicts(jobs)),
        }
        return DecidedBatch(
            JournalEntry(self.seq, f"{_CHANCE.getrandbits(128):032x}", now, body),
            events,
            actions,
            jobs,
            history.rows(lines, self.seq, now, actor, self.records),
            item,
            command.deletes if command is not None else "",
            spells,
        )

    def _verdicts(self, jobs: Iterable[JobId]) -> dict[str, Any]:
        """Why runs failed, for the journal: a verdict may be worded otherwise later."""
        found = ((job, self.records.get(job)) for job in jobs)
        return {job: dict(r.verdict) for job, r in found if r is not None and r.verdict is not None}

    # -- the journal ---------------------------------------------------------------------------

    async def _make_durable(self, batches: list[DecidedBatch]) -> None:
        rows = self._rows(batches)
        lines = [line for batch in batches for line in batch.lines]
        deleted = [batch.deleted for batch in batches if batch.deleted]
        entries = [batch.entry for batch in batches]
        spells = [spell for batch in batches for spell in batch.spells]
        hit("journal.before-append")
        try:
            await self._in_writer(self.store.journal.append, entries, rows, lines, deleted, spells)
        except Retryable as error:
            if not await self._resolve(batches, error):
                return
        except (Conflict, InvalidSpec) as error:
            await self._sort_out(batches, error)
            return
        self.counts.appends += 1
        if not self.health.ok and not self._closing:
            _log.info("the journal takes entries again")
            self.health = IntakeHealth()
        self._tell(batches, rows, lines, deleted)
        if self.seq - self._snapshot_at >= SNAPSHOT_EVERY:
            self._save_snapshot()

    def _tell(
        self,
        batches: Sequence[DecidedBatch],
        rows: Sequence[JobRow],
        lines: Sequence[EventRow],
        deleted: Sequence[str],
    ) -> None:
        """All of it is durable: let the world know, and let the engine act."""
        self._durable = batches[-1].entry.seq
        for batch in batches:
            for action in batch.actions:
                self.effects.put(action, self.records)
        hit("command.before-answer")
        written = {JobId(row.id): row for row in rows}
        for batch in batches:
            batch.rows = written
            if isinstance(batch.source, Command) and not batch.source.answer.done():
                batch.source.answer.set_result(batch)
        for row in rows:
            if row.finished_at is not None:
                self._finished(JobId(row.id))
            elif row.state == JobState.QUEUED:
                self.records.rest(JobId(row.id))
        self.feed.publish(ClusterChange(batches[-1].entry.seq, rows, lines, deleted))

    def _finished(self, job: JobId) -> None:
        """A job is over: what was kept for it may go; later the core forgets it, too."""
        if not self.records.drop(job):
            return
        self.private_files.finish(job)
        self.engine.compact(job)
        self._over.append(job)
        while len(self._over) > KEEP_FINISHED:
            self.report(Deleted(self.clock.now(), self._over.popleft()))

    def _rows(self, batches: Iterable[DecidedBatch]) -> list[JobRow]:
        """Jobs as they are after these batches."""
        last = {job: batch.entry.seq for batch in batches for job in batch.jobs}
        found = []
        for job_id, seq in last.items():
            job, record = self.core.jobs.get(job_id), self.records.get(job_id)
            if job is not None and record is not None:
                found.append(row_of(self.core, job, record, seq))
        return found

    async def _resolve(self, batches: list[DecidedBatch], error: Retryable) -> bool:
        """Find out what became of a failed append; whether it is in the journal after all."""
        self.counts.append_errors += 1
        if self.health.ok:
            _log.warning("the journal does not take entries: %s", error)
        self.health = _stopped(error)
        self._inbox.refuse(error)
        wait_s = _RETRY_S[0]
        while True:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _RETRY_S[1])
            try:
                await self._in_writer(self.store.journal.reopen)
                last = await self._in_writer(self.store.journal.last)
                if last is not None and last.id == batches[-1].entry.id:
                    return True
                await self._recover()
                break
            except Retryable as again:
                self.health = _stopped(again)
        self._inbox.put_back(
            batch.source for batch in batches if not isinstance(batch.source, Command | Woke)
        )
        for batch in batches:
            if isinstance(batch.source, Command):
                batch.source.refuse(error)
        self._inbox.put(Woke(self.clock.now()))  # to see whether the journal works again
        return False

    async def _sort_out(self, batches: list[DecidedBatch], error: RoostError) -> None:
        """The store refused what cannot be written: find the one among them, and leave it out."""
        await self._recover()
        if len(batches) > 1:
            self._singly = len(batches)
            self._inbox.put_back(batch.source for batch in batches)
            return
        source = batches[0].source
        if isinstance(source, Command):
            source.refuse(error)
        else:
            _log.error("%s cannot be journaled and is left out: %s", source, error)

    async def _recover(self, *, whole: bool = True) -> None:
        """Fold the journal into a new core; not the ``whole``: rows of jobs are read later."""
        read = functools.partial(recover, whole=whole)
        found = await self._in_writer(read, self.store, self.policy, self.placer)
        self.core, self.seq, self.records, written_at, self.text = found
        self._durable = self.seq
        self.clock.not_before(max(self.core.now, written_at))
        if told := self.clock.trouble:
            _log.warning("%s", told)
        self._history = history.HistoryWriter(self.core)
        self.meter = await self._in_writer(restored, self.store, self.core, self.records)
        self._over = deque(job.id for job in self.core.jobs.values() if job.state.over)

    def _save_snapshot(self) -> None:
        """Keep the state as it is, so that the next start need not fold the whole journal.

        The text is made at once, of what the journal has; it is packed and written meanwhile.
        """
        if self.seq in (0, self._snapshot_at) or self.seq != self._durable:
            return
        if self._saving is None or self._saving.done():
            self._snapshot_at = self.seq
            self._saving = asyncio.create_task(self._keep(self.seq, self.text.lines()))

    async def _keep(self, seq: int, lines: list[str]) -> None:
        text = await asyncio.to_thread(packed, lines)
        hit("snapshot.before-write")
        try:
            await self._in_writer(self.store.journal.save_snapshot, seq, text)
        except Retryable as error:
            _log.warning("no snapshot was saved: %s", error)
        except RoostError as error:
            self.halt(error)
        hit("snapshot.after-write")

    async def _in_writer(self, call: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._writer, call, *given)

    def halt(self, error: RoostError) -> None:
        """Stop: reading showed that the journal cannot be relied on."""
        if self.broken is not None and not self.broken.done() and not self._closing:
            self._break(error)

    def _break(self, error: Exception) -> None:
        """Nothing may be told or done any more."""
        self._durable = -1
        _log.critical("Roost has to stop: %s", error, exc_info=not isinstance(error, RoostError))
        self.health = IntakeHealth(ok=False, why=f"the server has to stop: {error}")
        self._inbox.put_back(self._taken)
        self._inbox.refuse(Retryable(self.health.why, after=5.0))
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if self.broken is not None and not self.broken.done():
            self.broken.set_exception(error)

    def change_policy(self, policy: Policy) -> None:
        """Let another policy decide from now on, beginning at once."""
        self.policy.change(policy)
        self.report(Woke(self.clock.now()))

    def trust(self, node: NodeId, gpu: int) -> None:
        """Forget the failures of a device that was put back into service."""
        self._reports.trust(node, gpu)


def _stopped(error: Retryable) -> IntakeHealth:
    """The health of a driver whose journal takes no entries."""
    full = isinstance(error, StoreFull)
    return IntakeHealth(ok=False, why=f"nothing is accepted now: {error}", full=full)
