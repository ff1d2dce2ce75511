"""Writes of one turn of the event loop become one: the head of an answer and its body.

uvicorn writes them one after the other, and each write is a call of the system and, over TLS, a
record of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

#: More than this is not held back: the transport shall tell when its peer is slow.
_MOST_BYTES = 1 << 16


class BatchTransport:
    """A transport that writes at the end of the turn; all else is the transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        """What the transport has."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write soon, together with what comes next."""
        if not data:
            return
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._size += len(data)
        if self._size > _MOST_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is held, and close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what is held is lost."""
        self._held, self._size = [], 0
        self._transport.abort()

    def _flush(self) -> None:
        held, self._held, self._size = self._held, [], 0
        if held:
            self._transport.write(b"".join(held))
