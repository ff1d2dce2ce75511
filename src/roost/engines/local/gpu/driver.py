"""Stop, park and move the GPU work of a process, from outside, without changing it.

A *driver* knows processes by their number and moves each through four states:

    running --lock--> locked --checkpoint--> checkpointed --restore--> locked --unlock--> running

*Locked* stops the process's GPU work and keeps its memory on the device: a matter of
milliseconds. *Checkpointed* brings its device memory to the host and lets go of the device.
``CudaDriver`` makes these calls of NVIDIA's driver by ``ctypes``; ``signals`` does the same with
the processes of CPU slots. Nothing here decides when; that is for ``slices`` and ``daemon``.
"""

from __future__ import annotations

import ctypes
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, Protocol

from roost.engines.local.shim import process_tree
from roost.errors import Conflict

_LIBRARY = "libcuda.so.1"
_PREFIX = "GPU-"
#: How much longer than its own timeout a lock may take before it counts as hanging.
_GRACE_MS = 500

#: Numbers of ``CUresult`` (cuda.h) on which callers decide.
NOT_SUPPORTED = 801
ILLEGAL_STATE = 401
NOT_READY = 600
#: Our own: no driver has negative ones.
STOPPED = -1
INVALID_VALUE = 1
NOT_INITIALIZED = 3

_TOO_OLD = "this NVIDIA driver has no process checkpoint; 570 and later have"
_WORDS = {
    INVALID_VALUE: "it knows no such CUDA process",
    2: "there is not enough memory",
    NOT_INITIALIZED: "it does not use CUDA",
    100: "there is no device",
    101: "there is no such device",
    304: "the operating system refused",
    ILLEGAL_STATE: "the process is not in the state for this",
    NOT_READY: "the process did not come to a stop in time",
    NOT_SUPPORTED: "not supported for this process (one that runs under MPS, for instance)",
    999: "the driver does not know why",
}


class Stage(IntEnum):
    """Where a process stands, in the driver's own numbers."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


#: The device a process was on, and the one it is to come back on, by their UUIDs.
Move = tuple[str, str]


class DriverRefused(Conflict):
    """A driver did not do what it was asked; ``code`` is its own number for why."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class CheckpointDriver(Protocol):
    """Stops the work of a process. Every call may raise Refused."""

    def state(self, pid: int) -> Stage:
        """Where a process stands; Refused if it has no work to stop."""
        ...

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Stop its work and keep its memory; after the timeout it goes on as before."""
        ...

    def checkpoint(self, pid: int) -> None:
        """Bring a locked process off the device."""
        ...

    def restore(self, pid: int, moves: Sequence[Move] = ()) -> None:
        """Bring it back, locked; on other devices if ``moves`` names each of them."""
        ...

    def unlock(self, pid: int) -> None:
        """Let a locked process go on."""
        ...


class NoDriver:
    """Stops nothing: for processes that are only watched, those of tenants side by side."""

    def state(self, pid: int) -> Stage:
        """It runs."""
        del pid
        return Stage.RUNNING

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Refused, as is all that would change it."""
        del timeout_ms
        raise DriverRefused(f"process {pid} shares its GPU side by side", NOT_SUPPORTED)

    def checkpoint(self, pid: int) -> None:
        """Refused."""
        self.lock(pid, 0)

    def restore(self, pid: int, moves: Sequence[Move] = ()) -> None:
        """Refused."""
        del moves
        self.lock(pid, 0)

    def unlock(self, pid: int) -> None:
        """It goes on anyway."""


class _LockArgs(ctypes.Structure):
    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class _Uuid(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


class _Pair(ctypes.Structure):
    _fields_ = (("old", _Uuid), ("new", _Uuid))


class _RestoreArgs(ctypes.Structure):
    # As of CUDA 13. Before, all 64 bytes were reserved and had to be zero: the same without pairs.
    _fields_ = (
        ("pairs", ctypes.POINTER(_Pair)),
        ("count", ctypes.c_uint),
        ("reserved", ctypes.c_char * 44),
        ("reserved1", ctypes.c_uint64),
    )


class _NoArgs(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_uint64 * 8),)


