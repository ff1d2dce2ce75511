"""Bodies of requests: who may send one at all, and how much of them is held at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.unit.server.test_http import wired
from tests.unit.server.worlds import World, job, looped, world

from roost.server.options import MIB, ServerOptions

SMALL = ServerOptions(body_bytes=MIB, bodies_bytes_per_user=2 * MIB, bodies_bytes=3 * MIB)


@asynccontextmanager
async def begun(
    here: World, port: int, who: str, length: str = f"Content-Length: {MIB}"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A submission whose body is still to come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"Host: localhost\r\nAuthorization: Bearer {here.tokens[who]}\r\n{length}"
    writer.write(f"POST /api/v1/jobs HTTP/1.1\r\n{head}\r\n\r\n".encode())
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> str:
    async with asyncio.timeout(60):
        return (await reader.read()).decode()


@looped
async def test_whoever_may_not_is_told_before_a_byte_of_the_body(tmp_path: Path) -> None:
    async with world(tmp_path) as here, wired(here) as port:
        await here.add("eve", "viewer")
        async with begun(here, port, "eve", "Content-Length: 16000000") as (reader, _):
            told = await answer(reader)
        assert told.startswith("HTTP/1.1 403")
        assert "lacks the permission 'jobs:write'" in told
        assert "connection: close" in told.lower()


@looped
async def test_bodies_are_bounded_for_each_user_and_for_all(tmp_path: Path) -> None:
    async with world(tmp_path, SMALL) as here, wired(here) as port:
        for name in ("ada", "bob"):
            await here.add(name)
        async with AsyncExitStack() as slow:
            for who in ("ada", "ada", "bob"):
                waits = f"Content-Length: {MIB}\r\nExpect: 100-continue"
                reader, writer = await slow.enter_async_context(begun(here, port, who, waits))
                # The server asks for the body once it has counted it.
                await reader.readuntil(b"100 Continue\r\n")
                writer.write(b"{")
            cases = {
                ("ada", f"Content-Length: {MIB}"): "429",
                ("bob", f"Content-Length: {MIB}"): "503",
                ("root", f"Content-Length: {2 * MIB}"): "413",
            }
            for (who, length), status in cases.items():
                async with begun(here, port, who, length) as (refused, _):
                    told = await answer(refused)
                assert told.startswith(f"HTTP/1.1 {status}"), told
                assert ("retry-after: 1" in told.lower()) is (status != "413")
            # What needs no room still works.
            async with here.client("ada") as client:
                assert (await client.get("/api/v1/jobs")).status_code == 200
        async with here.client("ada") as client:

            async def fits() -> bool:
                body = {**job("large"), "secrets": {"TEXT": "x" * (MIB // 2)}}
                body["job"]["secrets"] = ["TEXT"]
                return (await client.post("/api/v1/jobs", json=body)).status_code == 201

            async with asyncio.timeout(60):
                # The others have gone, which takes a moment.
                while not await fits():  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(0.01)


@looped
async def test_a_body_without_a_length_counts_as_it_comes(tmp_path: Path) -> None:
    options = ServerOptions(body_bytes=8 * MIB, bodies_bytes_per_user=MIB)
    async with world(tmp_path, options) as here, wired(here) as port:
        async with begun(here, port, "root", "Transfer-Encoding: chunked") as (reader, writer):
            part = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
            told = asyncio.create_task(answer(reader))
            for _ in range(17):
                writer.write(part)
                await asyncio.sleep(0)
            assert (await told).startswith("HTTP/1.1 429")
        async with here.client() as client:
            assert (await client.post("/api/v1/jobs", json=job("small"))).status_code == 201
