"""Shares of a GPU side by side: a control daemon of CUDA MPS for each GPU that is shared so.

Its clients run at the same time, each on a part of the multiprocessors and with a hard limit of
memory. The daemon is found through a folder, whose path must be short. It outlives the server,
and ends when it is told to.

A client that does not reach its daemon runs as if there were no MPS, without any limit: so a daemon
has to be there before its clients are, and as long as they are.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from roost.engines.local.gpu.driver import DriverRefused
from roost.engines.local.shim import process_tree

_CONTROL = "nvidia-cuda-mps-control"
_LONGEST = 80  # bytes of a folder's path: the daemon adds the names of its sockets
_START_S = 10.0
_STOP_S = 5.0
_POLL_S = 0.02
_WHOLE = 1000
_LOGS = 0o700
#: The lower of the two priorities of MPS; 0 is the usual one.
_BELOW_NORMAL = "1"


def available() -> str:
    """Why there is no MPS here; "" if there is."""
    if shutil.which(_CONTROL) is None:
        return f"this machine has no CUDA MPS: there is no {_CONTROL}"
    return ""


def device_of(logs: Path) -> int:
    """The GPU whose daemon logs there."""
    return int(logs.name.split("-")[1])


class MpsDaemon:
    """The control daemon of one GPU, with its folders under ``home``."""

    def __init__(self, home: Path, uuid: str, index: int) -> None:
        self._uuid, self._index = uuid, index
        self._logs = home / f"mps-{index}-log"
        self.pipe = _short(home / f"mps-{index}")
        self._seen = 0
        # Reentrant: start() holds it while it calls stop().
        self._mutex = threading.RLock()

    def start(self) -> None:
        """Make sure that it runs; Refused with the reason if it cannot."""
        with self._mutex:
            if self.alive():
                return
            if why := available():
                raise DriverRefused(why)
            self.stop()
            self._make(self._logs, _LOGS)
            self._make(self.pipe, 0o711)  # jobs of other accounts reach its sockets by name
            # Without -M those of one account wait until those of another are done.
            if not (os.geteuid() == 0 and self._run("-M")) and not self._run():
                self._refuse(self._words())
            self._await()

    def _make(self, folder: Path, mode: int) -> None:
        """A folder of our own: its place may be one where others can make something, too."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir()
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise DriverRefused(f"{folder} belongs to somebody else: CUDA MPS cannot start there")
        folder.chmod(mode)

    def _run(self, *more: str) -> bool:
        """Have the daemon started; False if it refuses."""
        # Nothing of the daemon may hold our pipes: it stays.
        with (
            (self._logs / "start.log").open("wb") as out,
            subprocess.Popen(  # noqa: S603 - its name is fixed
                [_CONTROL, "-d", *more],
                env={**os.environ, **self._env(), "CUDA_VISIBLE_DEVICES": self._uuid},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            ) as child,
        ):
            try:
                return child.wait(_START_S) == 0
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
        return self._refuse(f"{_CONTROL} does not return within {_START_S:g} s")

    def _await(self) -> None:
        deadline = time.monotonic() + _START_S
        while not self.alive():
            if time.monotonic() > deadline:
                self._refuse(self._words())
            time.sleep(_POLL_S)

    def _refuse(self, why: str) -> NoReturn:
        raise DriverRefused(f"CUDA MPS does not start for GPU {self._index}: {why}")

    def alive(self) -> bool:
        """Whether the daemon runs."""
        return self._process() is not None

    def stop(self) -> None:
        """End it and its server; clients that are left lose their GPU."""
        with self._mutex:
            if self.alive():
                with suppress(OSError, subprocess.TimeoutExpired):
                    self._tell("quit -t 1")
                process = self._left(_STOP_S)
                for one in [*process_tree.descendants(process.pid), process] if process else []:
                    process_tree.send(one, signal.SIGKILL)
                self._left(_STOP_S)
            self._clear()

    def _clear(self) -> None:
        """Remove what a daemon leaves."""
        try:
            found = self.pipe.lstat()
        except OSError:
            return
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        for name in ("control", "control_lock", "control_privileged", f"{_CONTROL}.pid"):
            with suppress(OSError):
                (self.pipe / name).unlink()
        if self.pipe.parent != self._logs.parent:  # not in our home: nothing else would remove it
            shutil.rmtree(self.pipe, ignore_errors=True)

    def env(
        self, share_milli: int, memory_mib: int, *, capped: bool, eager: bool = False
    ) -> dict[str, str]:
        """What a client needs to run under it; a tenant that is not ``capped`` has no part.

        One that is ``eager`` gives way to the others.
        """
        # Its daemon knows one device only, which is number 0 to its clients.
        found = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self._logs),
            "CUDA_VISIBLE_DEVICES": "0",
        }
        if capped:
            percent = max(share_milli * 100 / _WHOLE, 1.0)
            found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{percent:g}"
        if eager:
            found["CUDA_MPS_CLIENT_PRIORITY"] = _BELOW_NORMAL
        if memory_mib:
            found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory_mib}M"
        return found

    def _env(self) -> dict[str, str]:
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self._logs),
        }

    def _tell(self, command: str) -> None:
        subprocess.run(  # noqa: S603 - its name is fixed
            [_CONTROL],
            input=f"{command}\n".encode(),
            env={**os.environ, **self._env()},
            capture_output=True,
            timeout=_STOP_S,
            check=False,
        )

    def _left(self, within_s: float) -> process_tree.ProcessInfo | None:
        """The daemon if it has not ended by then."""
        deadline = time.monotonic() + within_s
        while (process := self._process()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return process

    def _process(self) -> process_tree.ProcessInfo | None:
        """The daemon, by its account, its name and the folder that it was given."""
        if self._seen and self._is_mine(self._seen):
            return process_tree.look(self._seen)
        for name in os.listdir("/proc"):  # noqa: PTH208 - by far the fastest
            if name.isdigit() and self._is_mine(int(name)):
                self._seen = int(name)
                return process_tree.look(name)
        return None

    def _is_mine(self, pid: int) -> bool:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if not command[0].endswith(_CONTROL.encode()) or _account(pid) != os.geteuid():
                return False
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        process = process_tree.look(pid)
        alive = process is not None and process.state not in "ZX"
        return alive and f"CUDA_MPS_PIPE_DIRECTORY={self.pipe}".encode() in environ

    def _words(self) -> str:
        for name in ("start.log", "control.log"):
            with suppress(OSError):
                lines = (self._logs / name).read_text(errors="replace").split("\n")
                if words := [line for line in lines if line.strip()]:
                    return words[-1].strip()
        return "it says nothing"


def _account(pid: int) -> int:
    """The account of a process, whatever it makes its files look like."""
    for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return -1


def _short(folder: Path) -> Path:
    """The folder, or one with a short path that stands for it."""
    if len(os.fsencode(folder)) <= _LONGEST:
        return folder
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"roost-{os.getuid()}-{digest}"
