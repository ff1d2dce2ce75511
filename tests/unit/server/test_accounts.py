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
