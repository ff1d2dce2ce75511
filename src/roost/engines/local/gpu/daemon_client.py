"""The engine's side of the sharing daemon: starts one while it is needed, and has it look."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from roost.engines.local.gpu.state_files import StateFiles
from roost.engines.local.shim import process_tree

_PROGRAM = Path(__file__).with_name("__main__.py")
#: A log this long is begun anew with the next daemon.
_LOG_BYTES = 1 << 20


class DaemonClient:
    """Starts sharing daemons; ``wanted`` tells whether there are tenants."""

    def __init__(self, files: StateFiles, python: str, wanted: Callable[[], bool]) -> None:
        self._files, self._python, self._wanted = files, python, wanted
        self._child = 0

    def ensure(self) -> None:
        """Have the daemon look at what is wanted; start one if there is none and it is needed."""
        self._reap()
        if self._files.has_daemon():
            self._send(signal.SIGHUP)
        elif self._is_needed() and not self._child:
            self._child = self._spawn()

    def end(self) -> None:
        """Have the daemon end, which unlocks all tenants first; that may take a while."""
        self._reap()
        if self._files.has_daemon():
            self._send(signal.SIGTERM)

    def is_missing(self) -> bool:
        """Whether there ought to be a sharing daemon and is none."""
        self._reap()
        return self._is_needed() and not self._child and not self._files.has_daemon()

    def _is_needed(self) -> bool:
        """Whether there are tenants, or something that a dead daemon left undone."""
        if self._wanted() or self._files.pages.exists():
            return True
        return any(process_tree.is_alive(pid, ticks) for pid, ticks, _ in self._files.held())

    def _spawn(self) -> int:
        """A process that is no part of the server's session, with none of its files."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        log = str(self._files.folder / "warden.log")
        with suppress(OSError):
            if os.stat(log).st_size > _LOG_BYTES:  # noqa: PTH116 - a name for the kernel
                os.truncate(log, 0)
        return os.posix_spawn(
            self._python,
            [self._python, "-I", "-S", str(_PROGRAM), "daemon", str(self._files.folder)],
            {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
        )

    def _send(self, number: int) -> None:
        # A number from a file may belong to another process by now: its command line is compared
        # before it gets a signal.
        pid = self._child or self._files.status().get("pid", 0)
        process = process_tree.look(pid)
        with suppress(OSError, ValueError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            ours = os.fsencode(_PROGRAM) in command and os.fsencode(self._files.folder) in command
            if ours and process is not None:
                process_tree.send(process, number)

    def _reap(self) -> None:
        if self._child:
            try:
                gone, _ = os.waitpid(self._child, os.WNOHANG)
            except ChildProcessError:
                gone = self._child
            if gone:
                self._child = 0
