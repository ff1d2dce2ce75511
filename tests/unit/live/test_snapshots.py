"""Snapshots of jobs: files and rows that agree, whatever happens in between, and clones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.recording_engine import RecordingEngine

from roost.core import JobId, Launch, RunId, Started
from roost.engines import Ended, ProgressReport, RunOrder, SnapshotInfo
from roost.errors import Conflict, InvalidSpec, NotFound, Retryable
from roost.jobfile import JobFile
from roost.jobs.requests import CloneRequest, JobSubmission
from roost.live import snapshots
from roost.live.cluster import Cluster
from roost.store import StoreFull, open_store
from roost.store.rows import EventQuery, JobRow, QueueRow, RestorePointRow
from roost.testing.builders import node

RETRY = {"max": 3, "delay": 0}
SAVED = {"model.pt": b"weights", "state.json": b"{}"}


@asynccontextmanager
async def cluster(home: Path, gpus: int = 4) -> AsyncIterator[tuple[Cluster, RecordingEngine]]:
    engine = RecordingEngine(node("n0", gpus))
    it = Cluster(open_store(f"sqlite:///{home}/roost.db"), engine, home)
    await it.start()
    try:
        yield it, engine
    finally:
        await it.close()


async def settled(it: Cluster) -> None:
    """Until all that was reported is in the journal."""
    await it.set_queue(QueueRow("later"), "root")


async def running(it: Cluster, engine: RecordingEngine, **fields: Any) -> JobRow:
    request = fields.pop("request", {})
    file = JobFile.from_document({"name": "job", "run": "true", **fields})
    row, _ = await it.submit(JobSubmission(file, "ada", **request))
    launch = await engine.told(Launch)
    engine.up(launch.run)
    engine.saved[JobId(row.id)] = dict(SAVED)
    engine.report(ProgressReport(0.0, launch.run, done=0.5, saved=0.25, step=100))
    await settled(it)
    found = it.store.jobs.get(row.id)
    assert found is not None
    return found


async def launch_order(engine: RecordingEngine) -> RunOrder:
    async with asyncio.timeout(60):
        while True:
            for order in engine.orders:
                if isinstance(order.action, Launch):
                    engine.orders.remove(order)
                    return order
            await asyncio.sleep(0.01)


async def taken(it: Cluster, row: JobRow, name: str = "one") -> RestorePointRow:
    point = await it.snapshots.take(row, name, "ada")
    assert point is not None
    return point


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def folders(home: Path) -> list[str]:
    shelf = home / "snapshots"
    return sorted(str(path.relative_to(shelf)) for path in shelf.glob("*/*"))


def test_a_snapshot_is_files_and_a_row_and_a_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine)
            point = await taken(it, row)

            assert (point.step, point.progress, point.files, point.fresh) == (100, 0.5, 2, True)
            assert it.store.restore_points.get(row.id) == point
            files = tmp_path / "snapshots" / row.id / "one" / "files"
            assert {path.name: path.read_bytes() for path in files.iterdir()} == SAVED
            assert folders(tmp_path) == [f"{row.id}/one"]
            assert (tmp_path / "snapshots").stat().st_mode & 0o777 == 0o700
            (line,) = it.store.events.find(EventQuery(kind="snapshot")).items
            assert line.text.startswith("one taken in ")
            assert line.text.endswith("2 files, 9 bytes, saved for it")
            assert (line.actor, line.job, line.user) == ("ada", row.id, "ada")

    run(scenario)


def test_a_snapshot_of_an_older_checkpoint_is_as_far_as_that_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            engine.fresh = False
            point = await taken(it, await running(it, engine))
            assert (point.step, point.progress, point.fresh) == (50, 0.25, False)

    run(scenario)


def test_what_cannot_be_a_snapshot_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, gpus=1) as (it, engine):
            row = await running(it, engine)
            for name in ("", "A", "a_b", "../x", "-a", "a" * 64, "x\n"):
                with pytest.raises(InvalidSpec, match="name of a snapshot"):
                    await it.snapshots.take(row, name, "ada")
            engine.saved.clear()
            with pytest.raises(Conflict, match="has no checkpoint yet"):
                await taken(it, row)
            waiting, _ = await it.submit(JobSubmission(row_file(row), "ada"))
            with pytest.raises(Conflict, match="has not run yet"):
                await taken(it, waiting)
            engine.saved[JobId(row.id)] = dict(SAVED)
            await taken(it, row)
            with pytest.raises(Conflict, match="has a snapshot 'one' already"):
                await taken(it, row)
            assert folders(tmp_path) == [f"{row.id}/one"]

    run(scenario)


def row_file(row: JobRow) -> JobFile:
    return JobFile.from_document(dict(row.document))


@pytest.mark.parametrize(
    ("number", "kind"), [(28, StoreFull), (5, Conflict)], ids=["full", "broken"]
)
def test_trouble_with_the_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    async def fails(_engine: object, _run: RunId, into: Path, _timeout_s: float) -> SnapshotInfo:
        into.mkdir()  # noqa: ASYNC240 - a test's own small folder
        (into / "half").write_text("x")
        raise OSError(number, "no luck")

    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine)
            monkeypatch.setattr(RecordingEngine, "snapshot", fails)
            with pytest.raises(kind, match=r"no snapshot was taken: .*no luck"):
                await taken(it, row)
            assert folders(tmp_path) == []
            assert it.store.restore_points.get(row.id) is None

    run(scenario)


def test_a_long_snapshot_is_asked_for_again_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "WAIT_S", 0.01)

    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine)
            engine.copying.clear()
            assert await it.snapshots.take(row, "one", "ada", "k1") is None
            assert await it.snapshots.take(row, "one", "ada", "k1") is None
            with pytest.raises(Conflict, match="is being taken already"):
                await it.snapshots.take(row, "one", "ada", "k2")
            with pytest.raises(Conflict, match=r"a snapshot of job .* is being taken already"):
                await it.snapshots.take(row, "two", "ada", "k3")
            engine.copying.set()
            monkeypatch.setattr(snapshots, "WAIT_S", 5.0)
            point = await it.snapshots.take(row, "one", "ada", "k1")
            assert point is not None
            assert await it.snapshots.take(row, "one", "ada", "k1") == point
            with pytest.raises(Conflict, match="already"):
                await it.snapshots.take(row, "one", "ada", "k2")

    run(scenario)


def test_a_snapshot_is_given_up_when_the_server_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine)
            engine.copying.clear()
            task = asyncio.create_task(it.snapshots.take(row, "one", "ada"))
            await asyncio.sleep(0.05)
            await it.snapshots.close()
            with pytest.raises(Retryable, match="the server stops"):
                await task
            assert it.store.restore_points.get(row.id) is None

    run(scenario)


def test_leftovers_are_swept_and_snapshots_are_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine)
            await taken(it, row)
            shelf = tmp_path / "snapshots"
            for left in (f"{row.id}/.draft-0", f"{row.id}/two", "gone-aaaaa/one"):
                (shelf / left / "files").mkdir(parents=True)
                (shelf / left / "files" / "x").write_text("x")
            # One that is under way when the server ends.
            engine.copying.clear()
            task = asyncio.create_task(it.snapshots.take(row, "three", "ada"))
            await asyncio.sleep(0.05)
            task.cancel()
        async with cluster(tmp_path) as (it, _):
            assert folders(tmp_path) == [f"{row.id}/one"]
            assert [path.name for path in (tmp_path / "snapshots").iterdir()] == [row.id]
            assert it.store.restore_points.get(row.id, "one") is not None

    run(scenario)


def test_a_clone_begins_with_the_files_of_the_snapshot_until_it_has_begun(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, gpus=1) as (it, engine):
            path = str(tmp_path / "mine")
            row = await running(it, engine, checkpoint={"path": path, "every": "5m"}, retry=RETRY)
            point = await taken(it, row)
            clone, new = await it.clone(CloneRequest(point, "ada"))
            assert new
            assert clone.view["clone_of"] == f"{row.id}@one"
            assert clone.document["checkpoint"] == {"every": "5m"}, "its own folder"
            with pytest.raises(Conflict, match=f"{clone.id} is to start from"):
                await it.snapshots.delete(point, "ada")
        async with cluster(tmp_path, gpus=1) as (it, engine):  # started anew before the launch
            engine.ended(RunId(JobId(row.id), 1))
            order = await launch_order(engine)
            files = tmp_path / "snapshots" / row.id / "one" / "files"
            assert order.action.run == RunId(JobId(clone.id), 1)
            assert order.restore == files
            engine.report(Ended(0.0, order.action.run, (), "lost"))
            order = await launch_order(engine)
            assert order.action.run == RunId(JobId(clone.id), 2)
            assert order.restore == files, "nothing of it has begun yet"

    run(scenario)


def test_a_clone_that_ran_is_not_filled_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine, retry=RETRY)
            point = await taken(it, row)
            clone, _ = await it.clone(CloneRequest(point, "ada"))
            order = await launch_order(engine)
            assert order.restore is not None
            engine.report(Started(0.0, order.action.run))
            engine.ended(order.action.run, code=1)
            order = await launch_order(engine)
            assert order.action.run == RunId(JobId(clone.id), 2)
            assert order.restore is None
            await it.snapshots.delete(point, "ada")
            assert folders(tmp_path) == []
            with pytest.raises(NotFound, match="no snapshot"):
                await it.clone(CloneRequest(point, "ada"))

    run(scenario)


def test_changes_come_on_top_and_the_application_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine, env={"A": "1", "B": "2"}, workers="1..2")
            point = await taken(it, row)
            changes = {"name": "slow", "env": {"B": "3"}, "priority": 7}
            clone, _ = await it.clone(CloneRequest(point, "bob", changes=changes))
            assert clone.user == "bob"
            assert clone.document["env"] == {"A": "1", "B": "3"}
            assert (clone.name, clone.priority) == ("slow", 7)
            assert clone.view["application"] == "job"
            with pytest.raises(InvalidSpec, match="folder of its own"):
                await it.clone(CloneRequest(point, "bob", changes={"checkpoint": {"path": "/x"}}))
            with pytest.raises(InvalidSpec, match=r"clone of .*@one.*colour"):
                await it.clone(CloneRequest(point, "bob", changes={"colour": "red"}))

    run(scenario)


def test_a_snapshot_outlives_its_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine)
            point = await taken(it, row)
            engine.ended(RunId(JobId(row.id), 1))
            await settled(it)
            over = it.store.jobs.get(row.id)
            assert over is not None
            assert (await taken(it, over, "late")).step == 100
            await it.delete(JobId(row.id), "ada")
            clone, _ = await it.clone(CloneRequest(point, "ada"))
            assert clone.view["clone_of"] == f"{row.id}@one"

    run(scenario)


def test_secrets_come_from_the_job_while_it_lives_and_only_to_its_user(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine, secrets=["KEY"], request={"secrets": {"KEY": "k1"}})
            point = await taken(it, row)
            clone, _ = await it.clone(CloneRequest(point, "ada"))
            order = await launch_order(engine)
            assert (order.action.run.job, order.secrets) == (clone.id, {"KEY": "k1"})
            with pytest.raises(InvalidSpec, match="secrets: KEY has no value"):
                await it.clone(CloneRequest(point, "bob"))
            await it.clone(CloneRequest(point, "bob", secrets={"KEY": "k2"}))
            assert (await launch_order(engine)).secrets == {"KEY": "k2"}
            engine.ended(RunId(JobId(row.id), 1))
            await settled(it)
            with pytest.raises(InvalidSpec, match="secrets: KEY has no value"):
                await it.clone(CloneRequest(point, "ada"))
        for path in (tmp_path / "snapshots").rglob("*"):
            assert path.is_dir() or b"k1" not in path.read_bytes()

    run(scenario)


def test_a_function_is_kept_with_the_snapshot(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            command = {"run": None, "command": ["python", "-m", "roost.client.call"]}
            row = await running(it, engine, **command, request={"payload": b"pickle"})
            point = await taken(it, row)
            assert point.function
            clone, _ = await it.clone(CloneRequest(point, "ada"))
            order = await launch_order(engine)
            assert (order.action.run.job, order.payload) == (clone.id, b"pickle")
            engine.ended(RunId(JobId(row.id), 1))
            await settled(it)
            late = await taken(it, row, "late")
            assert late.function  # as long as the job is listed
            await it.clone(CloneRequest(late, "ada"))
            (tmp_path / "payloads" / row.id).unlink()
            lost = await taken(it, row, "lost")
            with pytest.raises(Conflict, match=r"function of .*@lost was not kept"):
                await it.clone(CloneRequest(lost, "ada"))

    run(scenario)


def test_a_snapshot_whose_files_are_gone_is_not_cloned(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine)
            point = await taken(it, row)
            (tmp_path / "snapshots").rename(tmp_path / "elsewhere")
            with pytest.raises(Conflict, match="are not in the home of this server"):
                await it.clone(CloneRequest(point, "ada"))

    run(scenario)
