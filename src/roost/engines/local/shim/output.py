"""Log files with a limit, and what jobs say of themselves. Neither can harm the job.

Beyond its limit, or that of its user, a log keeps one line saying so and, at the end, the last
64 KiB. When the disk is
full, output is dropped and counted; once there is room again, a line says how much is missing. A
log that cannot even be made drops everything.
"""

from __future__ import annotations

import os
import stat

from roost.elastic.protocol import checked, is_about_members, take
from roost.engines.local.shim.stdlib_subset import ignoring, loads

#: Bytes that are read at once, and kept of the end of a log that is too long.
TAIL = 64 * 1024
#: The longest line of a job, and lines that are looked at in one read.
_LINE = 4096
_LINES = 100


class WorkerLog:
    """The log of one worker; this process alone writes to it."""

    def __init__(self, name: str, folder: int, limit: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self._fd, self._room, self._limit = -1, limit, limit
        with ignoring(OSError):
            self._fd = os.open(name, flags | os.O_CLOEXEC, 0o600, dir_fd=folder)
            self._room -= os.fstat(self._fd).st_size
        self._tail = bytearray()
        self._beyond = 0
        self._dropped = 0
        self._restraint = ""

    def restrain(self, why: str) -> None:
        """Keep no more output, and say why in a line; without a reason, go on."""
        if why and not self._restraint:
            self._append(f"\n[roost: {why}]\n".encode())
        elif not why and self._restraint and self._beyond and self._room > 0:
            self._leave_out()
        self._restraint = why

    def write(self, text: bytes) -> None:
        """Keep some output, as far as the limit and the disk allow."""
        kept = b"" if self._restraint else text[: max(self._room, 0)]
        self._room -= len(kept)
        if kept:
            self._append(kept)
        if len(kept) < len(text):
            if not self._beyond and not self._restraint:
                self._append(f"\n[roost: the limit of {self._limit} bytes is reached]\n".encode())
            self._beyond += len(text) - len(kept)
            self._tail += text[len(kept) :]
            del self._tail[:-TAIL]

    def close(self) -> None:
        """Add the end of what was beyond the limit."""
        if self._beyond:
            self._leave_out()
        with ignoring(OSError):
            os.close(self._fd)

    def _leave_out(self) -> None:
        """Add the end of what was not kept, and forget the rest of it."""
        missing = self._beyond - len(self._tail)
        self._append(f"[roost: {missing} bytes are left out here]\n".encode() + self._tail)
        self._room -= len(self._tail)
        self._beyond, self._tail = 0, bytearray()

    def _append(self, text: bytes | bytearray) -> None:
        if self._dropped:
            marker = f"\n[roost: {self._dropped} bytes are lost: disk full]\n".encode()
            if self._put(marker) < len(marker):
                self._dropped += len(text)
                return
            self._dropped = 0
        self._dropped = len(text) - self._put(text)

    def _put(self, text: bytes | bytearray) -> int:
        written = 0
        with ignoring(OSError):
            while written < len(text):
                written += os.write(self._fd, text[written:])
        return written


class ProgressPipe:
    """What a job writes to its pipe, one JSON object a line: done, saved, step, loss, and more.

    ``words`` are those of the last read that are about members.
    """

    def __init__(self, name: str, folder: int) -> None:
        # Open for both, so that it never ends while workers come and go.
        self.fd = -1
        with ignoring(OSError):
            self.fd = os.open(name, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
            if not stat.S_ISFIFO(os.fstat(self.fd).st_mode):  # the job put something else there
                os.close(self.fd)
                self.fd = -1
        self.told: dict[str, object] = {}
        self.words: list[dict[str, object]] = []
        self._rest = b""

    def read(self) -> bool:
        """Take what is there; True if something new was said."""
        self.words = []
        try:
            text = self._rest + os.read(self.fd, TAIL)
        except OSError:
            return False
        *lines, rest = text.split(b"\n")
        self._rest = rest if len(rest) <= _LINE else b""
        # However much a job reports, what it says about its members is not pushed out by that: they
        # are looked for in all lines, reports in the last few.
        about = [line for line in lines if is_about_members(line)][-_LINES:]
        self.words = [said for line in about if isinstance(said := _object(line), dict)]
        said = [fields for line in lines[-_LINES:] if (fields := checked(_object(line)))]
        for fields in said:
            fields.pop("elastic", None)  # one worker does not speak for all
            take(self.told, fields)
        return any(said)


def _object(line: bytes) -> object:
    try:
        return loads(line.strip().decode())
    except (ValueError, RecursionError):
        return None
