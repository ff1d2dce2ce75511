"""Shares of CPU slots: whole process trees are stopped and continued by signals.

The same four states as on a GPU (``driver``), where *checkpointed* means no more than stopped:
the memory of a process is on the host already. Each process is known by its number and start
time; no signal goes to a bare number.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from roost.engines.local.gpu.driver import NOT_READY, DriverRefused, Move, Stage
from roost.engines.local.shim import process_tree

_TICKS = os.sysconf("SC_CLK_TCK")
_PAUSE_S, _PAUSE_MAX_S = 0.0005, 0.01
_KERNEL_S = 0.05
_LISTED = Path(f"/proc/self/task/{os.getpid()}/children").exists()


class SignalDriver:
    """Stops a process and everything below it; of workers (``trees``), also what left them."""

    def __init__(self) -> None:
        self._parked: set[tuple[int, int]] = set()
        self._stopped: dict[int, list[process_tree.ProcessInfo]] = {}
        self.trees: dict[int, Callable[[], list[process_tree.ProcessInfo]]] = {}

    def family(self, pid: int) -> list[process_tree.ProcessInfo]:
        """Everything that goes with a process."""
        return self.trees[pid]() if pid in self.trees else family(pid)

    def state(self, pid: int) -> Stage:
        """Stopped, or running; Refused if it is gone."""
        process = _look(pid)
        if process.state not in "Tt":
            return Stage.RUNNING
        return Stage.CHECKPOINTED if (pid, process.ticks) in self._parked else Stage.LOCKED

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Stop everything from this process down, also what is forked meanwhile."""
        _look(pid)
        begun, pause = time.monotonic(), _PAUSE_S
        stopped: set[tuple[int, int]] = set()
        while True:
            now = self.family(pid)
            fresh = [one for one in now if (one.pid, one.ticks) not in stopped]
            for process in now:
                stopped.add((process.pid, process.ticks))
                if process.state not in "Tt":  # once more, too: the job itself may let it go on
                    process_tree.send(process, signal.SIGSTOP)
            # What waits for the kernel, and goes on doing so, stops when it returns.
            waited_s = time.monotonic() - begun
            still = "TtD" if waited_s > _KERNEL_S else "Tt"
            if not fresh and all(one.state in still for one in now):
                self._stopped[pid] = now
                return
            if waited_s > timeout_ms / 1000:
                self.unlock(pid)
                raise DriverRefused(f"process {pid} does not come to a stop", NOT_READY)
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)

    def checkpoint(self, pid: int) -> None:
        """Keep it stopped: its memory is on the host already."""
        process = _look(pid)
        if process.state not in "Tt":
            raise DriverRefused(f"process {pid} is not stopped")
        self._parked.add((pid, process.ticks))

    def restore(self, pid: int, moves: Sequence[Move] = ()) -> None:
        """Make it ready to go on; the shim pins it to the cores where it goes on."""
        del moves
        self._parked.discard((pid, _look(pid).ticks))

    def unlock(self, pid: int) -> None:
        """Let everything from this process down go on."""
        process = _look(pid)
        self._parked.discard((pid, process.ticks))
        # What was stopped as a whole has not changed since.
        known = self._stopped.pop(pid, [])
        same = known and known[0].ticks == process.ticks
        for one in reversed(known if same else self.family(pid)):
            process_tree.send(one, signal.SIGCONT)


def family(
    pid: int, below: Callable[[int], list[process_tree.ProcessInfo]] | None = None
) -> list[process_tree.ProcessInfo]:
    """A live process and everything below it, parents first; ``below`` is asked for children."""
    process = process_tree.look(pid)
    if process is None or process.state in "ZX":
        return []
    below = below or children()
    found = [process]
    for parent in found:  # it grows meanwhile
        found += below(parent.pid)
    return found


def children() -> Callable[[int], list[process_tree.ProcessInfo]]:
    """A function that tells the live children of a process.

    By the kernel's lists of children where it keeps them: that costs as much as a tree is large,
    however many processes the machine has. Elsewhere all processes are looked at, once.
    """
    if _LISTED:
        return _listed
    found: dict[int, list[process_tree.ProcessInfo]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - often
        if name.isdigit() and (one := process_tree.look(name)) and one.state not in "ZX":
            found.setdefault(one.parent, []).append(one)
    return lambda pid: found.get(pid, [])


def cpu_s(pids: Sequence[int]) -> float:
    """The CPU time that processes have used so far, with that of children they took leave of."""
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - often
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


def _listed(pid: int) -> list[process_tree.ProcessInfo]:
    found = (process_tree.look(child) for child in _children(pid))
    return [one for one in found if one is not None and one.state not in "ZX"]


def _children(pid: int) -> list[int]:
    """Of all threads: each keeps those that it started."""
    found: list[int] = []
    with suppress(OSError):  # one that ends just now: its children belong to another
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - often
            with (
                suppress(OSError),
                open(f"/proc/{pid}/task/{thread}/children", "rb") as file,  # noqa: PTH123 - often
            ):
                found += map(int, file.read().split())
    return found


def _look(pid: int) -> process_tree.ProcessInfo:
    process = process_tree.look(pid)
    if process is None or process.state in "ZX":
        raise DriverRefused(f"process {pid} is gone")
    return process
