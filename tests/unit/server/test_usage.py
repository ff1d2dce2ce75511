"""Usage, prices and budgets over REST: who sees what, and who may change it."""

from __future__ import annotations

from pathlib import Path

from tests.support.wire_schema import strictly
from tests.unit.server.worlds import eventually, job, looped, world

from roost.api.charging import BudgetList, PriceLines
from roost.api.usage import SpellList, UsageView
from roost.core.spec import JobId
from roost.core.state import JobState


@looped
async def test_users_see_their_own_rows_only(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for name, role in (("ada", "user"), ("bob", "user"), ("eve", "viewer")):
            await here.add(name, role)
        names = {}
        for user in ("ada", "bob"):
            async with here.client(user) as client:
                row = (await client.post("/api/v1/jobs", json=job("train"))).json()
                names[user] = JobId(row["id"])
        jobs = here.cluster.core.jobs
        await eventually(
            lambda: all(jobs[name].state is JobState.RUNNING for name in names.values())
        )
        async with here.client("ada") as client:
            found = strictly(UsageView, (await client.get("/api/v1/usage")).json())
            assert [row.keys["user"] for row in found.rows] == ["ada"]
            assert found.cluster is None
            asked = {"user": "bob", "by": "user,day"}
            spied = (await client.get("/api/v1/usage", params=asked)).json()
            assert {row["keys"]["user"] for row in spied["rows"]} == {"ada"}
            assert (await client.get(f"/api/v1/jobs/{names['bob']}/usage")).status_code == 404
            assert (
                await client.get("/api/v1/usage", params={"job": names["bob"]})
            ).status_code == 404
            told = await client.get(f"/api/v1/jobs/{names['ada']}/usage")
            (spell,) = strictly(SpellList, told.json()).items
            assert (spell.what, spell.node, spell.gpus) == ("held", "box", 1.0)
            wrong = await client.get("/api/v1/usage", params={"by": "moon"})
            assert wrong.status_code == 422
        async with here.client("eve") as client:
            found = strictly(UsageView, (await client.get("/api/v1/usage")).json())
            assert [row.keys["user"] for row in found.rows] == ["ada", "bob"]
            assert found.cluster is not None
            assert found.cluster.capacity == sum(
                (found.cluster.held, found.cluster.idle, found.cluster.out_of_service)
            )
            metrics = (await client.get("/metrics")).text
            assert 'roost_usage_gpu_seconds_total{queue="default"}' in metrics


@looped
async def test_prices_begin_today_at_the_earliest(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        await here.add("root2", "admin")
        line = {"kind": "A100", "price": "2.30", "currency": "USD", "since": "2026-01-01"}
        async with here.client("ada") as client:
            refused = await client.post("/api/v1/prices", json={"items": [line]})
            assert refused.status_code == 403
        async with here.client("root2") as client:
            added = await client.post("/api/v1/prices", json={"items": [line]})
            (price,) = strictly(PriceLines, added.json()).items
            assert (price.kind, price.price, price.currency) == ("A100", "2.3", "USD")
            later = {**line, "price": "1", "since": "2026-01-02"}
            altered = await client.post("/api/v1/prices", json={"items": [later]})
            assert altered.status_code == 409
            mixed = {**line, "kind": "T4", "currency": "EUR"}
            assert (await client.post("/api/v1/prices", json={"items": [mixed]})).status_code == 422
            same = await client.post("/api/v1/prices", json={"items": [line]})
            assert same.json() == added.json()


@looped
async def test_a_budget_is_set_shown_and_taken_away(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        await here.add("root2", "admin")
        async with here.client("root2") as client:
            path = "/api/v1/budgets/user/ada"
            assert (await client.put(path, json={"amount": "40"})).json()["left"] == 40.0
            assert (await client.put(path, json={"amount": "-1"})).status_code == 422
            await client.put("/api/v1/budgets/user/bob", json={"amount": "1", "then": "tell"})
        async with here.client("ada") as client:
            shown = strictly(BudgetList, (await client.get("/api/v1/budgets")).json()).items
            assert [one.name for one in shown] == ["ada"]
            assert (await client.delete(path)).status_code == 403
        async with here.client("root2") as client:
            assert (await client.delete(path)).status_code == 204
            assert (await client.delete(path)).status_code == 404
