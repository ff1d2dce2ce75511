"""Viewers of a live stream that cost little themselves: sockets that are read and thrown away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_CHUNK = 1 << 16


class StreamViewers:
    """Some open streams, and how much came over them."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.answers = 0


@asynccontextmanager
async def watching(url: str, cookie: str, count: int) -> AsyncIterator[StreamViewers]:
    """So many viewers with the session of a browser, from their first message on."""
    viewers, address = StreamViewers(), urlsplit(url)
    request = (
        f"GET /api/v1/stream HTTP/1.1\r\nHost: {address.netloc}\r\nCookie: {cookie}\r\n"
        "Accept: text/event-stream\r\nAccept-Encoding: gzip\r\n\r\n"
    ).encode()
    begun = asyncio.Semaphore(0)

    async def view() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(request)
            status = await reader.readline()
            viewers.answers += b" 200 " in status
            begun.release()
            while got := await reader.read(_CHUNK):
                viewers.received_bytes += len(got)
        finally:
            writer.close()

    tasks = [asyncio.create_task(view()) for _ in range(count)]
    try:
        for _ in range(count):
            await begun.acquire()
        yield viewers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
