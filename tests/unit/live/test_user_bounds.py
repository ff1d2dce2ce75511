"""What one user may have: more is refused, and what runs is told, and stopped if that is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.recording_engine import RecordingEngine

from roost.core import JobId, Launch, RunId
from roost.errors import Conflict
from roost.jobfile import JobFile
from roost.jobs.requests import JobSubmission
from roost.live import user_bounds
from roost.live.cluster import Cluster
from roost.live.disk_meter import DiskMeter
from roost.live.user_bounds import UserBounds
from roost.store import StoreFull, open_store
from roost.store.rows import User
from roost.testing.builders import node

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are taken when a test says so."""
    monkeypatch.setattr(user_bounds, "EVERY_S", 3600.0)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def made(home: Path, **bounds: Any) -> tuple[Cluster, RecordingEngine]:
    engine = RecordingEngine(node("n0", 4))
    store = open_store(f"sqlite:///{home}/roost.db")
    it = Cluster(store, engine, home, policy="fifo", bounds=UserBounds(**bounds))
    it.bounds._due = Always()
    return it, engine


class Always(dict[JobId, float]):
    """Every job is due."""

    def __setitem__(self, job: JobId, at: float) -> None:
        """Remember that it is one that runs."""
        super().__setitem__(job, 0.0)


def file(**more: Any) -> JobFile:
    return JobFile.from_document({"name": "job", "run": "true", **more})


async def begun(it: Cluster, engine: RecordingEngine, user: str, size: int) -> RunId:
    """A job of a user that runs and takes so much space."""
    await it.submit(JobSubmission(file(), user))
    launched = (await engine.told(Launch)).run
    engine.sizes[launched.job] = size
    engine.up(launched)
    await state(it, launched.job, "running")
    return launched


async def state(it: Cluster, job: JobId, wanted: str) -> None:
    """Wait until a job is in a state."""
    found = ""
    while found != wanted:
        await asyncio.sleep(0.005)
        row = it.store.jobs.get(job)
        found = row.state if row is not None else ""


def test_beyond_the_bound_nothing_new_is_taken_and_others_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        it, engine = made(tmp_path, disk_bytes=10 * MIB)
        await it.start()
        mine = await begun(it, engine, "ada", 11 * MIB)
        theirs = await begun(it, engine, "bob", MIB)
        await it.bounds.look()
        with pytest.raises(StoreFull, match=f"ada has 11.0 MiB .*{mine.job} 11.0 MiB") as refused:
            await it.submit(JobSubmission(file(), "ada"))
        assert "roost delete JOB" in str(refused.value)
        await it.submit(JobSubmission(file(), "bob"))
        told = {run: (why, ends) for run, why, ends in engine.restraints}
        assert told[theirs] == ("", False)
        assert told[mine][0].startswith("ada has 11.0 MiB of at most 10.0 MiB on the server's disk")
        row = it.store.jobs.get(mine.job)
        assert row is not None
        assert it.view(row)["restraint"] == told[mine][0]

        engine.restraints.clear()  # it is told once
        await it.bounds.look()
        assert mine not in [run for run, _, _ in engine.restraints]
        engine.restraints.clear()
        engine.sizes[mine.job] = MIB  # and when there is room again
        await it.bounds.look()
        assert engine.restraints == [(mine, "", False)]
        assert it.view(row)["restraint"] == ""
        await it.submit(JobSubmission(file(), "ada"))
        await it.close()

    run(scenario)


def test_only_jobs_that_write_beyond_the_second_bound_are_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        it, engine = made(tmp_path, disk_bytes=10 * MIB, disk_max_bytes=20 * MIB)
        await it.start()
        writes = await begun(it, engine, "ada", 25 * MIB)
        still = await begun(it, engine, "ada", 5 * MIB)
        await it.bounds.look()  # it is told first
        assert [ends for _, _, ends in engine.restraints] == [False, False]
        engine.restraints.clear()
        engine.sizes[writes.job] = 40 * MIB
        await it.bounds.look()
        ((stopped, why, ends),) = engine.restraints
        assert (stopped, ends) == (writes, True)
        assert why.endswith("of at most 20.0 MiB on the server's disk: the job is stopped")
        engine.ended(writes, cause="bound")
        await state(it, writes.job, "failed")
        row = it.store.jobs.get(writes.job)
        assert row is not None
        assert row.view["verdict"]["kind"] == "disk-bound"
        assert (row.view["attempt"], row.view["restraint"]) == (1, "")
        assert it.core.jobs[still.job].state.value == "running"
        await it.close()

    run(scenario)


