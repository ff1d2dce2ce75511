"""Writes the records of a run (the truth), and tells the server to look (datagrams).

``start.json`` says which process this is and how the run is doing, ``progress.json`` what the job
said last, ``exit.json`` how it all ended. A record is always written before the datagram about it.
If there is no server, datagrams are lost and the next server reads the files.
"""

from __future__ import annotations

import os
import time
from _socket import AF_UNIX, SOCK_DGRAM, SOCK_NONBLOCK, socket

from roost.engines.local.shim import process_tree, slot_file
from roost.engines.local.shim.stdlib_subset import dumps, ignoring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: How soon a datagram is sent again that the server had no room for.
_AGAIN_S = 0.2
#: How often reports of the job are passed on, at most.
_TELL_EVERY_S = 0.5


class ShimRecords:
    """Writes the records of one generation, and sends datagrams to the server."""

    def __init__(self, order: dict[str, Any], folder: int, home: int) -> None:
        # All space is set aside now: a disk that fills up later cannot keep the end from being
        # written.
        self._start = slot_file.create("start.json", folder)
        self._exit = slot_file.create("exit.json", folder)
        self._said = slot_file.create("progress.json", folder)
        # By the open folder: the path of a home may be longer than a socket's address can be.
        self._address = f"/proc/self/fd/{home}/engine.sock"
        self._socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK)
        me = process_tree.look(os.getpid())
        self._me: dict[str, object] = {
            "version": 1,
            "pid": os.getpid(),
            "ticks": me.ticks if me else 0,
            "boot": order["boot"],
            "token": order["token"],
            "generation": order["generation"],
        }
        self._sender = {name: order[name] for name in ("run", "token", "generation")}
        self._waiting: list[dict[str, object]] = []
        self._told: dict[str, object] | None = None
        self._tell_at = 0.0
        self._phase = ""
        self.workers: dict[str, list[int]] = {}
        #: What else the next server has to know: the members, and how the last change went.
        self.facts: dict[str, object] = {}
        #: When ``flush`` has something to do.
        self.due = float("inf")

    def phase(self, phase: str) -> None:
        """Write down how the run is doing, and tell."""
        self._phase = phase
        self._write()
        self._send({"phase": phase})

    def announce(self, message: dict[str, object]) -> None:
        """Write down what is new about the members, and tell."""
        self._write()
        self._send(message)

    def stuck(self, pids: list[int]) -> None:
        """Tell of processes that do not die."""
        self._send({"stuck": pids[:50]})

    def tell(self, told: dict[str, object]) -> None:
        """Pass on what the job says, twice a second at most."""
        self._told = dict(told)
        self.due = min(self.due, self._tell_at)

    def flush(self) -> None:
        """Send what is due."""
        now = time.monotonic()
        if now < self.due:
            return
        self.due = float("inf")
        if self._told is not None and now < self._tell_at:
            self.due = self._tell_at
        elif self._told is not None:
            told, self._told = self._told, None
            self._tell_at = now + _TELL_EVERY_S
            slot_file.write(self._said, told)
            self._send({"told": told})
        while self._waiting and self._pass_on(self._waiting[0]):
            del self._waiting[0]
        if self._waiting:
            self.due = min(self.due, now + _AGAIN_S)

    def end(self, body: dict[str, object]) -> None:
        """Write down how the run ended, for good, and tell."""
        if self._told is not None:
            slot_file.write(self._said, self._told)
            self._send({"told": self._told})
        when = {"time": time.time(), "uptime": time.clock_gettime(time.CLOCK_BOOTTIME)}
        slot_file.write(self._exit, {**self._me, **when, **body})
        # To the disk before this process ends and lets go of the lock: a free lock without a record
        # would mean that the run was lost.
        with ignoring(OSError):
            os.fdatasync(self._exit)

    def _write(self) -> None:
        body = {**self._me, "phase": self._phase, "workers": self.workers, **self.facts}
        slot_file.write(self._start, body)

    def _send(self, message: dict[str, object]) -> None:
        """Tell the server, after all that it was not told yet; of a kind the newest is enough."""
        # In order: a newer message must not overtake one that waits.
        if self._waiting or not self._pass_on(message):
            self._waiting = [one for one in self._waiting if one.keys() != message.keys()]
            self._waiting.append(message)
            self.due = min(self.due, time.monotonic() + _AGAIN_S)

    def _pass_on(self, message: dict[str, object]) -> bool:
        """Send a message; False if the server has too many to read first."""
        text = dumps({**self._sender, **message})
        try:
            self._socket.sendto(text.encode(), self._address)
        except BlockingIOError:
            return False
        except OSError:
            pass  # no server: the next one reads the files
        return True
