"""Where pods of elastic runs ask for their members, and report: HTTP in the operator.

    GET  /runs/JOB/ATTEMPT/members?member=3&after=2.0.0&port=40123
        the view of the members, at once if it is newer than what the pod has (its version, and the
        numbers of the last wishes ``save`` and ``offload``), else when there is a newer one; 204
        when there is none for a while, 410 when the run is to end. ``port`` is one that is free in
        the pod, to be met at; a pod that talked with another operator last (``boot``) is answered
        at once, to know of this one.
    POST /runs/JOB/ATTEMPT/progress   {"member": "3", "sender": "…", "lines": [[7, "{…}"], …]}
        lines of the job, numbered by the sender: a number that was there is not heard again

Each run has a token; its SHA-256 is enough to know it. Nothing here is kept: an operator that
starts opens its runs again, pods come back with what they have, and say again what they said to the
last one, which they know by the header ``Roost-Meeting``. ``pod_membership`` knows what
lines and views mean.

Any process in the cluster can connect. A connection that does not show a token soon is closed, the
oldest of them as soon as there are too many: the operator needs files for its lease, too.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import resource
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from roost.core.spec import JobId, RunId
from roost.kubernetes.jobs.blueprint import digest_of

_log = logging.getLogger(__name__)

_POLL_S = 25.0
_LARGEST = 256 * 1024
_LONGEST = 4096
_MOST_LINES = 1000
#: Polls that may wait: in all, and of one run.
_MOST_WAITING, _MOST_OF_A_RUN = 20_000, 4096
_AGAIN_S = "2"
#: Connections at once, and how long one may take to show a token, or to say what it has to say.
_MOST_OPEN, _PATIENCE_S = 24_000, 10.0
_DIGITS = 9
_PORTS = 1 << 16
_LONGEST_ID = 64
_HIGHEST = 1 << 53
HEADER = "Roost-Meeting"

#: What a pod has seen, or is to see: the version, and the numbers of the last two wishes.
_Mark = tuple[int, int, int]


@dataclass(slots=True)
class _Run:
    """A run of which pods may come."""

    digest: str
    mark: _Mark = (0, 0, 0)
    view: bytes = b""
    released: bool = False
    waiting: dict[str, asyncio.Future[bool]] = field(default_factory=dict)
    #: A port that is free at each member.
    ports: dict[str, int] = field(default_factory=dict)
    #: The sender of each member, and the number of the last line that was heard.
    heard: dict[str, tuple[str, int]] = field(default_factory=dict)

    def is_news(self, mark: _Mark) -> bool:
        """Whether a pod that has seen this has to see more; one that is ahead of us has not."""
        if self.mark[0] != mark[0]:
            return self.mark[0] > mark[0]
        return any(ours > theirs for ours, theirs in zip(self.mark, mark, strict=True))

    def wake(self, *, go: bool = False) -> None:
        """Answer all that wait: with the view, or (``go``) by sending them away."""
        for future in self.waiting.values():
            if not future.done():
                future.set_result(not go)
        self.waiting.clear()


class RendezvousServer:
    """The server. ``on_line(run, member, line)`` and ``on_poll(run, member, version)`` are told."""

    def __init__(  # noqa: PLR0913 - bounds
        self,
        on_line: Callable[[RunId, str, dict[str, Any]], None],
        on_poll: Callable[[RunId, str, int], None] = lambda *_: None,
        *,
        poll_s: float = _POLL_S,
        most_waiting: int = _MOST_WAITING,
        most_open: int = _MOST_OPEN,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._on_line, self._on_poll = on_line, on_poll
        self._poll_s, self._most_waiting = poll_s, most_waiting
        self._most_open, self._patience_s = min(most_open, _files() // 2), patience_s
        #: Connections that have shown no token yet, the first one first.
        self._strangers: dict[web.RequestHandler, None] = {}
        self._door: asyncio.Server | None = None
        self._runs: dict[RunId, _Run] = {}
        self._waiting = 0
        self._runner: web.AppRunner | None = None
        #: Tells this server from the one before it.
        self.boot = secrets.token_hex(8)
        self.port = 0

    def open(self, run: RunId, digest: str) -> None:
        """Let the pods of a run in that know its token, of which this is ``digest_of``.

        Again with another one: from now on that one counts.
        """
        self._runs.setdefault(run, _Run(digest)).digest = digest

    def close(self, run: RunId) -> None:
        """Let no pod of a run in any more."""
        found = self._runs.pop(run, None)
        if found is not None:
            found.wake(go=True)

    def release(self, run: RunId) -> None:
        """A run is to end: pods that are asked to leave need not wait for those that stay.

        What they tell on their way out is heard until the run is closed.
        """
        found = self._runs.get(run)
        if found is not None:
            found.released = True
            found.wake(go=True)

    def publish(self, run: RunId, view: Mapping[str, Any]) -> None:
        """Tell all pods of a run; those that come later get it too."""
        found = self._runs.get(run)
        if found is None:
            return
        found.mark = (view["version"], view.get("save", 0), view.get("offload", 0))
        found.view = json.dumps(dict(view)).encode()
        found.wake()

    def places(self, run: RunId, hosts: Mapping[str, str]) -> dict[str, str]:
        """Where members can be met: those with a known host that said which port is free."""
        ports = self._runs[run].ports if run in self._runs else {}
        return {
            member: f"[{host}]:{ports[member]}" if ":" in host else f"{host}:{ports[member]}"
            for member, host in hosts.items()
            if host and member in ports
        }

    async def start(self, host: str = "0.0.0.0", port: int = 0) -> None:  # noqa: S104 - pods call
        """Listen; ``port`` is where."""
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_get("/runs/{job}/{attempt}/members", self._members)
        app.router.add_post("/runs/{job}/{attempt}/progress", self._progress)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._door = await loop.create_server(self._accept, host, port, reuse_address=True)
        self.port = self._door.sockets[0].getsockname()[1]

    def _accept(self) -> asyncio.Protocol:
        """A handler for the next connection; a stranger has to go for it if there are too many."""
        assert self._runner is not None  # noqa: S101 - the door is closed before
        assert self._runner.server is not None  # noqa: S101
        if len(self._runner.server.connections) >= self._most_open:
            stranger = next((who for who in self._strangers if who.connected), None)
            if stranger is None:
                return _Refusal()
            self._dismiss(stranger)
        made = self._runner.server()
        self._strangers[made] = None
        asyncio.get_running_loop().call_later(self._patience_s, self._dismiss, made)
        return made

    def _dismiss(self, who: web.RequestHandler) -> None:
        """Close a connection, if it is still a stranger's."""
        if who in self._strangers:
            del self._strangers[who]
            who.force_close()

    async def stop(self) -> None:
        """Send all pods away."""
        for run in self._runs.values():
            run.wake(go=True)
        if self._door is not None:
            self._door.close()
            self._door = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _members(self, request: web.Request) -> web.Response:
        run_id, run = self._admit(request)
        asked = request.query
        member, after = _member(asked.get("member")), _mark(asked.get("after", "0"))
        port = _number(asked.get("port", "0"), _PORTS)
        if port:
            if member not in run.ports and len(run.ports) >= _MOST_OF_A_RUN:
                raise web.HTTPServiceUnavailable(headers={"Retry-After": _AGAIN_S})
            run.ports[member] = port
        if run.released:
            raise web.HTTPGone(text="this run is to end", headers={HEADER: self.boot})
        self._tell(self._on_poll, run_id, member, after[0])
        stranger = asked.get("boot", "") not in ("", self.boot)
        if not run.is_news(after) and not stranger:
            await self._wait(run, member)
        if not run.is_news(after):
            return web.Response(status=204, headers={HEADER: self.boot})
        return web.Response(
            body=run.view, content_type="application/json", headers={HEADER: self.boot}
        )

    async def _wait(self, run: _Run, member: str) -> None:
        """Until something is published, or for a while; a later poll of a member ends this one."""
        earlier = run.waiting.pop(member, None)
        if earlier is not None and not earlier.done():
            earlier.set_result(True)
        if self._waiting >= self._most_waiting or len(run.waiting) >= _MOST_OF_A_RUN:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": _AGAIN_S})
        future = run.waiting[member] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        stays = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    stays = await future
        finally:
            self._waiting -= 1
            if run.waiting.get(member) is future:
                del run.waiting[member]
        if not stays:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": _AGAIN_S})

    async def _progress(self, request: web.Request) -> web.Response:
        run_id, run = self._admit(request)
        try:
            async with asyncio.timeout(self._patience_s):
                said = json.loads(await request.read())
            member, sender = _member(said["member"]), str(said["sender"])[:_LONGEST_ID]
            lines = [(_numbered(number), str(text)) for number, text in said["lines"]]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise web.HTTPBadRequest(text="lines of a job are wanted") from None
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="that takes too long") from None
        if len(lines) > _MOST_LINES:
            raise web.HTTPRequestEntityTooLarge(_MOST_LINES, len(lines))
        if member not in run.heard and len(run.heard) >= _MOST_OF_A_RUN:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": _AGAIN_S})
        who, last = run.heard.get(member, ("", 0))
        last = last if who == sender else 0
        for number, text in lines:
            if number > last:
                last = number
                self._hear(run_id, member, text)
        run.heard[member] = (sender, last)
        return web.Response(status=204, headers={HEADER: self.boot})

    def _hear(self, run: RunId, member: str, text: str) -> None:
        try:
            line = json.loads(text) if len(text) <= _LONGEST else None
        except (ValueError, RecursionError):
            return
        if isinstance(line, dict):
            self._tell(self._on_line, run, member, line)

    def _tell(self, call: Callable[..., None], run: RunId, member: str, what: object) -> None:
        """Pass something on; a mistake there is not the pod's."""
        try:
            call(run, member, what)
        except Exception:  # noqa: BLE001 - logged, and the others are served
            _log.exception("run %s: what member %s said is lost", run, member)

    def _admit(self, request: web.Request) -> tuple[RunId, _Run]:
        """The run of a request, if its token is right."""
        run = RunId(
            JobId(request.match_info["job"]), _number(request.match_info["attempt"], 1 << 31)
        )
        found = self._runs.get(run)
        if found is None:
            raise web.HTTPNotFound(text="no such run", headers={HEADER: self.boot})
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        digest = found.digest.encode("utf-8", "surrogatepass")  # it may have been forged
        if scheme != "Bearer" or not hmac.compare_digest(digest_of(token).encode(), digest):
            raise web.HTTPUnauthorized(text="not the token of this run")
        self._strangers.pop(request.protocol, None)
        return run, found


class _Refusal(asyncio.Protocol):
    """A connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it before anything is said."""
        if isinstance(transport, asyncio.Transport):
            transport.abort()


def _files() -> int:
    """How many files this process may have open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _member(text: object) -> str:
    """An id as ``pod_membership`` gives them out."""
    if isinstance(text, str) and len(text) <= _DIGITS and text.isdecimal() and text.isascii():
        return str(int(text))
    raise web.HTTPBadRequest(text="a member is a number")


def _numbered(value: object) -> int:
    if isinstance(value, int) and 0 < value < _HIGHEST:
        return value
    raise ValueError("not the number of a line")


def _mark(text: str) -> _Mark:
    numbers = [_number(part, _HIGHEST) for part in text.split(".", 2)]
    version, save, offload = (*numbers, 0, 0)[:3]
    return version, save, offload


def _number(text: str, below: int) -> int:
    if len(text) <= len(str(below)) and text.isdecimal() and text.isascii() and int(text) < below:
        return int(text)
    raise web.HTTPBadRequest(text="a number is wanted")
