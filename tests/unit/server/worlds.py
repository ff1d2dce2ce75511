"""A server around a real cluster and a real store, with an engine that runs nothing by itself."""

from __future__ import annotations

import asyncio
import functools
import getpass
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
from fastapi import FastAPI

from roost.core.actions import Launch, Migrate, Resize, Resume, Stop, Suspend
from roost.core.events import NodeJoined, Resized, Started, Suspended
from roost.core.spec import JobId, JobSpec, NodeId, NodeSpec, RunId
from roost.defaults import POLICY
from roost.engines import (
    Assigned,
    Ended,
    JobFiles,
    LogFile,
    ProgressReport,
    Report,
    RunOrder,
    SnapshotInfo,
    Usage,
    WorkerExit,
)
from roost.engines.local.job_files import RunFiles
from roost.errors import Conflict, NotFound
from roost.jobfile.program import Program
from roost.live.cluster import Cluster
from roost.server.app import create_app
from roost.server.context import Context
from roost.server.options import ServerOptions
from roost.store import User, open_store

URL = "http://127.0.0.1"
ME = getpass.getuser()


class Log:
    """A log in memory."""

    def __init__(self) -> None:
        self.text = bytearray()
        self.reads = 0
        self.most = 0
        self.open = 0

    def size(self) -> int:
        return len(self.text)

    def read(self, offset: int, n: int) -> bytes:
        self.reads += 1
        self.most = max(self.most, n)
        return bytes(self.text[offset : offset + n])

    def close(self) -> None:
        self.open -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Puppets:
    """An engine whose runs start at once and end when a test says so."""

    def __init__(self, gpus: int = 4) -> None:
        self.gpus = gpus
        self.orders: list[RunOrder] = []
        self.outputs: dict[tuple[RunId, str], Log] = {}
        self.results: dict[RunId, Log] = {}
        self.forgotten: list[JobId] = []
        #: Where the files of runs are.
        self.folder = Path("/nowhere")
        self.saved: dict[JobId, bytes] = {}
        self._report: Callable[[Report], None] = lambda _report: None
        self.joined = asyncio.Event()

    async def start(
        self, report: Callable[[Report], None], alive: Mapping[RunId, Assigned]
    ) -> None:
        del alive
        self._report = report
        report(NodeJoined(0.0, NodeSpec(NodeId("box"), gpus=self.gpus)))
        self.joined.set()

    async def perform(self, order: RunOrder) -> None:
        self.orders.append(order)
        action = order.action
        match action:
            case Launch() | Resume():
                self.output(action.run)
                self._report(Started(0.0, action.run))
            case Resize() | Migrate():
                self._report(Resized(0.0, action.run))
            case Suspend():
                self._report(Suspended(0.0, action.run, 0.0))
            case Stop():
                self._report(Ended(0.0, action.run, (), "stopped"))

    def end(self, run: RunId, code: int = 0) -> None:
        """Let a run end by itself."""
        self._report(Ended(0.0, run, (WorkerExit("worker", 0, code, None),), "exit"))

    def tell(self, run: RunId, loss: float) -> None:
        """Let a run say how it is doing."""
        self._report(ProgressReport(0.0, run, done=0.5, loss=loss))

    def observe(self, run: RunId, **figures: Any) -> None:
        """Let a run say what it observes."""
        self._report(ProgressReport(0.0, run, **figures))

    def output(self, run: RunId, worker: str = "worker-0") -> Log:
        return self.outputs.setdefault((run, worker), Log())

    async def restrain(self, run: RunId, why: str, *, ends: bool = False) -> None: ...

    def refuses(self, spec: JobSpec, program: Program) -> str:
        del spec, program
        return ""

    async def snapshot(self, run: RunId, into: Path, timeout_s: float) -> SnapshotInfo:
        del timeout_s
        content = self.saved.get(run.job)
        if content is None:
            raise Conflict(f"job {run.job} has no checkpoint yet")
        into.mkdir()  # noqa: ASYNC240 - a test's own small folder
        (into / "model").write_bytes(content)
        return SnapshotInfo(1, len(content), fresh=False)

    def logs(self, run: RunId, worker: str = "worker-0") -> LogFile:
        if (run, worker) not in self.outputs:
            raise NotFound(f"{run} has no log of {worker!r}")
        log = self.outputs[run, worker]
        log.open += 1
        return log

    def workers(self, run: RunId) -> tuple[str, ...]:
        return tuple(worker for one, worker in self.outputs if one == run)

    def returned(self, run: RunId, content: bytes) -> Log:
        """Let a run leave a result."""
        self.results[run] = log = Log()
        log.text += content
        return log

    def result(self, run: RunId) -> LogFile | None:
        log = self.results.get(run)
        if log is not None:
            log.open += 1
        return log

    def files(self, run: RunId, own: Mapping[str, str]) -> JobFiles:
        folders = {"work": self.folder / str(run), **{name: Path(own[name]) for name in own}}
        return RunFiles(folders, None, "")

    def usage(self) -> Mapping[RunId, Usage]:
        return {run: Usage(1.0, 1 << 20, 1) for run, _ in self.outputs}

    def compact(self, job: JobId) -> None: ...

    def size_bytes(self, job: JobId, least: int = 0) -> int:
        return (len(job) << 20) + least

    def forget(self, job: JobId) -> None:
        self.forgotten.append(job)

    def sweep(self, known: Callable[[JobId], bool]) -> None:
        del known

    async def close(self) -> None:
        pass


