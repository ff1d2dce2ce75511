"""One tenant: its processes, how it stands, how it is parked and brought back.

Parking locks every process, then brings all of them off the device; if one refuses, those that
went are brought back and all go on. Nothing here touches a process without knowing it by number
and start time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from roost.engines.local.gpu import memory_rhythm
from roost.engines.local.gpu.driver import (
    INVALID_VALUE,
    NOT_INITIALIZED,
    CheckpointDriver,
    DriverRefused,
    Move,
    Stage,
    advance,
)
from roost.engines.local.gpu.slices import Claim
from roost.engines.local.gpu.time_slices import LOCK_MS, TenantProcesses
from roost.engines.local.gpu.worker_processes import WorkerProcesses
from roost.engines.local.shim import process_tree

Standing = Literal["running", "parking", "parked", "unparking", "gone"]

#: How often memory is looked at, how many looks are kept, how long a low is waited for at most.
SAMPLE_S = 0.25
_SAMPLES = 240
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class TenantRequest:
    """What the engine wants of a tenant: one worker on its devices.

    ``turn`` grows with every wish to park it or to bring it back; ``onto`` are the devices on which
    it is to be. ``sliced``: it shares by turns. ``means``: ``cuda``, ``signals``, or ``mps``, which
    is only watched. ``others`` are the numbers of the other workers of its run.
    """

    key: str
    pid: int
    ticks: int
    devices: tuple[int, ...]
    share_milli: int
    qos: str
    memory_mib: int = 0
    sliced: bool = True
    means: str = "signals"
    want: str = "run"
    turn: int = 0
    onto: tuple[int, ...] = ()
    others: tuple[int, ...] = ()

    def encode(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    @classmethod
    def decode(cls, body: dict[str, Any]) -> TenantRequest:
        """From JSON, perhaps of another version of Roost."""
        lists = {name: tuple(body.get(name, ())) for name in ("devices", "onto", "others")}
        return cls(**_known(cls, {**body, **lists}))

    @property
    def alive(self) -> bool:
        """Whether its worker is there."""
        return process_tree.is_alive(self.pid, self.ticks)


@dataclass(slots=True)
class ParkOutcome:
    """What became of a wish."""

    turn: int = 0
    took_s: float = 0.0
    freed_mib: int = 0
    stays_mib: int = 0
    how: str = "none"
    why: str = ""

    @classmethod
    def decode(cls, body: dict[str, Any]) -> ParkOutcome:
        """From JSON, perhaps of another version of Roost."""
        return cls(**_known(cls, body))


@dataclass(slots=True)
class Tenant:
    """A tenant of the daemon; ``devices``: those on which it is, or was when it left."""

    request: TenantRequest
    driver: CheckpointDriver
    processes: TenantProcesses
    tree: WorkerProcesses
    standing: Standing = "running"
    outcome: ParkOutcome = field(default_factory=ParkOutcome)
    problem: str = ""
    waits_for: str = ""
    devices: tuple[int, ...] = ()
    held: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def __post_init__(self) -> None:
        """It is where the engine says."""
        self.devices = self.devices or self.request.devices

    @property
    def claim(self) -> Claim:
        """Its part of the device."""
        return Claim(self.request.share_milli, self.request.qos)

    @property
    def live_problem(self) -> str:
        """What is wrong with its processes now, while it has some."""
        return self.processes.problem if self.standing != "gone" else ""

    @property
    def how(self) -> str:
        """What parking is for it."""
        return "checkpoint" if self.request.means == "cuda" else "stopped"

    def await_low(self, held_mib: Callable[[], int]) -> None:
        """Wait for the least memory of its rhythm; it goes on meanwhile, with its turns."""
        _await_low(self.held, held_mib)

    def park(self, held_mib: Callable[[], int]) -> ParkOutcome:
        """Off the device; on failure everything goes on as before, and the outcome says why."""
        begun, before = time.monotonic(), held_mib()
        self.processes.settle()
        self.processes.refresh()
        pids = self.processes.pids
        turn = self.request.turn
        if not pids:
            return ParkOutcome(turn, how=self.how, why="it had nothing on the device")
        try:
            # All are locked before the first is brought off: workers wait for each other, so one
            # that still ran could wait for a neighbour that is gone.
            for pid in pids:
                if self.driver.state(pid) is Stage.RUNNING:
                    self.driver.lock(pid, LOCK_MS)
            _at_once(self._checkpoint, pids)
        except DriverRefused as refusal:
            # All or none: those that were brought off already are restored, and all go on.
            self.release()
            return ParkOutcome(turn, time.monotonic() - begun, 0, before, "none", str(refusal))
        self.processes.locked = True
        took, after = time.monotonic() - begun, held_mib()
        return ParkOutcome(turn, took, max(before - after, 0), after, self.how)

    def unpark(self, moves: Sequence[Move]) -> ParkOutcome:
        """Back on a device, and going on.

        Processes may have ended while they were parked: those that are left come back.
        """
        begun = time.monotonic()
        self.processes.settle()
        self.processes.refresh()
        try:
            _at_once(lambda pid: self._restore(pid, moves), self.processes.pids)
            self.release()
        except DriverRefused as refusal:
            why = str(refusal)
            return ParkOutcome(self.request.turn, time.monotonic() - begun, why=why)
        self.devices = self.request.onto or self.devices
        return ParkOutcome(self.request.turn, time.monotonic() - begun, how=self.how)

    def _restore(self, pid: int, moves: Sequence[Move]) -> None:
        """Bring one process back, if there is anything to bring."""
        try:
            stage = self.driver.state(pid)
        except DriverRefused as refusal:
            # It has ended, or never had anything there: that is no reason to give the others up.
            if refusal.code in (NOT_INITIALIZED, INVALID_VALUE) or process_tree.look(pid) is None:
                return
            raise
        if stage is Stage.FAILED:
            raise DriverRefused(f"process {pid} cannot go on: the driver lost its state")
        if stage is not Stage.CHECKPOINTED:
            return
        try:
            self.driver.restore(pid, moves)
        except DriverRefused:
            if process_tree.look(pid) is not None:
                raise

    def release(self) -> None:
        """Let every process go on, wherever it stands."""
        self.processes.refresh()
        self.processes.unlock()

    def stands_parked(self) -> bool:
        """Whether all of its processes are off the device."""
        self.processes.refresh()
        try:
            stages = {self.driver.state(pid) for pid in self.processes.pids}
        except DriverRefused:
            return False
        off = {Stage.CHECKPOINTED} if self.request.means == "cuda" else {Stage.LOCKED}
        return bool(stages) and stages <= off | {Stage.CHECKPOINTED}

    def _checkpoint(self, pid: int) -> None:
        if self.driver.state(pid) is Stage.LOCKED:
            self.driver.checkpoint(pid)


def finder(
    request: TenantRequest, driver: CheckpointDriver, tree: WorkerProcesses
) -> Callable[[], list[int]]:
    """How to find the processes of a tenant that are to be locked.

    On CPU slots the worker stands for all of them. On a GPU they are those that the driver knows.
    """
    if request.means == "signals":
        return lambda: [request.pid] if request.alive else []
    if request.means == "mps":
        return lambda: [one.pid for one in tree()] if request.alive else []
    # Looked at once: a process that computes goes on doing so, and to ask the driver is slow.
    known: set[tuple[int, int]] = set()

    def find() -> list[int]:
        if not request.alive:
            return []
        found = []
        for one in tree():
            if (one.pid, one.ticks) in known or _computes(driver, one.pid):
                known.add((one.pid, one.ticks))
                found.append(one.pid)
        return found

    return find


def let_go(driver: CheckpointDriver, pid: int, ticks: int) -> None:
    """Make sure that a process which may have been locked by another daemon goes on."""
    if process_tree.is_alive(pid, ticks):
        with suppress(DriverRefused):
            advance(driver, pid)


def _known(kind: type, body: dict[str, Any]) -> dict[str, Any]:
    """The fields that a dataclass has."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in body.items() if name in names}


