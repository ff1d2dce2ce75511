"""What is refused before a route is looked for, and what every answer carries."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.unit.server.worlds import World, job, looped, world

from roost.server.options import ServerOptions

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
PATHS = ("/healthz", "/api/v1/jobs", "/api/v1/jobs/x", "/metrics", "/no-such-path")
BAD_HOSTS = (
    "evil.example",
    "evil.example:8610",
    "127.0.0.1.evil.example",
    "localhost@evil.example",
    "127.0.0.1 evil",
    "",
    "[::2]",
    "127.0.0.1:port",
    "127.0.0.1/evil",
)


@looped
async def test_another_host_is_refused_on_every_method(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        for method in METHODS:
            for path in PATHS:
                for host in BAD_HOSTS if path != "/healthz" else ():
                    answer = await client.request(method, path, headers={"Host": host})
                    assert answer.status_code == 421, (method, path, host)


@looped
@pytest.mark.parametrize(("number", "status"), [(errno.EMFILE, 503), (errno.EIO, 500)])
async def test_what_the_server_lacks_for_a_while_is_not_the_request_s(
    number: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as here, here.client() as client:

        def short() -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(here.cluster.store.accounts, "users", short)
        answer = await client.get("/api/v1/users")
        assert answer.status_code == status
        assert ("Too many open files" in answer.text) == (status == 503)


@looped
async def test_probes_are_answered_under_any_name_and_learn_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        for path in ("/healthz", "/readyz"):
            for host in BAD_HOSTS:
                answer = await client.get(path, headers={"Host": host})
                assert answer.status_code == 200, (path, host)
                assert answer.json() == {
                    "ok": True,
                    "why": "",
                    "version": "",
                    "policy": "",
                    "clock": "",
                }
            page = {"Host": "evil.example", "Origin": "http://evil.example"}
            assert (await client.get(path, headers=page)).status_code == 421
            assert (await client.get(path)).json()["version"]


@looped
async def test_the_address_at_which_a_connection_comes_in_is_ours(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        cases = {
            ("10.1.2.3", "10.1.2.3:8610"): 200,
            ("::ffff:10.1.2.3", "10.1.2.3"): 200,
            ("fd00::1", "[fd00::1]:8610"): 200,
            ("10.1.2.3", "10.1.2.4"): 421,
            ("10.1.2.3", "evil.example"): 421,
            ("/run/roost.sock", "evil.example"): 421,
        }
        for (address, host), status in cases.items():
            app = _at(here.app, address)
            transport = httpx.ASGITransport(app)
            headers = {"Host": host, "Authorization": f"Bearer {here.tokens['root']}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                answer = await client.get("/api/v1/whoami", headers=headers)
                assert answer.status_code == status, (address, host)


def _at(app: ASGIApp, address: str) -> ASGIApp:
    """The same app, reached at an address of the machine."""

    async def reached(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "server": (address, 8610)}, receive, send)

    return reached


@looped
async def test_another_sites_page_is_refused_on_every_method(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        for method in METHODS:
            for path in PATHS:
                for origin in ("http://evil.example", "null", "file://127.0.0.1", "127.0.0.1"):
                    answer = await client.request(method, path, headers={"Origin": origin})
                    assert answer.status_code == 421, (method, path, origin)


@looped
async def test_our_own_names_are_fine(tmp_path: Path) -> None:
    options = ServerOptions(hosts=("localhost", "127.0.0.1", "::1", "box.lab"))
    async with world(tmp_path, options) as here, here.client() as client:
        for host in ("localhost:8610", "127.0.0.1", "[::1]:8610", "LOCALHOST.", "box.lab:443"):
            headers = {"Host": host, "Origin": f"http://{host}"}
            answer = await client.get("/api/v1/whoami", headers=headers)
            assert answer.status_code == 200, host


@looped
async def test_two_host_headers_are_one_too_many(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        headers = httpx.Headers([("Host", "127.0.0.1"), ("Host", "127.0.0.1")])
        request = httpx.Request("GET", "http://127.0.0.1/metrics", headers=headers)
        assert (await client.send(request)).status_code == 421


@looped
async def test_without_a_token_nothing_is_told(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client("nobody") as client:
        for method in METHODS:
            for path in PATHS[1:]:
                answer = await client.request(method, path)
                assert answer.status_code == 401, (method, path)
                assert answer.headers["connection"] == "close"
                assert answer.headers["www-authenticate"] == "Bearer"


@looped
async def test_large_bodies(tmp_path: Path) -> None:
    options = ServerOptions(body_bytes=10_000, small_body_bytes=1000)
    async with world(tmp_path, options) as here, here.client() as client:

        async def chunks() -> object:
            for _ in range(20):
                yield b" " * 1000

        text = {"text": "x" * 2000, "name": "a"}
        small = await client.post("/api/v1/jobfiles/parse", json=text)
        large = await client.post("/api/v1/jobs", content=b" " * 10_001)
        streamed = await client.post(
            "/api/v1/jobs",
            content=chunks(),  # type: ignore[arg-type]
            headers={"Content-Type": "application/json"},
        )
        fine = await client.post("/api/v1/jobs", json=job(env={"A": "x" * 5000}))
    assert [small.status_code, large.status_code, streamed.status_code] == [413, 413, 413]
    assert streamed.headers["connection"] == "close"
    assert fine.status_code == 201


@looped
async def test_addresses_and_bodies_that_make_no_sense(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        answers = [
            await client.get("/api/v1/jobs?name=%00"),
            await client.get("/api/v1/jobs/a%00b"),
            await client.get("/api/v1/jobs?name=%ff%fe"),
            await client.get("/api/v1/jobs?limit=99999999999999999999"),
            await client.get("/api/v1/jobs?sort=password"),
            await client.get("/api/v1/jobs/../../etc/passwd"),
            await client.get(f"/api/v1/jobs/{'x' * 5000}"),
            await client.post("/api/v1/jobs", content=b"\xff\xfe\x00"),
            await client.post("/api/v1/jobs", content=b"[" * 10_000),
            await client.post("/api/v1/jobs", json=[]),
            await client.post("/api/v1/jobs", json=job(workers=-1)),
            await client.post("/api/v1/jobs", json=job(workers=2**63)),
            await client.post("/api/v1/jobs", json=job(nam="x")),
            await client.get("/metrics", headers={"Range": "bytes=" + "0-," * 5000}),
            await client.get("/metrics", headers={"If-None-Match": '"x",' * 5000}),
        ]
    assert [answer.status_code for answer in answers] == [
        *(400, 400, 200, 422, 422, 404, 422, 422, 422, 422, 422, 422, 422, 200, 200)
    ]
    for answer in answers:
        if answer.status_code != 200:
            assert set(answer.json()) == {"error", "errors"}
            assert set(answer.json()["error"]) == {"kind", "message", "hint"}


@looped
async def test_a_fault_tells_its_number_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path) as here, here.client() as client:
        _break(here)
        with caplog.at_level(logging.ERROR):
            answer = await client.get("/api/v1/nodes")
    assert answer.status_code == 500
    assert "canary" not in answer.text
    assert "Traceback" not in answer.text
    number = answer.headers["x-request-id"]
    assert number in answer.json()["error"]["message"]
    assert any(number in record.getMessage() for record in caplog.records)
    assert "canary" in caplog.text


def _break(here: World) -> None:
    def broken() -> list[dict[str, object]]:
        raise RuntimeError("canary")

    here.cluster.nodes = broken  # type: ignore[method-assign]


@looped
async def test_every_answer_carries_the_security_headers(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        answers = [
            await client.get("/healthz"),
            await client.get("/api/v1/jobs"),
            await client.get("/no-such-path"),
            await client.get("/healthz", headers={"Host": "evil"}),
        ]
    for answer in answers:
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert len(answer.headers["x-request-id"]) == 12
