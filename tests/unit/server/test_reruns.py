"""Jobs that are run again over REST: as whom, with what, and what is refused."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.wire_schema import strictly
from tests.unit.server.worlds import World, job, looped, world

from roost.api.jobs import JobView
from roost.core import Launch
from roost.engines import RunOrder

FUNCTION = {"run": None, "command": ["python", "-m", "roost.client.call"]}


def order_of(here: World, name: str) -> RunOrder:
    (found,) = [
        order
        for order in here.engine.orders
        if isinstance(order.action, Launch) and order.action.run.job == name
    ]
    return found


async def again(client: httpx.AsyncClient, name: str, **body: Any) -> httpx.Response:
    return await client.post(f"/api/v1/jobs/{name}/rerun", json=body)


def message(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["message"])


@looped
async def test_a_job_runs_again_whatever_became_of_it(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        fields = {
            "command": None,
            "run": "exit 3",
            "retry": 0,
            "env": {"RATE": "1"},
            "labels": {"sweep": "lr"},
        }
        name = await here.submit("ada", "train", **fields)
        await here.finish("ada", name, 3)
        async with here.client("ada") as client:
            file = (await client.get(f"/api/v1/jobs/{name}/file")).json()
            made = await again(client, name)
            assert made.status_code == 201
            view = strictly(JobView, made.json())
            assert (view.name, view.user, view.labels) == ("train", "ada", {"sweep": "lr"})
            assert view.rerun_of == name
            assert (await client.get(f"/api/v1/jobs/{view.id}/file")).json() == file

            changes = {
                "name": "slow",
                "env": {"MORE": "2"},
                "command": ["python", "x.py"],
                "gpus": 2,
                "retry": None,
            }
            slow = (await again(client, name, changes=changes)).json()["id"]
            assert (await client.get(f"/api/v1/jobs/{slow}/file")).json() == {
                "name": "slow",
                "command": ["python", "x.py"],
                "env": {"RATE": "1", "MORE": "2"},
                "labels": {"sweep": "lr"},
                "resources": {"gpu": 2},
                "application": "train",
            }
            assert (await client.post(f"/api/v1/jobs/{slow}/cancel")).status_code == 200
            assert (await again(client, slow)).status_code == 201

            keyed = {"Idempotency-Key": "k"}
            path = f"/api/v1/jobs/{name}/rerun"
            first = await client.post(path, json={}, headers=keyed)
            second = await client.post(path, json={}, headers=keyed)
            assert (first.status_code, second.status_code) == (201, 200)
            assert first.json()["id"] == second.json()["id"]


@looped
async def test_what_cannot_run_again_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        name = await here.submit(checkpoint={"path": "/data/points"})
        for body, status in (
            ({"changes": {"queue": "nowhere", "checkpoint": None}}, 403),
            ({"changes": {"gpus": 99, "checkpoint": None}}, 422),
            ({"changes": {"colour": "red"}}, 422),
            ({"secrets": {"KEY": "x"}, "changes": {"checkpoint": None}}, 422),
            ({"more": 1}, 422),
        ):
            assert (await again(client, name, **body)).status_code == status, body
        both = await again(client, name)
        assert (both.status_code, "/data/points" in message(both)) == (409, True)
        await here.finish("root", name)
        assert (await again(client, name)).status_code == 201, "it goes on from there"
        assert (await again(client, "nobody")).status_code == 404


@looped
async def test_a_job_runs_again_as_its_own_user(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for user, role in (("ada", "user"), ("bob", "user"), ("eve", "viewer")):
            await here.add(user, role)
        name = await here.submit("ada")
        async with here.client("bob") as client:
            assert (await again(client, name)).status_code == 404
        async with here.client("eve") as client:
            assert (await again(client, name)).status_code == 403
        async with here.client("root") as client:
            made = (await again(client, name)).json()
            assert made["user"] == "ada"
            events = (await client.get(f"/api/v1/jobs/{made['id']}/events")).json()["items"]
            assert events[0]["actor"] == "root", "the history says who it was"
            await client.patch("/api/v1/users/ada", json={"active": False})
            gone = await again(client, name)
            assert (gone.status_code, "'ada', who is switched off" in message(gone)) == (409, True)


@looped
async def test_secrets_are_handed_on_while_there_are_any_and_to_their_user(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        async with here.client("ada") as client:
            body = job("train", secrets=["KEY"], gpus=0) | {"secrets": {"KEY": "canary"}}
            name = (await client.post("/api/v1/jobs", json=body)).json()["id"]
            made = (await again(client, name)).json()["id"]
            await here.until("ada", made, "running")
            assert order_of(here, made).secrets == {"KEY": "canary"}
            async with here.client("root") as root:
                changes = {"command": ["env"]}
                refused = await again(root, name, changes=changes)
                assert (refused.status_code, "another user's" in message(refused)) == (422, True)
                given = await again(root, name, changes=changes, secrets={"KEY": "mine"})
                assert given.status_code == 201
            await here.finish("ada", name)
            refused = await again(client, name)
            assert (refused.status_code, "--secret KEY" in message(refused)) == (422, True)


@looped
async def test_functions_run_again_until_their_job_is_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        body = job("train", **FUNCTION) | {"payload": "cGlja2xl"}
        name = (await client.post("/api/v1/jobs", json=body)).json()["id"]
        await here.finish("root", name, 1)
        made = (await again(client, name)).json()["id"]
        await here.until("root", made, "running")
        assert order_of(here, made).payload == b"pickle"
        other = (await again(client, name, changes={"command": ["true"]})).json()["id"]
        await here.until("root", other, "running")
        assert order_of(here, other).payload is None
        assert (await client.delete(f"/api/v1/jobs/{name}")).status_code == 200
        assert {path.name for path in (tmp_path / "payloads").iterdir()} == {made}
        (tmp_path / "payloads" / made).unlink()
        lost = await again(client, made)
        assert (lost.status_code, "was not kept" in message(lost)) == (409, True)


@looped
async def test_a_key_is_for_one_job_and_for_no_second(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        keyed = {"Idempotency-Key": "k"}

        async def sent(**fields: Any) -> httpx.Response:
            return await client.post("/api/v1/jobs", json=job("one", **fields), headers=keyed)

        first = await sent(env={"A": "1"})
        name = first.json()["id"]
        again_ = await sent(env={"A": "1"})
        assert (again_.status_code, again_.json()["id"]) == (200, name)
        other = await sent(env={"A": "2"})
        assert (other.status_code, name in message(other)) == (409, True)
        rerun = await client.post(
            f"/api/v1/jobs/{name}/rerun", json={"changes": {"env": {"B": "2"}}}, headers=keyed
        )
        assert rerun.status_code == 409
        here_, there = await asyncio.gather(
            client.post("/api/v1/jobs", json=job("two"), headers={"Idempotency-Key": "j"}),
            client.post("/api/v1/jobs", json=job("three"), headers={"Idempotency-Key": "j"}),
        )
        assert sorted((here_.status_code, there.status_code)) == [201, 409]

        await here.finish("root", name)
        assert (await client.delete(f"/api/v1/jobs/{name}")).status_code == 200
        late = await sent(env={"A": "1"})
        assert (late.status_code, "was deleted" in message(late)) == (409, True)
        assert (await client.get("/api/v1/jobs", params={"name": "one"})).json()["total"] == 0


@looped
async def test_accounts_of_users_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    async with world(tmp_path) as here, here.client() as client:
        ada = {"name": "ada", "unix": "nosuchaccount"}
        refused = await client.post("/api/v1/users", json=ada)
        assert (refused.status_code, "no account" in message(refused)) == (422, True)
        assert (await client.post("/api/v1/users", json={"name": "ada"})).status_code == 201
        for unix, status in (("nosuchaccount", 422), ("root", 200)):
            changed = await client.patch("/api/v1/users/ada", json={"unix": unix})
            assert changed.status_code == status
