"""Who waits at the door, and who has to go where it gets crowded."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import pytest
from tests.unit.server.worlds import looped

from roost.server import listener
from roost.server.listener import Listener, WaitingLine, peer_of
from roost.server.options import ServerOptions


def test_the_oldest_of_a_peer_goes_before_the_oldest_of_all() -> None:
    gone: list[str] = []
    line = WaitingLine[str](4, 2, gone.append)
    for one, peer in (("a1", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b")):
        line.add(one, peer)
    assert gone == ["b1"]
    for one, peer in (("c1", "c"), ("d1", "d")):
        line.add(one, peer)
    assert gone == ["b1", "a1"]
    assert len(line) == 4


def test_room_is_made_by_the_peer_with_the_most() -> None:
    gone: list[str] = []
    line = WaitingLine[str](9, 9, gone.append)
    for one, peer in (("a1", "a"), ("b1", "b"), ("b2", "b")):
        line.add(one, peer)
    assert line.give_way()
    assert gone == ["b1"]
    line.discard("a1")
    line.discard("a1")
    assert line.give_way()
    assert not line.give_way()
    assert gone == ["b1", "b2"]


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("::ffff:10.0.0.1", 5, 0, 0), "10.0.0.1"),
        (("2001:db8:1:2:3::4", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        (("", 0), ""),
        (None, ""),
    ],
)
def test_a_peer_is_an_address_or_a_network(address: object, peer: str) -> None:
    assert peer_of(address) == peer


@looped
async def test_those_who_say_nothing_are_sent_off_and_others_come_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With few descriptors and handshakes that never end, new connections still come in."""
    monkeypatch.setattr(listener, "descriptors", lambda: 80)
    monkeypatch.setattr(listener, "reserve", lambda: 40)
    monkeypatch.setattr(listener, "open_files", lambda: 0)  # the clients are in this process, too
    most, served = 0, 0

    async def welcome(connection: socket.socket) -> None:
        nonlocal most, served
        most = max(most, len(door._tasks))
        loop = asyncio.get_running_loop()
        if await loop.sock_recv(connection, 5) == b"hello":
            await loop.sock_sendall(connection, b"welcome")
            served += 1
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as sock:
        silent: WaitingLine[object] = WaitingLine(1, 1, lambda _: None)
        door = Listener(sock, welcome, ServerOptions(), established=(), silent=silent)
        try:
            port = sock.getsockname()[1]
            opened = []
            for number in range(150):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                opened.append(writer)
                if number % 50 == 49:
                    writer.write(b"hello")
                    async with asyncio.timeout(60):
                        assert await reader.read(7) == b"welcome"
        finally:
            door.close()
            await door.wait_closed()
            for writer in opened:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()
    assert served == 3
    assert most <= 80
