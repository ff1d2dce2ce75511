"""Lists of jobs: filters over all pages, counts of the same jobs, and many jobs at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.unit.server.worlds import looped, world

from roost.core.spec import JobId, RunId
from roost.server.options import ServerOptions


@looped
async def test_words_are_found_in_names_users_queues_and_labels(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await here.add("ada")
        bird = await here.submit("ada", "bird", labels={"team": "vision"})
        fish = await here.submit("root", "fish", labels={"team": "Speech"})

        async def found(q: str) -> list[str]:
            answer = await client.get("/api/v1/jobs", params={"q": q, "sort": "name"})
            assert answer.status_code == 200, answer.text
            return [job["id"] for job in answer.json()["items"]]

        assert await found("") == [bird, fish]
        assert await found("BIR") == await found("ada") == await found("team=vision") == [bird]
        assert await found("sh speech") == [fish]
        assert await found("default") == [bird, fish]
        assert await found("bird speech") == await found("100%") == await found("_") == []
        assert await found("<script>alert(1)</script>") == []
        many = await client.get("/api/v1/jobs", params={"q": "a " * 9})
        assert many.status_code == 422
        assert "at most 8 words" in many.json()["error"]["message"]


@looped
async def test_counts_are_those_of_the_jobs_that_are_listed(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        for user in ("ada", "bob"):
            await here.add(user)
            made = [
                await here.submit(user, name, gpus=4, labels={"run": name})
                for name in ("one", "two")
            ]
            if user == "ada":
                await here.until("root", made[0], "running")
        told = (await client.get("/api/v1/jobs/counts")).json()
        assert told == {
            "total": 4,
            "states": {"queued": 3, "running": 1},
            "queues": {"default": 4},
            "users": {"ada": 2, "bob": 2},
        }
        some = (await client.get("/api/v1/jobs/counts?label=run=one&user=ada")).json()
        assert (some["total"], some["users"]) == (1, {"ada": 1})
        async with here.client("ada") as ada:
            assert (await ada.get("/api/v1/jobs/counts")).json()["users"] == {"ada": 2}
            none = (await ada.get("/api/v1/jobs/counts?user=bob")).json()
            assert none == {"total": 0, "states": {}, "queues": {}, "users": {}}


@looped
async def test_many_jobs_are_changed_and_each_has_its_answer(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        own = await here.submit("ada", "own", gpus=4)
        waits = await here.submit("ada", "waits", gpus=4)
        foreign = await here.submit("root", "foreign", gpus=4)
        await here.until("ada", own, "running")
        async with here.client("ada") as ada:

            async def bulk(action: str, *jobs: str, **more: object) -> list[dict[str, object]]:
                body = {"action": action, "jobs": jobs, **more}
                answer = await ada.post("/api/v1/jobs/bulk", json=body)
                assert answer.status_code == 200, answer.text
                items: list[dict[str, object]] = answer.json()["items"]
                return items

            told = await bulk("cancel", waits, foreign, "nobody-abcde", waits)
            assert [(one["job"], one["ok"], one["state"]) for one in told] == [
                (waits, True, "cancelled"),
                (foreign, False, ""),
                ("nobody-abcde", False, ""),
            ]
            assert told[1]["message"] == f"no job '{foreign}'"
            (kept,) = await bulk("delete", own)
            assert not kept["ok"]
            assert kept["message"] == f"job {own} is running: cancel it first"
            (again,) = await bulk("rerun", waits, labels={"try": "two"})
            made = (await ada.get(f"/api/v1/jobs/{again['made']}")).json()
            assert (made["rerun_of"], made["labels"]) == (waits, {"try": "two"})
            (gone,) = await bulk("delete", waits)
            assert gone["ok"]
            assert (await ada.get(f"/api/v1/jobs/{waits}")).status_code == 404
            for body in ({"action": "explode", "jobs": [own]}, {"action": "cancel", "jobs": []}):
                assert (await ada.post("/api/v1/jobs/bulk", json=body)).status_code == 422


@looped
async def test_a_rerun_of_many_that_is_sent_twice_is_one(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        first = await here.submit("root", "first")
        body = {"action": "rerun", "jobs": [first]}
        headers = {"Idempotency-Key": "k"}
        made = {
            (await client.post("/api/v1/jobs/bulk", json=body, headers=headers)).json()["items"][0][
                "made"
            ]
            for _ in range(2)
        }
        assert len(made) == 1


@looped
async def test_devices_say_how_much_they_work_and_queues_who_waits_longest(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(tick_s=0.01)) as here, here.client() as client:
        await here.add("ada")
        runs = await here.submit("root", "runs", gpus=4)
        await here.until("root", runs, "running")
        node = (await client.get("/api/v1/nodes")).json()["items"][0]
        assert [device["use"] for device in node["devices"]] == [None] * 4
        here.engine.observe(RunId(JobId(runs), 1), busy=0.25)
        waits = await here.submit("ada", "waits", gpus=1)

        async def use() -> float | None:
            node = (await client.get("/api/v1/nodes")).json()["items"][0]
            used: float | None = node["devices"][0]["use"]
            return used

        async with asyncio.timeout(60):
            while await use() != 0.25:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
        job = (await client.get(f"/api/v1/jobs/{waits}")).json()
        async with here.watch("/api/v1/stream") as viewer:
            first = (await viewer.next()).data
            assert first["queues"][0]["oldest_at"] == job["submitted_at"]
            assert first["nodes"][0]["devices"][0]["use"] == 0.25
            assert first["time"] >= job["submitted_at"]
            assert first["version"]
            assert first["assets"] == here.here.assets.digest
        async with here.client("ada") as ada:
            (queue,) = (await ada.get("/api/v1/queues")).json()["items"]
            assert queue["oldest_at"] == job["submitted_at"]
            assert queue["borrowed"] == 0
            await ada.post(f"/api/v1/jobs/{waits}/cancel")
            (queue,) = (await ada.get("/api/v1/queues")).json()["items"]
            assert queue["oldest_at"] is None