class CudaDriver:
    """NVIDIA's driver, where it has process checkpoints (570 and later).

    Raises Refused if it has none. ``moves`` needs CUDA 13 (580).
    """

    def __init__(self, library: str = _LIBRARY) -> None:
        try:
            self._cuda: Any = ctypes.CDLL(library)
        except OSError as error:
            raise DriverRefused(f"there is no NVIDIA driver here: {error}") from None
        if not hasattr(self._cuda, "cuCheckpointProcessLock"):
            raise DriverRefused(_TOO_OLD)
        code = self._cuda.cuInit(0)
        if code:
            raise DriverRefused(f"the NVIDIA driver does not start: {self._sentence(code)}", code)
        version = ctypes.c_int()
        self._cuda.cuDriverGetVersion(ctypes.byref(version))
        self.version: int = version.value

    @staticmethod
    def missing(library: str = _LIBRARY) -> str:
        """Why there are no process checkpoints here, without starting anything; "" if there are."""
        try:
            found = hasattr(ctypes.CDLL(library), "cuCheckpointProcessLock")
        except OSError:
            return "there is no NVIDIA driver here"
        return "" if found else _TOO_OLD

    def state(self, pid: int) -> Stage:
        """Where a process stands; Refused if it is no CUDA process."""
        found = ctypes.c_int()
        self._call("GetState", pid, ctypes.byref(found))
        return Stage(found.value)

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Stop its kernels and keep its memory; a process that a signal stopped cannot be locked.

        The driver waits for such a process for ever, whatever the timeout says: the call is made
        on a thread of its own, and undone if it succeeds too late.
        """
        process = process_tree.look(pid)
        if process is not None and process.state in "Tt":
            raise DriverRefused(
                f"the driver does not lock process {pid}: a signal has stopped it", STOPPED
            )
        _Locking(self, pid, timeout_ms).run()

    def checkpoint(self, pid: int) -> None:
        """Bring its device memory to the host and let go of the device."""
        self._call("Checkpoint", pid, ctypes.byref(_NoArgs()))

    def restore(self, pid: int, moves: Sequence[Move] = ()) -> None:
        """Bring its memory back to a device."""
        # Nothing moves: without pairs the call works on drivers before CUDA 13, too.
        if all(old == new for old, new in moves):
            moves = ()
        if moves and self.version < 13000:  # noqa: PLR2004 - CUDA 13.0
            raise DriverRefused("this NVIDIA driver cannot bring a process back on another GPU")
        pairs = (_Pair * len(moves))(*(_Pair(_uuid(old), _uuid(new)) for old, new in moves))
        args = _RestoreArgs(pairs=pairs, count=len(moves)) if moves else _RestoreArgs()
        self._call("Restore", pid, ctypes.byref(args))

    def unlock(self, pid: int) -> None:
        """Let its kernels go on."""
        self._call("Unlock", pid, ctypes.byref(_NoArgs()))

    def lock_now(self, pid: int, timeout_ms: int) -> None:
        """The driver's call as it is, which may not return."""
        self._call("Lock", pid, ctypes.byref(_LockArgs(timeout_ms=max(int(timeout_ms), 0))))

    def _call(self, name: str, pid: int, argument: Any) -> None:
        code = getattr(self._cuda, f"cuCheckpointProcess{name}")(pid, argument)
        if code:
            what = f"{_VERBS[name]} process {pid}"
            raise DriverRefused(f"the driver does not {what}: {self._sentence(code)}", code)

    def _sentence(self, code: int) -> str:
        words = _WORDS.get(code)
        if words:
            return f"{words} ({code})"
        text = ctypes.c_char_p()
        if self._cuda.cuGetErrorString(code, ctypes.byref(text)) == 0 and text.value:
            return f"{text.value.decode(errors='replace')} ({code})"
        return f"error {code}"


class _Locking:
    """One lock with a time limit that holds."""

    def __init__(self, driver: CudaDriver, pid: int, timeout_ms: int) -> None:
        self._driver, self._pid, self._timeout_ms = driver, pid, timeout_ms
        # The mutex settles the race at the deadline: either run() sees that the lock is there, or
        # the thread sees that it came too late and takes it back. No process is left locked.
        self._done, self._mutex = threading.Event(), threading.Lock()
        self._late = False
        self._refusal: DriverRefused | None = None

    def run(self) -> None:
        """Lock, or raise Refused."""
        # A daemon: the call may never return, and must not keep this process alive.
        threading.Thread(target=self._lock, daemon=True).start()
        if not self._done.wait((self._timeout_ms + _GRACE_MS) / 1000 if self._timeout_ms else None):
            with self._mutex:
                if not self._done.is_set():
                    self._late = True
                    words = _WORDS[NOT_READY]
                    raise DriverRefused(
                        f"the driver does not lock process {self._pid}: {words}", NOT_READY
                    )
        if self._refusal is not None:
            raise self._refusal

    def _lock(self) -> None:
        try:
            self._driver.lock_now(self._pid, self._timeout_ms)
        except DriverRefused as refusal:
            self._refusal = refusal
        with self._mutex:
            self._done.set()
            late = self._late
        if late and self._refusal is None:
            with suppress(DriverRefused):
                self._driver.unlock(self._pid)


_VERBS = {
    "GetState": "tell the state of",
    "Lock": "lock",
    "Checkpoint": "checkpoint",
    "Restore": "restore",
    "Unlock": "unlock",
}


def _uuid(text: str) -> _Uuid:
    try:
        body = uuid.UUID(text.removeprefix(_PREFIX)).bytes
    except ValueError:
        raise DriverRefused(f"{text!r} is not the UUID of a GPU") from None
    return _Uuid((ctypes.c_ubyte * 16)(*body))


def advance(driver: CheckpointDriver, pid: int) -> None:
    """Let a process run, wherever it stands; Refused if it cannot be."""
    stage = driver.state(pid)
    if stage is Stage.FAILED:
        raise DriverRefused(f"process {pid} cannot go on: the driver lost its state")
    if stage is Stage.CHECKPOINTED:
        driver.restore(pid)
    # A restored process is locked: restore() alone does not let it go on.
    if stage is not Stage.RUNNING:
        driver.unlock(pid)
