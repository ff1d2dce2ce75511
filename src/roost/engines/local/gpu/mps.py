"""Shares of a GPU side by side: a control daemon of CUDA MPS for each GPU that is shared so.

Its clients run at the same time, each on a part of the multiprocessors and with a hard limit of
memory. The daemon is found through a folder, whose path must be short. It outlives the server,
and ends when it is told to.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from roost.engines.local.gpu.driver import Refused
from roost.engines.local.shim import tree

_CONTROL = "nvidia-cuda-mps-control"
_LONGEST = 80  # bytes of a folder's path: the daemon adds the names of its sockets
_START_S = 10.0
_STOP_S = 5.0
_POLL_S = 0.02
_WHOLE = 1000


def available() -> str:
    """Why there is no MPS here; "" if there is."""
    if shutil.which(_CONTROL) is None:
        return f"this machine has no CUDA MPS: there is no {_CONTROL}"
    return ""


def device_of(logs: Path) -> int:
    """The GPU whose daemon logs there."""
    return int(logs.name.split("-")[1])


class Daemon:
    """The control daemon of one GPU, with its folders under ``home``."""

    def __init__(self, home: Path, uuid: str, index: int) -> None:
        self._uuid, self._index = uuid, index
        self._logs = home / f"mps-{index}-log"
        self.pipe = _short(home / f"mps-{index}")
        self._seen = 0

    def start(self) -> None:
        """Make sure that it runs; Refused with the reason if it cannot."""
        if self.alive():
            return
        if why := available():
            raise Refused(why)
        self.stop()
        for folder in (self.pipe, self._logs):
            folder.mkdir(parents=True, exist_ok=True)
            if folder.stat().st_uid != os.getuid():
                raise Refused(f"{folder} belongs to somebody else: CUDA MPS cannot start there")
        self.pipe.chmod(0o711)  # jobs of other accounts reach its sockets by name
        # Nothing of the daemon may hold our pipes: it stays.
        with (self._logs / "start.log").open("wb") as out:
            done = subprocess.run(  # noqa: S603 - its name is fixed
                [_CONTROL, "-d"],
                env={**os.environ, **self._env(), "CUDA_VISIBLE_DEVICES": self._uuid},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=_START_S,
                check=False,
            )
        deadline = time.monotonic() + _START_S
        while not self.alive():
            if done.returncode or time.monotonic() > deadline:
                raise Refused(f"CUDA MPS does not start for GPU {self._index}: {self._words()}")
            time.sleep(_POLL_S)

    def alive(self) -> bool:
        """Whether the daemon runs."""
        return self._process() is not None

    def stop(self) -> None:
        """End it and its server; clients that are left lose their GPU."""
        if self.alive():
            with suppress(OSError, subprocess.TimeoutExpired):
                self._tell("quit -t 1")
            process = self._left(_STOP_S)
            for one in [*tree.descendants(process.pid), process] if process else []:
                tree.send(one, signal.SIGKILL)
            self._left(_STOP_S)
        for name in ("control", "control_lock", "control_privileged", f"{_CONTROL}.pid"):
            with suppress(OSError):
                (self.pipe / name).unlink()
        if self.pipe.parent != self._logs.parent:  # not in our home: nobody else would remove it
            with suppress(OSError):
                if self.pipe.lstat().st_uid == os.getuid():
                    shutil.rmtree(self.pipe, ignore_errors=True)

    def env(self, share_milli: int, memory_mib: int, *, capped: bool) -> dict[str, str]:
        """What a client needs to run under it; a tenant that is not ``capped`` has no part."""
        # Its daemon knows one device only, which is number 0 to its clients.
        found = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self._logs),
            "CUDA_VISIBLE_DEVICES": "0",
        }
        if capped:
            percent = max(share_milli * 100 / _WHOLE, 1.0)
            found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{percent:g}"
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

    def _left(self, within_s: float) -> tree.Process | None:
        """The daemon if it has not ended by then."""
        deadline = time.monotonic() + within_s
        while (process := self._process()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return process

    def _process(self) -> tree.Process | None:
        """The daemon, by its name and the folder that it was given."""
        if self._seen and self._is_mine(self._seen):
            return tree.look(self._seen)
        for name in os.listdir("/proc"):  # noqa: PTH208 - by far the fastest
            if name.isdigit() and self._is_mine(int(name)):
                self._seen = int(name)
                return tree.look(name)
        return None

    def _is_mine(self, pid: int) -> bool:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if not command[0].endswith(_CONTROL.encode()):
                return False
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        process = tree.look(pid)
        alive = process is not None and process.state not in "ZX"
        return alive and f"CUDA_MPS_PIPE_DIRECTORY={self.pipe}".encode() in environ

    def _words(self) -> str:
        for name in ("start.log", "control.log"):
            with suppress(OSError):
                lines = (self._logs / name).read_text(errors="replace").split("\n")
                if words := [line for line in lines if line.strip()]:
                    return words[-1].strip()
        return "it says nothing"


def _short(folder: Path) -> Path:
    """The folder, or one with a short path that stands for it."""
    if len(os.fsencode(folder)) <= _LONGEST:
        return folder
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"roost-{os.getuid()}-{digest}"
