"""A local engine with real processes, driven step by step: orders in, reports out."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from roost import failpoints
from roost.core.actions import Action, Launch, Stop
from roost.core.allocation import Allocation, Part
from roost.core.spec import JobId, JobSpec, NodeId, RunId
from roost.engines import Assigned, Ended, Report, RunOrder
from roost.engines.local import LocalEngine
from roost.engines.local.devices import node_name
from roost.engines.local.run_folders import RunFolders
from roost.engines.local.run_record import RunRecord
from roost.engines.local.run_status import examine
from roost.engines.local.shim import slot_file
from roost.engines.local.shim.process_tree import look
from roost.errors import NotFound
from roost.jobfile.program import Program, Task

_T = TypeVar("_T")
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
PYTHON = sys.executable
KILLED = -signal.SIGKILL


def run_id(job: str, attempt: int = 1) -> RunId:
    return RunId(JobId(job), attempt)


def shell(script: str, grace_s: float = 5.0, **more: object) -> Program:
    return Program({"worker": Task(script=script)}, grace_s=grace_s, **more)  # type: ignore[arg-type]


def python(script: str, *args: str, grace_s: float = 5.0, **more: object) -> Program:
    task = Task(command=(PYTHON, "-I", "-S", "-c", script, *args))
    return Program({"worker": task}, grace_s=grace_s, **more)  # type: ignore[arg-type]


class World:
    """An engine on a folder, with the reports it made."""

    def __init__(self, home: Path, slots: int = 2) -> None:
        self.home, self._slots = home, slots
        self.loop = asyncio.new_event_loop()
        self.reports: list[Report] = []
        self._news = asyncio.Event()
        self.engine = LocalEngine(home, slots)

    def start(self, alive: Mapping[RunId, Assigned] | None = None) -> None:
        self.loop.run_until_complete(self.engine.start(self._report, alive or {}))

    def close(self) -> None:
        self.loop.run_until_complete(self.engine.close())
        self.loop.close()

    @property
    def node(self) -> NodeId:
        return node_name()

    def place(self, *gpus: int, workers: int = 1, role: str = "worker") -> Allocation:
        return Allocation((Part(self.node, gpus or (0,), 1000, workers, role),))

    def order(self, action: Action, program: Program | None = None, **more: object) -> None:
        order = RunOrder(action, program, **more)  # type: ignore[arg-type]
        self.loop.run_until_complete(self.engine.perform(order))

    def launch(
        self,
        job: str,
        program: Program,
        where: Allocation | None = None,
        spec: JobSpec | None = None,
        **more: object,
    ) -> RunId:
        run = run_id(job)
        self.order(Launch(run, spec or JobSpec(), where or self.place()), program, **more)
        return run

    def until(self, kind: type[_T], run: RunId | None = None, timeout: float = 60.0) -> _T:
        """The next report of a kind, taken out of the list with all before it."""
        return self.loop.run_until_complete(asyncio.wait_for(self._until(kind, run), timeout))

    def end(self, run: RunId, timeout: float = 60.0) -> Ended:
        self.order(Stop(run, "test"))
        return self.until(Ended, run, timeout)

    def log(self, run: RunId, worker: str = "worker-0") -> str:
        with self.engine.logs(run, worker) as log:
            return log.read(0, log.size()).decode()

    def follow(self, run: RunId, text: str, worker: str = "worker-0") -> str:
        """Wait until a log says something."""
        deadline = time.monotonic() + 60
        found = ""
        while text not in found:
            assert time.monotonic() < deadline, found
            self.loop.run_until_complete(asyncio.sleep(0.005))
            with suppress(NotFound):
                found = self.log(run, worker)
        return found

    def state(self, run: RunId) -> RunRecord:
        return state_of(self.home, run)

    def _report(self, report: Report) -> None:
        self.reports.append(report)
        self._news.set()

    async def _until(self, kind: type[_T], run: RunId | None) -> _T:
        while True:
            while self.reports:
                report = self.reports.pop(0)
                if isinstance(report, kind) and run in {None, getattr(report, "run", None)}:
                    return report
            self._news.clear()
            await self._news.wait()


def assigned(order: RunOrder | None = None, *, parked: bool = False) -> Assigned:
    return Assigned(parked=parked, order=order)


def state_of(home: Path, run: RunId) -> RunRecord:
    runs = RunFolders(home)
    try:
        state = examine(runs, run).record
    finally:
        runs.close()
    assert state is not None
    return state


def left_of(home: Path, within_s: float = 10.0) -> list[int]:
    """Processes that carry the token or mark of any run under a home.

    A process that lets go of its lock is not yet gone: it gets a moment.
    """
    states = [
        state_of(home, run_id(path.parts[-3], int(path.parts[-2])))
        for path in home.glob("runs/*/*/run.json")
    ]
    deadline = time.monotonic() + within_s
    while (found := _carriers(states)) and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


def _carriers(states: list[RunRecord]) -> list[int]:
    tokens = {f"ROOST_RUN_TOKEN={state.token}".encode() for state in states}
    marks = {str(state.mark).encode() for state in states}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = {*(folder / "environ").read_bytes().split(b"\0")}
            words |= {*(folder / "limits").read_bytes().split()}
            if words & (tokens | marks) and alive(int(folder.name)):
                found.append(int(folder.name))
    return found


def start_record(home: Path, job: str, attempt: int = 1) -> dict[str, Any]:
    """What the shim of a run says of it."""
    fd = os.open(home / "runs" / job / str(attempt) / "start.json", os.O_RDONLY)
    try:
        return slot_file.read(fd) or {}
    finally:
        os.close(fd)


def await_end(home: Path, run: RunId) -> None:
    """Wait until the shim of a run lets go of its lock."""
    fd = os.open(home / "runs" / run.job / str(run.attempt) / "lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)


def await_file(path: Path, timeout: float = 60.0) -> str:
    """Wait until a file says something."""
    deadline = time.monotonic() + timeout
    while True:
        with suppress(FileNotFoundError):
            if text := path.read_text():
                return text
        assert time.monotonic() < deadline, path
        time.sleep(0.002)


def alive(pid: int) -> bool:
    process = look(pid)
    return process is not None and process.state not in "ZX"


@contextmanager
def world(
    home: Path, slots: int = 2, alive: Mapping[RunId, Assigned] | None = None
) -> Iterator[World]:
    """A started world, closed at the end; workers go on."""
    made = World(home, slots)
    made.start(alive)
    try:
        yield made
    finally:
        made.close()


def clear(home: Path) -> None:
    """Stop whatever still runs under a home, and make sure that it is gone."""
    last = World(home)
    last.start()  # nobody asked for what it finds
    while any((home / "running").iterdir()):
        last.until(Ended)
    last.close()
    assert left_of(home) == []


def apart(
    story: Callable[[], None], failpoint: str = "", tmpfs: tuple[Path, str] | None = None
) -> int:
    """Tell a story in a process of its own; its wait status."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        os.setsid()
        if tmpfs is not None:
            _mount(*tmpfs)
        if failpoint:
            os.environ["ROOST_FAILPOINT"] = failpoint
            failpoints._armed = failpoints._parse(failpoint)
        story()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - shown, and told by the status
        traceback.print_exc()
    finally:
        os._exit(1)


def _mount(place: Path, size: str) -> None:
    """Mount a small file system that only this process and its children see."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    flags = _CLONE_NEWNS | (_CLONE_NEWUSER if uid else 0)
    assert libc.unshare(flags) == 0, os.strerror(ctypes.get_errno())
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    private = 1 << 18 | 1 << 14
    assert libc.mount(b"none", b"/", None, private, None) == 0, os.strerror(ctypes.get_errno())
    options = f"size={size}".encode()
    assert libc.mount(b"tmpfs", bytes(place), b"tmpfs", 0, options) == 0