@dataclass
class World:
    """A server in this process, and tokens for everybody."""

    app: FastAPI
    cluster: Cluster
    engine: Puppets
    here: Context
    home: Path
    tokens: dict[str, str] = field(default_factory=dict)

    def watch(self, path: str, who: str = "root", **headers: str) -> Viewer:
        """A reader of a stream with somebody's token."""
        return Viewer(self, path, who, **headers)

    def client(self, who: str = "root", **headers: str) -> httpx.AsyncClient:
        """A client with somebody's token."""
        given = {"Authorization": f"Bearer {self.tokens[who]}"} if who in self.tokens else {}
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(
            transport=transport, base_url=URL, headers={**given, **headers}, timeout=60
        )

    async def add(self, name: str, role: str = "user") -> str:
        """Admit somebody, who may be there already; returns a new token."""
        with suppress(Conflict):
            await asyncio.to_thread(self.cluster.store.accounts.add_user, User(name, role, unix=ME))
        _, secret = await asyncio.to_thread(self.cluster.store.accounts.add_token, name, "test")
        self.tokens[name] = secret
        return secret

    async def submit(self, who: str = "root", name: str = "hello", **fields: Any) -> str:
        """Submit a job; returns its id."""
        async with self.client(who) as client:
            answer = await client.post("/api/v1/jobs", json=job(name, **fields))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def finish(self, who: str, name: str, code: int = 0) -> dict[str, Any]:
        """Let a running job end."""
        view = await self.until(who, name, "running")
        self.engine.end(RunId(JobId(name), view["attempt"]), code)
        return await self.until(who, name, "succeeded", "failed")

    async def until(self, who: str, job: str, *states: str) -> dict[str, Any]:
        """A job once it is in one of these states."""
        async with self.client(who) as client, asyncio.timeout(60):
            while True:
                view: dict[str, Any] = (await client.get(f"/api/v1/jobs/{job}")).json()
                if view.get("state") in states:
                    return view
                await asyncio.sleep(0.01)


@dataclass
class Event:
    """One server-sent event."""

    name: str = ""
    id: str = ""
    data: Any = None


class Viewer:
    """A reader of a stream inside this process, as slow as a test wants it to be."""

    def __init__(self, world: World, path: str, who: str, **headers: str) -> None:
        given = {"host": "127.0.0.1", **{k.replace("_", "-"): v for k, v in headers.items()}}
        if who in world.tokens:
            given["authorization"] = f"Bearer {world.tokens[who]}"
        path, _, query = path.partition("?")
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        self._app = world.app
        self._asked = False
        self._gone = asyncio.Event()
        self._came = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.status = 0
        self.chunks: list[bytes] = []
        self.ended = False
        self._text = ""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._app(self._scope, self._receive, self._send))
        await self._until(lambda: bool(self.status))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gone.set()
        self.reads.set()
        async with asyncio.timeout(60):
            await self._task

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            await self.reads.wait()
            self.chunks.append(message.get("body", b""))
            self._text += message.get("body", b"").decode("utf-8", "replace")
            self.ended = not message.get("more_body", False)
        self._came.set()

    async def _until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not done():
                self._came.clear()
                await self._came.wait()

    @property
    def waiting(self) -> str:
        """What came and was not taken yet, without heartbeats."""
        return self._text.replace(": still here\n\n", "")

    async def next(self) -> Event:
        """The next event."""
        while True:
            await self._until(lambda: "\n\n" in self._text or self.ended)
            block, found, self._text = self._text.partition("\n\n")
            if not found:
                return Event("closed")
            if block.startswith(":"):
                continue
            event = Event()
            for line in block.split("\n"):
                key, _, value = line.partition(": ")
                if key == "data":
                    event.data = json.loads(value)
                else:
                    setattr(event, {"event": "name", "id": "id"}[key], value)
            return event


async def eventually(done: Callable[[], bool]) -> None:
    """Until something is so that nobody tells of."""
    async with asyncio.timeout(60):
        while not done():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


def looped(test: Callable[..., Any]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def world(
    home: Path,
    options: ServerOptions | None = None,
    engine: Puppets | None = None,
    policy: str = POLICY,
) -> AsyncIterator[World]:
    """A server that is up."""
    puppets = engine or Puppets()
    cluster = Cluster(open_store(f"sqlite:///{home}/roost.db"), puppets, home, policy=policy)
    await cluster.start()
    app = create_app(cluster, options or ServerOptions())
    here: Context = app.state.roost
    await here.start()
    found = World(app, cluster, puppets, here, home)
    try:
        await found.add("root", "admin")
        await puppets.joined.wait()
        yield found
    finally:
        await here.close()
        await cluster.close()


def job(name: str = "hello", **fields: Any) -> dict[str, Any]:
    """The body of a submission."""
    return {"job": {"name": name, "command": ["true"], **fields}}
