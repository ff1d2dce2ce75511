"""Writes of one turn go out together, in order, and none is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from roost.server.joined_writes import BatchTransport

pytestmark = pytest.mark.anyio


class Wire:
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("closed")

    def abort(self) -> None:
        self.told.append("aborted")

    def is_closing(self) -> bool:
        return "closed" in self.told


def joined() -> tuple[BatchTransport, Wire]:
    wire: Any = Wire()
    return BatchTransport(wire, asyncio.get_running_loop()), wire


async def test_what_is_written_in_one_turn_goes_out_at_its_end() -> None:
    transport, wire = joined()
    for data in (b"head", b"", b"body"):
        transport.write(data)
    assert wire.told == []
    await asyncio.sleep(0)
    transport.write(b"next")
    await asyncio.sleep(0)
    assert wire.told == [b"headbody", b"next"]


async def test_what_is_held_goes_out_before_the_end_and_not_after_an_abort() -> None:
    transport, wire = joined()
    transport.write(b"last words")
    transport.close()
    assert wire.told == [b"last words", "closed"]
    assert transport.is_closing()

    transport, wire = joined()
    transport.write(b"nobody listens")
    transport.abort()
    await asyncio.sleep(0)
    assert wire.told == ["aborted"]


async def test_much_is_not_held_back() -> None:
    transport, wire = joined()
    transport.write(b"head")
    transport.write(bytes(1 << 17))
    transport.write(b"tail")
    assert wire.told == [b"head" + bytes(1 << 17)]
    await asyncio.sleep(0)
    assert wire.told[1:] == [b"tail"]
