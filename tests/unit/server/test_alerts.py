"""Alerts as the API and the stream tell them, and what is done about them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.wire_schema import strictly
from tests.unit.server.worlds import World, looped, world

from roost.api.alerts import AlertList
from roost.core.spec import JobId, RunId
from roost.server.options import ServerOptions

QUICK = ServerOptions(tick_s=0.01)
IDLE = {"name": "idle", "when": "idle-gpu", "to": ["https://hooks.example.com/x"]}


async def idle(here: World, who: str) -> str:
    """A job whose device does nothing, and which says so."""
    job = await here.submit(who, "idle", gpus=1)
    await here.until(who, job, "running")
    here.engine.observe(RunId(JobId(job), 1), busy=0.0)
    async with here.client() as client, asyncio.timeout(60):
        while (await client.get(f"/api/v1/jobs/{job}")).json()["busy"] is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return job


@looped
async def test_a_firing_is_shown_streamed_recorded_and_told(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here, here.client() as client:
        await here.add("ada")
        await here.add("bob")
        job = await idle(here, "ada")
        async with here.watch("/api/v1/stream") as viewer, here.client("bob") as bob:
            assert (await viewer.next()).data["alerts"] == []
            answer = await client.put("/api/v1/alerts/rules", json={"rules": [IDLE]})
            told = strictly(AlertList, answer.json())
            (alert,) = told.items
            assert (alert.job, alert.user, alert.rule) == (job, "ada", "idle")
            assert alert.done == ("told 1 target",)
            while not (news := (await viewer.next()).data["alerts"]):
                pass
            assert news[0]["id"] == alert.id
            waiting = (await client.get("/api/v1/notifications")).json()["waiting"]
            assert [one["target"] for one in waiting] == ["https://hooks.example.com/..."]
            audit = (await client.get(f"/api/v1/jobs/{job}/events")).json()["items"]
            assert [one["text"] for one in audit if one["kind"] == "alert"] == [alert.text]
            others = (await bob.get("/api/v1/alerts")).json()
            assert others["items"] == []
            assert "to" not in others["rules"][0]
            assert (await bob.put("/api/v1/alerts/rules", json={"rules": []})).status_code == 403
        async with here.client("ada") as ada:
            assert len((await ada.get("/api/v1/alerts")).json()["items"]) == 1
            await ada.post(f"/api/v1/jobs/{job}/cancel")
            await here.until("ada", job, "cancelled")
        await here.cluster.alerts.look()
        over = (await client.get("/api/v1/alerts")).json()
        assert (over["items"], over["ended"][0]["id"]) == ([], alert.id)


@looped
async def test_actions_are_taken_once(tmp_path: Path) -> None:
    rules: list[dict[str, Any]] = [
        {**IDLE, "do": ["suspend"]},
        {"name": "broken", "when": "gpu-failed", "do": ["drain"]},
    ]
    async with world(tmp_path, QUICK) as here, here.client() as client:
        job = await idle(here, "root")
        await client.put("/api/v1/alerts/rules", json={"rules": rules})
        await here.until("root", job, "suspended")
        seen = (await client.get("/api/v1/alerts")).json()
        assert [one["done"] for one in [*seen["items"], *seen["ended"]]] == [["suspended"]]
        await client.post(f"/api/v1/jobs/{job}/resume")
        await here.until("root", job, "running")


@looped
async def test_rules_that_are_wrong_change_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        before = (await client.get("/api/v1/alerts")).json()["rules"]
        for body in ({}, {"rules": 5}, {"rules": [{"name": "x"}]}, {"rules": [IDLE, IDLE]}):
            answer = await client.put("/api/v1/alerts/rules", json=body)
            assert answer.status_code == 422
            assert answer.json()["error"]["message"].startswith("alerts: ")
        assert (await client.get("/api/v1/alerts")).json()["rules"] == before
