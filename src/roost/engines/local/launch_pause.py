"""Launches wait while the machine itself cannot begin any; a probe finds out when it can again.

A full disk, too few descriptors or processes, a folder that is closed: none of that is the doing of
the job that met it. So its order is held, not failed. The first one that meets such trouble begins
a pause for all. Then a probe does what a launch does, with nothing in it: make a folder, set space
aside, open files, start a process. Once that works, all held orders are tried again.

If the probe works and a launch still does not, the trouble is of that run alone: it is tried again
a few times, and then it has failed to start, which is not charged to the job either.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress

from roost.engines.local import processes
from roost.engines.local.run_folders import RunFolders
from roost.engines.local.shim import slot_file
from roost.errors import Retryable

_log = logging.getLogger(__name__)

#: How long until the machine is tried again, at first and at most, in seconds.
_PROBE_S, _PROBE_MAX_S = 0.5, 10.0
#: How often the order of a run is tried again on a machine that works, and how long until then.
TRIES = 10
_TRY_MAX_S = 60.0
#: Bytes that must be free on the disk beyond what a launch takes.
_SPARE_BYTES = 1 << 20

#: Errors of a machine without room; people make it.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_THEN = "it starts by itself when"
_WORDS = {
    errno.ENOSPC: f"the server's disk is full; {_THEN} there is room",
    errno.EDQUOT: f"the server's quota of its disk is used up; {_THEN} there is room",
    errno.EMFILE: f"the server has too many files open; {_THEN} some are closed",
    errno.ENFILE: f"the server's machine has too many files open; {_THEN} some are closed",
    errno.ENOMEM: f"the server's machine is out of memory; {_THEN} there is some",
    errno.EAGAIN: f"the server's machine has too many processes; {_THEN} some have ended",
    errno.EROFS: f"the server's disk cannot be written to; {_THEN} that is possible",
    errno.EIO: f"the server's disk fails; {_THEN} that is mended",
}

#: What a launch may fail with without any fault of the job: the files of the server, its processes.
Trouble = OSError | Retryable


def words(trouble: Trouble) -> str:
    """What users read of it."""
    if isinstance(trouble, Retryable):
        return f"{trouble}; {_THEN} that is over"
    where = f": {trouble.filename}" if trouble.filename else ""
    what = f"{trouble.strerror or trouble}{where}"
    return _WORDS.get(trouble.errno or 0, f"the server cannot start it: {what}; {_THEN} it can")


def is_full(trouble: Trouble) -> bool:
    """Whether there is no room on a disk."""
    return isinstance(trouble, OSError) and trouble.errno in FULL


class LaunchPause:
    """One for all runs of an engine; everything here happens on its loop.

    ``probe`` raises OSError while nothing can be launched; it is given the bytes that a launch
    takes. ``tell`` hears of every change: the trouble, or None when it is over.
    """

    def __init__(
        self,
        probe: Callable[[int], Awaitable[None]],
        tell: Callable[[OSError | None], None],
    ) -> None:
        self._probe, self._tell = probe, tell
        #: Why nothing can be launched now; None: as far as is known it can.
        self.trouble: OSError | None = None
        self._held: list[Callable[[bool], None]] = []
        self._size = 0
        self._probing: asyncio.Task[None] | None = None

    def hold(self, again: Callable[[bool], None], size: int = 0) -> None:
        """Call ``again`` once the machine can launch something of that size.

        It hears whether the machine was in trouble; if not, what was held has a trouble of its own.
        """
        self._held.append(again)
        self._size = max(self._size, size)
        if self._probing is None:
            self._probing = asyncio.create_task(self._wait_out(), name="launch probe")

    async def close(self) -> None:
        """Give up; what is held is ordered again by the next server."""
        if self._probing is not None:
            self._probing.cancel()
            with suppress(asyncio.CancelledError):
                await self._probing

    async def _wait_out(self) -> None:
        # The first probe comes at once: trouble of one run alone must not hold up the others.
        pause = _PROBE_S
        while True:
            try:
                await self._probe(self._size)
            except OSError as found:
                self._note(found)
            else:
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PROBE_MAX_S)
        held, self._held, self._size, self._probing = self._held, [], 0, None
        paused = self.trouble is not None
        if paused:
            _log.info("launches go on")
            self.trouble = None
            self._tell(None)
        for again in held:
            again(paused)

    def _note(self, found: OSError) -> None:
        if self.trouble is None or words(self.trouble) != words(found):
            _log.warning("launches pause: %s", found)
            self._tell(found)
        self.trouble = found


def delay_s(tries: int) -> float:
    """How long to wait before the order of a run is tried again on a machine that works."""
    return min(_PROBE_S * 2.0**tries, _TRY_MAX_S)


def probe(runs: RunFolders, python: str, size: int) -> None:
    """Do what a launch does, with nothing in it; raises OSError where that is not possible."""
    processes.check_files()
    with ExitStack() as stack, runs.scratch() as (folder, mark):
        stack.enter_context(socket.socket()).bind(("127.0.0.1", 0))
        space = slot_file.create("space", folder, (size + _SPARE_BYTES) // 2)
        stack.callback(os.close, space)
        mark.touch(0o600)
        pid = os.posix_spawn(python, [python, "-I", "-S", "-c", ""], {"PATH": os.defpath})
        if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            raise OSError(errno.ENOMEM, f"a process that was started ended with {status}")
