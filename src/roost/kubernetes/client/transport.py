"""Requests to an API server: sent when it is their turn, repeated where that does no harm.

``ask`` is for answers that come whole, ``stream`` for watches and logs. Both turn every failure,
of the server or on the way, into one of Roost's errors. What is asked, and why, is ``api``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

import aiohttp
import orjson
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from roost.errors import InvalidSpec, Retryable, RoostError
from roost.kubernetes.client.access import Access
from roost.kubernetes.client.faults import AFTER_S, AccessRequest, fault
from roost.kubernetes.client.kinds import LEASES, Object

#: How long one request and a connection may take; how often what may be repeated is sent.
TIMEOUT_S = 30.0
CONNECT_S = 5.0
TRIES = 5
#: Longer waits than this are the caller's.
PATIENCE_S = 10.0
#: Asked before a request is sent, each time, and once more the moment its body leaves: raises if
#: the caller may not change anything any more. Between its question and that moment a process may
#: have stood still, or waited for a connection, while another one took over.
GUARD: ContextVar[Callable[[], None] | None] = ContextVar("GUARD", default=None)


class ApiCall(NamedTuple):
    """A request: what it asks, and how that is said in HTTP."""

    asked: AccessRequest
    method: str = "GET"
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content: str = "application/json"
    path: str = ""
    accept: str = "application/json"

    def url(self, host: str) -> URL:
        """Where to send it."""
        asked = self.asked
        path = self.path or asked.kind.path(asked.namespace, asked.name, asked.sub)
        tail = f"?{urlencode(self.query)}" if self.query else ""
        return URL(f"{host}{path}{tail}", encoded=True)


class Transport:
    """Sends requests by a way to a server, so many at a time; streams are not counted."""

    def __init__(self, way: Access, connections: int) -> None:
        self._way = way
        self._turns = asyncio.Semaphore(connections)
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def ask(self, request: ApiCall, *, tries: int = TRIES) -> Object:
        """The answer to a request, repeated after passing failures while ``tries`` are left."""
        raw = await self.send(request, tries=tries)
        try:
            found: Object = decode(raw)
        except NotJson as error:
            raise _not_json(request.asked, error) from error
        return found

    async def send(self, request: ApiCall, *, tries: int = TRIES) -> bytes:
        """As ``ask``, for callers that do not read the answer."""
        for tried in range(1, tries):
            try:
                return await self._turn(request)
            except Retryable as error:
                wait = max(error.after if error.after > AFTER_S else 0.0, _pause(tried))
                if wait > PATIENCE_S:
                    raise
                await self.sleep(wait)
        return await self._turn(request)

    @contextlib.asynccontextmanager
    async def stream(
        self, request: ApiCall, stall_s: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that comes piece by piece, for as long as no pause is longer than a stall."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=stall_s)
        with _broken(request.asked):
            async with self._way.session.get(
                request.url(self._way.host),
                headers=await self._way.headers(),
                timeout=timeout,
                allow_redirects=False,
                **self._way.options,
            ) as answer:
                if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
                    if answer.status == HTTPStatus.UNAUTHORIZED and await self._way.reload():
                        raise Retryable(f"{request.asked}: the credentials were renewed", 0.0)
                    raise _refusal(request.asked, answer, await answer.read())
                with _aborting(answer):
                    yield answer

    async def _turn(self, request: ApiCall) -> bytes:
        """Send it when it is its turn; a lease never waits, all others depend on it."""
        if request.asked.kind is LEASES:
            return await self._authenticated(request)
        async with self._turns:
            return await self._authenticated(request)

    async def _authenticated(self, request: ApiCall) -> bytes:
        """Send it, once more with fresh credentials if the server takes ours no longer."""
        answer, raw = await self._exchange(request)
        if answer.status == HTTPStatus.UNAUTHORIZED and await self._way.reload():
            answer, raw = await self._exchange(request)
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise _refusal(request.asked, answer, raw)
        return raw

    async def _exchange(self, request: ApiCall) -> tuple[aiohttp.ClientResponse, bytes]:
        headers = {"Content-Type": request.content, "Accept": request.accept}
        headers |= await self._way.headers()
        body: bytes | _Guarded | None = request.body
        if (check := GUARD.get()) is not None:
            check()
            body = _Guarded(request.body, check) if request.body is not None else None
        with _broken(request.asked):
            async with self._way.session.request(
                request.method,
                request.url(self._way.host),
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S, sock_connect=CONNECT_S),
                allow_redirects=False,
                **self._way.options,
            ) as answer:
                with _aborting(answer):
                    return answer, await answer.read()


class _Guarded(aiohttp.BytesPayload):
    """A body that does not leave if ``check`` raises; the server drops a request without it."""

    def __init__(self, value: bytes, check: Callable[[], None]) -> None:
        super().__init__(value)
        self._check = check

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        self._check()
        await super().write_with_length(writer, content_length)


def _refusal(asked: AccessRequest, answer: aiohttp.ClientResponse, raw: bytes) -> RoostError:
    return fault(asked, answer.status, _status(raw), answer.headers.get("Retry-After", ""))


def _status(raw: bytes) -> Mapping[str, Any]:
    """The Status object that explains a refusal; a proxy in between may answer anything."""
    try:
        found = decode(raw)
    except NotJson:
        return {"message": raw[:200].decode(errors="replace").strip()}
    return found if isinstance(found, dict) else {}


def _pause(tried: int) -> float:
    """Ever longer, and never the same for two that failed together."""
    return random.uniform(0.5, 1.0) * 0.2 * 2.0**tried  # noqa: S311 - no secret


def _not_json(asked: AccessRequest, error: NotJson) -> Retryable:
    return Retryable(f"{asked}: the answer is not JSON ({error})", AFTER_S)


@contextlib.contextmanager
def _aborting(answer: aiohttp.ClientResponse) -> Iterator[None]:
    """Drop the connection of an answer that was not read to its end.

    Closing it would say goodbye first, and wait half a minute for that of a server that is dead.
    """
    try:
        yield
    finally:
        connection = answer.connection  # none once the answer has come whole
        if connection is not None and connection.transport is not None:
            cast("asyncio.WriteTransport", connection.transport).abort()


@contextlib.contextmanager
def _broken(asked: AccessRequest) -> Iterator[None]:
    """Whatever breaks between us and the server may work the next time."""
    try:
        yield
    except NotJson as error:
        raise _not_json(asked, error) from error
    except TimeoutError as error:
        raise Retryable(f"{asked}: no answer in time", AFTER_S) from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise InvalidSpec(f"{asked}: the server's certificate is not trusted: {error}") from error
    except (aiohttp.ClientError, OSError) as error:
        said = str(error) or type(error).__name__
        raise Retryable(f"{asked}: {said}", AFTER_S) from error


class NotJson(Exception):
    """What came is no JSON."""


def encode(body: Any) -> bytes:
    """A body to send."""
    return orjson.dumps(body)


def decode(raw: bytes) -> Any:
    """What a body says."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise NotJson(str(error)) from error


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The whole lines of a stream, however long; what was cut off at its end is no line."""
    rest = b""
    async for piece in content.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line:
                yield line
