"""Clients: one conversation, two ways to have it, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.client.fakes import URL, Broken, FakeServer, event, refused, sse, view

import roost
from roost.client import AsyncClient, Client, JobHandle, NoServer, RequestRefused, Unauthenticated
from roost.client.errors import LostAnswer
from roost.errors import Conflict, Fatal, Forbidden, InvalidSpec, NotFound, Retryable

JOB = {"name": "train", "command": ["python", "train.py"]}


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def test_a_job_is_submitted_looked_at_changed_and_deleted(server: FakeServer) -> None:
    with server.client() as client:
        handle = client.submit(JOB)
        assert handle.id == "train-00000"
        assert handle.status().state == "queued"
        assert handle.suspend().state == "suspended"
        assert handle.view.state == "suspended"
        assert handle.resume().state == "queued"
        handle.scale(2, 4)
        handle.migrate("n2")
        assert handle.cancel().over
        assert client.job(handle.id) == handle
        handle.delete()
        with pytest.raises(NotFound):
            handle.status()

    assert [body["body"] for body in server.bodies if body.get("verb") == "scale"] == [
        {"min": 2, "max": 4}
    ]
    assert {"verb": "migrate", "body": {"node": "n2"}} in server.bodies


def test_the_same_awaited(server: FakeServer) -> None:
    async def talk() -> list[str]:
        async with server.async_client() as client:
            handle = await client.submit(JOB)
            states: list[str] = [(await handle.status()).state, (await handle.cancel()).state]
            states.append((await handle.wait()).state)
            assert [job.id async for job in client.jobs()] == [handle.id]
            return states

    assert asyncio.run(talk()) == ["queued", "cancelled", "cancelled"]


def test_both_clients_and_handles_have_the_same_methods_with_the_same_signatures() -> None:
    for one, other in (
        (Client, AsyncClient),
        (roost.client.JobHandle, roost.client.AsyncJobHandle),
    ):
        names = {name for name in vars(one) if not name.startswith("_")}
        assert names == {name for name in vars(other) if not name.startswith("_")}
        for name in names - {"submit", "plan", "job", "clone", "rerun"}:
            first, second = (getattr(kind, name) for kind in (one, other))
            parameters = inspect.signature(first).parameters
            assert parameters == inspect.signature(second).parameters
            assert first.__doc__ == second.__doc__


def test_a_method_tells_its_signature() -> None:
    assert str(inspect.signature(JobHandle.wait)).startswith("(self, timeout:")
    assert "TimeoutError" in (JobHandle.wait.__doc__ or "")


# -- finding the server ----------------------------------------------------------------------------


def running(home: Path) -> None:
    (home / "server.json").write_text(json.dumps({"url": URL, "pid": 1}))
    (home / "token").write_text("own-token\n")


def asked_with(**given: Any) -> httpx.Request:
    server = FakeServer()
    Client(transport=httpx.MockTransport(server), **given).whoami()
    return server.requests[0]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_HOME", str(tmp_path))
    for name in ("ROOST_URL", "ROOST_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_home_tells_where_the_server_is_and_its_token(home: Path) -> None:
    running(home)
    request = asked_with()
    assert str(request.url) == f"{URL}/api/v1/whoami"
    assert request.headers["Authorization"] == "Bearer own-token"


def test_the_environment_comes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running(home)
    monkeypatch.setenv("ROOST_URL", "https://cluster.example/")
    monkeypatch.setenv("ROOST_TOKEN", "mine")
    request = asked_with()
    assert str(request.url) == "https://cluster.example/api/v1/whoami"
    assert request.headers["Authorization"] == "Bearer mine"


def test_the_token_of_the_home_is_shown_to_no_other_server(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(home)
    monkeypatch.setenv("ROOST_URL", "https://elsewhere.example")
    assert "Authorization" not in asked_with().headers


def test_without_any_server_one_line_says_what_to_do(home: Path) -> None:
    with pytest.raises(
        NoServer, match=r"no Roost server answers at http.*; start one with: roost up"
    ):
        Client()
    (home / "server.json").write_text("{")
    with pytest.raises(InvalidSpec, match="damaged"):
        Client()


def test_who_took_the_port_of_a_server_that_is_gone_gets_no_token(home: Path) -> None:
    running(home)
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    for ticks, pid in ((began + 1, os.getpid()), (began, 2**22 + 1)):
        note = {"url": URL, "pid": pid, "ticks": ticks}
        (home / "server.json").write_text(json.dumps(note))
        with pytest.raises(NoServer, match=URL):
            Client()
        assert "Authorization" not in asked_with(url=URL).headers
    (home / "server.json").write_text(json.dumps({"url": URL, "pid": os.getpid(), "ticks": began}))
    assert asked_with().headers["Authorization"] == "Bearer own-token"


@pytest.mark.parametrize(
    "url",
    [
        *("cluster:80", "ftp://x", "http://", "http://x:99999999", "http://x:1/a?b=1"),
        *("http://x:1#f", "http://x:1/\x1b[2J", "http://x:1/a b", "http://x:1/\u00e9", "http://x?"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidSpec, match="is not the address of a server") as refused:
        Client(url)
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://ada:pw@127.0.0.1:1", "http://ada@x", "http://:pw@x"])
def test_an_address_with_a_password_is_refused(url: str) -> None:
    with pytest.raises(InvalidSpec, match="no user and password") as refused:
        Client(url)
    assert "pw" not in str(refused.value)


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    client = Client("http://127.0.0.1:2", "t", patience=0.0)
    with pytest.raises(NoServer, match=r"127\.0\.0\.1:2"):
        client.whoami()
    client.close()


# -- faults ----------------------------------------------------------------------------------------


def test_a_lost_answer_to_a_submission_is_asked_for_again_and_makes_one_job(
    server: FakeServer,
) -> None:
    def done_but_lost(request: httpx.Request) -> httpx.Response:
        server.answer(request)
        raise httpx.ReadError("connection reset")

    server.faults = [httpx.ConnectError("refused"), done_but_lost, done_but_lost]
    handle = server.client().submit(JOB)

    assert list(server.jobs) == [handle.id]
    keys = {request.headers["Idempotency-Key"] for request in server.requests}
    assert len(server.requests) == 4
    assert len(keys) == 1


def test_two_submissions_are_two_jobs_and_one_key_is_one(server: FakeServer) -> None:
    client = server.client()
    assert client.submit(JOB) != client.submit(JOB)
    assert client.submit(JOB, key="k") == client.submit(JOB, key="k")


def test_a_server_that_is_busy_is_asked_again_when_it_says(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("roost.client.transports.time.sleep", slept.append)
    busy = refused(503, "retry", "intake is stopped", **{"Retry-After": "3"})
    server.faults = [lambda _: busy]

    server.client().submit(JOB)

    assert len(server.jobs) == 1
    assert slept == [3.0]


def test_patience_ends(server: FakeServer) -> None:
    server.faults = [httpx.ConnectError("refused")] * 50
    with pytest.raises(NoServer):
        server.client(patience=0.2).whoami()
    assert 1 < len(server.requests) < 20


def test_a_full_disk_is_not_asked_again(server: FakeServer) -> None:
    server.faults = [lambda _: refused(507, "full", "the disk is full", "free some space")]
    with pytest.raises(Retryable, match=r"the disk is full \(free some space\)"):
        server.client().submit(JOB)
    assert len(server.requests) == 1


def test_what_must_not_happen_twice_is_not_sent_twice(server: FakeServer) -> None:
    server.faults = [httpx.ReadError("reset")]
    with pytest.raises(LostAnswer, match="whether it was done is not known"):
        server.client().add_token()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (404, "not-found", NotFound),
        (422, "invalid", InvalidSpec),
        (409, "conflict", Conflict),
        (403, "forbidden", Forbidden),
        (401, "unauthenticated", Unauthenticated),
        (500, "fatal", Fatal),
    ],
)
def test_refusals_are_raised_as_what_they_mean(
    server: FakeServer, status: int, kind: str, error: type[Exception]
) -> None:
    server.faults = [lambda _: refused(status, kind, "no", "because")]
    hint = (
        "log in with: roost login URL, or give yours as ROOST_TOKEN"
        if kind == "unauthenticated"
        else "because"
    )
    with pytest.raises(error, match=rf"^no \({hint}\)$") as caught:
        server.client().whoami()
    assert isinstance(caught.value, RequestRefused)
    assert (caught.value.kind, caught.value.hint, caught.value.status) == (kind, hint, status)


def test_an_answer_that_is_no_roost_server_s(server: FakeServer) -> None:
    server.faults = [lambda _: httpx.Response(200, text="<html>"), lambda _: httpx.Response(418)]
    client = server.client()
    with pytest.raises(Fatal, match="is that a Roost server"):
        client.whoami()
    with pytest.raises(InvalidSpec, match="status 418"):
        client.whoami()


def test_faults_of_a_job_file_are_told_with_line_and_field(server: FakeServer) -> None:
    errors = [{"line": 3, "field": "gpus", "message": "too many"}]
    server.faults = [lambda _: httpx.Response(422, json={"errors": errors})]
    with pytest.raises(InvalidSpec, match="line 3, gpus: too many"):
        server.client().whoami()


def test_a_name_stays_one_part_of_a_path(server: FakeServer) -> None:
    for name in ("../whoami", "a/b", "..", "a?b=c"):
        with pytest.raises(NotFound):
            server.client().job(name)
    raw = [request.url.raw_path for request in server.requests]
    assert all(path.count(b"/") == 4 and b"?" not in path for path in raw), raw


# -- lists, waiting, streams -----------------------------------------------------------------------


def test_lists_are_read_page_by_page(server: FakeServer) -> None:
    for number in range(450):
        server.add(f"job-{number:05d}", "running" if number % 2 else "queued")
    client = server.client()

    assert len(list(client.jobs())) == 450
    assert [request.url.params["offset"] for request in server.requests] == ["0", "200", "400"]
    assert len(list(client.jobs(state=["running", "failed"]))) == 225
    assert len(list(client.jobs(limit=210))) == 210
    page = client.page(limit=3, offset=447)
    assert (len(page), page.total, page.offset) == (3, 450, 447)


def test_waiting_outlives_a_restart_of_the_server(server: FakeServer) -> None:
    job = server.add(state="running")

    def over(request: httpx.Request) -> httpx.Response:
        server.jobs[job] |= {"state": "failed", "exit_code": 3}
        return server.answer(request)

    gone: list[Any] = [httpx.ConnectError("refused")] * 8
    server.faults = [None, None, *gone, over]
    final = server.client(patience=0.1).job(job).wait()
    assert (final.state, final.exit_code) == ("failed", 3)


def test_waiting_has_an_end(server: FakeServer) -> None:
    handle = server.client().job(server.add(state="running"))
    with pytest.raises(TimeoutError, match=r"not over after 0\.1 s"):
        handle.wait(timeout=0.1)


def stream_of(*answers: list[bytes]) -> Any:
    """A route that sends these streams, one per connection; all but the last break off."""
    left = list(answers)

    def answer(_: httpx.Request) -> httpx.Response:
        pieces = left.pop(0)
        return httpx.Response(200, stream=Broken(pieces, lost=bool(left)))

    return answer


def test_watching_goes_on_after_the_last_event(server: FakeServer) -> None:
    first, second = view(), view(state="starting", rev=2)
    server.routes["GET", "/stream"] = stream_of(
        [sse("snapshot", {"jobs": [first], "seq": 4}, "1-4"), b": still here\n\n", b"event: del"],
        [sse("delta", {"jobs": [second]}, "1-5"), sse("bye", {"why": "the server stops"})],
        [sse("delta", {"jobs": [view(state="running", rev=3)]}, "1-6")],
    )
    states = []
    for job in server.client().watch():
        states.append(job.state)
        if job.state == "running":
            break

    assert states == ["queued", "starting", "running"]
    asked = [r.url.params.get("after") for r in server.requests if r.url.path.endswith("stream")]
    assert asked == [None, "1-4", "1-5"]


def test_watching_ends_when_the_token_does(server: FakeServer) -> None:
    server.routes["GET", "/stream"] = lambda _: refused(401, "unauthenticated", "revoked")
    with pytest.raises(Unauthenticated, match="revoked"):
        next(iter(server.client().watch()))


LOG = "one\ntwo é\u2028still two\nthree".encode()


def log_stream(server: FakeServer, job: str, breaks_at: list[int]) -> list[dict[str, str]]:
    """Follows a log of two attempts whose connection breaks at these bytes of the first."""
    asked: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        params = dict(request.url.params)
        asked.append(params)
        start, attempt = int(params["offset"]), int(params.get("attempt") or 0) or 1
        head = [sse("attempt", {"attempt": attempt, "worker": "worker-0"})]
        if breaks_at:
            stop = breaks_at.pop(0)
            text = LOG[start:stop].decode()
            return httpx.Response(
                200, stream=Broken([*head, sse("message", text, str(stop))], lost=True)
            )
        text = LOG[start:].decode()
        pieces = [*head, sse("message", text, str(len(LOG)))]
        pieces += [sse("attempt", {"attempt": 2}), sse("message", "again\n", "6")]
        return httpx.Response(200, stream=Broken([*pieces, sse("end", {"state": "failed"})]))

    server.routes["GET", f"/jobs/{job}/logs/stream"] = answer
    return asked


def test_following_a_log_loses_and_repeats_nothing(server: FakeServer) -> None:
    job = server.add(state="running", attempt=1)
    asked = log_stream(server, job, [2, 4, LOG.index(b"still")])

    lines = list(server.client().job(job).logs(follow=True))

    assert lines == ["one", "two é\u2028still two", "three", "again"]
    assert [params["offset"] for params in asked] == ["0", "2", "4", str(LOG.index(b"still"))]
    assert {params["attempt"] for params in asked[1:]} == {"1"}


def test_following_a_log_awaited(server: FakeServer) -> None:
    job = server.add(state="running", attempt=1)
    log_stream(server, job, [4])

    async def read() -> list[str]:
        async with server.async_client() as client:
            handle = await client.job(job)
            return [line async for line in handle.logs(follow=True)]

    assert asyncio.run(read()) == ["one", "two é\u2028still two", "three", "again"]


def test_following_from_the_last_lines(server: FakeServer) -> None:
    job = server.add(state="running", attempt=1)
    server.logs["worker-0"] = LOG
    asked = log_stream(server, job, [])

    assert list(server.client().job(job).logs(follow=True, tail=1)) == ["three", "again"]
    assert asked[0]["offset"] == str(LOG.index(b"three"))


@pytest.mark.parametrize("page", [1 << 20, 7, 1])
def test_a_long_log_comes_in_pages_and_characters_are_not_cut(
    server: FakeServer, page: int
) -> None:
    job = server.add(state="running", attempt=1)
    server.logs["worker-0"], server.log_page = LOG, page
    handle = server.client().job(job)
    assert list(handle.logs()) == ["one", "two é\u2028still two", "three"]
    if page > 100:
        assert list(handle.logs(tail=2)) == ["two é\u2028still two", "three"]


def test_history_is_read_to_its_end_or_from_near_it(server: FakeServer) -> None:
    server.happened = [event(number) for number in range(1, 431)]
    client = server.client()
    assert [each.seq for each in client.history()] == list(range(1, 431))
    assert [each.seq for each in client.history(last=3)] == [428, 429, 430]
    assert [each.seq for each in client.history(after=428)] == [429, 430]


def test_an_older_or_newer_server_is_understood(server: FakeServer) -> None:
    told = {"id": "a-12345", "state": "running", "colour": "green"}
    server.routes["GET", "/jobs/a-12345"] = told
    found = server.client().job("a-12345").view
    assert (found.state, found.gpus, found.raw["colour"]) == ("running", 0.0, "green")


def test_a_handle_says_what_it_is(server: FakeServer) -> None:
    handle = server.client().submit(JOB)
    assert repr(handle) == "JobHandle('train-00000', queued)"
    assert len({handle, server.client().job(handle.id)}) == 1


def test_roost_is_imported_quickly_and_offers_the_client_lazily() -> None:
    code = (
        "import sys, roost; assert not {'httpx', 'pydantic', 'numpy'} & sys.modules.keys(); "
        "assert roost.Client and roost.AsyncClient and roost.job and roost.submit; "
        "assert 'httpx' in sys.modules; assert roost.__version__; "
        "assert not hasattr(roost, 'nonsense')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own


def test_a_job_that_runs_a_function_loads_no_http_library() -> None:
    code = "import sys, roost.client.call; assert not {'httpx', 'pydantic'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own
