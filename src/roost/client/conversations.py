"""Conversations with the server, told as steps: no I/O here, so that sync and async share them.

A conversation is a generator. It yields what it needs next (send a request, open a stream and
read from it, pause) or an item for the caller that iterates over it. It is sent the answer, and
returns what the caller asked for. ``drivers`` makes the steps real, blocking or not.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from roost.client.errors import LostAnswer, NoServer, refusal
from roost.errors import Fatal, Retryable, RoostError

T = TypeVar("T")

#: How long a stream or a wait stands a server that does not answer: time to start it again.
PATIENCE_S = 120.0

_FIRST_WAIT_S, _MOST_WAIT_S = 0.05, 2.0
_FULL = 507
_ERRORS = 400


@dataclass(frozen=True, slots=True)
class RestRequest:
    """What is asked; ``again``: it does no harm if the server gets it twice.

    ``body`` goes out as JSON, ``content`` as it is.
    """

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    again: bool = False
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RestReply:
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    content: bytes = b""

    def json(self) -> Any:
        """The content, which is JSON or a broken promise."""
        try:
            return json.loads(self.content)
        except ValueError:
            raise Fatal("the server's answer is not JSON; is that a Roost server?") from None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait that long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Open:
    """Send a request with an answer that comes bit by bit, in place of the stream open before."""

    request: RestRequest


@dataclass(frozen=True, slots=True)
class Read:
    """Read on in the open stream; the answer is some bytes, ``None`` at its end."""


@dataclass(frozen=True, slots=True)
class Emit(Generic[T]):
    """Items for the caller that iterates, as many as are there."""

    items: Sequence[T]


class ConnectionLost(Exception):
    """Thrown into a conversation: no answer; ``sent`` says whether the question may have come."""

    def __init__(self, url: str, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.url, self.sent = url, sent

    def told(self) -> Retryable:
        """The error that a caller sees."""
        return LostAnswer(self.url, str(self)) if self.sent else NoServer(self.url)


Step = RestRequest | Pause | Open | Read | Emit[Any]
Answer = RestReply | bytes | None
#: A conversation that returns a T, and one that emits them.
Steps = Generator[Step, Answer, T]
Items = Generator[RestRequest | Pause | Open | Read | Emit[T], Answer, None]


def ask(request: RestRequest) -> Steps[RestReply]:
    """Yield a request, and return its answer."""
    reply = yield request
    assert isinstance(reply, RestReply)  # noqa: S101 - what drivers answer
    return reply


def get(path: str, params: Iterable[tuple[str, object]] = ()) -> RestRequest:
    """A question that changes nothing."""
    kept = tuple((name, str(value)) for name, value in params if value not in (None, ""))
    return RestRequest("GET", path, kept, again=True)


def part(name: str) -> str:
    """One part of a path: whatever is typed stays one part."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def patient(steps: Steps[T], patience_s: float) -> Steps[T]:
    """The same conversation, but requests that can be repeated are, for that many seconds."""
    answer: Answer = None
    error: BaseException | None = None
    with closing(steps):
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                done: T = end.value
                return done
            answer = error = None
            try:
                if isinstance(step, RestRequest):
                    answer = yield from _insist(step, patience_s)
                else:
                    answer = yield step
            except (RoostError, ConnectionLost) as lost:
                error = lost


def collected(items: Items[T]) -> Steps[list[T]]:
    """What a conversation emits, as a list."""
    found: list[T] = []
    yield from consumed(items, found.append)
    return found


def consumed(items: Items[T], take: Callable[[T], object]) -> Steps[None]:
    """Hand over what a conversation emits, one by one."""
    answer: Answer = None
    error: BaseException | None = None
    with closing(items):
        while True:
            try:
                step = items.send(answer) if error is None else items.throw(error)
            except StopIteration:
                return
            answer = error = None
            if isinstance(step, Emit):
                for item in step.items:
                    take(item)
                continue
            try:
                answer = yield step
            except (RoostError, ConnectionLost) as lost:
                error = lost


def waits() -> Iterator[float]:
    """How long to wait before each further try: longer each time, and never in step with others."""
    wait = _FIRST_WAIT_S
    while True:
        yield wait * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret
        wait = min(2 * wait, _MOST_WAIT_S)


def failed(reply: RestReply) -> RoostError | None:
    """What an answer refuses, if it does."""
    if reply.status < _ERRORS:
        return None
    return refusal(reply.status, reply.headers, reply.content)


def _insist(request: RestRequest, patience_s: float) -> Steps[RestReply]:
    end = time.monotonic() + patience_s
    for wait in waits():
        after, again = wait, False
        error: RoostError | None
        try:
            reply = yield from ask(request)
        except ConnectionLost as lost:
            error, again = lost.told(), request.again or not lost.sent
        else:
            error = failed(reply)
            if error is None:
                return reply
            # An overloaded server did nothing yet; a full disk does not mend itself in seconds.
            if isinstance(error, Retryable) and reply.status != _FULL:
                after, again = max(error.after, wait), True
        if not again or time.monotonic() + after > end:
            raise error
        yield Pause(after)
    raise AssertionError  # waits never end
