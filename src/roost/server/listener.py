"""Accepts connections, counted from the moment they are there, before anything is said over them.

A connection waits at the door until its TLS handshake is done, for a few seconds at most. So many
may wait, and so many of one address; where more come, the oldest are closed, so that strangers who
say nothing shut nobody out. Descriptors are kept in reserve for the store and for launches: where
they get scarce, waiting and silent connections give way, and nothing is accepted for a moment.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
import time
from collections.abc import Callable, Coroutine, Hashable, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from roost.server.options import ServerOptions

T = TypeVar("T", bound=Hashable)

log = logging.getLogger("roost.server")

#: No descriptors, of the process or of the machine; no memory for a socket.
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_S = 0.05
_LOOK_EVERY_S = 0.25
_TELL_EVERY_S = 60.0
#: A closed connection is gone a few turns of the loop later; no more come in each of them.
_AT_ONCE = 16
_BACKLOG = 1024
#: Descriptors that connections never take: the store and launches need them.
_RESERVE = 128


class WaitingLine(Generic[T]):
    """Connections that wait, the oldest first; where there are too many, the oldest is sent off."""

    def __init__(self, most: int, most_of_peer: int, send_off: Callable[[T], None]) -> None:
        self._most, self._most_of_peer, self._send_off = most, most_of_peer, send_off
        self._all: dict[T, str] = {}
        self._by_peer: dict[str, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, one: T, peer: str) -> None:
        """Let one wait."""
        self._all[one] = peer
        of_peer = self._by_peer.setdefault(peer, {})
        of_peer[one] = None
        if len(of_peer) > self._most_of_peer:
            self._dismiss(next(iter(of_peer)))
        elif len(self._all) > self._most:
            self._dismiss(next(iter(self._all)))

    def discard(self, one: T) -> None:
        """It waits no more."""
        peer = self._all.pop(one, None)
        if peer is None:
            return
        of_peer = self._by_peer[peer]
        del of_peer[one]
        if not of_peer:
            del self._by_peer[peer]

    def give_way(self) -> bool:
        """Send off the oldest of the peer with the most; whether there was one."""
        if not self._by_peer:
            return False
        most = max(self._by_peer, key=lambda peer: len(self._by_peer[peer]))
        self._dismiss(next(iter(self._by_peer[most])))
        return True

    def _dismiss(self, one: T) -> None:
        self.discard(one)
        self._send_off(one)


class Listener:
    """Accepts connections on a socket, and hands each to ``welcome``, which makes its protocol.

    ``established`` are those that were made; ``silent`` the line of those that may give way.
    """

    def __init__(
        self,
        sock: socket.socket,
        welcome: Callable[[socket.socket], Coroutine[Any, Any, object]],
        options: ServerOptions,
        *,
        established: Sized,
        silent: WaitingLine[Any],
    ) -> None:
        self._sock, self._welcome = sock, welcome
        self._established, self._silent = established, silent
        self._loop = asyncio.get_running_loop()
        self._arriving = WaitingLine(options.handshakes, options.handshakes_per_peer, _hang_up)
        #: One for each connection at the door, until its socket is closed or it is made.
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._told_at = self._looked_at = -_TELL_EVERY_S
        self._others = 0
        sock.settimeout(0)
        sock.listen(_BACKLOG)
        self._loop.add_reader(sock, self._accept)

    def close(self) -> None:
        """Accept no more; who still waits is sent off."""
        self._loop.remove_reader(self._sock)
        if self._again is not None:
            self._again.cancel()
        while self._arriving.give_way():
            pass

    async def wait_closed(self) -> None:
        """Wait until nobody is left at the door."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if self._room() <= 0 and not self._make_room():
                self._pause()
                return
            try:
                connection, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SCARCE:
                    raise
                self._make_room()
                self._pause()
                return
            connection.settimeout(0)
            self._arriving.add(connection, peer_of(address))
            task = self._loop.create_task(self._receive(connection))
            self._tasks.add(task)
            task.add_done_callback(self._received)

    def _room(self) -> int:
        """How many descriptors connections may still take."""
        own = len(self._tasks) + len(self._established)
        now = time.monotonic()
        if now - self._looked_at > _LOOK_EVERY_S:
            self._looked_at, self._others = now, max(0, open_files() - own)
        return descriptors() - reserve() - self._others - own

    def _make_room(self) -> bool:
        """Let old connections go; whether a new one can come in already."""
        self._tell()
        for _ in range(_AT_ONCE):
            if not (self._arriving.give_way() or self._silent.give_way()):
                return False
        # What was sent off is closed some turns of the loop later, and counts until then.
        return self._room() > -_AT_ONCE

    async def _receive(self, connection: socket.socket) -> None:
        try:
            await self._welcome(connection)
        except OSError:  # theirs, or sent off: nobody is to be told
            connection.close()
        finally:
            self._arriving.discard(connection)

    def _received(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection failed", exc_info=error)

    def _pause(self) -> None:
        """Accept nothing for a moment; new connections wait in the kernel."""
        self._loop.remove_reader(self._sock)
        self._again = self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._again = None
        self._loop.add_reader(self._sock, self._accept)

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told_at > _TELL_EVERY_S:
            self._told_at = now
            log.warning(
                "too few file descriptors for all connections: idle ones are closed; "
                "raise the limit (ulimit -n, now %d)",
                descriptors(),
            )


def _hang_up(connection: socket.socket) -> None:
    """End a connection from below: its transport finds that out, and closes it in good order."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def descriptors() -> int:
    """How many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def open_files() -> int:
    """How many descriptors it has; 0 where that is not told."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError as error:
        return descriptors() if error.errno in _SCARCE else 0


def reserve() -> int:
    """How many of them connections leave to others; of very few, half."""
    return min(_RESERVE, descriptors() // 2)


def peer_of(address: Any) -> str:
    """Whose connection it is: an IPv4 address, or the network of an IPv6 one."""
    try:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except (ValueError, IndexError, TypeError):
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        # A household has 2**64 addresses of one network.
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