def test_own_bounds_count_instead_and_administrators_have_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        it, _ = made(tmp_path, jobs=5, disk_bytes=10, disk_max_bytes=20)
        accounts = it.store.accounts
        await it.start()
        for user in (
            User("root", "admin"),
            User("careful", "admin", disk_bytes=7),
            User("ada", jobs=1, disk_bytes=100),
            User("bob", disk_max_bytes=15),
        ):
            accounts.add_user(user)
            await it.user_changed(user, "root")
        for _ in range(2):  # also after a restart
            assert it.bounds.of("root") == UserBounds(5, None, None)
            assert it.bounds.of("careful") == UserBounds(5, 7, None)
            assert it.bounds.of("ada") == UserBounds(1, 100, 100)
            assert it.bounds.of("bob") == UserBounds(5, 10, 15)
            assert it.bounds.of("eve") == UserBounds(5, 10, 20)
            await it.close()
            it, _ = made(tmp_path, jobs=5, disk_bytes=10, disk_max_bytes=20)
            await it.start()
        await it.submit(JobSubmission(file(), "ada"))
        with pytest.raises(Conflict, match="roost users set ada --jobs N"):
            await it.submit(JobSubmission(file(), "ada"))
        await it.close()

    run(scenario)


def test_a_server_that_starts_knows_what_there_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        it, engine = made(tmp_path, disk_bytes=10 * MIB)
        await it.start()
        launched = await begun(it, engine, "ada", 11 * MIB)
        await it.bounds.look()
        await it.close()

        it, engine = made(tmp_path, disk_bytes=10 * MIB)
        await it.start()
        with pytest.raises(StoreFull, match=r"ada has 11.0 MiB"):
            await it.submit(JobSubmission(file(), "ada"))
        engine.ended(launched)
        await state(it, launched.job, "succeeded")
        await it.delete(launched.job, "ada")
        assert it.bounds.use("ada").disk_bytes == 0
        await it.submit(JobSubmission(file(), "ada"))
        await it.close()

    run(scenario)


def test_functions_and_large_job_files_count_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        it, _ = made(tmp_path, disk_bytes=MIB)
        await it.start()
        large = file(env={"TEXT": "x" * 100_000})
        await it.submit(JobSubmission(large, "ada", payload=b"x" * 2 * MIB))
        assert it.bounds.use("ada").runs_bytes > 2 * MIB + 100_000
        with pytest.raises(StoreFull):
            await it.submit(JobSubmission(file(), "ada"))
        await it.close()

    run(scenario)


def test_figures_that_are_damaged_are_measured_anew(tmp_path: Path) -> None:
    job, other = JobId("a"), JobId("b")
    kept = tmp_path / "disk-use.json"
    for text in ("", "[]", "{", '{"sizes": {"a": "x"}}', json.dumps({"sizes": 7})):
        kept.write_text(text)
        meter = DiskMeter(kept)
        meter.begin({job: "ada", other: "ada"})
        assert meter.of("ada") == 0
    meter.measured(job, 10)
    meter.measured(other, 30)
    meter.save(meter.figures())
    meter = DiskMeter(kept)
    meter.begin({job: "ada", JobId("c"): "bob"})
    assert (meter.of("ada"), meter.of("bob")) == (10, 0)
    assert meter.take_next() == "c"  # what is not known comes first
    meter.soon(job)
    assert [meter.take_next() for _ in range(3)] == ["a", "a", None]
    meter.renew()
    assert meter.take_next() == "a"
    meter.drop(job)
    assert (meter.of("ada"), meter.take_next(), meter.take_next()) == (0, "c", None)
