"""Sums over the workers of a job, through worker 0, over plain TCP.

For the example trainer: simple before fast. Worker 0 listens at an address that all know; the
others connect, send a vector each round and get the sum. A worker that loses its connection is
lost, and an error for all others. One that says nothing is not: it may be frozen, so there is no
time limit once all have met. A worker that waits calls ``watch`` now and then, which may raise.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Watch = Callable[[], None]

_HELLO = struct.Struct("!8sQII")
_MAGIC = b"roost-ex"
_BEGIN = b"roost-go"
_TICK_S = 0.05
#: How long a connection may take to say its rank.
_GREETING_S = 2.0
#: A machine that is gone is noticed by its silence: first question, pause between them, how many.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 6))


class PeerLost(ConnectionError):
    """Another worker is gone, or did not come."""


class Exchange(Protocol):
    """How the workers of a job agree on a vector."""

    def total(self, vector: Vector) -> Vector:
        """The sum over all workers; each must ask in turn, with vectors of one length."""

    def close(self) -> None:
        """Let go of the others."""


@dataclass(slots=True)
class ExchangePlace:
    """Where, with which rank and for how long to wait for the others."""

    address: tuple[str, int]
    rank: int
    size: int
    version: int = 1
    #: Without it, only ``watch`` ends the waiting.
    patience_s: float | None = 60.0
    watch: Watch = lambda: None
    _ticks: int = 0

    def tick(self, why: str) -> None:
        """Some time went by in which this process ran; raises PeerLost when it was too much."""
        self.watch()
        # Ticks, not the clock: a process that was frozen in between has not waited.
        self._ticks += 1
        if self.patience_s is not None and self._ticks * _TICK_S >= self.patience_s:
            raise PeerLost(why)

    def hello(self, rank: int) -> bytes:
        """What a worker of this meeting says first."""
        return _HELLO.pack(_MAGIC, self.version, rank, self.size)


class SingleWorker:
    """One worker alone: there is no other to ask."""

    def total(self, vector: Vector) -> Vector:
        """The vector itself."""
        return vector

    def close(self) -> None:
        """Nothing to let go of."""


class FirstWorker:
    """Worker 0: takes from all, gives to all."""

    def __init__(self, meeting: ExchangePlace) -> None:
        self._watch = meeting.watch
        self._peers: dict[int, socket.socket] = {}
        try:
            with _listening(meeting) as server:
                while len(self._peers) < meeting.size - 1:
                    self._accept(server, meeting)
            # Only when all have come: none begins to train with a part of the workers.
            for rank, peer in self._peers.items():
                _send(peer, _BEGIN, rank, self._watch)
        except BaseException:
            self.close()
            raise

    def _accept(self, server: socket.socket, meeting: ExchangePlace) -> None:
        try:
            peer, _ = server.accept()
        except TimeoutError:
            missing = sorted(set(range(1, meeting.size)) - set(self._peers))
            meeting.tick(f"workers {missing} did not come")
            return
        rank = _who(peer, meeting)
        if rank == 0 or rank in self._peers:
            peer.close()  # not one of ours
        else:
            self._peers[rank] = peer

    def total(self, vector: Vector) -> Vector:
        """Take a vector from each, and give the sum to all."""
        found = vector.copy()
        # In the order of ranks: sums of floats depend on it, and all runs shall have the same bits.
        # The others send before they receive, so reading one after the other cannot lock up.
        for rank, peer in sorted(self._peers.items()):
            found += _vector(peer, len(vector), rank, self._watch)
        for rank, peer in sorted(self._peers.items()):
            _send(peer, found.tobytes(), rank, self._watch)
        return found

    def close(self) -> None:
        """Let go of the others."""
        for peer in self._peers.values():
            peer.close()


class OtherWorker:
    """Any worker but 0."""

    def __init__(self, meeting: ExchangePlace) -> None:
        self._watch = meeting.watch
        self._first = _admitted(meeting)

    def total(self, vector: Vector) -> Vector:
        """Send a vector, get the sum."""
        _send(self._first, vector.tobytes(), 0, self._watch)
        return _vector(self._first, len(vector), 0, self._watch)

    def close(self) -> None:
        """Let go of worker 0."""
        self._first.close()


def join(meeting: ExchangePlace) -> Exchange:
    """Meet the other workers; raises PeerLost when they do not come."""
    if meeting.size == 1:
        return SingleWorker()
    return FirstWorker(meeting) if meeting.rank == 0 else OtherWorker(meeting)


def _listening(meeting: ExchangePlace) -> socket.socket:
    while True:
        try:
            server = socket.create_server(meeting.address, backlog=meeting.size)
        except OSError as error:
            meeting.tick(f"worker 0 cannot listen at {meeting.address}: {error}")
            time.sleep(_TICK_S)
        else:
            server.settimeout(_TICK_S)
            return server


def _who(peer: socket.socket, meeting: ExchangePlace) -> int:
    """The rank of a new connection; 0 if it does not belong here."""
    _prepare(peer)
    greeting = replace(meeting, patience_s=_GREETING_S, _ticks=0)
    with suppress(OSError, struct.error):
        said = _receive(peer, _HELLO.size, lambda: greeting.tick("it says nothing"))
        rank = int(_HELLO.unpack(said)[2])
        return rank if rank < meeting.size and said == meeting.hello(rank) else 0
    return 0


def _admitted(meeting: ExchangePlace) -> socket.socket:
    """A connection to worker 0, once all have come."""
    # Worker 0 is mostly milliseconds away; later, asking that often would only cost CPU time.
    pause_s = 0.002
    while True:
        try:
            return _asked(meeting)
        except PeerLost:
            raise
        except OSError as error:
            meeting.tick(f"worker 0 does not answer: {error}")
        time.sleep(pause_s)
        pause_s = min(_TICK_S, 2 * pause_s)


def _asked(meeting: ExchangePlace) -> socket.socket:
    peer = socket.create_connection(meeting.address, timeout=1.0)
    try:
        _prepare(peer)
        _push(peer, meeting.hello(meeting.rank), meeting.watch)
        waits = "worker 0 waits for others that do not come"
        admitted = _receive(peer, len(_BEGIN), lambda: meeting.tick(waits)) == _BEGIN
    except BaseException:
        peer.close()
        raise
    if not admitted:
        peer.close()
        raise ConnectionRefusedError("somebody else is there")
    return peer


def _prepare(peer: socket.socket) -> None:
    peer.settimeout(_TICK_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        peer.setsockopt(socket.IPPROTO_TCP, option, value)


def _vector(peer: socket.socket, length: int, rank: int, watch: Watch) -> Vector:
    try:
        return np.frombuffer(_receive(peer, 8 * length, watch))
    except OSError as error:
        raise PeerLost(f"worker {rank} is lost: {error}") from None


def _send(peer: socket.socket, content: bytes, rank: int, watch: Watch) -> None:
    try:
        _push(peer, content, watch)
    except OSError as error:
        raise PeerLost(f"worker {rank} is lost: {error}") from None


def _receive(peer: socket.socket, size: int, watch: Watch) -> bytes:
    found = bytearray()
    while len(found) < size:
        try:
            piece = peer.recv(size - len(found))
        except TimeoutError:
            watch()
            continue
        if not piece:
            raise ConnectionResetError("it closed the connection")
        found += piece
    return bytes(found)


def _push(peer: socket.socket, content: bytes, watch: Watch) -> None:
    view = memoryview(content)
    while view:
        try:
            view = view[peer.send(view) :]
        except TimeoutError:
            watch()
