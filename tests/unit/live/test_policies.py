"""Every policy in the live world: submissions, ends, forecasts in other threads, and failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.effort import examples
from tests.unit.server.worlds import World, eventually, job, looped, world

from roost.core import RunId
from roost.core.plan import Plan
from roost.policies import names
from roost.policies.fifo import fifo
from roost.policies.kit.solvers.programs import choose_exactly
from roost.testing.checks import validate

_QUICK = {"pollux": "pollux:population=8,generations=4"}


def wishes(chance: random.Random) -> dict[str, Any]:
    """A job as somebody may want it."""
    least = chance.randint(1, 2)
    return {
        "workers": chance.choice((least, {"min": least, "max": least + chance.randint(0, 2)})),
        "resources": {"gpu": chance.choice((0, 1, 1, 2))},
        "run_time": chance.choice((None, 60, 3600)),
        "priority": chance.randint(0, 2),
    }


def wish(chance: random.Random) -> tuple[Callable[[str], tuple[str, str]], dict[str, Any] | None]:
    """A command about a job, as anybody may give it at any time, and what it says."""
    verb = chance.choice(("suspend", "resume", "cancel", "migrate", "scale", "rerun", "delete"))
    least = chance.randint(1, 2)
    body = {"scale": {"min": least, "max": least + 1}, "migrate": {}, "rerun": {}}
    if verb == "delete":
        return (lambda one: ("DELETE", one)), None
    return (lambda one: ("POST", f"{one}/{verb}")), body.get(verb)


@pytest.mark.parametrize("name", names())
@looped
async def test_a_policy_serves_while_it_is_asked_for_forecasts(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    async with world(tmp_path, policy=_QUICK.get(name, name)) as here, here.client() as client:

        async def ask(count: int) -> None:
            for number in range(count):
                body = job(f"asked-{number}", **wishes(chance))
                found = await client.post("/api/v1/jobs/plan", json=body)
                assert found.status_code == 200, found.text
                listed = (await client.get("/api/v1/jobs")).json()["items"]
                if listed:
                    one = chance.choice(listed)["id"]
                    found = await client.get(f"/api/v1/jobs/{one}/explain")
                    assert found.status_code in (200, 404), found.text

        async def use(count: int) -> None:
            for number in range(count):
                body = job(f"used-{number}", **wishes(chance))
                found = await client.post("/api/v1/jobs", json=body)
                assert found.status_code == 201, found.text
                end_one(here, chance)

        async def command(count: int) -> None:
            for _ in range(count):
                listed = (await client.get("/api/v1/jobs")).json()["items"]
                if not listed:
                    await asyncio.sleep(0)
                    continue
                verb, body = wish(chance)
                one = f"/api/v1/jobs/{chance.choice(listed)['id']}"
                found = await client.request(*verb(one), json=body)
                # Refused is fine, as "it is over" or "there is no room": broken is not.
                assert found.status_code < 500, found.text

        await asyncio.gather(
            *(ask(examples(16)), ask(examples(16)), use(examples(40)), command(examples(40)))
        )
        assert here.cluster.health.ok
        assert here.cluster.health.policy == ""
        validate(here.cluster.core)


def end_one(here: World, chance: random.Random) -> None:
    running = [run for run in here.cluster.core.runs.values() if run.started_at is not None]
    if running:
        here.engine.end(chance.choice(running).id, chance.choice((0, 0, 1)))


def fails(plan: Plan) -> None:
    """Fails after it has stopped everything."""
    for run in list(plan.running):
        plan.evict(run, "for nothing")
    raise RuntimeError("a program was not solved: not set")


@looped
async def test_a_policy_that_fails_ends_nothing_and_is_told_of(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        before = await here.submit(name="before", resources={"gpu": 1})
        await here.until("root", before, "running")
        guard = here.cluster._driver.policy
        guard.policy = fails

        planned = await client.post("/api/v1/jobs/plan", json=job("asked", resources={"gpu": 1}))
        assert planned.status_code == 200
        assert any("the policy failed" in said for said in planned.json()["assumptions"])
        assert guard.trouble is None, "a forecast is no trouble of the server"

        after = await here.submit(name="after", resources={"gpu": 1})
        await here.until("root", after, "running")
        assert (await client.get(f"/api/v1/jobs/{before}")).json()["state"] == "running"
        health = (await client.get("/api/v1/health")).json()
        assert health["ok"]
        assert "RuntimeError: a program was not solved: not set" in health["policy"]
        for path in ("/healthz", "/readyz"):
            told = await client.get(path)
            assert (told.status_code, bool(told.json()["policy"])) == (200, True)
            assert "solved" not in told.text  # the reason is for those with a token
        assert "roost_policy_failing 1.0" in (await client.get("/metrics")).text

        explained = await client.get(f"/api/v1/jobs/{after}/explain")
        assert explained.status_code == 200, explained.text

        guard.policy = fifo
        guard.trouble = guard.trouble and type(guard.trouble)("why", 0.0, 0.0)
        here.engine.end(RunId(here.cluster.core.jobs[before].id, 1))  # type: ignore[index]
        await eventually(lambda: guard.trouble is None)
        assert (await client.get("/api/v1/health")).json()["policy"] == ""


def test_programs_are_solved_in_many_threads_at_once() -> None:
    """Each thread gets the answer of its own program."""
    chance = np.random.default_rng(1)
    programs = [
        (-chance.random((rows, 4)), chance.integers(1, 4, 4), [6.0])
        for rows in chance.integers(2, 12, 60)
    ]
    alone = [choose_exactly(*program).tolist() for program in programs]
    with ThreadPoolExecutor(4) as threads:
        together = [
            found.tolist()
            for found in threads.map(lambda program: choose_exactly(*program), programs)
        ]
    assert together == alone
