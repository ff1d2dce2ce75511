"""Operators that tests treat badly: real processes, and one within reach of a faulty network."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from tests.kubernetes.oracles import Witness
from tests.support.kubernetes.nodes import until
from tests.support.kubernetes.proxy import FaultyProxy

from roost.errors import NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import LEASES
from roost.kubernetes.client.mirror import Mirror
from roost.kubernetes.jobs.blueprint import Site
from roost.kubernetes.jobs.controller import JobController, JobOptions
from roost.kubernetes.objects.pods import is_bound
from roost.kubernetes.operator.loop import Operator, OperatorOptions
from roost.kubernetes.operator.workload import SourceFactory

LEASE = "roost-operator"
ROOST = Path(sys.executable).with_name("roost")
Replica = asyncio.subprocess.Process


@contextlib.asynccontextmanager
async def replica(
    kubeconfig: Path, name: str = "one", lease: str = "2s", **environment: str
) -> AsyncIterator[Replica]:
    """``roost operator`` as a process; it is killed at the end."""
    started = await asyncio.create_subprocess_exec(
        *(str(ROOST), "operator", "--kubeconfig", str(kubeconfig), "--identity", name),
        *("--metrics-port", "0", "--meeting-port", "0", "--lease", lease),
        *("--log-level", os.environ.get("ROOST_TEST_LOG", "error")),
        env={**os.environ, **environment},
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def holder(api: Api) -> str:
    """Who leads by the lease; empty if nobody does."""
    try:
        found = await api.get(LEASES, LEASE, "default")
    except NotFound:
        return ""
    return str(found["spec"].get("holderIdentity") or "").partition("_")[0]


async def leads(api: Api, name: str, timeout_s: float = 60.0) -> None:
    """Wait until a replica leads."""

    async def so() -> bool:
        return await holder(api) == name

    await until(so, timeout_s)


async def vacate(api: Api) -> None:
    """Take the lease of a process that is dead: nobody has to wait for its end."""
    await api.delete(LEASES, LEASE, "default")


def pause(process: Replica) -> None:
    """Let a process stand still."""
    os.kill(process.pid, signal.SIGSTOP)


def resume(process: Replica) -> None:
    """Let it go on."""
    os.kill(process.pid, signal.SIGCONT)


@contextlib.asynccontextmanager
async def operator(
    kubeconfig: Path, *, stall_s: float = 0.0, lead: bool = True, **options: Any
) -> AsyncIterator[Operator]:
    """An operator with Jobs in this process; watches are given up after ``stall_s``."""
    api = await Api.connect(kubeconfig=str(kubeconfig))
    known = JobOptions(Site("roost-train"))
    given = OperatorOptions(**{"metrics_port": None, "lease_s": 3.0, **options})
    made = Operator(
        api,
        given,
        [SourceFactory(JobController.kinds, lambda context: JobController(context, known))],
    )
    for mirror in made.mirrors.values() if stall_s else ():
        assert isinstance(mirror, Mirror)
        mirror._stall_s = stall_s
    task = asyncio.create_task(made.run())
    try:
        if lead:
            await until(lambda: leading(made, task), 60.0)
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await api.close()


async def leading(made: Operator, task: asyncio.Task[None] | None = None) -> bool:
    """Whether an operator leads and has folded everything."""
    if task is not None and task.done():
        await task
    return made.leadership is not None and made.leadership.settled


async def settled(witness: Witness, done: Callable[[], bool], timeout_s: float = 60.0) -> float:
    """Wait until something is so and nothing is half done; how long that took, in seconds."""
    began = time.monotonic()

    async def so() -> bool:
        return done() and not witness.unsettled()

    try:
        await until(so, timeout_s)
    except TimeoutError:
        states = {
            name: (one.get("status") or {}).get("state") for name, one in witness.jobs.items()
        }
        waiting = {
            one["metadata"]["name"]: [each.get("message") for each in one["status"]["conditions"]]
            for one in witness.pods
            if not is_bound(one) and one["status"].get("conditions")
        }
        counts = Counter(one["status"].get("phase") for one in witness.pods)
        raise AssertionError(
            f"not settled after {timeout_s:g} s: "
            f"{witness.unsettled()}, {states}, {counts}, {waiting}"
        ) from None
    return time.monotonic() - began


class ForgetfulProxy(FaultyProxy):
    """A network with a memory of its own: lists as they were, events once more and late."""

    def __init__(self, server: str, authority: Path, **given: Any) -> None:
        super().__init__(server, authority, **given)
        #: Paths whose lists are answered as they were answered first, so many times.
        self.stale: Counter[str] = Counter()
        #: Of how many events an old one comes again after them, at most.
        self.replay = 0
        #: Paths whose events come so much later.
        self.lag_s: dict[str, float] = {}
        #: Requests ("PATCH /apis/…") and watches ("WATCH /api/…") that wait for a word.
        self.held: dict[str, asyncio.Event] = {}
        self._first: dict[str, bytes] = {}

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        path = request.path
        if (word := self.held.get(f"{request.method} {path}")) is not None:
            self.seen["held"] += 1
            await word.wait()
            answer = await super()._forward(request, body)
            self.seen["late"] += 1
            return answer
        if request.method != "GET" or path not in self.stale:
            return await super()._forward(request, body)
        if path in self._first and self.stale[path] > 0:
            self.stale[path] -= 1
            self.seen["stale"] += 1
            return web.Response(body=self._first[path], content_type="application/json")
        answer = await super()._forward(request, body)
        if isinstance(answer.body, bytes):
            self._first.setdefault(path, answer.body)
        return answer

    async def _events(
        self, request: web.Request, content: aiohttp.StreamReader
    ) -> AsyncIterator[bytes]:
        path = request.path
        past: list[bytes] = []
        async for line in super()._events(request, content):
            await asyncio.sleep(self.lag_s.get(path, 0.0))
            if (word := self.held.get(f"WATCH {path}")) is not None:
                await word.wait()
            yield line
            if self.replay and len(past) >= self.replay:
                self.seen["replayed"] += 1
                for old in past:
                    yield old
                past.clear()
            past.append(line)
