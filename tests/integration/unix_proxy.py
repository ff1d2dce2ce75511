"""A proxy in front of PostgreSQL's socket that cuts a connection when a commit goes by."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import Self

_COMMIT = b"COMMIT\0"


class Proxy:
    """Passes everything on, until it is told to cut the next commit.

    ``before``: the commit never arrives, and the server's end is closed. ``after``: the commit is
    done, its answer never arrives. ``passed``: it is passed on and nobody waits for what comes of
    it. ``held``: it never arrives, and the server's end stays open.
    """

    MODES = ("before", "after", "passed", "held")

    def __init__(self, server: Path) -> None:
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="roost-proxy-", dir="/tmp"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._links: list[_Link] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.mode = ""

    def url(self, name: str) -> str:
        return f"postgresql://roost@/{name}?host={self._folder}&port=5432"

    def cut_at_commit(self, mode: str) -> None:
        self.mode = mode

    def __enter__(self) -> Self:
        self._listener.bind(str(self._folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._listener)
        self._listener.close()
        self._thread.join(60)
        for link in self._links:
            link.close()
        shutil.rmtree(self._folder)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._links.append(_Link(self, client, self._server))


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: Path) -> None:
        self._proxy, self._client = proxy, client
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(os.fspath(server))
        self._muted, self._answered = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._up, self._down)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        _end(self._client)
        _end(self._server)
        for thread in self._threads:
            thread.join(60)
        self._client.close()
        self._server.close()

    def _up(self) -> None:
        with contextlib.suppress(OSError):
            while sent := self._client.recv(1 << 16):
                if self._proxy.mode and sent.endswith(_COMMIT):
                    self._cut(sent)
                    return
                self._server.sendall(sent)
        _end(self._server)

    def _cut(self, sent: bytes) -> None:
        mode, self._proxy.mode = self._proxy.mode, ""
        self._muted.set()
        if mode in ("after", "passed"):
            self._server.sendall(sent)
        if mode == "after":
            self._answered.wait(60)
        _end(self._client)
        if mode != "held":
            _end(self._server)

    def _down(self) -> None:
        with contextlib.suppress(OSError):
            while got := self._server.recv(1 << 16):
                if self._muted.is_set():
                    self._answered.set()
                else:
                    self._client.sendall(got)
        _end(self._client)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
