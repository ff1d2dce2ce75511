"""The loop between users, core, journal and engine, and what it does when the journal fails."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.recording_engine import RecordingEngine

from roost import placement
from roost.core import (
    CancelRequested,
    Core,
    GpuFailed,
    JobId,
    JobState,
    Launch,
    Plan,
    RunId,
    Stop,
    Submitted,
    SuspendRequested,
    snapshot,
)
from roost.engines import Ended, ProgressReport, WorkerExit
from roost.errors import Conflict, InvalidSpec, Retryable
from roost.jobfile import JobFile
from roost.jobs.clock import WallClock
from roost.jobs.record import JobRecord
from roost.live import driver as driving
from roost.live.batches import DecidedBatch
from roost.live.driver import Driver
from roost.live.intake import Command, Inbox
from roost.live.private_files import PrivateFiles
from roost.live.recovery import recover
from roost.policies.fifo import fifo
from roost.store import Store, StoreBroken, StoreFull, StoreLost, open_store
from roost.store.rows import EventRow, JobRow, JournalEntry
from roost.testing.builders import node
from roost.usage.spells import AnySpell

OKAY = (WorkerExit("worker", 0, 0, None),)


class Faults:
    """Makes appends of a store fail: before they happen, or after."""

    def __init__(self, store: Store) -> None:
        self._append = store.journal.append
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        store.journal.append = self.append  # type: ignore[method-assign]

    def append(
        self,
        entries: Sequence[JournalEntry],
        jobs: Sequence[JobRow] = (),
        events: Sequence[EventRow] = (),
        deleted: Sequence[str] = (),
        spells: Sequence[AnySpell] = (),
    ) -> None:
        if self.before:
            raise self.before.pop(0)
        self._append(entries, jobs, events, deleted, spells)
        if self.after:
            raise self.after.pop(0)


class Live:
    """A driver on a real store, with an engine on strings."""

    def __init__(self, home: Path, gpus: int = 2) -> None:
        self.home = home
        self.engine = RecordingEngine(node("n0", gpus))
        self.store = open_store(f"sqlite:///{home}/roost.db")
        self.store.journal.serve()
        self.faults = Faults(self.store)
        self.driver = Driver(
            self.store,
            self.engine,
            fifo,
            placement.placer("first-fit"),
            PrivateFiles(home),
            WallClock(),
        )

    async def submit(self, name: str, **fields: Any) -> JobId:
        file = JobFile.from_document({"name": name, "run": "true", **fields})
        spec = file.spec("ada")
        await self.ask(
            lambda now: Submitted(now, JobId(name), spec),
            record=JobRecord(name, file, "ada", document=file.document()),
        )
        return JobId(name)

    async def ask(
        self, event: Callable[[float], Any], record: JobRecord | None = None
    ) -> DecidedBatch:
        answer: asyncio.Future[DecidedBatch] = asyncio.get_running_loop().create_future()
        return await self.driver.ask(Command(event, "ada", answer, record))

    async def becomes(self, job: JobId, state: JobState) -> None:
        """Wait until the feed has told that state of a job."""
        async with asyncio.timeout(60):
            while (row := self.store.jobs.get(job)) is None or row.state != state:
                seen = asyncio.Event()
                stop = self.driver.feed.subscribe(partial(_set, seen))
                await asyncio.wait_for(seen.wait(), 60)
                stop()

    async def accepts(self) -> None:
        """Wait until commands are accepted again."""
        async with asyncio.timeout(60):
            while not self.driver.health.ok:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)


def _set(event: asyncio.Event, _: object) -> None:
    event.set()


@asynccontextmanager
async def live(home: Path, gpus: int = 2) -> AsyncIterator[Live]:
    it = Live(home, gpus)
    await it.driver.start()
    try:
        yield it
    finally:
        await it.driver.close()
        it.store.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


async def same_state(it: Live) -> bool:
    """Whether folding the journal gives the state that the driver has, once it is settled."""
    async with asyncio.timeout(60):
        while it.driver._durable != it.driver.seq:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    again = recover(it.store, fifo, placement.placer("first-fit"))
    return snapshot.digest(again.core) == snapshot.digest(it.driver.core)


def test_a_job_is_launched_runs_and_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path) as it:
            job = await it.submit("a")
            launch = await it.engine.told(Launch)
            assert launch.run == RunId(job, 1)
            it.engine.up(launch.run)
            await it.becomes(job, JobState.RUNNING)
            it.engine.ended(launch.run)
            await it.becomes(job, JobState.SUCCEEDED)
            assert await same_state(it)

    run(scenario)


def test_what_cannot_be_is_refused_and_not_journaled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path) as it:
            job = await it.submit("a")
            before = it.driver.seq
            with pytest.raises(Conflict, match="exists"):
                await it.submit("a")
            assert it.driver.seq == before
            assert it.driver.records[job].user == "ada"

    run(scenario)


def test_a_transient_failure_is_retried_later_and_a_deterministic_one_is_not(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with live(tmp_path) as it:
            job = await it.submit("a", retry={"max": 1, "delay": 0.05})
            it.engine.up((first := await it.engine.told(Launch)).run)
            it.engine.ended(first.run, 75)
            second = await it.engine.told(Launch)
            assert second.run.attempt == 2
            it.engine.ended(second.run, 75)
            await it.becomes(job, JobState.FAILED)
            other = await it.submit("b")
            it.engine.ended((await it.engine.told(Launch)).run, 127)
            await it.becomes(other, JobState.FAILED)
            row = it.store.jobs.get(other)
            assert row is not None
            assert row.view["verdict"]["kind"] == "command-not-found"
            assert row.view["exit_code"] == 127

    run(scenario)


def test_a_full_disk_stops_intake_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "_RETRY_S", (0.01, 0.05))

    async def scenario() -> None:
        async with live(tmp_path) as it:
            job = await it.submit("a")
            launch = await it.engine.told(Launch)
            it.faults.before = [StoreFull("no space")] * 4
            with pytest.raises(Retryable, match="no space"):
                await it.submit("b")
            with pytest.raises(Retryable, match="nothing is accepted now"):
                await it.submit("c")
            it.engine.up(launch.run)  # reports are not lost
            await it.becomes(job, JobState.RUNNING)
            await it.accepts()
            await it.submit("d")
            assert list(it.driver.core.jobs) == ["a", "d"]
            assert await same_state(it)

    run(scenario)


def test_an_append_that_failed_but_happened_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "_RETRY_S", (0.01, 0.05))

    async def scenario() -> None:
        async with live(tmp_path) as it:
            it.faults.after = [StoreLost("the connection is gone")]
            job = await it.submit("a")
            assert (await it.engine.told(Launch)).run == RunId(job, 1)
            assert (
                sum(e.body["events"][0]["type"] == "Submitted" for e in it.store.journal.entries())
                == 1
            )
            assert await same_state(it)

    run(scenario)


def test_an_append_that_failed_is_undone_in_the_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "_RETRY_S", (0.01, 0.05))

    async def scenario() -> None:
        async with live(tmp_path) as it:
            it.faults.before = [StoreLost("the connection is gone")]
            with pytest.raises(Retryable):
                await it.submit("a")
            await it.accepts()
            await it.submit("b")
            assert list(it.driver.core.jobs) == ["b"]
            assert (await it.engine.told(Launch)).run.job == "b"
            assert not it.engine.orders
            assert await same_state(it)

    run(scenario)


def test_a_broken_disk_ends_the_driver_and_answers_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path) as it:
            it.faults.before = [StoreBroken("disk I/O error")]
            with pytest.raises(Retryable, match="has to stop"):
                await it.submit("a")
            assert it.driver.broken is not None
            with pytest.raises(StoreBroken):
                await it.driver.broken
            with pytest.raises(Retryable):
                await it.submit("b")
            assert not it.engine.orders

    run(scenario)


def test_a_restart_gives_open_orders_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path, gpus=3) as it:
            for name in ("starting", "stopping", "parking"):
                await it.submit(name)
            for name in ("stopping", "parking"):
                it.engine.up(RunId(JobId(name), 1))
                await it.becomes(JobId(name), JobState.RUNNING)
            await it.ask(lambda now: CancelRequested(now, JobId("stopping")))
            await it.ask(lambda now: SuspendRequested(now, JobId("parking")))
            digest = snapshot.digest(it.driver.core)
        async with live(tmp_path, gpus=3) as it:
            asked = {
                str(run_id): type(a.order.action).__name__
                for run_id, a in it.engine.alive.items()
                if a.order
            }
            assert asked == {"starting#1": "Launch", "stopping#1": "Stop", "parking#1": "Suspend"}
            stop = await it.engine.told(Stop)
            it.engine.ended(stop.run, 0, "stopped")
            await it.becomes(JobId("stopping"), JobState.CANCELLED)
            assert digest

    run(scenario)


def test_a_snapshot_and_its_tail_are_the_whole_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "SNAPSHOT_EVERY", 5)

    async def scenario() -> None:
        async with live(tmp_path) as it:
            for index in range(12):
                await it.submit(f"j{index}")
            if it.driver._saving is not None:
                await it.driver._saving  # it is written while others are served
            assert next(iter(it.store.journal.snapshots()))[0] >= 5
            assert await same_state(it)

    run(scenario)


def test_the_core_forgets_jobs_that_are_long_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "KEEP_FINISHED", 2)

    async def scenario() -> None:
        async with live(tmp_path) as it:
            for index in range(5):
                job = await it.submit(f"j{index}")
                it.engine.ended((await it.engine.told(Launch)).run)
                await it.becomes(job, JobState.SUCCEEDED)
            await it.submit("last")
            await it.engine.told(Launch)
            assert len(it.driver.core.jobs) <= 4
            assert it.store.jobs.get("j0") is not None
            assert await same_state(it)

    run(scenario)


def test_what_a_job_says_of_itself_may_be_nonsense(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path) as it:
            job = await it.submit("a", run_time="100s")
            it.engine.up((launch := await it.engine.told(Launch)).run)
            await it.becomes(job, JobState.RUNNING)
            for number in (math.nan, math.inf, -1.0, 2.0):
                it.engine.report(ProgressReport(0.0, launch.run, number, number, None, number))
            it.engine.ended(launch.run, 1)
            await it.becomes(job, JobState.FAILED)
            row = it.store.jobs.get(job)
            assert row is not None
            assert row.view["progress"] is None

    run(scenario)


def test_a_job_that_got_there_before_its_stop_succeeded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path) as it:
            job = await it.submit("a")
            it.engine.up((launch := await it.engine.told(Launch)).run)
            await it.becomes(job, JobState.RUNNING)
            it.engine.report(GpuFailed(0.0, node("n0").id, 0))
            await it.engine.told(Stop)
            it.engine.ended(launch.run, 0, "exit")
            await it.becomes(job, JobState.SUCCEEDED)

    run(scenario)


def test_a_reservation_that_is_taken_back_is_seen(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path, gpus=1) as it:
            first = await it.submit("a")
            it.engine.up((await it.engine.told(Launch)).run)
            await it.becomes(first, JobState.RUNNING)
            await it.ask(lambda now: CancelRequested(now, first))
            second = await it.submit("b")  # reserved: the first has yet to leave
            await it.becomes(second, JobState.STARTING)
            it.engine.report(GpuFailed(0.0, node("n0").id, 0))
            await it.becomes(second, JobState.QUEUED)

    run(scenario)


def test_a_driver_that_broke_leaves_no_snapshot_behind(tmp_path: Path) -> None:
    def slip(plan: Plan) -> None:
        if any(job.id == "b" for job in plan.pending):
            raise KeyError("a policy's slip")
        fifo(plan)

    async def scenario() -> None:
        async with live(tmp_path) as it:
            await it.submit("a")
            it.driver.core.policy = slip
            with pytest.raises(Retryable, match="has to stop"):
                await it.submit("b")
            with pytest.raises(KeyError):
                await it.driver.broken  # type: ignore[misc]
        async with live(tmp_path) as it:
            assert list(it.driver.core.jobs) == ["a"]
            await it.submit("b")

    run(scenario)


def test_a_snapshot_that_does_not_fit_is_no_obstacle(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path) as it:
            await it.submit("a")
            await it.submit("b")
            ghost = Core(fifo, placement.placer("first-fit"))
            ghost.handle(Submitted(1.0, JobId("ghost"), JobFile(run="true").spec("ada")))
            it.store.journal.save_snapshot(it.driver.seq, json.dumps(snapshot.dump(ghost)))
            it.driver._durable = -1  # or closing saves a better one
        async with live(tmp_path) as it:
            assert list(it.driver.core.jobs) == ["a", "b"]
            assert await same_state(it)

    run(scenario)


def test_what_ended_while_nobody_served_did_so_in_its_own_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path) as it:
            for name in ("a", "b"):
                it.engine.up(RunId(await it.submit(name), 1))
                await it.becomes(JobId(name), JobState.RUNNING)
            left = it.driver.core.now
        again = Live(tmp_path)
        again.engine.first = [
            Ended(left + 2.0, RunId(JobId("b"), 1), OKAY, "exit"),
            ProgressReport(0.0, RunId(JobId("a"), 1), 0.5, 0.5),
            Ended(left + 1.0, RunId(JobId("a"), 1), OKAY, "exit"),
        ]
        again.driver.clock.not_before(left + 10.0)
        await again.driver.start()
        await again.becomes(JobId("b"), JobState.SUCCEEDED)
        rows = [again.store.jobs.get(name) for name in ("a", "b")]
        assert [row and row.finished_at for row in rows] == [left + 1.0, left + 2.0]
        await again.driver.close()
        again.store.close()

    run(scenario)


def test_a_machine_that_came_back_smaller_is_used_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path, gpus=4) as it:
            it.engine.up(RunId(await it.submit("a", gpus=4), 1))
            await it.becomes(JobId("a"), JobState.RUNNING)
            await it.submit("b", gpus=2)
        smaller = Live(tmp_path, gpus=2)
        with pytest.raises(Conflict, match="still holds a device"):
            await smaller.driver.start()
        await smaller.driver.close()
        smaller.store.close()
        smaller = Live(tmp_path, gpus=2)
        smaller.engine.first = [Ended(0.0, RunId(JobId("a"), 1), (), "lost")]
        await smaller.driver.start()
        assert (await smaller.engine.told(Launch)).run.job == "b"
        assert smaller.driver.core.ledger.nodes[node("n0").id].spec.gpus == 2
        assert await same_state(smaller)
        await smaller.driver.close()
        smaller.store.close()

    run(scenario)


def test_whoever_has_gone_asks_for_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path) as it:
            asking = asyncio.create_task(it.submit("a"))
            await asyncio.sleep(0)
            asking.cancel()
            await it.submit("b")
            assert list(it.driver.core.jobs) == ["b"]

    run(scenario)


def test_one_thing_that_cannot_be_written_spoils_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path) as it:
            append = it.faults._append

            def picky(
                entries: Sequence[JournalEntry],
                jobs: Sequence[JobRow],
                events: Sequence[EventRow],
                deleted: Sequence[str],
                spells: Sequence[AnySpell],
            ) -> None:
                if any(row.id == "odd" for row in jobs):
                    raise InvalidSpec("odd cannot be written")
                append(entries, jobs, events, deleted, spells)

            it.faults._append = picky  # type: ignore[assignment]
            asked = [asyncio.create_task(it.submit(name)) for name in ("a", "odd", "b")]
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert told[0] == "a"
            assert isinstance(told[1], InvalidSpec)
            assert told[2] == "b"
            assert sorted(it.driver.core.jobs) == ["a", "b"]
            assert await same_state(it)

    run(scenario)


def test_only_the_last_word_of_a_run_waits() -> None:
    async def scenario() -> None:
        box = Inbox()
        one = RunId(JobId("a"), 1)
        for step in range(5):
            box.put(ProgressReport(float(step), one, None, None, step, None))
        box.put(ProgressReport(9.0, one, 0.5))
        assert box.take(10) == [ProgressReport(9.0, one, 0.5, None, 4, None)]
        box.put(ProgressReport(1.0, one, step=7, step_s=0.5, sync_s=0.1, local_batch=8, world=1))
        box.put(ProgressReport(2.0, one, world=2, epochs=1.5))
        assert box.take(10) == [ProgressReport(2.0, one, step=7, world=2, epochs=1.5)], (
            "timed with one"
        )
        assert not box

    run(scenario)
