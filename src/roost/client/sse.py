"""Server-sent events, as far as Roost's server sends them: bytes in, whole messages out.

https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6. Lines end with LF or
CR LF and with nothing else: a log may hold any other character.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Message(NamedTuple):
    """One event of a stream; ``id`` is where to go on after it."""

    event: str
    data: str
    id: str


class Parser:
    """Puts messages together from bytes as they come."""

    def __init__(self, last_id: str = "") -> None:
        self._rest: list[bytes] = []
        self._event = ""
        self._data: list[str] = []
        self._id = last_id

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Take some bytes; gives the messages that end in them."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = b"".join((*self._rest, line))
            self._rest.clear()
            message = self._line(whole.removesuffix(b"\r").decode("utf-8", "replace"))
            if message is not None:
                yield message
        if rest:
            self._rest.append(rest)

    def _line(self, line: str) -> Message | None:
        if not line:
            return self._finish()
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ") if colon else ""
        match name:
            case "event":
                self._event = value
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self._id = value
        return None

    def _finish(self) -> Message | None:
        event, data = self._event, self._data
        self._event, self._data = "", []
        if not data:
            return None
        return Message(event or "message", "\n".join(data), self._id)
