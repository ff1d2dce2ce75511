"""The app as a whole: permissions declared, description complete, commands, lists, figures."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.server.worlds import World, job, looped, world

from roost.core.spec import JobId
from roost.errors import Fatal
from roost.jobs.health import IntakeHealth
from roost.server import health
from roost.server.app import create_app
from roost.server.errors import as_json
from roost.server.options import ServerOptions
from roost.server.permissions import undeclared
from roost.server.roles import ROLES, RoutePermission


@looped
async def test_a_route_without_a_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as here:
        assert undeclared(here.app) == []
        router = APIRouter()
        router.get("/api/v1/forgotten")(lambda: None)
        monkeypatch.setattr(health, "router", router)
        with pytest.raises(Fatal, match="/api/v1/forgotten"):
            create_app(here.cluster)


def test_roles_are_as_documented() -> None:
    writes = {permission for permission in RoutePermission if permission.endswith("write")}
    assert not ROLES["viewer"] & writes
    assert ROLES["user"] & writes == {RoutePermission.JOBS_WRITE}
    assert ROLES["admin"] == set(RoutePermission)


@looped
async def test_the_description_tells_everything(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        told = (await client.get("/openapi.json")).json()
    names = set()
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            names.add(operation["operationId"])
            assert operation["summary"], (path, method)
            for status in (
                ("401", "403", "422", "500") if path not in ("/healthz", "/readyz") else ()
            ):
                schema = operation["responses"][status]["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}, (path, method, status)
    assert len(names) == sum(len(operations) for operations in told["paths"].values())
    assert told["paths"]["/healthz"]["get"]["security"] == []
    assert told["paths"]["/api/v1/jobs"]["get"]["security"] == [{"token": []}, {"session": []}]
    assert told["paths"]["/api/v1/session"]["post"]["security"] == []
    assert told["paths"]["/assets/{path}"]["get"]["security"] == []


@looped
async def test_a_repeated_request_gives_the_same_job(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client(**{"Idempotency-Key": "k1"}) as client:
        await here.add("ada")
        both = await asyncio.gather(*(client.post("/api/v1/jobs", json=job()) for _ in range(5)))
        again = await client.post("/api/v1/jobs", json=job())
        async with here.client("ada", **{"Idempotency-Key": "k1"}) as ada:
            other = await ada.post("/api/v1/jobs", json=job())
        total = (await client.get("/api/v1/jobs")).json()["total"]
    assert sorted(answer.status_code for answer in both) == [200, 200, 200, 200, 201]
    assert {answer.json()["id"] for answer in both} == {again.json()["id"]}
    assert again.status_code == 200
    assert other.status_code == 201
    assert total == 2


@looped
async def test_names_stand_for_jobs_while_they_are_clear(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        first = await here.submit(name="train")
        assert (await client.get("/api/v1/jobs/train")).json()["id"] == first
        second = await here.submit(name="train")
        await here.submit(name="train-more")
        clash = await client.get("/api/v1/jobs/train")
        assert clash.status_code == 409
        assert first in clash.json()["error"]["message"]
        assert second in clash.json()["error"]["message"]
        await here.finish("root", first)
        await here.until("root", second, "running")
        assert (await client.get("/api/v1/jobs/train")).json()["id"] == second
        await here.finish("root", second)
        assert (await client.get("/api/v1/jobs/train")).json()["id"] == second
        assert (await client.get("/api/v1/jobs/tra")).status_code == 404


@looped
async def test_lists_are_filtered_sorted_and_paged_by_the_store(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        for number in range(5):
            await here.submit(name=f"job-{number}", priority=number, labels={"n": str(number % 2)})
        for query, names in (
            ("?sort=priority&limit=2", ["job-0", "job-1"]),
            ("?sort=-priority&limit=2&offset=1", ["job-3", "job-2"]),
            ("?label=n=1&sort=name", ["job-1", "job-3"]),
            ("?name=b-4", ["job-4"]),
            ("?user=nobody", []),
            ("?state=failed&state=succeeded", []),
            ("?queue=default&sort=name&limit=1", ["job-0"]),
        ):
            page = (await client.get(f"/api/v1/jobs{query}")).json()
            assert [item["name"] for item in page["items"]] == names, query
        assert (await client.get("/api/v1/jobs?limit=2")).json()["total"] == 5
        for bad in ("?limit=201", "?limit=0", "?offset=-1", "?state=lost", "?label=x", "?sort=x"):
            assert (await client.get(f"/api/v1/jobs{bad}")).status_code == 422, bad
        odd = await client.post("/api/v1/jobs/job-0/snapshots", json={"name": "Bad Name"})
        assert odd.json()["error"]["message"] == (
            "name: 'Bad Name' cannot be a name here: small letters, digits and - make one"
        )


@looped
async def test_everything_one_can_do_to_a_job(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        name = await here.submit(workers={"min": 1, "max": 3}, checkpoint={})
        await here.until("root", name, "running")
        path = f"/api/v1/jobs/{name}"
        scaled = await client.post(f"{path}/scale", json={"min": 1, "max": 1})
        assert scaled.status_code == 200, scaled.text
        assert (await client.post(f"{path}/scale", json={"min": 2, "max": 1})).status_code == 422
        assert (await client.post(f"{path}/suspend")).status_code == 200
        await here.until("root", name, "suspended")
        assert (await client.post(f"{path}/resume")).status_code == 200
        await here.until("root", name, "running")
        assert (await client.post(f"{path}/migrate", json={"node": None})).status_code in (200, 409)
        assert (await client.get(f"{path}/explain")).json()["job"] == name
        assert (await client.get(f"{path}/file")).json()["command"] == ["true"]
        assert (await client.delete(path)).status_code == 409
        assert (await client.post(f"{path}/cancel")).status_code == 200
        await here.until("root", name, "cancelled")
        kinds = [event["new"] for event in (await client.get(f"{path}/events")).json()["items"]]
        assert kinds[-1] == "cancelled"
        assert (await client.delete(path)).status_code == 200
        assert (await client.get(path)).status_code == 404
        assert here.engine.forgotten == [name]


@looped
async def test_queues_say_who_may_submit(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await here.add("ada")
        closed = {"submitters": ["bob"], "limit_milli": 1000}
        assert (await client.put("/api/v1/queues/closed", json=closed)).status_code == 200
        async with here.client("ada") as ada:
            queues = (await ada.get("/api/v1/queues")).json()["items"]
            assert [queue["id"] for queue in queues] == ["default"]
            refused = await ada.post("/api/v1/jobs", json=job(queue="closed"))
            unheard = await ada.post("/api/v1/jobs", json=job(queue="unheard-of"))
            assert refused.status_code == unheard.status_code == 403
            assert refused.text == unheard.text.replace("unheard-of", "closed")
        assert (await client.delete("/api/v1/queues/default")).status_code == 409
        assert (await client.delete("/api/v1/queues/closed")).status_code == 204
        assert (await client.delete("/api/v1/queues/closed")).status_code == 404


@looped
async def test_accounts(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        body = {"name": "ada", "role": "user"}
        assert (await client.post("/api/v1/users", json=body)).status_code == 201
        assert (await client.post("/api/v1/users", json=body)).status_code == 409
        made = await client.post("/api/v1/tokens", json={"user": "ada", "expires_in_s": 3600})
        here.tokens["ada"] = made.json()["secret"]
        async with here.client("ada") as ada:
            me = (await ada.get("/api/v1/whoami")).json()
            assert (me["user"], me["role"]) == ("ada", "user")
            own = (await ada.post("/api/v1/tokens", json={"label": "laptop"})).json()
            assert own["expires_at"] == pytest.approx(made.json()["expires_at"])
            listed = (await ada.get("/api/v1/tokens")).json()["items"]
            assert {token["id"] for token in listed} == {own["id"], made.json()["id"]}
            assert not any("secret" in token for token in listed)
            assert (await ada.get("/api/v1/tokens?user=root")).status_code == 403
            theirs = (await client.get("/api/v1/tokens")).json()["items"][0]["id"]
            assert (await ada.delete(f"/api/v1/tokens/{theirs}")).status_code == 404
            assert (await ada.delete(f"/api/v1/tokens/{own['id']}")).status_code == 200
            off = await client.patch("/api/v1/users/ada", json={"active": False})
            assert off.json()["active"] is False
            assert (await ada.get("/api/v1/whoami")).status_code == 401
        assert (await client.patch("/api/v1/users/root", json={"role": "user"})).status_code == 409
        assert (await client.patch("/api/v1/users/nobody", json={})).status_code == 404


@looped
async def test_figures_for_prometheus(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await here.add("ada")
        first = await here.submit(workers=4)
        await here.until("root", first, "running")
        await here.submit("ada", "waits")
        await client.get("/api/v1/jobs/no-such-job")
        await client.get("/made-up/path-1")
        for method in ("AAAA", "BREW", "X" * 3000):
            assert (await client.request(method, "/api/v1/whoami")).status_code == 405
        text = (await client.get("/metrics")).text
        async with here.client("ada") as ada:
            theirs = (await ada.get("/metrics")).text
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["roost_jobs", "default", "running"] == 1
    assert found["roost_queue_length", "default"] == 1
    assert found["roost_gpus_capacity", "box", "gpu"] == 4
    assert found["roost_gpus_allocated", "box", "gpu"] == 4
    assert found["roost_gpus_failed", "box", "gpu"] == 0
    assert found["roost_intake_stopped",] == 0
    assert found["roost_journal_seq",] > 0
    assert found["roost_decisions_total",] > 0
    assert found["roost_http_requests_total", "/api/v1/jobs/{job}", "404", "GET"] == 1
    assert found["roost_http_requests_total", "404", "any", "none"] == 1
    assert found["roost_http_requests_total", "/api/v1/whoami", "405", "other"] == 3
    assert not any(made_up in text for made_up in ("made-up", "AAAA", "BREW", "XXX"))
    assert 'roost_jobs{queue="default",state="queued"} 1.0' in theirs
    assert "running" not in theirs


@looped
async def test_a_server_that_takes_nothing_says_so(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        here.cluster._driver.health = IntakeHealth(ok=False, why="the disk is full")
        ready = await client.get("/readyz")
        refused = await client.post("/api/v1/jobs", json=job())
        told = await client.get("/api/v1/health")
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/api/v1/jobs")).status_code == 200
        here.cluster._driver.health = IntakeHealth()
    assert ready.status_code == 503
    assert "disk" not in ready.text  # that is for those with a token
    assert told.json()["why"] == "the disk is full"
    assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "retry")
    assert int(refused.headers["retry-after"]) >= 1


def test_a_loss_that_is_no_number_can_be_told() -> None:
    told = {"loss": float("nan"), "all": [float("inf"), 1.5, "x"], "half": "\ud800"}
    assert as_json(told) == b'{"loss":null,"all":[null,1.5,"x"],"half":"?"}'


@looped
async def test_as_root_nobody_runs_jobs_without_an_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await client.post("/api/v1/users", json={"name": "eve"})
        made = await client.post("/api/v1/tokens", json={"user": "eve"})
        here.tokens["eve"] = made.json()["secret"]
        async with here.client("eve") as eve:
            monkeypatch.setattr(os, "geteuid", lambda: 0)
            refused = await eve.post("/api/v1/jobs", json=job())
            assert refused.status_code == 403
            assert "no Unix account" in refused.json()["error"]["message"]
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
            shared = await eve.post("/api/v1/jobs", json=job())
            assert (shared.status_code, shared.json()["unix"]) == (201, "")


@looped
async def test_questions_are_answered_one_by_one_and_not_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, ServerOptions(questions_per_user=3)) as here:
        await here.add("ada")
        names = {who: await here.submit(who) for who in ("root", "ada")}
        explain, under_way, most, go = here.cluster.explain, 0, 0, asyncio.Event()

        async def slow(job: JobId) -> dict[str, Any]:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await go.wait()
            try:
                return await explain(job)
            finally:
                under_way -= 1

        monkeypatch.setattr(here.cluster, "explain", slow)

        refused = 0

        async def ask(who: str) -> int:
            nonlocal refused
            async with here.client(who) as client:
                answer = await client.get(f"/api/v1/jobs/{names[who]}/explain")
                if answer.status_code == 429:
                    assert int(answer.headers["retry-after"]) >= 1
                    assert answer.json()["error"]["kind"] == "retry"
                    refused += 1
                    if refused == 2:  # all of them have asked by now
                        go.set()
                return answer.status_code

        async with asyncio.timeout(60):
            asked = await asyncio.gather(ask("root"), *(ask("ada") for _ in range(5)))
        assert (asked[0], sorted(asked[1:])) == (200, [200, 200, 200, 429, 429])
        assert most == 1
        assert await ask("ada") == 200


@looped
async def test_explanations_and_plans_tell_users_no_numbers_of_others(tmp_path: Path) -> None:
    async def asked(here: World) -> list[list[str]]:
        async with here.client("ada") as client:
            plan = await client.post("/api/v1/jobs/plan", json=job("more", workers=4))
            why = await client.get("/api/v1/jobs/waits/explain")
        return [answer.json()["assumptions"] for answer in (plan, why)]

    async with world(tmp_path) as here:
        await here.add("ada")
        await here.add("bob")
        await here.submit("ada", "own", workers=4)
        await here.submit("ada", "waits", workers=4)
        alone = await asked(here)
        for _ in range(3):
            other = await here.submit("bob", "other")
        async with here.client("bob") as bob, here.client() as admin:
            assert (await bob.post(f"/api/v1/jobs/{other}/suspend")).status_code == 200
            theirs = (await admin.get("/api/v1/jobs/waits/explain")).json()["assumptions"]
        assert await asked(here) == alone
        assert all(alone)
        assert any("jobs of unknown length: taken as" in text for text in theirs)


@looped
async def test_another_method_is_told_all_that_there_are(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        for path, methods in (
            ("/api/v1/jobs", "GET, POST"),
            ("/api/v1/queues/default", "DELETE, PUT"),
            ("/api/v1/whoami", "GET"),
        ):
            answer = await client.patch(path)
            assert (answer.status_code, answer.headers["Allow"]) == (405, methods)
        listed = here.app.openapi()["paths"]["/api/v1/jobs"]["get"]["parameters"]
        (one,) = (parameter for parameter in listed if parameter["name"] == "sort")
        assert {"priority", "-submitted_at"} <= set(one["schema"]["enum"])
        for field in one["schema"]["enum"]:
            assert (await client.get("/api/v1/jobs", params={"sort": field})).status_code == 200


@looped
async def test_truth_is_no_number_and_text_is_none(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        for body in ({"priority": False}, {"weight": True}, {"quota_milli": "5"}):
            answer = await client.put("/api/v1/queues/vision", json=body)
            assert answer.status_code == 422, body
            assert "expected a number, found" in answer.json()["error"]["message"]
        assert (await client.put("/api/v1/queues/vision", json={"weight": 2})).status_code == 200
        await here.add("ada")
        answer = await client.patch("/api/v1/users/ada", json={"active": "no"})
        assert answer.status_code == 422
