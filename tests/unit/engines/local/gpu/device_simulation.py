"""A GPU in made-up time, and programs that queue work on it, under the runner of turns.

The driver divides the device evenly among all that have work queued and are not locked, at 93.5 %
of what one alone gets. A lock takes no new work from a program, and is done when its queue is
empty; a change of turns takes at least 2 ms. The meter is as coarse as NVML's samples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from roost.engines.local.gpu.driver import DriverRefused, Move, Stage
from roost.engines.local.gpu.slices import Claim
from roost.engines.local.gpu.time_slices import LockThreads, SliceRunner, TenantProcesses

TICK_S = 0.001
_EVEN = 0.935
_LOCK_S, _UNLOCK_S = 0.002, 0.0003
_SAMPLE_S = 1 / 6


@dataclass
class Program:
    """What a process does: ``more`` queues work; ``done_s`` is what the device did of it."""

    queued_s: float = 0.0
    done_s: float = 0.0
    hangs: bool = False

    def more(self, now: float) -> None:
        """Queue what there is to queue."""

    def served(self, now: float) -> None:
        """Some of it was done."""


@dataclass
class Trainer(Program):
    """Steps of ``step_s`` on the device; waits for them every ``sync_every``.

    ``gap_s``: what the host does for each, while the device has nothing of it.
    """

    step_s: float = 0.035
    sync_every: int = 1
    gap_s: float = 0.0
    ready_at: float = 0.0

    def more(self, now: float) -> None:
        if self.queued_s <= 0 and now >= self.ready_at:
            self.queued_s = self.step_s * self.sync_every

    def served(self, now: float) -> None:
        if self.queued_s <= 0:
            self.ready_at = now + self.gap_s * self.sync_every


@dataclass
class Service(Program):
    """Requests that come at random, each so much work; how long each took."""

    per_s: float = 40.0
    work_s: float = 0.005
    waiting: list[tuple[float, float]] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    next_at: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def arrive(self, now: float) -> None:
        while now >= self.next_at:
            self.waiting.append((self.next_at, self.work_s))
            self.next_at += self.chance.expovariate(self.per_s)

    def more(self, now: float) -> None:
        if self.queued_s <= 0 and self.waiting and self.waiting[0][0] <= now:
            self.queued_s = self.work_s

    def served(self, now: float) -> None:
        if self.queued_s <= 0:
            self.took_s.append(now - self.waiting.pop(0)[0])

    def quantile(self, part: float) -> float:
        return sorted(self.took_s)[int(part * len(self.took_s))]


class SimulatedDevice:
    """A GPU with its driver, its meter and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.programs: dict[int, Program] = {}
        self.stages: dict[int, Stage] = {}
        self.locking: dict[int, float] = {}
        self.sampled: dict[int, float] = {}
        self.sampled_at = 0.0
        self.pending: list[tuple[Future[None], set[int], float]] = []

    def tick(self) -> None:
        self.now += TICK_S
        for pid, program in self.programs.items():
            if isinstance(program, Service):
                program.arrive(self.now)
            if self.stages[pid] is Stage.RUNNING and pid not in self.locking:
                program.more(self.now)
        busy = [p for pid, p in self.programs.items() if p.queued_s > 0 and not self._still(pid)]
        for program in busy:
            had = TICK_S / len(busy) * (_EVEN if len(busy) > 1 else 1.0)
            had = min(had, program.queued_s)
            program.done_s += had
            if not program.hangs:
                program.queued_s -= had
                program.queued_s = program.queued_s if program.queued_s > 1e-9 else 0.0
                program.served(self.now)
        self._finish()
        if self.now - self.sampled_at >= _SAMPLE_S:
            self.sampled_at = self.now
            self.sampled = {pid: one.done_s for pid, one in self.programs.items()}

    def _still(self, pid: int) -> bool:
        return self.stages[pid] is not Stage.RUNNING and pid not in self.locking

    def _finish(self) -> None:
        for pid, begun in tuple(self.locking.items()):
            gone = self.programs[pid].queued_s <= 0
            if gone and self.now - begun >= _LOCK_S - 1e-9:
                del self.locking[pid]
        for entry in tuple(self.pending):
            future, pids, _ = entry
            if pids.isdisjoint(self.locking):
                self.pending.remove(entry)
                future.set_result(None)

    def run(self, for_s: float) -> None:
        until = self.now + for_s
        while self.now < until - 1e-9:
            self.tick()

    # As a driver.

    def state(self, pid: int) -> Stage:
        return self.stages[pid]

    def lock(self, pid: int, timeout_ms: int) -> None:
        assert timeout_ms > 0
        self.stages[pid] = Stage.LOCKED
        self.locking[pid] = self.now

    def unlock(self, pid: int) -> None:
        self.stages[pid] = Stage.RUNNING

    def checkpoint(self, pid: int) -> None:
        raise DriverRefused(f"nothing is parked here: {pid}")

    def restore(self, pid: int, moves: Sequence[Move] = ()) -> None:
        raise DriverRefused(f"nothing is parked here: {pid} {moves}")

    # As a meter.

    def used_s(self, pids: Sequence[int]) -> float:
        return sum(self.sampled.get(pid, 0.0) for pid in pids)

    def tells(self, pids: Sequence[int]) -> bool:
        return bool(pids)


