"""The processes below this one: find them, signal them, freeze them, kill every last one.

This process is the reaper of its descendants: a process that loses its parent becomes its child. So
nothing gets away by forking twice or by starting a session, and when there is no child left there
is no descendant left. No signal goes to a bare number: a process is held by a pidfd and known by
its start time, or it is left alone.
"""

from __future__ import annotations

import os
import time

from roost.engines.local.shim.stdlib_subset import ignoring, signal

#: Rounds over all processes before something is given up.
_ROUNDS = 50
#: More than there ever is in a file of one line of numbers.
_LARGE = 8192


class ProcessInfo:
    """A process by number and start time, which together no other one has."""

    __slots__ = ("parent", "pid", "session", "state", "ticks")

    def __init__(self, pid: int, ticks: int, parent: int, state: str, session: int = 0) -> None:
        self.pid, self.ticks, self.parent, self.state = pid, ticks, parent, state
        self.session = session


def look(pid: int | str) -> ProcessInfo | None:
    """What the kernel says of a process; None if it is gone."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)  # a file object costs four times as much
        try:
            rest = os.read(file, _LARGE).rpartition(b")")[2].split()
        finally:
            os.close(file)
    except OSError:
        return None
    state = rest[0].decode()
    if state == "Z" and int(rest[17]) > 1:
        state = _of_threads(pid)
    return ProcessInfo(int(pid), int(rest[19]), int(rest[1]), state, int(rest[3]))


def _of_threads(pid: int | str) -> str:
    """How a process is whose first thread has ended: it lives on in the others."""
    with ignoring(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with ignoring(OSError), open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:  # noqa: PTH123
                state = file.read().rpartition(b")")[2].split()[0].decode()
                if state not in "ZX":
                    return state
    return "Z"


def is_alive(pid: int, ticks: int) -> bool:
    """Whether exactly this process lives."""
    now = look(pid)
    return now is not None and now.ticks == ticks and now.state not in "ZX"


def descendants(root: int) -> list[ProcessInfo]:
    """All live processes below one, parents first."""
    children: dict[int, list[ProcessInfo]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to import
        if name.isdigit() and (process := look(name)):
            children.setdefault(process.parent, []).append(process)
    found: list[ProcessInfo] = []
    ring = [root]
    while ring:
        below = [process for pid in ring for process in children.get(pid, ())]
        found += [process for process in below if process.state not in "ZX"]
        ring = [process.pid for process in below]
    return found


def send(process: ProcessInfo, number: int) -> bool:
    """Signal exactly this process; False if it is gone or not ours to signal."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # Held first, then compared: a number cannot change hands while its pidfd is open.
        now = look(process.pid)
        if now is None or now.ticks != process.ticks:
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def freeze() -> None:
    """Stop everything below, also what is forked meanwhile: a stopped process cannot fork."""
    # Round after round: a process may fork between the list and its signal. One that was stopped
    # cannot, so a round that finds none that is new is the last.
    stopped: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS):
        fresh = [one for one in descendants(os.getpid()) if (one.pid, one.ticks) not in stopped]
        if not fresh:
            return
        for process in fresh:
            stopped.add((process.pid, process.ticks))
            send(process, signal.SIGSTOP)


def settle(within_s: float) -> None:
    """Wait until everything below has stopped; what waits for the kernel stops when it returns."""
    deadline = time.monotonic() + within_s
    while any(one.state not in "TtD" for one in descendants(os.getpid())):
        if time.monotonic() > deadline:
            return
        time.sleep(0.001)


def thaw() -> None:
    """Let everything below go on."""
    for process in descendants(os.getpid()):
        send(process, signal.SIGCONT)


def kill(cgroup: str) -> None:
    """Kill everything below once; what cannot fork any more cannot get away."""
    if cgroup:
        with ignoring(OSError):
            write(f"{cgroup}/cgroup.kill", "1")
    # All are stopped before any is killed: else a parent could fork again for each dead child.
    freeze()
    for process in descendants(os.getpid()):
        send(process, signal.SIGKILL)


def kill_rest(leader: int, mark: bytes) -> None:
    """Kill what a worker left behind: its session, and whatever has its mark in its environment."""
    for _ in range(_ROUNDS):
        below = descendants(os.getpid())
        left = [one for one in below if one.session == leader or _is_marked(one.pid, mark)]
        if not sum(send(process, signal.SIGKILL) for process in left):
            return
        time.sleep(0.001)


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def pin(pid: int, cpus: list[int]) -> None:
    """Move every thread of a worker and of everything below it to these cores."""
    for process in [pid, *(one.pid for one in descendants(pid))]:
        with ignoring(OSError):
            for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
                os.sched_setaffinity(int(thread), cpus)


def write(path: str, text: str) -> None:
    """Write to a file of the kernel."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
