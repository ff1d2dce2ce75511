"""Many submissions at once: what they cost the store, and what each of them is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.live.test_cluster import cluster, file, run

from roost.core import JobId, QueueId
from roost.errors import Conflict, Forbidden
from roost.jobs.requests import JobSubmission
from roost.live.cluster import Cluster
from roost.store import StoreBusy
from roost.store.jobs import RequestKey, RequestTrace
from roost.store.rows import QueueRow


def counted(it: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests each question to the store is about, from now on."""
    asked: list[int] = []
    find = it.store.jobs.known_requests

    def look(some: Sequence[RequestKey]) -> list[RequestTrace]:
        asked.append(len(some))
        return find(some)

    monkeypatch.setattr(it.store.jobs, "known_requests", look)
    return asked


def test_what_comes_while_the_store_is_asked_is_asked_for_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, _):
            asked, appends = counted(it, monkeypatch), it.counts.appends
            requests = [
                JobSubmission(file(), f"user-{n % 3}", key=f"k{n}" if n % 2 else "")
                for n in range(200)
            ]
            taken = await asyncio.gather(*map(it.submit, requests))

            assert sum(asked) == 200
            assert len(asked) < 10
            assert it.counts.appends - appends < 10
            assert len({row.id for row, _ in taken}) == 200
            for row, new in taken:
                assert new
                assert row == it.store.jobs.get(row.id)

    run(scenario)


def test_a_store_that_cannot_be_asked_is_told_to_all_who_wait_and_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, _):

            def busy(_some: object) -> None:
                raise StoreBusy("all readers are busy")

            with monkeypatch.context() as patch:
                patch.setattr(it.store.jobs, "known_requests", busy)
                requests = [JobSubmission(file(), "ada", key=f"k{n}") for n in range(5)]
                told = await asyncio.gather(*map(it.submit, requests), return_exceptions=True)
                assert [str(error) for error in told] == ["all readers are busy"] * 5
            rows = await asyncio.gather(*map(it.submit, requests))
            assert [new for _, new in rows] == [True] * 5

    run(scenario)


def test_who_has_gone_does_not_hold_up_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, _):
            asked = counted(it, monkeypatch)
            gone = asyncio.create_task(it.submit(JobSubmission(file(), "ada", key="k1")))
            stays = asyncio.create_task(it.submit(JobSubmission(file(), "ada", key="k2")))
            await asyncio.sleep(0)
            gone.cancel()
            row, new = await stays
            assert new
            assert asked
            again, new = await it.submit(JobSubmission(file(), "ada", key="k1"))
            assert again.id != row.id
            assert new

    run(scenario)


def test_an_id_that_is_taken_is_not_given_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, _):
            numbers = iter([7, 7, 7, 8, 7, 9])
            monkeypatch.setattr("roost.live.submissions.random.randrange", lambda _: next(numbers))
            first, _ = await it.submit(JobSubmission(file(), "ada"))
            keyless, _ = await it.submit(JobSubmission(file(), "ada"))
            with_key, _ = await it.submit(JobSubmission(file(), "ada", key="k"))

            assert len({first.id, keyless.id, with_key.id}) == 3

    run(scenario)


def test_a_request_whose_job_was_deleted_makes_no_second_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1) as (it, _):
            await it.submit(JobSubmission(file(), "ada"))  # what waits can be cancelled at once
            request = JobSubmission(file(), "ada", key="k")
            row, _ = await it.submit(request)
            await it.cancel(JobId(row.id), "ada")
            await it.delete(JobId(row.id), "ada")
            with pytest.raises(Conflict, match=f"this request made job {row.id}, which was del"):
                await it.submit(request)

    run(scenario)


def test_another_answer_to_who_may_submit_counts_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as (it, _):
            request = JobSubmission(file(queue="vision"), "ada")
            for submitters in (("bob",), ("*",), ("bob",)):
                await it.set_queue(QueueRow("vision", submitters=submitters), "root")
                if submitters == ("*",):
                    await it.submit(request)
                else:
                    with pytest.raises(Forbidden, match="may not submit to the queue 'vision'"):
                        await it.submit(request)
            await it.set_queue(QueueRow("speech"), "root")
            await it.delete_queue(QueueId("speech"), "root")
            assert [queue["id"] for queue in await it.queues()] == ["default", "vision"]

    run(scenario)
