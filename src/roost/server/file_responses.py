"""Answers out of files: sent piece by piece, as fast as their reader takes them.

What fits into one piece is read at once. A larger answer keeps its file open, and one piece in
memory, until its reader has it all; there is a bounded number of these, in all and for each user.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from roost.server.auth import Read
from roost.server.errors import HttpError
from roost.server.options import ServerOptions
from roost.server.streams import send_while_there

if TYPE_CHECKING:
    from roost.engines import LogFile


class FilePart(NamedTuple):
    """A part of an open file, which is closed with it, and how it is told."""

    file: LogFile
    start: int
    length: int
    media_type: str
    headers: Mapping[str, str] = {}


class FileResponses:
    """Makes answers out of parts of files, and counts the large ones."""

    def __init__(self, read: Read, options: ServerOptions) -> None:
        self._read, self._options = read, options
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._held.total()

    async def answer(self, user: str, part: FilePart) -> Response:
        """An answer for a user; raises Refused where too many large ones are open."""
        if part.length <= self._options.piece_bytes:
            content = await self._read(lambda: _whole(part))
            return Response(content, headers=part.headers, media_type=part.media_type)
        try:
            self._take(user)
        except HttpError:
            part.file.close()
            raise
        return _Large(self, user, part)

    def _take(self, user: str) -> None:
        most = self._options.large_per_user
        if self._held[user] >= most:
            raise HttpError(429, "retry", f"{user} has {most} large answers open already")
        if len(self) >= self._options.large:
            raise HttpError(503, "retry", f"{len(self)} large answers are open already")
        self._held[user] += 1

    def give_back(self, user: str) -> None:
        """A large answer is over."""
        self._held -= Counter({user: 1})

    async def piece(self, part: FilePart, done: int) -> bytes:
        """The next piece of a part; a request that is cut off leaves no open file behind."""
        most = min(self._options.piece_bytes, part.length - done)
        reading = asyncio.ensure_future(
            self._read(lambda: part.file.read(part.start + done, most)),
        )
        try:
            found: bytes = await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.wait({reading})  # a file is not closed while it is being read
            raise
        return found


def _whole(part: FilePart) -> bytes:
    with part.file as file:
        return file.read(part.start, part.length)


class _Large(Response):
    """An answer that is read while it is sent."""

    def __init__(self, pieces: FileResponses, user: str, part: FilePart) -> None:
        headers = {**part.headers, "Content-Length": str(part.length)}
        super().__init__(headers=headers, media_type=part.media_type)
        self._pieces, self._user, self._part = pieces, user, part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send, and notice at once when the reader has gone."""
        try:
            await send_while_there(self._send(send), receive)
        finally:
            self._part.file.close()
            self._pieces.give_back(self._user)

    async def _send(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        done, length = 0, self._part.length
        while done < length:
            body = await self._pieces.piece(self._part, done)
            if not body:
                return  # it was cut short meanwhile: the reader must not take this for all of it
            done += len(body)
            await send({"type": "http.response.body", "body": body, "more_body": done < length})