class SimulatedLocks(LockThreads):
    """Locks that end when the queue of what they lock is empty."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device

    def begin(self, lock: Callable[[], None]) -> Future[None]:
        before = set(self._device.locking)
        lock()
        future: Future[None] = Future()
        stopping = set(self._device.locking) - before
        self._device.pending.append((future, stopping, self._device.now))
        return future

    def wait(self, locks: Iterable[Future[None]], for_s: float) -> None:
        waited, until = list(locks), self._device.now + for_s
        while not all(one.done() for one in waited) and self._device.now < until:
            self._device.tick()

    def close(self) -> None:
        pass


class Simulation:
    """Programs that share a device by turns."""

    def __init__(self) -> None:
        self.device = SimulatedDevice()
        self.runner = SliceRunner(
            self.device, locks=SimulatedLocks(self.device), clock=lambda: self.device.now
        )
        self.locked: set[int] = set()

    def join(self, program: Program, share_milli: int, qos: str, at_s: float = 0.0) -> Program:
        """A program that comes to use the device at that time."""
        pid = len(self.device.programs) + 1
        self.device.programs[pid] = program
        self.device.stages[pid] = Stage.RUNNING
        tenant = TenantProcesses(
            self.device,
            lambda: [pid] if pid in self.device.programs and self.device.now >= at_s else [],
        )
        self.runner.join(str(pid), Claim(share_milli, qos), tenant)
        return program

    def run(self, for_s: float) -> None:
        until = self.device.now + for_s
        while self.device.now < until - 1e-9:
            self.runner.step(self.device.run)
            self.locked |= {pid for pid, one in self.device.stages.items() if one is Stage.LOCKED}

    def rates(self, for_s: float = 30.0, warm_s: float = 10.0) -> list[float]:
        """The part of the device's time that each program had, after a while."""
        self.run(warm_s)
        self.locked.clear()
        programs = self.device.programs.values()
        before, begun = [one.done_s for one in programs], self.device.now
        for one in programs:
            if isinstance(one, Service):
                one.took_s.clear()
        self.run(for_s)
        return [
            (one.done_s - was) / (self.device.now - begun)
            for one, was in zip(programs, before, strict=True)
        ]


def alone(program: Program, for_s: float = 30.0) -> float:
    """What a program does that has the device to itself."""
    device = SimulatedDevice()
    device.programs[1], device.stages[1] = program, Stage.RUNNING
    device.run(for_s)
    return program.done_s / for_s


def unmanaged(*programs: Program, for_s: float = 30.0) -> list[float]:
    """What the plain driver makes of them."""
    device = SimulatedDevice()
    for pid, program in enumerate(programs, 1):
        device.programs[pid], device.stages[pid] = program, Stage.RUNNING
    device.run(for_s)
    return [one.done_s / for_s for one in programs]
