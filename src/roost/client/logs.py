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
        yield Emit(place.lines.feed(text.decode(reply.content)))
        size = int(reply.headers.get("x-log-size", 0))
        if tail is not None or not reply.content or place.offset + len(reply.content) >= size:
            break
        place.offset += len(reply.content)
    yield Emit(place.lines.rest())


def following(place: LogCursor, tail: int | None = None) -> Items[str]:
    """Lines from a place on, or from the last ``tail``; the place goes along."""
    if tail is not None:
        yield from _skip(place, tail)
    yield from read(place.request, place.take)


def pieces(place: LogCursor, tail: int | None = None) -> Items[tuple[int, list[str]]]:
    """The same, but all lines that come together in one piece, each with its attempt."""

    def taken(message: Message) -> Iterator[tuple[int, list[str]]]:
        attempt = place.attempt  # what is left of an attempt comes with the news of the next
        if lines := place.take(message):
            yield attempt, lines

    if tail is not None:
        yield from _skip(place, tail)
    yield from read(place.request, taken)


class LineAssembler:
    """Puts lines together from pieces of text."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def feed(self, text: str) -> list[str]:
        """The lines that end in this piece."""
        first, *ended = text.split("\n")
        self._parts.append(first)
        if not ended:
            return []
        lines = ["".join(self._parts), *ended]
        self._parts = [lines.pop()]
        return [line.removesuffix("\r") for line in lines]

    def rest(self) -> list[str]:
        """What is left without an end."""
        whole = "".join(self._parts)
        self._parts.clear()
        return [whole.removesuffix("\r")] if whole else []


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

    def take(self, message: Message) -> list[str]:
        """The lines that a message completes."""
        told = json.loads(message.data)
        match message.event:
            case "message":
                offset = message.id.rpartition("-")[2]  # after the attempt
                self.offset = int(offset) if offset.isdecimal() else self.offset
                return self.lines.feed(str(told))
            case "attempt" if told["attempt"] != self.attempt:
                if self.attempt:
                    self.offset = 0
                self.attempt = int(told["attempt"])
                return self.lines.rest()
            case "end":
                return self.lines.rest()
        return []


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
