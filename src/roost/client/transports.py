"""The two drivers of conversations: one blocks, one awaits. All that is theirs alone is here.

Both send what a conversation yields and hand it the answer; retries, back-off, streams that go on
and everything else are in the conversations themselves (``streams``, ``api``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, closing
from typing import Any, TypeVar

import httpx

from roost import __version__
from roost.client import certificates
from roost.client.conversations import (
    Answer,
    ConnectionLost,
    Emit,
    Open,
    Pause,
    Read,
    RestReply,
    RestRequest,
    Steps,
    patient,
)
from roost.client.endpoints import Endpoint, is_loopback
from roost.client.errors import CertificateRefused
from roost.errors import InvalidSpec

T = TypeVar("T")

_PREFIX = "/api/v1"
_CONNECT_S = 5.0
_HEARTBEAT_S = 60.0
#: Failures before anything was sent.
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class BaseTransport:
    """Where the server is, and how requests look on the wire."""

    def __init__(self, place: Endpoint, timeout: float, patience: float) -> None:
        self._url, self._patience = place.url, patience
        self._settings: dict[str, Any] = {
            "base_url": place.url + _PREFIX,
            "headers": _headers(place.token),
            "timeout": httpx.Timeout(timeout, connect=_CONNECT_S),
            # A proxy of the environment is for the world outside.
            "trust_env": not is_loopback(place.url),
            "verify": certificates.context(place.url, place.trusted),
        }

    def _lost(self, error: httpx.TransportError) -> ConnectionLost | CertificateRefused:
        if told := certificates.complaint(self._url, error):
            return CertificateRefused(told)
        why = str(error) or type(error).__name__
        if isinstance(error, httpx.RemoteProtocolError) and self._url.startswith("http:"):
            why = f"{why.rstrip('.')} (where it serves TLS, its address begins with https)"
        return ConnectionLost(self._url, why, sent=not isinstance(error, _UNSENT))


class SyncTransport(BaseTransport):
    """Blocks until the answer is there."""

    def __init__(
        self,
        place: Endpoint,
        timeout: float,
        patience: float,
        transport: httpx.BaseTransport | None,
    ) -> None:
        super().__init__(place, timeout, patience)
        self._http = httpx.Client(transport=transport, **self._settings)

    def run(self, steps: Steps[T]) -> T:
        """What a conversation returns."""
        with closing(patient(steps, self._patience)) as talk, closing(self._flow(talk)) as flow:
            while True:
                try:
                    next(flow)
                except StopIteration as end:
                    done: T = end.value
                    return done

    def iterate(self, steps: Steps[None]) -> Iterator[Any]:
        """What a conversation emits."""
        with closing(patient(steps, self._patience)) as talk:
            yield from self._flow(talk)

    def close(self) -> None:
        """End all connections."""
        self._http.close()

    def _flow(self, steps: Steps[T]) -> Generator[Any, None, T]:
        answer: Answer = None
        error: ConnectionLost | CertificateRefused | None = None
        with ExitStack() as stack:
            chunks: Iterator[bytes] = iter(())
            while True:
                try:
                    step = steps.send(answer) if error is None else steps.throw(error)
                except StopIteration as end:
                    done: T = end.value
                    return done
                answer = error = None
                try:
                    match step:
                        case Emit(items):
                            yield from items
                        case Pause(seconds):
                            time.sleep(seconds)
                        case RestRequest():
                            answer = _reply(self._http.send(_built(self._http, step)))
                        case Open(request):
                            stack.close()
                            sent = _built(self._http, request, stream=True)
                            response = self._http.send(sent, stream=True)
                            stack.callback(response.close)
                            if response.is_error:
                                response.read()
                            answer, chunks = _reply(response), response.iter_bytes()
                        case Read():
                            answer = next(chunks, None)
                except httpx.TransportError as lost:
                    error = self._lost(lost)


class AsyncTransport(BaseTransport):
    """Awaits the answer."""

    def __init__(
        self,
        place: Endpoint,
        timeout: float,
        patience: float,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        super().__init__(place, timeout, patience)
        self._http = httpx.AsyncClient(transport=transport, **self._settings)

    async def run(self, steps: Steps[T]) -> T:
        """What a conversation returns."""
        returned: list[T] = []

        def kept() -> Steps[None]:
            returned.append((yield from patient(steps, self._patience)))

        with closing(kept()) as talk:
            async for _ in self._flow(talk):
                pass
        return returned[0]

    async def iterate(self, steps: Steps[None]) -> AsyncGenerator[Any, None]:
        """What a conversation emits."""
        with closing(patient(steps, self._patience)) as talk:
            async for items in self._flow(talk):
                for item in items:
                    yield item

    async def close(self) -> None:
        """End all connections."""
        await self._http.aclose()

    async def _flow(self, steps: Steps[None]) -> AsyncGenerator[Any, None]:
        answer: Answer = None
        error: ConnectionLost | CertificateRefused | None = None
        async with AsyncExitStack() as stack:
            chunks: Any = None
            while True:
                try:
                    step = steps.send(answer) if error is None else steps.throw(error)
                except StopIteration:
                    return
                answer = error = None
                try:
                    match step:
                        case Emit(items):
                            yield items
                        case Pause(seconds):
                            await asyncio.sleep(seconds)
                        case RestRequest():
                            answer = _reply(await self._http.send(_built(self._http, step)))
                        case Open(request):
                            await stack.aclose()
                            sent = _built(self._http, request, stream=True)
                            response = await self._http.send(sent, stream=True)
                            stack.push_async_callback(response.aclose)
                            if response.is_error:
                                await response.aread()
                            answer, chunks = _reply(response), response.aiter_bytes()
                        case Read():
                            answer = await anext(chunks, None)
                except httpx.TransportError as lost:
                    error = self._lost(lost)


def _headers(token: str) -> dict[str, str]:
    agent = {"User-Agent": f"roost/{__version__}"}
    if not token:
        return agent
    if not (token.isascii() and token.isprintable()):
        raise InvalidSpec("the token is not one that a Roost server made")
    return {**agent, "Authorization": f"Bearer {token}"}


def _built(
    http: httpx.Client | httpx.AsyncClient, request: RestRequest, *, stream: bool = False
) -> httpx.Request:
    built = http.build_request(
        request.method,
        request.path,
        params=list(request.params) or None,
        json=request.body,
        content=request.content,
        headers=dict(request.headers),
    )
    if stream:  # silence is normal there, up to the server's heart-beat
        built.extensions["timeout"] = httpx.Timeout(_HEARTBEAT_S, connect=_CONNECT_S).as_dict()
    return built


def _reply(response: httpx.Response) -> RestReply:
    content = response.content if response.is_closed or response.is_stream_consumed else b""
    return RestReply(response.status_code, response.headers, content)
