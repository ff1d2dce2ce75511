"""Processes of this machine: held by pidfd, known by start time and boot, found by their marks.

A number alone does not identify a process: numbers are given out again. Nothing here signals a
process before its start time, on this boot, was compared.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from roost.core.spec import RunId
from roost.engines import Usage
from roost.engines.local.shim import process_tree

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 512  # bytes that st_blocks counts in
#: How long killed processes may take to be gone.
_KILL_S = 5.0
#: Open files that launches leave to the rest of the server.
_RESERVE = 64


class Traces(NamedTuple):
    """What tells the processes of a run from others: environment, mark and cgroup."""

    token: str
    mark: int
    cgroup: str


@cache
def boot_id() -> str:
    """This boot of the machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def hold(pid: int, ticks: int, boot: str) -> int | None:
    """A pidfd of exactly that process, or None if it is gone."""
    if boot != boot_id():
        return None
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    # Held first, then compared: while the pidfd is open the number stays this process's.
    now = process_tree.look(pid)
    if now is None or now.ticks != ticks:
        os.close(fd)
        return None
    return fd


def check_files() -> None:
    """Leave files for the server to answer with; raises OSError when too many are open.

    A run takes one for as long as it lives.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    reserve = min(_RESERVE, limit // 8)
    if limit != resource.RLIM_INFINITY and len(os.listdir("/proc/self/fd")) > limit - reserve:  # noqa: PTH208
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def send(pidfd: int, number: int) -> None:
    """Signal the process behind a pidfd, if it is there."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def reap(pidfd: int) -> None:
    """Reap a child that ended; a shim of an earlier server is no child, and needs none."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)


def kill_leftovers(traces: Traces, within_s: float = _KILL_S) -> list[int]:
    """Kill what a dead shim left behind; the processes that do not die."""
    deadline = time.monotonic() + within_s
    if traces.cgroup:
        with suppress(OSError):
            process_tree.write(f"{traces.cgroup}/cgroup.kill", "1")
    while found := leftovers(traces):
        # All are stopped before any is killed, so that none forks meanwhile; then look once more.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in found:
                process_tree.send(process, number)
        if left := _await_end(found, deadline):
            return [process.pid for process in left]
    return []


def leftovers(traces: Traces) -> list[process_tree.ProcessInfo]:
    """All live processes that carry a run's token or mark, or sit in its cgroup."""
    inside = _members(traces.cgroup) if traces.cgroup else frozenset()
    found = []
    for name in os.listdir(_PROC):  # noqa: PTH208 - by far the fastest
        if not name.isdigit():
            continue
        process = process_tree.look(name)
        if process is None or process.state in "ZX":
            continue
        if process.pid in inside or _marked(name, traces):
            found.append(process)
    return found


def usage(shims: Mapping[RunId, int]) -> dict[RunId, Usage]:
    """What each run's processes use, by the number of the shim that they descend from."""
    stats: dict[int, list[bytes]] = {}
    children = defaultdict(list)
    for name in os.listdir(_PROC):  # noqa: PTH208 - by far the fastest
        if name.isdigit():
            with suppress(OSError):
                fields = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
                stats[int(name)] = fields
                children[int(fields[1])].append(int(name))
    return {run: _used(pid, stats, children) for run, pid in shims.items()}


def nameless_bytes(shim: int, device: int) -> int:
    """The space on a disk of files that a run has open and that have no name any more."""
    sizes: dict[int, int] = {}
    for pid in _below(shim):
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as found:
            for one in found:
                with suppress(OSError):
                    status = one.stat()  # of what the descriptor stands for
                    if not status.st_nlink and status.st_dev == device:
                        sizes[status.st_ino] = status.st_blocks * _BLOCK
    return sum(sizes.values())


def _below(root: int) -> Iterator[int]:
    """The processes below one, as they are just now.

    The kernel tells the children of each. To go through all processes of the machine for every run
    costs a core where a thousand run.
    """
    if not (_PROC / f"self/task/{os.getpid()}/children").exists():  # a kernel that does not tell
        yield from (process.pid for process in process_tree.descendants(root))
        return
    ring = [root]
    while ring:
        task = _PROC / str(ring.pop()) / "task"
        with suppress(OSError):
            for thread in os.listdir(task):  # noqa: PTH208 - by far the fastest
                with suppress(OSError):
                    found = [int(pid) for pid in (task / thread / "children").read_bytes().split()]
                    ring += found
                    yield from found


def _used(root: int, stats: Mapping[int, list[bytes]], children: Mapping[int, list[int]]) -> Usage:
    ticks = pages = count = 0
    ring = list(children.get(root, ()))
    while ring:
        pid = ring.pop()
        ring += children.get(pid, ())
        fields = stats[pid]
        ticks += sum(int(field) for field in fields[11:15])
        pages += max(int(fields[21]), 0)
        count += 1
    return Usage(ticks / _TICKS, pages * _PAGE, count)


def _await_end(
    processes: list[process_tree.ProcessInfo], deadline: float
) -> list[process_tree.ProcessInfo]:
    """Wait until processes are gone; those that are not, in time."""
    pause = 0.001  # the kernel needs a moment to take them down
    while left := [one for one in processes if process_tree.is_alive(one.pid, one.ticks)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(pause)
        pause = min(1.5 * pause, 0.2)
    return []


def _marked(pid: str, traces: Traces) -> bool:
    # The limit is inherited and cannot be raised again; the environment can be changed by the job.
    with suppress(OSError):
        for line in (_PROC / pid / "limits").read_bytes().splitlines():
            if line.startswith(b"Max realtime timeout"):
                if str(traces.mark).encode() in line.split():
                    return True
                break
    with suppress(OSError):
        wanted = f"ROOST_RUN_TOKEN={traces.token}".encode()
        return wanted in (_PROC / pid / "environ").read_bytes().split(b"\0")
    return False


def _members(cgroup: str) -> frozenset[int]:
    folders: Iterable[Path] = (Path(cgroup), *Path(cgroup).glob("*/"))
    found: set[int] = set()
    for folder in folders:
        with suppress(OSError, ValueError):
            found.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split())
    return frozenset(found)
