"""Sums over the workers of a job, through worker 0, over plain TCP.

For the example trainer: simple before fast. Worker 0 listens on MASTER_ADDR:MASTER_PORT; the
others connect, send a vector each round and get the sum. A worker that is lost is an error for all
others. Being frozen is not: waiting is counted in rounds of a second in which this process ran.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_HELLO = struct.Struct("!8sII")
_MAGIC = b"roost-ex"
_TICK_S = 1.0


class PeerLost(ConnectionError):
    """Another worker is gone, or says nothing any more."""


class Exchange(Protocol):
    """How the workers of a job agree on a vector."""

    def total(self, vector: Vector) -> Vector:
        """The sum over all workers; each must ask in turn, with vectors of one length."""

    def from_first(self, vector: Vector) -> Vector:
        """The vector of worker 0."""

    def close(self) -> None:
        """Let go of the others."""


class Alone:
    """One worker: there is nobody to ask."""

    def total(self, vector: Vector) -> Vector:
        """The vector itself."""
        return vector

    def from_first(self, vector: Vector) -> Vector:
        """The vector itself."""
        return vector

    def close(self) -> None:
        """Nothing to let go of."""


class First:
    """Worker 0: takes from all, gives to all."""

    def __init__(self, address: tuple[str, int], size: int, patience_s: float) -> None:
        self._patience = max(1, round(patience_s / _TICK_S))
        self._peers: dict[int, socket.socket] = {}
        with socket.create_server(address) as server:
            server.settimeout(_TICK_S)
            ticks = 0
            while len(self._peers) < size - 1:
                try:
                    peer, _ = server.accept()
                except TimeoutError:
                    ticks += 1
                    if ticks >= self._patience:
                        missing = sorted(set(range(1, size)) - set(self._peers))
                        raise PeerLost(f"workers {missing} did not come") from None
                    continue
                self._greet(peer, size)

    def _greet(self, peer: socket.socket, size: int) -> None:
        peer.settimeout(_TICK_S)
        try:
            magic, rank, theirs = _HELLO.unpack(_receive(peer, _HELLO.size, self._patience))
        except (OSError, struct.error):
            magic, rank, theirs = b"", 0, 0
        if magic != _MAGIC or theirs != size or not 0 < rank < size or rank in self._peers:
            peer.close()  # somebody else
            return
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers[rank] = peer

    def total(self, vector: Vector) -> Vector:
        """Take a vector from each, and give the sum to all."""
        found = vector.copy()
        for rank, peer in sorted(self._peers.items()):
            found += _vector(peer, len(vector), self._patience, rank)
        return self.from_first(found)

    def from_first(self, vector: Vector) -> Vector:
        """Give a vector to all."""
        for rank, peer in sorted(self._peers.items()):
            _send(peer, vector.tobytes(), self._patience, rank)
        return vector

    def close(self) -> None:
        """Let go of the others."""
        for peer in self._peers.values():
            peer.close()


class Other:
    """Any worker but 0."""

    def __init__(self, address: tuple[str, int], rank: int, size: int, patience_s: float) -> None:
        self._patience = max(1, round(patience_s / _TICK_S))
        self._first = _connected(address, patience_s)
        self._first.settimeout(_TICK_S)
        self._first.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _send(self._first, _HELLO.pack(_MAGIC, rank, size), self._patience, 0)

    def total(self, vector: Vector) -> Vector:
        """Send a vector, get the sum."""
        _send(self._first, vector.tobytes(), self._patience, 0)
        return self.from_first(vector)

    def from_first(self, vector: Vector) -> Vector:
        """Get what worker 0 says."""
        return _vector(self._first, len(vector), self._patience, 0)

    def close(self) -> None:
        """Let go of worker 0."""
        self._first.close()


def join(address: tuple[str, int], rank: int, size: int, patience_s: float = 60.0) -> Exchange:
    """Meet the other workers; raises PeerLost when they do not come."""
    if size == 1:
        return Alone()
    if rank == 0:
        return First(address, size, patience_s)
    return Other(address, rank, size, patience_s)


def _connected(address: tuple[str, int], patience_s: float) -> socket.socket:
    ticks, pause_s = 0.0, 0.05
    while True:
        try:
            return socket.create_connection(address, timeout=patience_s)
        except OSError as error:
            if ticks >= patience_s:
                raise PeerLost(f"worker 0 does not answer: {error}") from None
            time.sleep(pause_s)
            ticks += pause_s


def _vector(peer: socket.socket, length: int, patience: int, rank: int) -> Vector:
    try:
        return np.frombuffer(_receive(peer, 8 * length, patience))
    except OSError as error:
        raise PeerLost(f"worker {rank} is lost: {error}") from None


def _receive(peer: socket.socket, size: int, patience: int) -> bytes:
    found, ticks = bytearray(), 0
    while len(found) < size:
        try:
            piece = peer.recv(size - len(found))
        except TimeoutError:
            ticks += 1
            if ticks >= patience:
                raise
            continue
        if not piece:
            raise ConnectionResetError("it closed the connection")
        found += piece
        ticks = 0
    return bytes(found)


def _send(peer: socket.socket, content: bytes, patience: int, rank: int) -> None:
    view, ticks = memoryview(content), 0
    while view:
        try:
            view = view[peer.send(view) :]
            ticks = 0
        except TimeoutError:
            ticks += 1
            if ticks >= patience:
                raise PeerLost(f"worker {rank} takes nothing") from None
        except OSError as error:
            raise PeerLost(f"worker {rank} is lost: {error}") from None