def _computes(driver: CheckpointDriver, pid: int) -> bool:
    try:
        # The cheap look first: most processes of a tree have no CUDA, and the driver is slow.
        with open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123 - often
            if b"libcuda.so" not in file.read():
                return False
        driver.state(pid)
    except (OSError, DriverRefused):
        return False
    return True


def _at_once(call: Callable[[int], None], pids: Sequence[int]) -> None:
    """For all processes at the same time; raises the first refusal once all are done."""
    if not pids:
        return
    # The driver takes seconds for each, and the processes do not wait for each other there.
    with ThreadPoolExecutor(len(pids)) as pool:
        done = [pool.submit(call, pid) for pid in pids]
    for one in done:
        one.result()


def _await_low(held: deque[float], held_mib: Callable[[], int]) -> None:
    """Wait for the least memory of a job's rhythm, where one can be seen; one period at most."""
    samples = list(held)
    rhythm = memory_rhythm.period(samples)
    if rhythm is None:
        return
    lately = samples[-2 * rhythm :]  # what it held while it began is no low of its rhythm
    deadline = time.monotonic() + min(rhythm * SAMPLE_S, _PATIENCE_S)
    while time.monotonic() < deadline and not memory_rhythm.is_low(lately, held_mib()):
        time.sleep(SAMPLE_S / 5)
