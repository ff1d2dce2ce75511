"""The life of a job and its curves, as the API tells them, also after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from tests.unit.server.worlds import Puppets, looped, world

from roost.core.spec import JobId, RunId


async def series(client: httpx.AsyncClient, job: str, **asked: Any) -> dict[str, list[Any]]:
    answer = await client.get(f"/api/v1/jobs/{job}/metrics", params=asked)
    assert answer.status_code == 200, answer.text
    return {one["name"]: one["points"] for one in answer.json()["series"]}


@looped
async def test_what_a_job_reports_is_there_after_a_restart_and_when_it_is_over(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here, here.client() as client:
        job = await here.submit("root", "j", gpus=2)
        await here.until("root", job, "running")
        run = RunId(JobId(job), 1)
        here.engine.observe(run, loss=0.5, step=3)
        async with asyncio.timeout(60):
            while "loss" not in (found := await series(client, job)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert [value for _, value in found["loss"]] == [0.5]
        assert "busy" not in found
        assert list(await series(client, job, name="step")) == ["step"]
        await here.finish("root", job)
        life = (await client.get(f"/api/v1/jobs/{job}/timeline")).json()
    async with world(tmp_path, engine=Puppets()) as here:
        async with here.client() as client:
            assert (await series(client, job))["loss"] == found["loss"]
            again = (await client.get(f"/api/v1/jobs/{job}/timeline")).json()
            assert {**again, "now": 0} == {**life, "now": 0}
            kinds = [(span["kind"], span["attempt"]) for span in life["spans"]]
            assert kinds[0][0] == "queued"
            assert kinds[-1] == ("running", 1)
            assert life["spans"][-1]["placement"][0]["gpus"] == [0, 1]
            assert life["spans"][-1]["workers"] == 1
            assert [one["outcome"] for one in life["attempts"]] == ["succeeded"]
            assert life["marks"][0]["kind"] == "submitted"
            await client.delete(f"/api/v1/jobs/{job}")
            assert (await client.get(f"/api/v1/jobs/{job}/metrics")).status_code == 404
        async with asyncio.timeout(60):
            while (tmp_path / "curves" / job).exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@looped
async def test_the_curves_of_others_are_not_there(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        job = await here.submit("root", "j")
        async with here.client("ada") as ada, here.client() as root:
            for what in ("metrics", "timeline"):
                assert (await ada.get(f"/api/v1/jobs/{job}/{what}")).status_code == 404
            wrong = await root.get(f"/api/v1/jobs/{job}/metrics?begin=5&end=4")
            assert wrong.status_code == 422
