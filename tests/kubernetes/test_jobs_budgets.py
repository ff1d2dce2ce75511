"""Roost Jobs that have to make room on a real API server, and disruption budgets that forbid it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.kubernetes.jobbing import SPACE, define, job, jobbing, pods, reaches, status
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import nodes, until

from roost.core import JobId
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    DISRUPTION_BUDGETS,
    EVENTS,
    JOBS,
    PRIORITY_CLASSES,
    Object,
)
from roost.kubernetes.operator.loop import Operator


async def guard(api: Api, of: str, allowed: int) -> None:
    """A budget for the pods of a Job; its status is what a controller would have written."""
    body = {
        "apiVersion": DISRUPTION_BUDGETS.api_version,
        "kind": DISRUPTION_BUDGETS.kind,
        "metadata": {"name": "guard", "namespace": SPACE},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"roost.dev/job": of}}},
    }
    await api.create(DISRUPTION_BUDGETS, body, SPACE)
    await allow(api, allowed)


async def allow(api: Api, disruptions: int) -> None:
    """Let so many pods go."""
    counts = dict.fromkeys(("currentHealthy", "desiredHealthy", "expectedPods"), 2)
    status = {"disruptionsAllowed": disruptions, "observedGeneration": 1, **counts}
    await api.patch(DISRUPTION_BUDGETS, "guard", {"status": status}, SPACE, sub="status")


async def uids(api: Api, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in await pods(api, name)}


async def knows(operator: Operator, words: str) -> bool:
    """Whether the core knows that the Job is protected."""
    leadership = operator.leadership
    return leadership is not None and words in leadership.core.jobs[JobId("default.low")].protected


async def submit_ranked(api: Api, name: str, rank: int, **spec: Any) -> Object:
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": rank})
    body = job(name, pod={"priorityClassName": name}, **spec)
    return await api.create(JOBS, body, SPACE)


def test_a_job_under_a_budget_keeps_its_place(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=2)
        await guard(api, "low", 1)
        async with jobbing(cluster) as operator:
            await submit_ranked(api, "low", 1, workers=2)
            await reaches(api, "low", "running")
            before = await uids(api, "low")
            await until(lambda: knows(operator, "allows 1 of its 2 pods"))
            await submit_ranked(api, "high", 1000, workers=2)
            await reaches(api, "high", "queued")
            await asyncio.sleep(2.5)
            assert (await status(api, "high"))["state"] == "queued"
            assert (await status(api, "low"))["state"] == "running"
            assert await uids(api, "low") == before

            await allow(api, 2)
            await reaches(api, "high", "running")
            found = await reaches(api, "low", "queued")
            assert (found["failures"], await uids(api, "low")) == (0, set())

    runner.run(scenario())


def test_a_job_without_a_budget_makes_room(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=2)
        async with jobbing(cluster) as operator:
            await submit_ranked(api, "low", 1, workers=2)
            await reaches(api, "low", "running")
            await submit_ranked(api, "high", 1000, workers=2)
            await reaches(api, "high", "running")
            found = await reaches(api, "low", "queued")
            assert (found["failures"], operator.binder.counts["evicted"]) == (0, 2)

    runner.run(scenario())


def test_the_server_has_the_last_word(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """A budget that comes in the last moment: nobody leaves, and the run goes on."""

    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=2)
        async with jobbing(cluster) as operator:
            await submit_ranked(api, "low", 1, workers=2)
            await reaches(api, "low", "running")
            before = await uids(api, "low")
            operator.mirrors.pop(DISRUPTION_BUDGETS)  # it hears of none
            await guard(api, "low", 0)
            await submit_ranked(api, "high", 1000, workers=2)
            await until(lambda: knows(operator, "disruption budget"))
            assert await until(lambda: told(api, "EvictionRefused"))
            found = await reaches(api, "low", "running", attempt=1)
            assert (found["failures"], await uids(api, "low")) == (0, before)
            await reaches(api, "high", "queued")  # its status may come later than the event
            await api.delete(JOBS, "low", SPACE)  # its user may, whatever budgets say
            await reaches(api, "high", "running")

    runner.run(scenario())


async def told(api: Api, reason: str) -> bool:
    found, _ = await api.list(EVENTS, SPACE)
    return any(one["reason"] == reason for one in found)
