"""A driver in memory that fails on demand, and the machinery around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from roost.engines.local.gpu.activity_meters import CpuMeter
from roost.engines.local.gpu.driver import ILLEGAL_STATE, INVALID_VALUE, DriverRefused, Move, Stage
from roost.engines.local.gpu.huge_pages import HugePages
from roost.engines.local.gpu.sharing_daemon import DaemonDevices
from roost.engines.local.gpu.time_slices import ActivityMeter

_NEXT = {
    "lock": (Stage.RUNNING, Stage.LOCKED),
    "checkpoint": (Stage.LOCKED, Stage.CHECKPOINTED),
    "restore": (Stage.CHECKPOINTED, Stage.LOCKED),
    "unlock": (Stage.LOCKED, Stage.RUNNING),
}


class FakeDriver:
    """Knows the processes it is told of; refuses what it is told to refuse."""

    def __init__(self, *pids: int) -> None:
        self.stages = dict.fromkeys(pids, Stage.RUNNING)
        self.refuse: dict[tuple[str, int], int] = {}
        self.calls: list[tuple[str, int]] = []
        self.moves: list[Move] = []
        self.on_checkpoint: Callable[[int], object] = lambda pid: pid

    def state(self, pid: int) -> Stage:
        code = self.refuse.get(("state", pid))
        if code is not None:
            raise DriverRefused(f"will not state {pid}", code)
        if pid not in self.stages:
            raise DriverRefused(f"no process {pid}", INVALID_VALUE)
        return self.stages[pid]

    def lock(self, pid: int, timeout_ms: int) -> None:
        assert timeout_ms > 0
        self._step("lock", pid)

    def checkpoint(self, pid: int) -> None:
        self._step("checkpoint", pid)
        self.on_checkpoint(pid)

    def restore(self, pid: int, moves: Sequence[Move] = ()) -> None:
        self._step("restore", pid)
        self.moves += moves

    def unlock(self, pid: int) -> None:
        self._step("unlock", pid)

    def _step(self, verb: str, pid: int) -> None:
        self.calls.append((verb, pid))
        code = self.refuse.get((verb, pid))
        if code is not None:
            raise DriverRefused(f"will not {verb} {pid}", code)
        before, after = _NEXT[verb]
        if self.state(pid) is not before:
            raise DriverRefused(f"cannot {verb} {pid} now", ILLEGAL_STATE)
        self.stages[pid] = after


class FakeMachinery(DaemonDevices):
    """A machine with GPUs that are none: processes and their memory as told."""

    def __init__(self, driver: FakeDriver, setting: Path) -> None:
        super().__init__()
        self.setting = setting
        self._drivers["cuda"] = driver
        self.memory: dict[int, int] = {}
        self.free = self.host = 100_000
        self.version = 580

    def meter(self, means: str, device: int) -> ActivityMeter:
        del means, device
        return CpuMeter()

    def held(self, device: int) -> dict[int, int]:
        del device
        return self.memory

    def free_mib(self, device: int) -> int:
        del device
        return self.free

    def host_mib(self, pid: int) -> int:
        del pid
        return self.host

    def driver_version(self) -> int:
        return self.version

    def pages(self, note: Path) -> HugePages:
        return HugePages(note, self.setting)

    def uuid(self, device: int) -> str:
        return f"GPU-{device}"
