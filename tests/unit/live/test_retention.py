"""Jobs that are over go when they were kept long enough; nothing else ever goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.recording_engine import RecordingEngine

from roost.core import Launch
from roost.core import snapshot as core_snapshot
from roost.jobfile import JobFile
from roost.jobs.requests import JobSubmission
from roost.live import driver, retention
from roost.live.cluster import Cluster
from roost.live.recovery import recover
from roost.live.retention import RetentionRule
from roost.store import open_store
from roost.store.rows import EventQuery, JobQuery
from roost.testing.builders import node

DAY = 86_400.0


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_PAUSE_S", 0.0)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def made(home: Path, **more: Any) -> tuple[Cluster, RecordingEngine]:
    engine = RecordingEngine(node("n0", 4))
    store = open_store(f"sqlite:///{home}/roost.db")
    return Cluster(store, engine, home, policy="fifo", **more), engine


async def over(it: Cluster, engine: RecordingEngine, **more: Any) -> str:
    """A job that has come to its end."""
    file = JobFile.from_document({"name": "job", "run": "true", **more})
    row, _ = await it.submit(JobSubmission(file, "ada"))
    launched = (await engine.told(Launch)).run
    engine.up(launched)
    engine.ended(launched)
    state = ""
    while state != "succeeded":
        await asyncio.sleep(0.005)
        found = it.store.jobs.get(row.id)
        state = found.state if found else ""
    return row.id


def kept(it: Cluster) -> set[str]:
    return {row.id for row in it.store.jobs.find(JobQuery(limit=200)).items}


def test_jobs_go_by_their_own_time_the_servers_or_their_number(tmp_path: Path) -> None:
    async def scenario() -> None:
        it, engine = made(tmp_path)
        await it.start()
        short = await over(it, engine, keep="0s")
        long = await over(it, engine, keep="52w")
        plain = [await over(it, engine) for _ in range(3)]
        waits, _ = await it.submit(
            JobSubmission(JobFile.from_document({"name": "w", "run": "true"}), "ada")
        )
        told = await it.prune({}, "root", dry_run=True)
        assert [one["id"] for one in told["items"]] == [short]
        assert told["size_bytes"] == told["items"][0]["size_bytes"] == len(short) << 20
        assert not engine.forgotten

        told = await it.prune({"jobs": 2}, "root", dry_run=True)
        # The newest two are kept, and one that asked for a year.
        assert {one["id"] for one in told["items"]} == {short, plain[0]}
        told = await it.prune({"keep_s": 0.0}, "root", dry_run=True)
        assert {one["id"] for one in told["items"]} == {short, *plain}
        assert "0s ago" in told["items"][-1]["why"]

        await it.prune({"jobs": 2}, "root", dry_run=False)
        assert set(engine.forgotten) == {short, plain[0]}
        assert kept(it) == {long, *plain[1:], waits.id}
        await it.close()
        it, engine = made(tmp_path)  # the journal agrees
        await it.start()
        assert kept(it) == {long, *plain[1:], waits.id}
        await it.close()

    run(scenario)


def test_a_home_that_is_too_large_loses_its_oldest_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        it, engine = made(tmp_path, retention=RetentionRule(disk_bytes=100 << 20))
        await it.start()
        promised = await over(it, engine, keep="52w")
        jobs = [await over(it, engine) for _ in range(3)]
        each = len(jobs[0]) << 20
        monkeypatch.setattr(retention, "tree_bytes", lambda _: (100 << 20) + each + 1)
        told = await it.prune({}, "root", dry_run=True)
        assert [one["id"] for one in told["items"]] == jobs[:2]
        assert "larger than its bound" in told["items"][0]["why"]
        monkeypatch.setattr(retention, "tree_bytes", lambda _: 1 << 40)
        told = await it.prune({}, "root", dry_run=True)
        assert [one["id"] for one in told["items"]] == [*jobs, promised]
        monkeypatch.setattr(retention, "tree_bytes", lambda _: 100 << 20)
        await it.retention.tidy()
        assert kept(it) == {promised, *jobs}
        await it.close()

    run(scenario)


def test_a_compacted_journal_folds_to_the_same_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "SNAPSHOT_EVERY", 5)
    monkeypatch.setattr(retention, "KEEP_ENTRIES", 3)
    monkeypatch.setattr(retention, "KEEP_LINES", 4)

    async def scenario() -> None:
        it, engine = made(tmp_path, retention=RetentionRule(jobs=2))
        await it.start()
        for _ in range(6):
            await over(it, engine)
        await it.retention.tidy()
        assert 0 < it.store.journal.base <= it.seq - 3
        names = kept(it)
        assert len(names) == 2
        about = {line.job for line in it.store.events.find(EventQuery(limit=200)).items}
        assert names <= about  # what people read of a job stays as long as the job
        before = core_snapshot.dump(it.core)
        found = recover(it.store, it._driver.policy, it._driver.placer)
        assert core_snapshot.dump(found.core) == before
        await over(it, engine)
        await it.close()
        it, _ = made(tmp_path)
        await it.start()
        assert kept(it) > names
        await it.close()

    run(scenario)
