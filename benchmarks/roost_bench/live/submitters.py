"""Many submissions over a few connections, by a client that costs little beside the server.

Client and server share the cores of one machine: with ``roost.client`` a submission cost the client
more than the server. Here requests are made beforehand, and of an answer only what is needed is
looked at: its status and its length. All of it is read.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from roost.demo.server import ScratchServer
from roost.errors import Fatal

_PATIENCE_S = 600.0
_CREATED = b"HTTP/1.1 201 "
_LENGTH = b"content-length:"


@dataclass(slots=True)
class Submissions:
    """What became of submissions: how long each took, all of them, and CPU of both sides."""

    took_ms: list[float] = field(default_factory=list)
    all_s: float = 0.0
    client_ms: float = 0.0
    server_ms: float = 0.0


def submitted(
    server: ScratchServer, jobs: Sequence[dict[str, Any]], rate: float | None, connections: int
) -> Submissions:
    """Submit jobs at a steady rate, timed from when they were due; without one, as fast as can be.

    CPU is that of the whole process, in milliseconds per job.
    """
    requests = list(_requests(server, jobs))
    before, own = server.load().cpu_s, time.process_time()
    done = asyncio.run(
        asyncio.wait_for(_sent(server.url, requests, rate, connections), _PATIENCE_S)
    )
    done.server_ms = 1000 * (server.load().cpu_s - before) / len(jobs)
    done.client_ms = 1000 * (time.process_time() - own) / len(jobs)
    return done


async def _sent(
    url: str, requests: Sequence[bytes], rate: float | None, connections: int
) -> Submissions:
    at, done = urlsplit(url), Submissions()
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(connections):
        free.put_nowait(await asyncio.open_connection(at.hostname, at.port))
    began = time.perf_counter()

    async def send(number: int) -> None:
        # From when it was due: what waits for those before it has waited, too.
        due = began if rate is None else began + number / rate
        await asyncio.sleep(due - time.perf_counter())
        reader, writer = await free.get()
        writer.write(requests[number])
        await _accepted(reader)
        free.put_nowait((reader, writer))
        done.took_ms.append(1000 * (time.perf_counter() - due))

    async with asyncio.TaskGroup() as group:
        for number in range(len(requests)):
            group.create_task(send(number))
    done.all_s = time.perf_counter() - began
    while not free.empty():
        free.get_nowait()[1].close()
    return done


async def _accepted(reader: asyncio.StreamReader) -> None:
    """Read one answer; raises Fatal if it is not that of a job that was taken."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0]
    body = await reader.readexactly(int(length))
    if not head.startswith(_CREATED):
        raise Fatal(f"a job was not taken: {body.decode('utf-8', 'replace')}")


def _requests(server: ScratchServer, jobs: Sequence[dict[str, Any]]) -> Iterator[bytes]:
    run = time.time_ns()
    for number, job in enumerate(jobs):
        body = json.dumps({"job": job}).encode()
        lines = (
            "POST /api/v1/jobs HTTP/1.1",
            f"Host: {urlsplit(server.url).netloc}",
            f"Authorization: Bearer {server.token}",
            f"Idempotency-Key: {run}-{number}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        )
        yield "\r\n".join((*lines, "", "")).encode() + body
