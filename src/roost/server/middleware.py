"""The gate in front of the app: what is refused before a route is even looked for.

    1. more connections than there may be              503, and the connection is closed
    2. a Host (but of probes) or Origin not ours       421
    3. an address and headers that are too long        431
    4. a zero byte in the address                      400
    5. no valid token, except on the open paths        401, and the connection is closed
       the cookie of a session, and not from our page  403
    6. a body that is too large, or too slow           413, 408
    7. more bytes of bodies at once than there may be  429 for one user, 503 for all

It also numbers requests, adds the security headers, counts answers, says 503 where descriptors or
memory are short, and turns what no route expected into a 500 that tells nothing but the number.
Plain ASGI: streams pass through untouched.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import random
import sys
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roost.errors import RoostError
from roost.server.auth import Tokens, bearer
from roost.server.body_memory import BodyMemory
from roost.server.cookies import check_sender, session_secret
from roost.server.errors import ErrorDetail, HttpError, failure, of
from roost.server.options import ServerOptions
from roost.server.page_paths import is_file, is_page
from roost.server.permissions import LOGIN_PATH, OPEN_PATHS

log = logging.getLogger("roost.server")

#: Where bodies may be large: they carry functions of the SDK, and files.
_LARGE = frozenset(
    {"/api/v1/jobs", "/api/v1/jobs/plan", "/api/v1/folders", "/api/v1/folders/blobs"}
)

_POLICY = (
    b"default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    b"form-action 'self'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]

#: What the server lacks for a while; nobody's request is wrong for it.
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

#: Told of every answer: scope, status, seconds.
Seen = Callable[[Scope, int, float], None]


class RequestFilter:
    """ASGI middleware around the whole app."""

    def __init__(
        self,
        app: ASGIApp,
        options: ServerOptions,
        tokens: Tokens,
        seen: Seen,
        crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app, self._options, self._tokens, self._seen = app, options, tokens, seen
        self._crowded = crowded
        self._most_head = options.header_bytes
        self.bodies = BodyMemory(options)
        self._hosts = frozenset(_plain(host) for host in options.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = _Request(self, scope, receive, send)
        await request.serve()

    async def check(self, scope: Scope) -> None:
        """Refuse what may not come in; notes the caller in the scope."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if self._crowded():
            raise HttpError(503, "retry", "too many connections are open")
        self._check_names(scope)
        size = len(scope["query_string"]) + len(scope["path"])
        if size + sum(len(name) + len(value) for name, value in headers) > self._most_head:
            raise HttpError(431, "invalid", f"address and headers exceed {self._most_head} bytes")
        raw = scope.get("raw_path") or b""
        if "\0" in scope["path"] or b"%00" in raw or b"%00" in scope["query_string"]:
            raise HttpError(400, "invalid", "the address contains a zero byte")
        if is_page(scope) and scope["path"] != "/login":
            scope["path"], scope["raw_path"] = "/", b"/"  # the router in the browser knows which
        if not self._is_open(scope):
            await self._check_token(scope)
        if declared_length(scope) > self.most(scope):
            raise self.too_large(scope)

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"]
        return (
            path in OPEN_PATHS
            or is_page(scope)
            or is_file(scope)
            or (path == LOGIN_PATH and scope["method"] == "POST")
        )

    async def _check_token(self, scope: Scope) -> None:
        """Note the caller, by a token or by the cookie of a session; raises HttpError."""
        secret = bearer(scope["headers"])
        if not secret and (secret := session_secret(scope)):
            check_sender(scope)
        caller = await self._tokens.caller(secret)
        if caller is None:
            raise HttpError(
                401,
                "unauthenticated",
                "no valid token",
                "send the header 'Authorization: Bearer TOKEN'",
            )
        scope["roost.caller"], scope["roost.secret"] = caller, secret

    def most(self, scope: Scope) -> int:
        """How large the body of a request may be."""
        large = scope["path"] in _LARGE and "roost.caller" in scope
        return self._options.body_bytes if large else self._options.small_body_bytes

    def too_large(self, scope: Scope) -> HttpError:
        """The error for a body that is larger."""
        most = self.most(scope)
        return HttpError(413, "invalid", f"the body is larger than {most} bytes")

    @property
    def body_s(self) -> float:
        """How long a body may take."""
        return self._options.body_s

    def seen(self, scope: Scope, status: int, passed_s: float) -> None:
        """Count an answer."""
        self._seen(scope, status, passed_s)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is behind the gate."""
        await self._app(scope, receive, send)

    def _check_names(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        own = {*self._hosts, _own_address(scope)} - {""}
        hosts = [value for name, value in headers if name == b"host"]
        ours = len(hosts) == 1 and _host(f"//{hosts[0].decode('latin-1')}") in own
        # A probe calls a machine by any name; another site's page learns nothing by it.
        scope["roost.stranger"] = not ours
        if not ours and scope["path"] not in OPEN_PATHS:
            raise HttpError(
                421,
                "forbidden",
                "the Host header names another server",
                "start the server with --allow-host NAME if this is one of its names",
            )
        for name, value in headers:
            if name == b"origin" and _host(value.decode("latin-1"), web=True) not in own:
                raise HttpError(421, "forbidden", "the request comes from another site's page")


class _Request:
    """One request on its way through the gate."""

    def __init__(self, guard: RequestFilter, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard, self._scope, self._receive, self._send = guard, scope, receive, send
        self._number = f"{random.getrandbits(48):012x}"  # a name for the log, no secret
        self._began = time.monotonic()
        self._size = 0
        self._held = 0
        self._user = ""
        self._status = 0
        self._close = False
        self._read = not has_body(scope)
        scope["roost.request"] = self._number

    async def serve(self) -> None:
        guard, scope = self._guard, self._scope
        try:
            await guard.check(scope)
            self._user = scope["roost.caller"].user if "roost.caller" in scope else ""
            self._hold(declared_length(scope))
            await guard.app(scope, self.receive, self.send)
        except RoostError as error:
            # Nothing of the body was read: what is still to come must not hold the connection.
            self._close = True
            await self._answer(of(error))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _SCARCE:
                self._close = True  # one descriptor less
                await self._answer(of(HttpError(503, "retry", f"not now: {error.strerror}")))
                return
            log.exception("request %s: %s %s", self._number, scope["method"], _shown(scope))
            message = f"a fault of the server; its log tells more under {self._number}"
            self._close = True
            await self._answer(failure(500, ErrorDetail(kind="fatal", message=message)))
        finally:
            guard.bodies.give_back(self._user, self._held)
            guard.seen(scope, self._status, time.monotonic() - self._began)

    def _hold(self, size: int) -> None:
        """Count that many bytes of the body in all."""
        if size > self._held:
            self._guard.bodies.take(self._user, size - self._held)
            self._held = size

    async def _answer(self, response: ASGIApp) -> None:
        if not self._status:  # else it began already: all that is left is to cut it off
            await response(self._scope, self._receive, self.send)

    async def receive(self) -> Message:
        if self._status:  # the body is of no interest any more
            return await self._receive()
        left = self._guard.body_s - (time.monotonic() - self._began)
        try:
            async with asyncio.timeout(max(left, 0.0)):
                message = await self._receive()
        except TimeoutError:
            self._close = True
            raise HTTPException(408, "the body took too long") from None
        self._read = not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if self._size > self._guard.most(self._scope):
            self._close = True
            raise HTTPException(413, str(self._guard.too_large(self._scope)))
        try:
            self._hold(self._size)
        except HttpError as error:  # FastAPI lets only its own kind through
            raise HTTPException(error.status, str(error)) from None
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = [*message.get("headers", ()), *_HEADERS]
            headers.append((b"x-request-id", self._number.encode()))
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            # What is still to come of a body that nobody reads must not hold the connection.
            if self._close or not self._read:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)


def declared_length(scope: Scope) -> int:
    """How long a body says it is; 0 if it does not."""
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(length[:20]) if length.isdigit() else sys.maxsize


def has_body(scope: Scope) -> bool:
    """Whether more than a head is to come."""
    chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    return chunked or declared_length(scope) > 0


def _host(address: str, *, web: bool = False) -> str:
    """The host's name in ``//host:port`` or, for an Origin, in ``http://host:port``."""
    try:
        parts = urlsplit(address)
        if web and parts.scheme not in {"http", "https"}:
            return ""
        if parts.username is not None or parts.path or parts.query or parts.fragment:
            return ""
        _ = parts.port  # raises if it is none
        return _plain(parts.hostname or "")
    except ValueError:
        return ""


def _own_address(scope: Scope) -> str:
    """The address of this machine at which a connection came in: that is a name of ours, too.

    No page of another site can be called by it: its browser sends the name that it looked up.
    """
    address = str((scope.get("server") or ("",))[0]).partition("%")[0]
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a socket with a path, or a test
        return ""
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return _plain(str(mapped or found))


def _plain(host: str) -> str:
    return host.strip("[]").lower().rstrip(".")


def _shown(scope: Scope) -> str:
    """A path as the log may show it: short, and on one line."""
    return ascii(scope["path"][:200])
