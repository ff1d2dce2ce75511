"""Connections that say nothing, or too slowly, are not kept; kept ones are used again."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.unit.server.worlds import World, eventually, looped, world

from roost.core.spec import JobId, RunId
from roost.errors import Fatal
from roost.server.http import listen, serve
from roost.server.options import ServerOptions


@asynccontextmanager
async def wired(here: World) -> AsyncIterator[int]:
    """The port of a real server around a world."""
    ready = asyncio.Event()
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        serving = asyncio.create_task(serve(here.app, sock, ready=ready.set))
        await ready.wait()
        try:
            yield port
        finally:
            signal.raise_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                await serving


async def _silence(port: int, *parts: bytes) -> tuple[bytes, float]:
    """What comes back to a client that sends these parts slowly, and after how long."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.1)
        async with asyncio.timeout(60):
            answer = await reader.read()
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    return answer, time.monotonic() - began


@looped
async def test_silent_and_slow_clients_are_cut_off(tmp_path: Path) -> None:
    async with (
        world(tmp_path, ServerOptions(header_s=0.3, body_s=0.3)) as here,
        wired(here) as port,
    ):
        token = here.tokens["root"]
        head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        cases = {
            "nothing at all": (),
            "a header a byte at a time": (b"GET", b" /", b"h", b"e", b"a", b"l", b"t"),
            "an unfinished header": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",),
            "a body that does not come": (f"{head}Content-Length: 10\r\n\r\n".encode(), b"{"),
        }
        for name, parts in cases.items():
            answer, passed = await _silence(port, *parts)
            assert passed < 30, name
            if name.startswith("a body"):
                assert answer.startswith(b"HTTP/1.1 408"), answer
            else:
                assert answer == b"", name


@looped
async def test_a_connection_is_used_again_but_not_kept_for_ever(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(header_s=1.0)) as here, wired(here) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(5):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.3)
        writer.write(b"GET /healthz HT")  # and never the rest
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


@looped
async def test_an_open_stream_outlives_the_time_for_headers(tmp_path: Path) -> None:
    options = ServerOptions(header_s=0.2, heartbeat_s=0.1)
    async with world(tmp_path, options) as here, wired(here) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        token = here.tokens["root"]
        head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(f"GET /api/v1/stream HTTP/1.1\r\n{head}".encode())
        async with asyncio.timeout(60):
            for _ in range(6):
                await reader.readuntil(b": still here")
        assert len(here.here.streams) == 1
        writer.close()
        await eventually(lambda: not len(here.here.streams))


@looped
async def test_a_cluster_that_cannot_go_on_ends_the_server(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        with listen("127.0.0.1", 0) as sock:
            ready = asyncio.Event()
            serving = asyncio.create_task(serve(here.app, sock, ready=ready.set))
            await ready.wait()
            here.cluster.broken.set_exception(Fatal("the disk is broken"))
            async with asyncio.timeout(60):
                (error,) = await asyncio.gather(serving, return_exceptions=True)
        assert isinstance(error, Fatal)


@looped
async def test_connections_that_say_nothing_shut_nobody_out(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(connections=20)) as here, wired(here) as port:
        token = here.tokens["root"]
        head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        silent: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        opened = asyncio.Event()

        async def keep_coming() -> None:
            while len(silent) < 60:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /healthz HT")
                silent.append((reader, writer))
            opened.set()

        streams = []
        for _ in range(8):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /api/v1/stream HTTP/1.1\r\n{head}".encode())
            await reader.readuntil(b"event: snapshot")
            streams.append(writer)
        coming = asyncio.create_task(keep_coming())
        await opened.wait()
        await coming
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /api/v1/whoami HTTP/1.1\r\n{head}".encode())
        async with asyncio.timeout(60):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            for early, _ in silent[:40]:  # the oldest gave way
                with suppress(ConnectionError):
                    assert await early.read() == b""
        assert len(here.here.streams) == 8
        for one in (writer, *streams, *(writer for _, writer in silent)):
            one.close()


@looped
async def test_too_many_requests_at_once_are_told_so(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(connections=4)) as here, wired(here) as port:
        token = here.tokens["root"]
        head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        streams = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /api/v1/stream HTTP/1.1\r\n{head}".encode())
            await reader.readuntil(b"event: snapshot")
            streams.append(writer)
        answer, _ = await _silence(port, f"GET /api/v1/whoami HTTP/1.1\r\n{head}".encode())
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in answer.lower()
        assert b'"kind":"retry"' in answer
        for one in streams:
            one.close()


@looped
async def test_who_does_not_read_costs_no_memory(tmp_path: Path) -> None:
    size, readers = 64 << 20, 4
    async with world(tmp_path) as here, wired(here) as port:
        job = await here.submit()
        await here.until("root", job, "running")
        result = here.engine.returned(RunId(JobId(job), 1), bytes(size))
        head = f"Host: localhost\r\nAuthorization: Bearer {here.tokens['root']}\r\n\r\n"
        socks = []
        for _ in range(readers):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", port))
            sock.sendall(f"GET /api/v1/jobs/{job}/result HTTP/1.1\r\n{head}".encode())
            socks.append(sock)
        await eventually(lambda: result.open == readers and result.reads >= readers)
        last = -1
        while last != result.reads:  # until the buffers of the kernel are full
            last = result.reads
            await asyncio.sleep(0.2)
        assert result.reads * 64 * 1024 < readers * size / 4
        for sock in socks:
            sock.close()
        await eventually(lambda: result.open == len(here.here.file_responses) == 0)
