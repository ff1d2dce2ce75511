"""What-ifs over the API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from tests.support.wire_schema import strictly
from tests.unit.server.worlds import looped, world

from roost.api.lab import LabList, LabView


async def over(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            told: dict[str, Any] = (await client.get(f"/api/v1/lab/{name}")).json()
            if told["state"] not in ("queued", "running"):
                return told
            await asyncio.sleep(0.02)


@looped
async def test_jobs_that_ran_are_simulated_under_other_policies(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        async with here.client("ada") as ada, here.client() as root:
            past = {"workload": {"kind": "history"}, "policies": ["fifo", "srtf"]}
            none = await ada.post("/api/v1/lab", json=past)
            assert none.status_code == 422
            assert "no job" in none.json()["error"]["message"]
            for name in ("swallow", "swift"):
                await here.finish("ada", await here.submit("ada", name, gpus=2))
            asked = await ada.post("/api/v1/lab", json=past)
            assert asked.status_code == 201, asked.text
            told = await over(root, asked.json()["id"])
            view = strictly(LabView, told)
            assert view.state == "done", view.problem
            assert view.result is not None
            assert (view.result["workload"], view.result["jobs"]) == ("history", 2)
            assert [run["policy"] for run in view.result["runs"]] == ["fifo", "srtf"]
            listed = strictly(LabList, (await ada.get("/api/v1/lab")).json())
            assert [one.id for one in listed.items] == [view.id]
            assert "swallow" not in str(view.result)  # jobs and queues are not named


@looped
async def test_a_question_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await here.add("eve", "viewer")
        for body, status in (
            ({"policies": ["nonsense"]}, 422),
            ({"policies": ["fifo"] * 7}, 422),
            ({"workload": {"kind": "synthetic", "jobs": 10**9}}, 422),
            ({"nodes": {"count": 0, "gpus": 1}}, 422),
            ({"placer": "nowhere"}, 422),
        ):
            answer = await client.post("/api/v1/lab", json=body)
            assert answer.status_code in (status, 404), answer.text
        assert (await client.get("/api/v1/lab")).json() == {"items": []}
        async with here.client("eve") as eve:
            assert (await eve.post("/api/v1/lab", json={})).status_code == 403
