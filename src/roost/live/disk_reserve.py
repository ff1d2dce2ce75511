"""Room on the disk that is kept aside, so that a server can start there when it is full.

To start, a server writes: who serves the home, where it listens, the journal's epoch. On a full
disk it could not even be asked which jobs fill it. So a home keeps a file of nothing, and a start
that finds no room gives it up. From then on nothing new is accepted until the file is there again;
lists, logs, cancelling and deleting work meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path

_log = logging.getLogger(__name__)

#: What a start and some commands need, in bytes, and how much must be free to set it aside again.
SIZE = 4 << 20
_AMPLE = 2 * SIZE
#: How often it is tried, in seconds.
_AGAIN_S = 5.0


class DiskReserve:
    """The reserve of one home."""

    def __init__(self, home: Path) -> None:
        self.file = home / "reserve"
        #: Why nothing new is accepted; empty while the reserve is whole.
        self.why = ""

    def open(self) -> None:
        """At a start: give the reserve up where there is no room, or else see that it is there."""
        if self._free() < SIZE:
            with suppress(OSError):
                self.file.unlink(missing_ok=True)
            self.why = self._told()
            _log.warning("the reserve of the home is used: %s", self.why)
        else:
            self._set_aside()

    async def keep(self) -> None:
        """Set room aside again as soon as there is some."""
        while True:
            if self.why and self._free() >= _AMPLE and await asyncio.to_thread(self._set_aside):
                self.why = ""
                _log.info("there is room on the disk again")
            self.why = self.why and self._told()
            await asyncio.sleep(_AGAIN_S)

    def _set_aside(self) -> bool:
        """Make the file, or leave none; without one a later start on a full disk is refused."""
        try:
            file = os.open(
                self.file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except OSError:
            return False
        try:
            os.posix_fallocate(file, 0, SIZE)
        except OSError:
            with suppress(OSError):
                self.file.unlink()
            return False
        finally:
            os.close(file)
        return True

    def _free(self) -> int:
        try:
            found = os.statvfs(self.file.parent)
        except OSError:
            return _AMPLE  # whatever it is, it is not known to be full
        return found.f_bavail * found.f_frsize

    def _told(self) -> str:
        free = self._free() / (1 << 20)
        return f"the disk of {self.file.parent} is full ({free:.0f} MiB are free); make room on it"
