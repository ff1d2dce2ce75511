"""A server that lives in this process: the REST contract over a few jobs, with faults on demand."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from roost.client import AsyncClient, Client

URL = "http://127.0.0.1:7000"
NOW = 1_700_000_000.0


def view(job: str = "resnet-x7k2p", state: str = "queued", **changed: Any) -> dict[str, Any]:
    """A job as the API tells it."""
    return {
        "id": job,
        "name": job.rpartition("-")[0] or job,
        "user": "ada",
        "queue": "default",
        "state": state,
        "cause": "",
        "reason": "",
        "priority": 0,
        "labels": {},
        "application": "resnet",
        "workers": {"min": 1, "max": 1, "now": 0},
        "gpus": 1.0,
        "gpus_held": 0.0,
        "kinds": [],
        "placement": [],
        "attempt": 0,
        "failures": 0,
        "preemptions": 0,
        "resizes": 0,
        "submitted_at": NOW,
        "started_at": None,
        "ran_s": 0.0,
        "running_since": None,
        "finished_at": None,
        "not_before": None,
        "progress": None,
        "loss": None,
        "run_time_s": None,
        "exit_code": None,
        "verdict": None,
        "held": False,
        "cancelling": False,
        "elastic": False,
        "rev": 1,
        **changed,
    }


def event(seq: int, **changed: Any) -> dict[str, Any]:
    """An event as the API tells it."""
    told = {"seq": seq, "n": 0, "time": NOW + seq, "actor": "ada", "job": "resnet-x7k2p"}
    told |= {"user": "ada", "node": "", "kind": "state", "old": "queued", "new": "starting"}
    return {**told, "text": "", **changed}


def sse(event_: str, data: object, id_: str = "") -> bytes:
    """A message of a stream."""
    head = f"event: {event_}\n" if event_ != "message" else ""
    return f"{head}{f'id: {id_}' if id_ else ':'}\ndata: {json.dumps(data)}\n\n".encode()


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that comes in pieces and may break off."""

    def __init__(self, pieces: list[bytes], *, lost: bool = False) -> None:
        self.pieces, self.lost = pieces, lost

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.lost:
            raise httpx.ReadError("connection reset")

    async def __aiter__(self) -> Any:
        for piece in self:
            yield piece


Answer = Callable[[httpx.Request], httpx.Response]


