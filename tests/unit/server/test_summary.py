"""The state of things at a glance."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.wire_schema import strictly
from tests.unit.server.worlds import looped, world

from roost.api.portal import SummaryView
from roost.core.spec import JobId, RunId
from roost.jobs.clock import WallClock
from roost.server import summary as module


@looped
async def test_a_summary_counts_the_callers_jobs_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        await here.add("bob")
        failed = await here.submit("ada", "broken")
        await here.finish("ada", failed, 3)
        runs = await here.submit("ada", "runs", gpus=3)
        await here.until("ada", runs, "running")
        await here.submit("ada", "waits", gpus=4)
        await here.submit("bob", "other", gpus=4)
        async with here.client("ada") as ada, here.client() as root:
            told: dict[str, Any] = (await ada.get("/api/v1/summary")).json()
            view = strictly(SummaryView, told)
            assert {state: n for state, n in view.mine.items() if n} == {
                "queued": 1,
                "running": 1,
                "failed": 1,
            }
            assert [(one.job, one.what) for one in view.attention] == [(failed, "failed")]
            assert [job.name for job in view.recent] == ["waits", "runs", "broken"]
            (free,) = view.free
            assert (free.gpus, free.free, free.whole, free.largest, free.nodes) == (4, 1, 1, 1, 1)
            (queue,) = view.queues
            assert (queue.own_waiting, queue.waiting) == (1, 1)
            assert queue.oldest_s is not None
            await root.put("/api/v1/nodes/box/cordon", json={})
            (out,) = (await root.get("/api/v1/summary")).json()["free"]
            assert (out["out"], out["whole"], out["free"]) == (4, 0, 0)


@looped
async def test_jobs_that_need_a_look_are_named_with_the_reason(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        idle = await here.submit("root", "idle", gpus=1)
        stuck = await here.submit("root", "stuck", gpus=1)
        for job in (idle, stuck):
            await here.until("root", job, "running")
        waits = await here.submit("root", "waits", gpus=4)
        here.engine.observe(RunId(JobId(idle), 1), busy=0.01)
        here.engine.observe(RunId(JobId(stuck), 1), step=5, busy=0.9)

        async def seen() -> dict[str, str]:
            told = (await client.get("/api/v1/summary")).json()["attention"]
            return {one["job"]: one["what"] for one in told}

        async with asyncio.timeout(60):
            while here.cluster.curves.moved_at(stuck) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await seen() == {}
        clock: WallClock = here.cluster.clock
        clock.not_before(clock.now() + 2 * module._WAITS_S)
        assert await seen() == {idle: "low-use", stuck: "stuck", waits: "waiting-long"}
