"""A real server in a folder that is thrown away, for ``roost demo`` and ``roost bench live``.

However it ends, by an error, by Ctrl-C or as planned, nothing is left: no server, no process of a
job, no folder. Processes are told by what Roost puts into their environment and, for those that
look after them, by the files they hold open: never by their name or number alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from roost.defaults import POLICY
from roost.errors import Fatal

#: A server that ends with us even if we are killed: PR_SET_PDEATHSIG is 1.
#: A parent that dies before that call sends no signal, so it is compared afterwards.
_PROGRAM = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit("the process that wanted a server has gone")
from roost.cli import main
sys.exit(main())
"""
_READY_S = 30.0
_STOP_S = 15.0
_SWEEP_S = 10.0
_POLL_S = 0.01
_LAST_LINES = 20
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: What looks after the processes of a run.
_SHIM = os.fsencode(os.path.join("engines", "local", "shim"))  # noqa: PTH118 - a part of a path
#: What shims and sharing daemons have in their command lines.
_ENGINE = os.fsencode(os.path.join("engines", "local"))  # noqa: PTH118 - as above
_TICKS = os.sysconf("SC_CLK_TCK")


class ServerLoad(NamedTuple):
    """What a process has used: seconds of CPU so far, and memory now."""

    cpu_s: float
    rss_mb: float


class ScratchServer:
    """A server of one folder, started, stopped, killed and started again."""

    def __init__(self, home: Path, slots: int, *, policy: str = POLICY) -> None:
        self.home, self.slots, self.policy, self.placer = home, slots, policy, "consolidate"
        #: More of the command line of `roost up`.
        self.options: tuple[str, ...] = ()
        self.url = self.token = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._log = home / "output.log"

    def start(self, patience_s: float = _READY_S) -> None:
        """Start it; returns when it answers. Raises Fatal with the last line it printed."""
        command = [sys.executable, "-c", _PROGRAM, str(os.getpid()), "up", "--port", "0"]
        command += ["--home", str(self.home), "--slots", str(self.slots)]
        # Ctrl-C between the fork and the assignment would leave a server that nothing ends.
        with _later(), self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own
                [*command, "--policy", self.policy, "--placer", self.placer, *self.options],
                env={k: v for k, v in os.environ.items() if not k.startswith("ROOST_")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we end it in order
            )
        deadline = time.monotonic() + patience_s
        while not self._found():
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = self.said().rpartition("\n")[2].removeprefix("roost: error: ")
                raise Fatal(f"the server does not start: {last or 'it says nothing'}")
            time.sleep(_POLL_S)

    def _found(self) -> bool:
        """Whether the files say where this very process listens."""
        try:
            told = json.loads((self.home / "server.json").read_text(encoding="utf-8"))
            self.token = (self.home / "token").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return False
        self.url = str(told["url"])
        return bool(told["pid"] == self.pid)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid if self._process is not None else 0

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ask it to stop, and wait; raises Fatal if it does not."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise Fatal(f"the server did not stop within {_STOP_S:g} s") from None

    def load(self) -> ServerLoad:
        """What its process has used."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return ServerLoad(_cpu_s(self.pid), pages * os.sysconf("SC_PAGE_SIZE") / 1e6)

    def spent_s(self) -> dict[int, float]:
        """Seconds of CPU so far of each process of Roost itself: the jobs' own are left out."""
        found = {self.pid: self.load().cpu_s}
        for pid in self.processes():
            with suppress(OSError):
                if _ENGINE in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found[pid] = _cpu_s(pid)
        return found

    def said(self) -> str:
        """The end of what it printed and logged."""
        found = []
        for file in (self._log, self.home / "server.log"):
            with suppress(OSError):
                found += file.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(found[-_LAST_LINES:])

    def started(self, job: str, attempt: int) -> dict[str, Any]:
        """What was written down when a run started: its workers with their process numbers."""
        from roost.engines.local.shim import slot_file

        try:
            file = os.open(self.home / "runs" / job / str(attempt) / "start.json", os.O_RDONLY)
        except OSError:
            return {}
        try:
            return slot_file.read(file) or {}
        finally:
            os.close(file)

    def processes(self) -> list[int]:
        """The processes of its jobs, and those that look after them."""
        return _processes_of(self.home)


def _cpu_s(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _TICKS


@contextmanager
def scratch_server(name: str, slots: int, *, policy: str = POLICY) -> Iterator[ScratchServer]:
    """A folder for a server, which is not started yet; afterwards nothing of both is left."""
    server: ScratchServer | None = None
    try:
        with _later():
            home = Path(tempfile.mkdtemp(prefix=f"roost-{name}-"))
            server = ScratchServer(home, slots, policy=policy)
        yield server
    finally:
        if server is not None:
            with _later():
                _sweep(server)


def _sweep(server: ScratchServer) -> None:
    """End the server and everything it started, and remove the folder."""
    from roost.engines.local import limits

    # The server first: it would start jobs again whose processes are killed below.
    server.kill()
    deadline = time.monotonic() + _SWEEP_S
    while left := server.processes():
        for pid in left:
            _kill(pid, server.home)
        if time.monotonic() > deadline:
            raise Fatal(f"processes {left} of {server.home} do not die")
        time.sleep(_POLL_S)
    limits.find(server.home).close()
    shutil.rmtree(server.home, ignore_errors=True)


def _kill(pid: int, home: Path) -> None:
    """Kill a process if it is still the one that belongs there."""
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            # After the pidfd: the number may have passed to another process since it was listed.
            if _belongs(str(pid), home):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def _processes_of(home: Path) -> list[int]:
    own = str(os.getpid())
    names = os.listdir("/proc")  # noqa: PTH208 - by far the fastest
    return [int(n) for n in names if n.isdigit() and n != own and _belongs(n, home)]


def _belongs(pid: str, home: Path) -> bool:
    """Whether a process is one of a job of that home, or looks after one."""
    inside = os.fsencode(f"{home}{os.sep}")
    with suppress(OSError):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if any(one.startswith(b"ROOST_") and inside in one for one in variables):
            return True
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if _ENGINE in command and inside in command:
            return True  # a sharing daemon
        if _SHIM not in command:
            return False
        folder = f"/proc/{pid}/fd"
        return any(
            _leads(f"{folder}/{number}").startswith(inside)
            for number in os.listdir(folder)  # noqa: PTH208 - as above
        )
    return False


def _leads(link: str) -> bytes:
    """Where an open file is; nowhere if it was closed meanwhile."""
    try:
        return os.fsencode(os.readlink(link))  # noqa: PTH115 - as above
    except OSError:
        return b""


@contextmanager
def _later() -> Iterator[None]:
    """Put signals that end us off until what is under way is done."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled by the caller
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    known = {number: signal.getsignal(number) for number in _ENDING}
    before = {number: handler for number, handler in known.items() if handler is not None}
    for number in before:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            os.kill(os.getpid(), came[0])