@dataclass
class FakeServer:
    """Jobs by id, logs by worker, and faults that are answered first."""

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)
    faults: list[Answer | Exception | None] = field(default_factory=list)
    routes: dict[tuple[str, str], Any] = field(default_factory=dict)
    role: str = "user"
    logs: dict[str, bytes] = field(default_factory=dict)
    log_page: int = 1 << 20
    results: dict[str, bytes] = field(default_factory=dict)
    happened: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)

    def client(self, **settings: Any) -> Client:
        """A client of this server."""
        settings = {"token": "t", "patience": 5.0, **settings}
        return Client(URL, transport=httpx.MockTransport(self), **settings)

    def async_client(self, **settings: Any) -> AsyncClient:
        """The same, awaitable."""
        settings = {"token": "t", "patience": 5.0, **settings}
        return AsyncClient(URL, transport=httpx.MockTransport(self), **settings)

    def add(self, job: str = "resnet-x7k2p", state: str = "queued", **changed: Any) -> str:
        """A job that is there."""
        self.jobs[job] = view(job, state, **changed)
        return job

    def __call__(self, request: httpx.Request) -> httpx.Response:
        # Asked once by each client, beside what tests count; an older server does not know it.
        if request.url.path == "/api/v1/machine":
            return refused(404, "not-found", "no route /machine")
        self.requests.append(request)
        if self.faults and (fault := self.faults.pop(0)) is not None:
            if isinstance(fault, Exception):
                raise fault
            return fault(request)
        return self.answer(request)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """What a server without faults answers."""
        method, path = request.method, request.url.path.removeprefix("/api/v1")
        if (method, path) in self.routes:
            told = self.routes[method, path]
            return told(request) if callable(told) else httpx.Response(200, json=told)
        match method, path.strip("/").split("/"):
            case "GET", ["whoami"]:
                return httpx.Response(200, json={"user": "ada", "role": self.role})
            case "GET", ["jobs"]:
                return self._list(request)
            case "POST", ["jobs"]:
                return self._submit(request)
            case "POST", ["jobs", "plan"]:
                return httpx.Response(200, json=self.plan)
            case "GET", ["events"]:
                return self._events(request)
            case _, ["jobs", job, *rest]:
                return self._job(request, job, rest)
        return refused(404, "not-found", f"no route {path}")

    def _list(self, request: httpx.Request) -> httpx.Response:
        asked = request.url.params
        found = [
            job
            for job in self.jobs.values()
            if (not asked.get("state") or job["state"] in asked.get_list("state"))
            and asked.get("user", job["user"]) == job["user"]
            and asked.get("name", "") in job["name"]
        ]
        offset, limit = int(asked.get("offset", 0)), int(asked.get("limit", 50))
        assert limit <= 200
        items = found[offset : offset + limit]
        page = {"items": items, "total": len(found), "offset": offset, "limit": limit}
        return httpx.Response(200, json=page)

    def _submit(self, request: httpx.Request) -> httpx.Response:
        key, body = request.headers["Idempotency-Key"], json.loads(request.content)
        self.bodies.append(body)
        if key in self.keys:
            return httpx.Response(200, json=self.jobs[self.keys[key]])
        job = f"{body['job'].get('name', 'job')}-{len(self.jobs):05d}"
        self.keys[key] = self.add(job)
        return httpx.Response(201, json=self.jobs[job])

    def _job(self, request: httpx.Request, job: str, rest: list[str]) -> httpx.Response:
        if job not in self.jobs:
            return refused(404, "not-found", f"no job {job!r}")
        told = self.jobs[job]
        match request.method, rest:
            case "GET", []:
                return httpx.Response(200, json=told)
            case "DELETE", []:
                return httpx.Response(200, json=self.jobs.pop(job))
            case "GET", ["logs"]:
                return self._log(request)
            case "GET", ["workers"]:
                items = list(self.logs) or ["worker-0"]
                return httpx.Response(200, json={"attempt": 1, "items": items})
            case "GET", ["result"] if job in self.results:
                return httpx.Response(200, content=self.results[job])
            case "POST", [verb]:
                body = json.loads(request.content or b"null")
                self.bodies.append({"verb": verb, "body": body})
                states = {"cancel": "cancelled", "suspend": "suspended", "resume": "queued"}
                told["state"] = states.get(verb, told["state"])
                return httpx.Response(200, json=told)
        return refused(404, "not-found", f"no route {request.url.path}")

    def _log(self, request: httpx.Request) -> httpx.Response:
        asked = request.url.params
        whole = self.logs.get(asked.get("worker", "worker-0"), b"")
        start = int(asked.get("offset", 0))
        if "tail" in asked:
            lines = whole.splitlines(keepends=True)
            start = len(whole) - len(b"".join(lines[len(lines) - int(asked["tail"]) :]))
        text = whole[start : start + self.log_page]
        headers = {"X-Log-Size": str(len(whole)), "X-Log-Offset": str(start)}
        return httpx.Response(200, content=text, headers=headers)

    def _events(self, request: httpx.Request) -> httpx.Response:
        asked = request.url.params
        found = [
            each
            for each in self.happened
            if asked.get("job", each["job"]) == each["job"]
            and each["seq"] > int(asked.get("after", 0))
        ]
        offset, limit = int(asked.get("offset", 0)), int(asked.get("limit", 50))
        return httpx.Response(
            200, json={"items": found[offset : offset + limit], "total": len(found)}
        )

    def payload(self) -> bytes:
        """The function of the last submission."""
        return base64.b64decode(self.bodies[-1]["payload"])


def refused(status: int, kind: str, message: str, hint: str = "", **headers: str) -> httpx.Response:
    """An error as the server tells it."""
    body = {"error": {"kind": kind, "message": message, "hint": hint}}
    return httpx.Response(status, json=body, headers=headers)


def put_jobs(server: FakeServer) -> None:
    """Two jobs of ada, one running and one waiting, and one of bob."""
    server.add(
        "resnet-x7k2p",
        "running",
        gpus=4.0,
        gpus_held=2.0,
        elastic=True,
        workers={"min": 1, "max": 4, "now": 2},
        progress=0.5,
        started_at=NOW + 600,
        running_since=NOW + 600,
        placement=[{"node": "n1", "gpus": [0, 1]}],
    )
    server.add("bert-m3c9w", "queued", cause="no-capacity", reason="fewer than 8 GPUs are free")
    server.add("other-aaaaa", "running", user="bob")
