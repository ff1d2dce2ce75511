"""An API server that is hard to reach: a proxy that loses, delays and repeats, by seed.

    chances = Chances(lose_answer=0.05)
    async with FaultyProxy(plane.url, plane.authority, seed=7, chances=chances) as proxy:
        api = await Api.connect(kubeconfig=str(plane.kubeconfig_of("admin", server=proxy.url)))
        proxy.cut(5.0)

What becomes of a request depends on the seed, its method and path, and how often that was asked
before, not on what else goes on at the time. Clients speak plain HTTP to it. Requests that were
under way when a client gave up may reach the server later, as they may in a network.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, Self

import aiohttp
from aiohttp import web
from yarl import URL

Way = Literal["both", "requests", "answers"]

_ADDRESS = "127.0.0.1"
#: Headers that belong to one connection.
_OWN = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "upgrade"}
_LOOK_S = 0.02
_LARGE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely each fault is, per request; the sum for requests may be at most 1.

    Watches and followed logs have faults of their own: the last four, per stream or per event.
    """

    lose_request: float = 0.0  # it never reaches the server; the connection breaks
    lose_answer: float = 0.0  # the server did it; the connection breaks
    hang: float = 0.0  # as lose_answer, but the connection stays, silent
    delay_request: float = 0.0
    delay_answer: float = 0.0
    repeat: float = 0.0  # the server gets it twice; the second answer counts
    refuse: float = 0.0  # 429 or 503 without asking the server
    stall_watch: float = 0.0  # after some events nothing comes any more
    cut_watch: float = 0.0  # after some events the connection breaks
    expire_watch: float = 0.0  # 410: list again
    repeat_event: float = 0.0  # an event comes twice; per event

    @classmethod
    def all(cls, chance: float) -> Chances:
        """Everything with the same chance."""
        return cls(**{one.name: chance for one in fields(cls)})


#: Faults of a request, and of a stream, in the order in which chance is shared out.
_REQUEST = tuple(one.name for one in fields(Chances))[:7]
_STREAM = ("stall_watch", "cut_watch", "expire_watch")


