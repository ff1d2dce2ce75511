"""Logs as lines: what was written so far, page by page, and what is written while one looks.

The server sends pieces of text of any length; lines are put together here. A lost connection goes
on at the byte, in the attempt, where it was lost.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from roost.client import api
from roost.client.conversations import Emit, Items, RestReply, RestRequest, Steps, ask, get, part
from roost.client.sse import Message
from roost.client.streams import read


def logs(
    job: str,
    follow: bool = False,  # noqa: FBT001, FBT002 - logs(True) reads well enough
    worker: str = "",
    attempt: int = 0,
    tail: int | None = None,
) -> Items[str]:
    """The lines that a worker wrote, all or the last ``tail``, in an attempt (0: the newest).

    With ``follow``, and whatever it writes from then on, through all attempts, until the job is
    over.
    """
    place = LogCursor(job, worker, attempt)
    if follow:
        yield from following(place, tail)
        return
    text = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        reply = yield from _page(place, tail)
        for line in place.lines.feed(text.decode(reply.content)):
            yield Emit(line)
        size = int(reply.headers.get("x-log-size", 0))
        if tail is not None or not reply.content or place.offset + len(reply.content) >= size:
            break
        place.offset += len(reply.content)
    for line in place.lines.rest():
        yield Emit(line)


def following(place: LogCursor, tail: int | None = None) -> Items[str]:
    """Lines from a place on, or from the last ``tail``; the place goes along."""
    if tail is not None:
        yield from _skip(place, tail)
    yield from read(place.request, place.take)


class LineAssembler:
    """Puts lines together from pieces of text."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def feed(self, text: str) -> Iterator[str]:
        """The lines that end in this piece."""
        *ended, rest = text.split("\n")
        for line in ended:
            self._parts.append(line)
            yield from self._joined()
        if rest:
            self._parts.append(rest)

    def rest(self) -> Iterator[str]:
        """What is left without an end."""
        if self._parts:
            yield from self._joined()

    def _joined(self) -> Iterator[str]:
        whole = "".join(self._parts).removesuffix("\r")
        self._parts.clear()
        yield whole


@dataclass(slots=True)
class LogCursor:
    """How far the log of a worker was read; attempt 0 is the newest."""

    job: str
    worker: str
    attempt: int
    offset: int = 0
    lines: LineAssembler = field(default_factory=LineAssembler)

    def request(self, _last: str) -> RestRequest:
        """What to ask for, to go on from here."""
        asked = [("worker", self.worker), ("attempt", self.attempt), ("offset", self.offset)]
        return get(f"/jobs/{part(self.job)}/logs/stream", asked)

    def take(self, message: Message) -> Iterator[str]:
        """The lines that a message completes."""
        told = json.loads(message.data)
        match message.event:
            case "message":
                yield from self.lines.feed(str(told))
                offset = message.id.rpartition("-")[2]  # after the attempt
                self.offset = int(offset) if offset.isdecimal() else self.offset
            case "attempt" if told["attempt"] != self.attempt:
                yield from self.lines.rest()
                if self.attempt:
                    self.offset = 0
                self.attempt = int(told["attempt"])
            case "end":
                yield from self.lines.rest()


def _page(place: LogCursor, tail: int | None) -> Steps[RestReply]:
    asked = [("worker", place.worker), ("attempt", place.attempt)]
    asked += [("offset", place.offset)] if tail is None else [("tail", tail)]
    return (yield from ask(get(f"/jobs/{part(place.job)}/logs", asked)))


def _skip(place: LogCursor, tail: int) -> Steps[None]:
    """Go to where the last lines of the present attempt begin."""
    attempt = place.attempt or (yield from api.status(place.job)).attempt
    if not attempt:
        return
    place.attempt = attempt
    reply = yield from _page(place, tail)
    place.offset = int(reply.headers.get("x-log-offset", 0))
