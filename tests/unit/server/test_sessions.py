"""Sessions of browsers: how they begin and end, and what a request with their cookie must show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from tests.unit.server.worlds import URL, World, eventually, looped, world

from roost.server.login_links import LASTS_S, LinkOwner, LoginLinks

PAGE = {"X-Roost-Request": "portal", "Origin": URL}


@asynccontextmanager
async def browser(here: World, who: str = "root") -> AsyncIterator[httpx.AsyncClient]:
    """A client with the cookie of a session of somebody."""
    async with here.client(who) as client:
        path = (await client.post("/api/v1/session/links")).json()["path"]
    transport = httpx.ASGITransport(here.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=URL) as found:
        answer = await found.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        yield found


@looped
async def test_a_link_logs_in_once_and_leads_to_a_page_of_ours(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        for wanted, place in (
            ("/jobs?state=failed", "/jobs?state=failed"),
            ("//evil.example/", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("/a\r\nSet-Cookie: x", "/"),
        ):
            path = (await client.post("/api/v1/session/links")).json()["path"]
            async with here.client("nobody") as one:
                code = path.partition("=")[2]
                first = await one.get("/login", params={"once": code, "next": wanted})
                again = await one.get("/login", params={"once": code})
            assert first.headers["location"] == place, wanted
            cookie = first.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert "Secure" not in cookie  # over plain HTTP a browser would drop it
            assert again.headers["location"] == "/login?problem=link"
            assert "set-cookie" not in again.headers


@looped
async def test_a_cookie_of_https_is_for_https_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        transport = httpx.ASGITransport(here.app)
        async with httpx.AsyncClient(transport=transport, base_url="https://127.0.0.1") as one:
            token = here.tokens["root"]
            answer = await one.post("/api/v1/session", json={"token": token})
        assert answer.status_code == 201
        assert answer.headers["set-cookie"].startswith("roost_session_443=")
        assert "Secure" in answer.headers["set-cookie"]
        assert (await client.get("/api/v1/session")).json()["via"] == "token"


@looped
async def test_changes_with_the_cookie_come_from_our_pages_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as here, browser(here) as page:
        body = {"name": "ada"}
        assert (await page.get("/api/v1/users")).status_code == 200
        others: list[dict[str, str]] = [
            {},
            {"X-Roost-Request": "portal"},
            {"Origin": URL},
            {**PAGE, "Origin": "http://127.0.0.1:8888"},
            {**PAGE, "Origin": "null"},
            {**PAGE, "Origin": "http://evil.example"},
            {**PAGE, "Sec-Fetch-Site": "same-site"},
            {**PAGE, "Sec-Fetch-Site": "cross-site"},
        ]
        for headers in others:
            answer = await page.post("/api/v1/users", json=body, headers=headers)
            assert answer.status_code in (403, 421), headers
        read = await page.get("/api/v1/users", headers={"Sec-Fetch-Site": "cross-site"})
        assert read.status_code == 403
        assert len((await page.get("/api/v1/users")).json()["items"]) == 1
        own = {**PAGE, "Sec-Fetch-Site": "same-origin"}
        assert (await page.post("/api/v1/users", json=body, headers=own)).status_code == 201


@looped
async def test_a_token_needs_no_header_of_pages(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        assert (await client.post("/api/v1/users", json={"name": "ada"})).status_code == 201


@looped
async def test_a_secret_works_where_it_belongs_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as here, browser(here) as page:
        (name, secret) = next(iter(page.cookies.items()))
        async with here.client("nobody", Authorization=f"Bearer {secret}") as thief:
            assert (await thief.get("/api/v1/jobs")).status_code == 401
        async with here.client("nobody", Cookie=f"{name}={here.tokens['root']}") as odd:
            assert (await odd.get("/api/v1/jobs")).status_code == 401
        async with here.client("nobody", Cookie=f'"=; ;odd={name}; {name}={secret}') as many:
            assert (await many.get("/api/v1/jobs")).status_code == 200
        async with here.client("nobody") as other:
            tried = await other.post("/api/v1/session", json={"token": secret})
            assert tried.status_code == 401


@looped
async def test_logging_in_by_hand(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client("nobody") as page:
        token = here.tokens["root"]
        wrong = await page.post("/api/v1/session", json={"token": "roost_" + "x" * 43})
        assert wrong.status_code == 401
        odd = await page.post("/api/v1/session", json={"token": token}, headers={"Origin": URL})
        assert odd.status_code == 403
        right = await page.post("/api/v1/session", json={"token": token}, headers=PAGE)
        assert right.status_code == 201
        assert right.json()["role"] == "admin"
        assert (await page.get("/api/v1/session")).json()["via"] == "session"


@looped
async def test_a_session_ends_with_what_it_was_made_with(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for name in ("ada", "bob", "eve"):
            await here.add(name)
        accounts = here.cluster.store.accounts
        async with (
            browser(here, "ada") as ada,
            browser(here, "bob") as bob,
            browser(here, "eve") as eve,
            here.client() as admin,
        ):
            (token,) = (one for one in accounts.tokens("ada") if one.kind == "token")
            assert (await admin.delete(f"/api/v1/tokens/{token.id}")).status_code == 200
            assert (await admin.delete("/api/v1/users/bob")).status_code == 204
            off = await admin.patch("/api/v1/users/eve", json={"active": False})
            assert off.status_code == 200
            for page in (ada, bob, eve):
                assert (await page.get("/api/v1/session")).status_code == 401


@looped
async def test_logging_out_ends_streams_here_or_everywhere(tmp_path: Path) -> None:
    async with world(tmp_path) as here, browser(here) as one, browser(here) as two:
        cookies = ["; ".join(f"{k}={v}" for k, v in page.cookies.items()) for page in (one, two)]
        async with (
            here.watch("/api/v1/stream", "nobody", cookie=cookies[0]) as first,
            here.watch("/api/v1/stream", "nobody", cookie=cookies[1]) as second,
        ):
            for viewer in (first, second):
                assert (await viewer.next()).name == "snapshot"
            assert (await one.delete("/api/v1/session", headers=PAGE)).status_code == 204
            await eventually(lambda: first.ended)
            assert not second.ended
            everywhere = await two.delete("/api/v1/session?everywhere=true", headers=PAGE)
            assert everywhere.status_code == 204
            await eventually(lambda: second.ended)
            assert (await second.next()).name == "bye"
        async with here.client() as client:
            assert (await client.get("/api/v1/jobs")).status_code == 200  # the token is as it was
            told = (await client.get("/api/v1/events?kind=account")).json()["items"]
        assert [line["text"].split()[-1] for line in told if "ses-" in line["text"]] == [
            "began",
            "began",
            "ended",
            "ended",
        ]


@looped
async def test_a_token_made_with_a_session_outlives_it(tmp_path: Path) -> None:
    async with world(tmp_path) as here, browser(here) as page:
        made = await page.post("/api/v1/tokens", json={"label": "laptop"}, headers=PAGE)
        assert made.status_code == 201
        assert made.json()["expires_at"] is None
        kinds = [one["kind"] for one in (await page.get("/api/v1/tokens")).json()["items"]]
        assert sorted(kinds) == ["session", "token", "token"]
        await page.delete("/api/v1/session", headers=PAGE)
        here.tokens["laptop"] = made.json()["secret"]
        async with here.client("laptop") as client:
            assert (await client.get("/api/v1/session")).status_code == 200


@looped
async def test_a_session_lasts_no_longer_than_its_token(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        made = (await client.post("/api/v1/tokens", json={"expires_in_s": 60})).json()
        async with here.client("nobody") as page:
            answer = await page.post("/api/v1/session", json={"token": made["secret"]})
        assert answer.json()["expires_at"] == made["expires_at"]


@looped
async def test_roles_hold_for_sessions(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        job = await here.submit("root")
        async with browser(here, "ada") as page:
            assert (await page.get("/api/v1/users")).status_code == 403
            assert (await page.get(f"/api/v1/jobs/{job}")).status_code == 404
            told = (await page.get("/api/v1/session")).json()
        assert told["user"] == "ada"
        assert "accounts:read" not in told["permissions"]


def test_a_link_works_for_some_minutes() -> None:
    now = [0.0]
    links = LoginLinks(lambda: now[0])
    owner = LinkOwner("ada", "tok-1")
    early, late = (links.make(owner).partition("=")[2] for _ in range(2))
    now[0] = LASTS_S - 1
    assert links.take(early) == owner
    now[0] = LASTS_S
    assert links.take(late) is None
    assert links.take("") is None