class FaultyProxy:
    """A way to an API server with faults; ``seen`` counts what became of requests.

    ``longest_s`` bounds delays, ``hang_s`` is how long a silent connection is kept.
    """

    def __init__(
        self,
        server: str,
        authority: Path,
        *,
        seed: int = 0,
        chances: Chances | None = None,
        longest_s: float = 0.5,
    ) -> None:
        self.chances = chances or Chances()
        self.seen: Counter[str] = Counter()
        self.hang_s = 60.0
        self._server, self._authority, self._seed = server, authority, seed
        self._longest_s = longest_s
        self._times: Counter[str] = Counter()
        self._closed_until = {"requests": 0.0, "answers": 0.0}
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cafile=str(self._authority))
        connector = aiohttp.TCPConnector(limit=0, ssl=context)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=_LARGE)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, _ADDRESS, 0).start()
        self.url = f"http://{_ADDRESS}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(_LOOK_S)  # TLS says goodbye

    def cut(self, seconds: float, way: Way = "both") -> None:
        """Let nothing pass for a while: requests, answers or both are held until then.

        A request whose way there is free is done by the server, even if nobody hears of it.
        """
        for one in self._closed_until:
            if way in ("both", one):
                self._closed_until[one] = time.monotonic() + seconds

    def heal(self) -> None:
        """Let everything pass again, and faults no longer happen."""
        self._closed_until = dict.fromkeys(self._closed_until, 0.0)
        self.chances = Chances()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        streams = request.query.get("watch") in ("1", "true") or "follow" in request.query
        key = f"{request.method} {request.path}"
        self._times[key] += 1
        chance = random.Random(f"{self._seed} {key} {self._times[key]}")
        fate = self._fate(chance, _STREAM if streams else _REQUEST)
        self.seen[fate] += 1
        await self._until_open("requests")
        try:
            if streams:
                return await self._stream(request, fate, chance)
            return await self._answer(request, body, fate, chance)
        except (aiohttp.ClientError, TimeoutError):
            return _broken(request)  # the server is not there: so are we

    def _fate(self, chance: random.Random, names: tuple[str, ...]) -> str:
        drawn = chance.random()
        for name in names:
            drawn -= getattr(self.chances, name)
            if drawn < 0:
                return name
        return "pass"

    async def _answer(
        self, request: web.Request, body: bytes, fate: str, chance: random.Random
    ) -> web.StreamResponse:
        if fate == "lose_request":
            return _broken(request)
        if fate == "refuse":
            return _refusal(chance)
        if fate == "delay_request":
            await asyncio.sleep(chance.random() * self._longest_s)
        answer = await self._forward(request, body)
        if fate == "repeat":
            answer = await self._forward(request, body)
        if fate == "lose_answer":
            return _broken(request)
        if fate == "hang":
            await self._silence(request)
            return _broken(request)
        if fate == "delay_answer":
            await asyncio.sleep(chance.random() * self._longest_s)
        await self._until_open("answers")
        return answer

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        async with self._open(request, body) as answer:
            raw = await answer.read()
            return web.Response(status=answer.status, body=raw, headers=_passed(answer.headers))

    async def _stream(
        self, request: web.Request, fate: str, chance: random.Random
    ) -> web.StreamResponse:
        """Pass lines on as they come; faults of a stream happen after some of them."""
        if fate == "expire_watch":
            return _expired()
        left = chance.randrange(20)
        async with self._open(request, b"") as answer:
            response = web.StreamResponse(status=answer.status, headers=_passed(answer.headers))
            await response.prepare(request)
            async for piece in self._events(request, answer.content):
                if left <= 0 and fate == "cut_watch":
                    return _broken(request)
                if left <= 0 and fate == "stall_watch":
                    await self._silence(request)
                    return _broken(request)
                left -= 1
                await self._until_open("answers")
                twice = chance.random() < self.chances.repeat_event
                await response.write(piece * 2 if twice else piece)
        return response

    def _events(self, request: web.Request, content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
        """The lines of a stream; for those who want them to come otherwise."""
        del request
        return _lines(content)

    @contextlib.asynccontextmanager
    async def _open(
        self, request: web.Request, body: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise aiohttp.ClientConnectionError("the proxy is closed")
        url = URL(self._server + request.raw_path, encoded=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
        async with self._session.request(
            request.method,
            url,
            data=body or None,
            headers=_passed(request.headers),
            timeout=timeout,
            allow_redirects=False,
        ) as answer:
            yield answer

    async def _until_open(self, way: str) -> None:
        while (left := self._closed_until[way] - time.monotonic()) > 0:  # noqa: ASYNC110 - it moves
            await asyncio.sleep(min(left, _LOOK_S))

    async def _silence(self, request: web.Request) -> None:
        """Say nothing until the client gives up."""
        end = time.monotonic() + self.hang_s
        while request.transport is not None and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines, however long, for an event may only be repeated as a whole."""
    rest = b""
    async for piece in stream.iter_any():
        whole, newline, rest = (rest + piece).rpartition(b"\n")
        for line in whole.split(b"\n") if newline else ():
            yield line + b"\n"
    if rest:
        yield rest


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OWN}


def _broken(request: web.Request) -> web.StreamResponse:
    """Break the connection; the answer reaches nobody."""
    if isinstance(request.transport, asyncio.Transport):
        request.transport.abort()
    return web.Response()


def _refusal(chance: random.Random) -> web.Response:
    status = chance.choice((429, 503))
    return web.json_response(
        _status(status, "TooManyRequests", "too busy"), status=status, headers={"Retry-After": "1"}
    )


def _expired() -> web.Response:
    return web.json_response(_status(410, "Expired", "too old resource version"), status=410)


def _status(code: int, reason: str, message: str) -> dict[str, object]:
    base = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return {**base, "code": code, "reason": reason, "message": message}
