"""What users can ask of a cluster, and what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.recording_engine import RecordingEngine

from roost.core import JobId, Launch, Migrate, Range, Resize, RunId, Started, Suspend
from roost.core import snapshot as core_snapshot
from roost.core.demand import counted
from roost.engines import Delayed, LaunchTrouble
from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound
from roost.jobfile import JobFile
from roost.jobs.requests import JobSubmission
from roost.live.cluster import Cluster
from roost.live.recovery import recover
from roost.live.user_bounds import UserBounds
from roost.placement import placer
from roost.policies import policy
from roost.store import StoreFull, open_store
from roost.store.rows import EventQuery, JobRow, QueueRow
from roost.testing.builders import node, spec


def file(**fields: Any) -> JobFile:
    return JobFile.from_document({"name": "job", "run": "true", **fields})


@asynccontextmanager
async def cluster(
    home: Path, *gpus: int, **more: Any
) -> AsyncIterator[tuple[Cluster, RecordingEngine]]:
    engine = RecordingEngine(*(node(f"n{at}", count) for at, count in enumerate(gpus or (4,))))
    it = Cluster(open_store(f"sqlite:///{home}/roost.db"), engine, home, **more)
    await it.start()
    try:
        yield it, engine
    finally:
        await it.close()


async def running(it: Cluster, engine: RecordingEngine, **fields: Any) -> JobRow:
    row, _ = await it.submit(JobSubmission(file(**fields), "ada"))
    launch = await engine.told(Launch)
    seen = asyncio.Event()
    stop = it.feed.subscribe(lambda change: seen.set() if change.jobs else None)
    engine.report(Started(0.0, launch.run))
    await asyncio.wait_for(seen.wait(), 60)
    stop()
    return row


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_repeated_request_finds_the_first_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, _):
            request = JobSubmission(file(), "ada", key="k1")
            both = await asyncio.gather(it.submit(request), it.submit(request))
            again, new = await it.submit(request)
            other, _ = await it.submit(JobSubmission(file(), "bob", key="k1"))

            assert {row.id for row, _ in both} == {again.id}
            assert sorted(new for _, new in both) == [False, True]
            assert not new
            assert other.id != again.id

    run(scenario)


def test_a_repeated_request_finds_the_first_job_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        request = JobSubmission(file(), "ada", key="k1")
        async with cluster(tmp_path) as (it, _):
            first, _ = await it.submit(request)
        async with cluster(tmp_path) as (it, _):
            assert await it.submit(request) == (it.store.jobs.get(first.id), False)

    run(scenario)


def test_what_can_never_run_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, _):
            with pytest.raises(InvalidSpec, match="can never run here: it asks for 8 GPUs"):
                await it.submit(JobSubmission(file(gpus=8), "ada"))
            with pytest.raises(Forbidden, match="not submit to the queue 'defualt'") as refused:
                await it.submit(JobSubmission(file(queue="defualt"), "ada"))
            assert refused.value.hint == "one of: default"
            await it.set_queue(QueueRow("vision", submitters=("bob",)), "root")
            with pytest.raises(Forbidden, match="may not submit to the queue 'vision'"):
                await it.submit(JobSubmission(file(queue="vision"), "ada"))
            await it.submit(JobSubmission(file(queue="vision"), "bob"))

    run(scenario)


def test_a_user_has_so_many_jobs_and_others_do_not_notice(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, bounds=UserBounds(jobs=2)) as (it, _):
            rows = [(await it.submit(JobSubmission(file(gpus=4), "ada")))[0] for _ in range(2)]
            for _ in range(2):
                with pytest.raises(Conflict, match="ada has 2 jobs here that are not over"):
                    await it.submit(JobSubmission(file(), "ada"))
            await it.submit(JobSubmission(file(), "bob"))
            await it.cancel(JobId(rows[1].id), "ada")
            await it.submit(JobSubmission(file(), "ada"))
        async with cluster(tmp_path, bounds=UserBounds(jobs=2)) as (it, _):  # also after a restart
            with pytest.raises(Conflict, match="the most that a user may have"):
                await it.submit(JobSubmission(file(), "ada"))
            await it.submit(JobSubmission(file(), "bob"))

    run(scenario)


def test_new_work_is_refused_while_no_run_can_begin(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row, _ = await it.submit(JobSubmission(file(gpus=4), "ada"))
            last, _ = await it.submit(JobSubmission(file(gpus=4), "ada"))
            launch = await engine.told(Launch)
            engine.report(LaunchTrouble(0.0, "the disk is full", full=True))
            engine.report(Delayed(0.0, launch.run, "the disk is full"))
            assert (it.health.ok, it.health.full) == (False, True)
            with pytest.raises(StoreFull, match="nothing new is accepted now: the disk is full"):
                await it.submit(JobSubmission(file(), "bob"))
            view = it.view(row)
            assert (view["state"], view["cause"]) == ("starting", "server")
            told = await it.explain(JobId(last.id))
            assert (told["cause"], told["reason"]) == ("server", "the disk is full")
            await it.cancel(JobId(last.id), "ada")
            engine.report(LaunchTrouble(0.0))
            assert it.health.ok
            await it.submit(JobSubmission(file(), "bob"))

    run(scenario)


def test_secrets_are_kept_beside_the_journal_until_the_job_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            with pytest.raises(InvalidSpec, match="secrets: KEY has no value"):
                await it.submit(JobSubmission(file(secrets=["KEY"]), "ada"))
            given = {"KEY": "canary-1", "MORE": "canary-2"}
            with pytest.raises(InvalidSpec, match="MORE is not among the job's secrets"):
                await it.submit(JobSubmission(file(secrets=["KEY"]), "ada", secrets=given))
            row, _ = await it.submit(
                JobSubmission(file(secrets=["KEY"]), "ada", secrets={"KEY": "canary-1"})
            )
            await engine.told(Launch)
            (kept,) = (tmp_path / "secrets").iterdir()
            assert kept.stat().st_mode & 0o777 == 0o600
            engine.ended(RunId(JobId(row.id), 1))
            await it.set_queue(QueueRow("later"), "root")  # after the report
            assert not list((tmp_path / "secrets").iterdir())

    run(scenario)

    for path in tmp_path.glob("roost.db*"):
        assert b"canary" not in path.read_bytes()


def test_only_elastic_jobs_are_scaled_and_within_what_they_declared(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            rigid = await running(it, engine)
            elastic = await running(it, engine, workers="1..3")
            with pytest.raises(Conflict, match="not elastic"):
                await it.scale(JobId(rigid.id), Range(2, 2), "ada")
            with pytest.raises(InvalidSpec, match=r"1..3 workers, not 4"):
                await it.scale(JobId(elastic.id), Range(4, 4), "ada")
            row = await it.scale(JobId(elastic.id), Range(2, 2), "ada")
            assert row.state == "resizing"
            assert (await engine.told(Resize)).allocation.workers == 2

    run(scenario)


def test_a_job_moves_if_there_is_another_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 2) as (it, engine):
            row = await running(it, engine)
            moved = await it.migrate(JobId(row.id), None, "ada")
            assert moved.state == "resizing"
            assert (await engine.told(Migrate)).allocation.parts[0].gpus == (1,)

    run(scenario)


def test_a_job_stays_if_there_is_no_other_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1) as (it, engine):
            row = await running(it, engine)
            with pytest.raises(Conflict, match="no room for it anywhere else"):
                await it.migrate(JobId(row.id), None, "ada")

    run(scenario)


def test_a_job_is_suspended_resumed_cancelled_and_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            job = JobId((await running(it, engine)).id)
            assert (await it.suspend(job, "ada")).view["cause"] == "leaving"
            await engine.told(Suspend)
            with pytest.raises(Conflict, match="cancel it first"):
                await it.delete(job, "ada")
            await it.cancel(job, "ada")
            engine.ended(RunId(job, 1), 0, "stopped")
            await it.set_queue(QueueRow("later"), "root")  # after the report
            assert (await it.cancel(job, "ada")).state == "cancelled"
            with pytest.raises(Conflict, match="is over"):
                await it.suspend(job, "ada")
            await it.delete(job, "ada")
            assert it.store.jobs.get(job) is None
            assert engine.forgotten == [job]
            with pytest.raises(NotFound):
                await it.cancel(job, "ada")
            with pytest.raises(NotFound):
                await it.explain(job)

    run(scenario)


def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, _):
            before = it.seq
            fits = await it.plan(JobSubmission(file(gpus=2), "ada"))
            never = await it.plan(JobSubmission(file(gpus=9), "ada"))
            assert fits["fits"]
            assert fits["placement"][0]["gpus"] == [0, 1]
            assert never["never"]
            assert it.seq == before
            assert not it.core.jobs

    run(scenario)


def test_users_are_told_whether_the_policy_resizes(tmp_path: Path) -> None:
    """Also of policies that are not Roost's own: they say it themselves."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from roost.policies.fifo import fifo\nfrom roost.policies.kit import resizing\n"
        "def rigid(plan):\n    fifo(plan)\n"
        "@resizing\ndef growing(plan):\n    fifo(plan)\n"
    )

    async def notes(name: str) -> list[str]:
        home = tmp_path / name
        home.mkdir()
        store = open_store(f"sqlite:///{home}/roost.db")
        it = Cluster(store, RecordingEngine(), home, policy=f"{mine}:{name}")
        await it.start()
        try:
            told = await it.plan(JobSubmission(file(workers="1..2"), "ada"))
        finally:
            await it.close()
        return [note for note in told["notes"] if "leaves it at that" in note]

    async def scenario() -> None:
        assert len(await notes("rigid")) == 1
        assert await notes("growing") == []

    run(scenario)


