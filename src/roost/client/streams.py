"""Streams that outlive their connection, and the live view of all jobs.

A stream goes on where it was: the server is told the id of the last message. What it cannot go on
with begins anew with a snapshot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from roost.client.conversations import (
    PATIENCE_S,
    ConnectionLost,
    Emit,
    Items,
    Open,
    Pause,
    Read,
    RestReply,
    RestRequest,
    failed,
    get,
    waits,
)
from roost.client.sse import Message, Parser
from roost.client.views import JobView, job_view
from roost.errors import Retryable, RoostError

T = TypeVar("T")

#: The server closes a stream, but not because it is at its end.
_CLOSING = "bye"


def watch() -> Items[JobView]:
    """The first jobs that are not over, as they are now, and then every job that changes, for ever.

    Of a long queue the others come when they change; ``jobs`` has all of them.
    """
    yield from read(_live, _jobs)


def changes() -> Items[tuple[str, Any]]:
    """What the live stream says, undigested: ``("snapshot", ...)``, then ``("delta", ...)``."""
    yield from read(_live, lambda message: [(message.event, json.loads(message.data))])


def read(request: Callable[[str], RestRequest], take: Callable[[Message], Iterable[T]]) -> Items[T]:
    """Emit what the messages hold until one says ``end``; a lost connection is opened again."""
    last, heard, pauses = "", time.monotonic(), waits()
    while True:
        error: RoostError | None = None
        try:
            reply = yield Open(request(last))
            assert isinstance(reply, RestReply)  # noqa: S101 - what drivers answer
            error = failed(reply)
            parser = Parser(last)
            while error is None and isinstance(chunk := (yield Read()), bytes):
                heard = time.monotonic()
                for message in parser.feed(chunk):
                    if message.event == _CLOSING:
                        continue
                    last, pauses = message.id, waits()
                    yield Emit(tuple(take(message)))
                    if message.event == "end":
                        return
        except ConnectionLost as lost:
            error = lost.told()
        if error is not None and not isinstance(error, Retryable):
            raise error
        if time.monotonic() - heard > PATIENCE_S:
            raise error or Retryable("the server ends every stream at once", 1.0)
        yield Pause(next(pauses))


def _live(last: str) -> RestRequest:
    return get("/stream", [("after", last)])


def _jobs(message: Message) -> list[JobView]:
    return [job_view(job) for job in json.loads(message.data).get("jobs", ())]
