"""Tokens over HTTP: what was made with a token dies with it. A store that is broken ends it all."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.server.worlds import World, looped, world

from roost.server import accounts
from roost.store import Fenced, StoreBroken


@looped
async def test_a_token_dies_with_the_one_it_was_made_with(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await here.add("ada")
        made = (await client.post("/api/v1/tokens", json={"user": "ada"})).json()
        here.tokens["leaked"] = made["secret"]
        async with here.client("leaked") as thief:
            child = (await thief.post("/api/v1/tokens", json={})).json()
            assert child["parent"] == made["id"]
            here.tokens["child"] = child["secret"]
        async with here.client("child") as thief:
            grandchild = (await thief.post("/api/v1/tokens", json={})).json()
            here.tokens["grandchild"] = grandchild["secret"]
        gone = ("leaked", "child", "grandchild")
        assert await statuses(here, *gone) == [200, 200, 200]
        assert (await client.delete(f"/api/v1/tokens/{made['id']}")).status_code == 200
        assert await statuses(here, *gone) == [401, 401, 401]
        assert await statuses(here, "ada", "root") == [200, 200]


@looped
async def test_a_user_is_deleted_with_its_tokens_and_its_finished_jobs_stay(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await here.add("ada")
        await here.add("bob", role="admin")
        job = {"job": {"name": "job", "run": "true", "gpus": 1}}
        async with here.client("ada") as ada:
            made = (await ada.post("/api/v1/jobs", json=job)).json()
            child = (await ada.post("/api/v1/tokens", json={})).json()
        here.tokens["child"] = child["secret"]
        async with here.client("bob") as bob:  # what bob made for another is revoked with bob
            lent = (await bob.post("/api/v1/tokens", json={"user": "ada"})).json()
        here.tokens["lent"] = lent["secret"]
        assert (await client.delete("/api/v1/users/bob")).status_code == 204
        assert await statuses(here, "bob", "lent", "ada") == [401, 401, 200]

        refused = await client.delete("/api/v1/users/ada")
        assert refused.status_code == 409
        assert "ada has 1 jobs that are not over" in refused.json()["error"]["message"]
        assert await statuses(here, "ada", "child") == [200, 200]
        gone = await client.delete("/api/v1/users/ada?cancel_jobs=true")
        assert gone.status_code == 204
        assert await statuses(here, "ada", "child", "root") == [401, 401, 200]
        view = (await client.get(f"/api/v1/jobs/{made['id']}")).json()
        assert view["user"] == "ada"
        assert view["cancelling"] or view["state"] == "cancelled"
        names = [one["name"] for one in (await client.get("/api/v1/users")).json()["items"]]
        assert names == ["root"]
        assert (await client.delete("/api/v1/users/root")).status_code == 409
        assert (await client.delete("/api/v1/users/nobody")).status_code == 404


@looped
async def test_bounds_are_set_shown_and_taken_back(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await here.add("ada")
        set_to = {"jobs": 0, "disk_bytes": 1000, "disk_max_bytes": 2000}
        answer = await client.patch("/api/v1/users/ada", json=set_to)
        assert answer.json() == answer.json() | set_to
        async with here.client("ada") as ada:
            told = (await ada.get("/api/v1/whoami")).json()
            assert told["bounds"] == {**set_to, "tokens": 200}
            assert (told["use"]["jobs"], told["use"]["tokens"]) == (0, 1)
            refused = await ada.post("/api/v1/jobs", json={"job": {"name": "a", "run": "true"}})
            assert refused.status_code == 409
        back = await client.patch("/api/v1/users/ada", json={"jobs": None})
        assert (back.json()["jobs"], back.json()["disk_bytes"]) == (None, 1000)
        wrong = await client.patch("/api/v1/users/ada", json={"disk_bytes": -1})
        assert wrong.status_code == 422


async def statuses(here: World, *names: str) -> list[int]:
    """How the tokens of these names are answered."""
    found = []
    for name in names:
        async with here.client(name) as client:
            found.append((await client.get("/api/v1/whoami")).status_code)
    return found


@looped
@pytest.mark.parametrize("error", [StoreBroken("disk I/O error"), Fenced("taken over")])
async def test_a_store_that_turns_out_broken_while_it_is_read_ends_the_server(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as here, here.client() as client:
        assert (await client.get("/readyz")).status_code == 200

        def broken() -> None:
            raise error

        monkeypatch.setattr(here.cluster.store.accounts, "users", broken)
        assert (await client.get("/api/v1/users")).status_code == 500
        assert (await client.get("/readyz")).status_code == 503
        with pytest.raises(type(error)):
            await asyncio.wait_for(asyncio.shield(here.cluster.broken), 60)


@looped
async def test_tokens_that_ran_out_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "_MOST_TOKENS", 3)
    async with world(tmp_path) as here, here.client() as client:
        await here.add("ada")  # with a token that lasts
        for _ in range(2):
            made = await client.post("/api/v1/tokens", json={"user": "ada", "expires_in_s": 60})
            assert made.status_code == 201
        later = SimpleNamespace(time=lambda: time.time() + 120)
        monkeypatch.setattr(accounts, "time", later)
        for status in (201, 201, 409):
            answer = await client.post("/api/v1/tokens", json={"user": "ada"})
            assert answer.status_code == status, answer.text
