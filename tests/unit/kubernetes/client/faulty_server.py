"""An HTTP server on loopback that answers as it is told, for faults that real ones show rarely."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from roost.kubernetes.client.api import Api


@dataclass(frozen=True)
class Answer:
    """An answer; ``cut`` bytes of it and then no more, ``stalls``: nothing follows, for ever."""

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    stalls: bool = False

    @property
    def raw(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body).encode()


class Faulty:
    """Answers each path in the order told; the last answer stays."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        self.asked: list[web.Request] = []
        self.bodies: list[Any] = []
        self.met, self.done = asyncio.Event(), asyncio.Event()
        self.url = ""

    def say(self, method: str, path: str, *answers: Answer) -> None:
        self.answers[method, path] += answers

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        self.met.set()
        raw = await request.read()
        self.bodies.append(json.loads(raw) if raw else None)
        told = self.answers[request.method, request.path]
        if not told:
            return web.json_response({"message": "not told"}, status=404)
        answer = told.pop(0) if len(told) > 1 else told[0]
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        if answer.cut is not None:
            response.content_length = len(answer.raw)
        await response.prepare(request)
        await response.write(answer.raw if answer.cut is None else answer.raw[: answer.cut])
        if answer.cut is not None and request.transport is not None:
            request.transport.abort()
        if answer.stalls:
            await self.done.wait()
        return response


@asynccontextmanager
async def faulty(folder: Path, connections: int = 64) -> AsyncIterator[tuple[Faulty, Api]]:
    """A server and a connection to it."""
    server = Faulty()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    (folder / "token").write_text("first")
    file = kubeconfig(folder, server.url, {"tokenFile": "token"})
    api = await Api.connect(kubeconfig=str(file), connections=connections)
    try:
        yield server, api
    finally:
        server.done.set()
        await api.close()
        await runner.cleanup()


def kubeconfig(folder: Path, url: str, user: Any, context: Any = None) -> Path:
    """A kubeconfig with one context, ``one``."""
    file = folder / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "one",
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [
                    {"name": "one", "context": {"cluster": "c", "user": "u", **(context or {})}}
                ],
            }
        )
    )
    return file


def pod(name: str, version: int, uid: str = "") -> dict[str, Any]:
    """A pod as a mirror sees it."""
    return {
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
        }
    }
