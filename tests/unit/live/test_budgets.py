"""Budgets of a server: who waits, who goes on, and what a kill in between changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.recording_engine import RecordingEngine

from roost.core import JobState, Launch, ResumeRequested
from roost.errors import Conflict, NotFound
from roost.jobfile import JobFile
from roost.jobs.requests import JobSubmission
from roost.live.cluster import Cluster
from roost.store import open_store
from roost.testing.builders import node
from roost.usage.budgets import Budget
from roost.usage.prices import MICRO


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def made(home: Path) -> tuple[Cluster, RecordingEngine]:
    engine = RecordingEngine(node("n0", 4))
    store = open_store(f"sqlite:///{home}/roost.db")
    return Cluster(store, engine, home, policy="fifo"), engine


def half_an_hour(name: str, **more: Any) -> JobSubmission:
    job = {"name": name, "run": "true", "run_time": "30m", **more}
    return JobSubmission(JobFile.from_document(job), "ada")


async def states(it: Cluster) -> dict[str, str]:
    return {job.id[0]: job.state.value for job in it.core.jobs.values()}


def test_the_third_job_does_not_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        it, engine = made(tmp_path)
        await it.start()
        await it.metering.set_budget(Budget("user", "ada", MICRO), "root")
        rows = [(await it.submit(half_an_hour(name)))[0] for name in "abc"]
        for _ in "ab":
            engine.up((await engine.told(Launch)).run)
        third = it.view(rows[2])
        assert (third["state"], third["cause"]) == ("suspended", "over-budget")
        assert third["over_budget"].startswith("over budget: user ada has 1 GPUh a month, ")
        assert (await it.metering.budgets())[0]["held"] == [rows[2].id]
        with pytest.raises(Conflict, match="goes on by itself when its budget has room"):
            await it.resume(rows[2].id, "ada")  # type: ignore[arg-type]
        await it.close()

        again, _ = made(tmp_path)  # as after a kill: nothing was written at the end
        await again.start()
        assert (await states(again))["c"] == "suspended"
        (shown,) = await again.metering.budgets()
        assert shown["held"] == [rows[2].id]
        await again.metering.set_budget(Budget("user", "ada", 5 * MICRO), "root")
        assert again.core.jobs[rows[2].id].state is JobState.STARTING  # type: ignore[index]
        await again.close()

    run(scenario)


def test_a_lower_budget_kills_nothing_unless_that_is_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        it, engine = made(tmp_path)
        await it.start()
        row, _ = await it.submit(half_an_hour("a"))
        engine.up((await engine.told(Launch)).run)
        await it.metering.set_budget(Budget("queue", "default", 0), "root")
        assert (await states(it))["a"] in ("starting", "running")
        later, _ = await it.submit(half_an_hour("b"))
        assert it.view(later)["cause"] == "over-budget"
        await it.metering.set_budget(Budget("queue", "default", 0, then="suspend"), "root")
        held = it.core.jobs[row.id]  # type: ignore[index]
        assert held.held
        await it.metering.delete_budget("queue", "default", "root")
        assert not held.held
        with pytest.raises(NotFound, match="has no budget"):
            await it.metering.delete_budget("queue", "default", "root")
        await it.close()

    run(scenario)


def test_a_budget_that_only_tells_holds_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        it, engine = made(tmp_path)
        await it.start()
        await it.metering.set_budget(Budget("user", "ada", 0, then="tell"), "root")
        await it.submit(half_an_hour("a"))
        await engine.told(Launch)
        plan = await it.plan(half_an_hour("b"))
        assert "would use 0.5 of 0 GPUh left to user ada" in plan["notes"]
        await it.close()

    run(scenario)


def test_a_user_may_resume_what_the_user_suspended(tmp_path: Path) -> None:
    async def scenario() -> None:
        it, _ = made(tmp_path)
        await it.start()
        await it.metering.set_budget(Budget("user", "ada", 0), "root")
        row, _ = await it.submit(half_an_hour("a"))
        await it.metering.set_budget(Budget("user", "ada", 9 * MICRO), "root")
        event = ResumeRequested(it.clock.now(), row.id)  # type: ignore[arg-type]
        assert event.job == row.id
        assert not it.core.jobs[event.job].held
        assert it.view(row)["over_budget"] == ""
        await it.close()

    run(scenario)
