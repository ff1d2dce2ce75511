"""A start that is refused has changed nothing; a database is served by its own home."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.recording_engine import RecordingEngine

from roost.core import JobId, JobState, Launch, RunId
from roost.engines import Ended
from roost.errors import Conflict, Fatal, Retryable
from roost.jobfile import JobFile
from roost.jobs.requests import JobSubmission
from roost.live import driver
from roost.live.cluster import Cluster
from roost.store import HomeRow, StoreBroken, open_store
from roost.store.rows import EventQuery, JobQuery
from roost.testing.builders import node

HERE, THERE = HomeRow("a" * 32, "/srv/a", "box"), HomeRow("b" * 32, "/srv/b", "crate")


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def made(home: Path, name: str = "n0", **more: Any) -> tuple[Cluster, RecordingEngine]:
    engine = RecordingEngine(node(name, 4))
    return Cluster(open_store(f"sqlite:///{home}/roost.db"), engine, home, **more), engine


async def launched(home: Path, **more: Any) -> RunId:
    """Serve until a job was told to start, of which nobody hears any more."""
    it, engine = made(home, **more)
    await it.start()
    job = JobFile.from_document({"name": "job", "run": "true"})
    await it.submit(JobSubmission(job, "ada"))
    found = (await engine.told(Launch)).run
    await it.close()
    return found


def test_an_entry_that_cannot_be_read_is_found_before_anything_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        await launched(tmp_path)
        with open_store(f"sqlite:///{tmp_path}/roost.db") as store:
            store.journal.serve()
            last = store.journal.last()
            assert last is not None
            store.journal.append(
                [last._replace(seq=last.seq + 1, id="new", body={**last.body, "v": 99})]
            )
        before = (tmp_path / "roost.db").read_bytes()
        it, engine = made(tmp_path)
        with pytest.raises(Fatal, match="has format 99"):
            await it.start()
        await it.close()
        assert (tmp_path / "roost.db").read_bytes() == before
        assert not engine.alive

    run(scenario)


def test_another_home_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        await launched(tmp_path, identity=HERE)
        before = (tmp_path / "roost.db").read_bytes()
        it, engine = made(tmp_path, identity=THERE)
        with pytest.raises(Conflict, match="belongs to the home /srv/a on box") as refused:
            await it.start()
        assert "--adopt-home" in str(refused.value)
        await it.close()
        assert (tmp_path / "roost.db").read_bytes() == before
        assert not engine.alive

    run(scenario)


def test_who_adopts_a_database_counts_what_ran_elsewhere_as_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        known = await launched(tmp_path, identity=HERE)
        it, engine = made(tmp_path, "n1", identity=THERE, adopt=True)
        engine.first = [Ended(0.0, known, (), "lost")]
        await it.start()
        assert engine.alive[known].foreign
        assert {one["id"]: one["state"] for one in it.nodes()} == {"n0": "lost", "n1": "up"}
        (row,) = it.store.jobs.find(JobQuery()).items
        assert row.state in {JobState.QUEUED, JobState.STARTING}
        assert it.core.jobs[JobId(row.id)].failures + row.view["platform_failures"] == 1
        await it.close()
        it, engine = made(tmp_path, "n1", identity=THERE)
        await it.start()
        assert not any(assigned.foreign for assigned in engine.alive.values())
        await it.close()

    run(scenario)


def test_an_adoption_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        known = await launched(tmp_path, identity=HERE)
        with open_store(f"sqlite:///{tmp_path}/roost.db") as store:
            store.journal.claim(THERE, adopt=True)
            store.journal.serve()
        it, engine = made(tmp_path, identity=THERE)
        await it.start()
        assert engine.alive[known].foreign
        await it.close()

    run(scenario)


def test_a_store_that_turns_out_broken_while_it_is_read_ends_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        it, _ = made(tmp_path)
        await it.start()

        def broken(_asked: object) -> None:
            raise StoreBroken("disk I/O error")

        monkeypatch.setattr(it.store.jobs, "known_requests", broken)
        job = JobFile.from_document({"name": "job", "run": "true"})
        with pytest.raises(StoreBroken):
            await it.submit(JobSubmission(job, "ada"))
        assert not it.health.ok
        with pytest.raises(StoreBroken, match="disk I/O error"):
            await asyncio.wait_for(asyncio.shield(it.broken), 60)
        with pytest.raises(Retryable, match="has to stop: disk I/O error"):
            await it.restore_gpu(next(iter(it.core.ledger.nodes)), 0, "ada")
        lines = it.store.events.find(EventQuery()).total
        await it.close()
        with open_store(f"sqlite:///{tmp_path}/roost.db") as store:
            assert store.events.find(EventQuery()).total == lines

    run(scenario)


def test_rows_of_waiting_jobs_are_read_and_checked_behind_a_long_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_SHORT", 0)
    monkeypatch.setattr(driver, "_LATER_S", 0.0)

    async def scenario() -> None:
        await launched(tmp_path)
        it, _ = made(tmp_path)
        await it.start()
        for name in ("first", "second"):
            wide = JobFile.from_document({"name": name, "run": "true", "workers": 4})
            await it.submit(JobSubmission(wide, "ada"))
        await it.close()

        it, _ = made(tmp_path)
        await it.start()
        for task in asyncio.all_tasks():
            if task.get_name() == "past":
                await task
        assert not it.broken.done()
        monkeypatch.setattr(it.store.jobs, "stored", None)  # none is asked for any more
        first, second = (job.id for job in it.core.waiting)
        assert (await it.cancel(first, "ada")).state == "cancelled"
        await it.close()

        damage = "UPDATE job_documents SET body = replace(body, 'true', 'talk') WHERE id = ?"
        with sqlite3.connect(tmp_path / "roost.db") as database:
            database.execute(damage, (second,))
        it, _ = made(tmp_path)
        await it.start()
        with pytest.raises(StoreBroken, match=f"job {second} is damaged"):
            await asyncio.shield(it.broken)
        await it.close()

    run(scenario)
