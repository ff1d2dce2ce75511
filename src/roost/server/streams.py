"""Open streams: how many there may be, when they end, and how they are written to the wire.

Every stream holds an ``OpenStream``. It is woken when there is something to send, and told to close
when its token is no longer valid or the server stops; it then sends ``event: bye`` and ends. One
task looks at the tokens of all open streams.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from roost.server.auth import Caller, Tokens
from roost.server.errors import HttpError, as_json
from roost.server.options import ServerOptions

HEARTBEAT = b": still here\n\n"


def message(data: object, event: str = "", id_: str = "") -> bytes:
    """One event as it goes over the wire; the data is JSON, which has no line breaks."""
    head = (f"event: {event}\n" if event else "") + (f"id: {id_}\n" if id_ else "")
    return b"%sdata: %s\n\n" % (head.encode(), as_json(data))


class OpenStream:
    """One open stream."""

    def __init__(self, lines: OpenStreams, caller: Caller, secret: str) -> None:
        self._lines, self.caller, self.secret = lines, caller, secret
        self.closing = ""
        self._woken = asyncio.Event()

    def give_back(self) -> None:
        """The stream is over."""
        self._lines.remove(self)

    def wake(self) -> None:
        """There may be something to send."""
        self._woken.set()

    def close(self, why: str) -> None:
        """End the stream as soon as it can say so."""
        self.closing = self.closing or why
        self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Until it is woken; ``False`` if nothing happened for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class OpenStreams:
    """All open streams."""

    def __init__(self, tokens: Tokens, options: ServerOptions) -> None:
        self._tokens, self._options = tokens, options
        self._lines: set[OpenStream] = set()
        self._held: Counter[str] = Counter()
        self._stopped = ""

    def __len__(self) -> int:
        return len(self._lines)

    def hold(self, caller: Caller, secret: str) -> OpenStream:
        """A line for a new stream, to be given back; raises Refused if there are too many."""
        if self._stopped:
            raise HttpError(503, "retry", self._stopped)
        if self._held[caller.token] >= self._options.streams_per_token:
            most = self._options.streams_per_token
            raise HttpError(429, "retry", f"this token has {most} streams open already")
        if len(self._lines) >= self._options.streams:
            raise HttpError(503, "retry", f"{len(self._lines)} streams are open already")
        line = OpenStream(self, caller, secret)
        self._lines.add(line)
        self._held[caller.token] += 1
        return line

    def remove(self, line: OpenStream) -> None:
        """A stream is over; a second time changes nothing."""
        if line in self._lines:
            self._lines.remove(line)
            self._held -= Counter({line.caller.token: 1})

    def stop(self, why: str = "the server stops") -> None:
        """Close all, and take no more."""
        self._stopped = why
        for line in list(self._lines):
            line.close(why)

    async def check(self) -> None:
        """Close the streams of tokens that are no longer valid."""
        held: dict[bytes, list[OpenStream]] = {}
        for line in self._lines:
            held.setdefault(line.caller.key, []).append(line)
        for lines in held.values():
            caller = await self._tokens.caller(lines[0].secret)
            for line in lines:
                if caller is None or (caller.user, caller.role) != (
                    line.caller.user,
                    line.caller.role,
                ):
                    line.close("the token is no longer valid")

    async def keep_checking(self) -> None:
        """Check again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._options.token_check_s)
            # A store that does not answer now says nothing about a token.
            with suppress(Exception):
                await self.check()


class StreamResponse(Response):
    """A response that sends events until it has no more, or its reader is gone."""

    media_type = "text/event-stream"

    def __init__(
        self,
        line: OpenStream,
        events: Callable[[OpenStream], AsyncGenerator[bytes]],
        coding: str = "",
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(headers=headers if not coding else {**headers, "Content-Encoding": coding})
        del self.headers["Content-Length"]
        self._line, self._events = line, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send, and notice at once when the reader has gone."""
        try:
            await send_while_there(self._send(send), receive)
        finally:
            self._line.give_back()

    async def _send(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        async with aclosing(self._events(self._line)) as events:
            async for chunk in events:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_while_there(sending: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Send an answer until it is complete, or its reader has gone."""
    task = asyncio.ensure_future(sending)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.wait({task, gone})
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def beats(line: OpenStream, seconds: float) -> AsyncGenerator[bytes | None]:
    """``None`` whenever a line is woken, a heartbeat when it was silent; ends when it closes."""
    last = time.monotonic()
    while not line.closing:
        left = seconds - (time.monotonic() - last)
        if left > 0 and await line.wait(left):
            if not line.closing:
                yield None
        else:
            last = time.monotonic()
            yield HEARTBEAT
    yield message({"why": line.closing}, "bye")