def test_a_waiting_job_says_why_who_is_ahead_and_when(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1) as (it, engine):
            first = await running(it, engine, run_time="100s")
            waiting, _ = await it.submit(JobSubmission(file(run_time="10s"), "bob"))
            told = await it.explain(JobId(waiting.id))
            assert told["cause"] == "no-capacity"
            assert told["starts_at"] == pytest.approx(it.clock.now() + 100, abs=5)
            assert told["ahead"] == []
            assert it.view(waiting)["reason"] == told["reason"]
            assert it.view(first)["state"] == "running"

    run(scenario)


def test_the_log_of_events_tells_who_did_what(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, engine):
            row = await running(it, engine)
            await it.cancel(JobId(row.id), "eve")
            page = it.store.events.find(EventQuery(job=row.id))
            told = [(line.actor, line.kind, line.old, line.new) for line in page.items]
            assert told == [
                ("ada", "submitted", "", ""),
                ("roost", "state", "", "starting"),
                ("roost", "state", "starting", "running"),
                ("eve", "request", "", ""),
            ]

    run(scenario)


def test_what_usually_comes_is_known_at_each_start_and_the_journal_needs_it_not(
    tmp_path: Path,
) -> None:
    known = counted([spec(8), spec(1)] * 100)

    async def placed(home: Path, **more: Any) -> tuple[set[str], str]:
        async with cluster(home, 8, 2, placer="fgd", **more) as (it, _):
            row, _ = await it.submit(JobSubmission(file(), "ada"))
            held = it.core.jobs[JobId(row.id)].run
            assert held is not None
            return set(held.allocation.nodes), core_snapshot.digest(it.core)

    async def scenario() -> None:
        for name in ("told", "blind"):
            (tmp_path / name).mkdir()
        assert (await placed(tmp_path / "blind"))[0] == {"n0"}
        assert (await placed(tmp_path / "told", typical=known))[0] == {"n1"}
        again, digest = await placed(tmp_path / "told", typical=known)
        assert again == {"n1"}, "it was told at the next start, too"
        store = open_store(f"sqlite:///{tmp_path}/told/roost.db")
        for other in (placer("fgd"), placer("fgd", known), placer("pack")):
            found = recover(store, policy("roost"), other)
            assert core_snapshot.digest(found.core) == digest
        store.close()

    run(scenario)
