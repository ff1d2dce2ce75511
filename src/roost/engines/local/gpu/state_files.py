"""The files between the engine and the sharing daemon, in a folder of Roost's home.

    tenants.json  written by the engine: every tenant, and whether it is to run or to be parked
    status.json   written by the daemon: how each tenant stands, and what became of each wish
    held.json     written by the daemon: processes that it may have locked
    pages         how huge pages were set before the daemon changed that (``huge_pages``)
    warden.lock   locked by the daemon as long as it lives
    warden.log    its errors

All are replaced as a whole, and each has one writer: neither process needs a lock of the other.
What comes next, a server or a daemon, knows everything that is needed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost import files
from roost.engines.local.gpu.tenant import TenantRequest
from roost.errors import RoostError


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The files of one home."""

    folder: Path

    def wanted(self) -> list[TenantRequest]:
        """What the engine wants."""
        return [TenantRequest.decode(row) for row in self._load("tenants.json").get("tenants", [])]

    def want(self, requests: Iterable[TenantRequest]) -> None:
        """Write down what is wanted."""
        self._save("tenants.json", {"tenants": [request.encode() for request in requests]})

    def changed(self) -> tuple[int, int] | None:
        """What differs after the engine wrote something down."""
        # Each version is another file, so its number and time differ; nothing has to be read.
        try:
            found = (self.folder / "tenants.json").stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def status(self) -> dict[str, Any]:
        """What the sharing daemon said last."""
        return self._load("status.json")

    def tell(self, status: dict[str, Any]) -> None:
        """Write down how things stand."""
        self._save("status.json", status)

    def held(self) -> list[tuple[int, int, str]]:
        """Processes that a sharing daemon may have locked: number, start time, means."""
        return [
            (pid, ticks, means) for pid, ticks, means in self._load("held.json").get("held", [])
        ]

    def hold(self, held: Iterable[tuple[int, int, str]]) -> None:
        """Write down which processes the daemon may lock."""
        self._save("held.json", {"held": [list(one) for one in held]})

    @property
    def pages(self) -> Path:
        """Where it is noted how huge pages were set, while they are set otherwise."""
        return self.folder / "pages"

    def lock(self) -> int | None:
        """Become the sharing daemon; None if there is one."""
        # Not inherited: a child of the daemon must not keep the lock when the daemon is gone.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.folder / "warden.lock", flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def has_daemon(self) -> bool:
        """Whether a sharing daemon lives."""
        # The lock is the one sure sign: a number in a file outlives the process it names.
        fd = self.lock()
        if fd is None:
            return True
        os.close(fd)
        return False

    def _load(self, name: str) -> dict[str, Any]:
        try:
            body = json.loads((self.folder / name).read_text())
        except (OSError, ValueError):
            return {}
        return body if isinstance(body, dict) else {}

    def _save(self, name: str, body: dict[str, Any]) -> None:
        # A draft beside it and a rename: the other process reads the old file or the new one.
        try:
            files.save(self.folder / name, json.dumps(body), 0o600)
        except RoostError as error:
            raise OSError(str(error)) from error
