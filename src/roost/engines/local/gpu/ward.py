"""One tenant of the warden: its processes, how it stands, how it is parked and brought back.

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

from roost.engines.local.gpu import cycles
from roost.engines.local.gpu.driver import Driver, Move, Refused, Stage, advance
from roost.engines.local.gpu.kin import Kin
from roost.engines.local.gpu.rota import LOCK_MS, Tenant
from roost.engines.local.gpu.slices import Claim
from roost.engines.local.shim import tree

Standing = Literal["running", "parking", "parked", "unparking", "gone"]

#: How often memory is looked at, and how long a rhythm is waited for.
SAMPLE_S = 0.25
_SAMPLES = 240
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Entry:
    """What the engine wants of a tenant: one worker on its devices.

    ``turn`` grows with every wish to park it or to bring it back; ``onto`` are the devices on which
    it is to be. ``sliced``: it shares by turns. ``means``: ``cuda`` or ``signals``. ``others`` are
    the numbers of the other workers of its run.
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
    def decode(cls, body: dict[str, Any]) -> Entry:
        """From JSON, perhaps of another version of Roost."""
        lists = {name: tuple(body.get(name, ())) for name in ("devices", "onto", "others")}
        return cls(**_known(cls, {**body, **lists}))

    @property
    def alive(self) -> bool:
        """Whether its worker is there."""
        return tree.is_alive(self.pid, self.ticks)


@dataclass(slots=True)
class Outcome:
    """What became of a wish."""

    turn: int = 0
    took_s: float = 0.0
    freed_mib: int = 0
    stays_mib: int = 0
    how: str = "none"
    why: str = ""

    @classmethod
    def decode(cls, body: dict[str, Any]) -> Outcome:
        """From JSON, perhaps of another version of Roost."""
        return cls(**_known(cls, body))


@dataclass(slots=True)
class Ward:
    """A tenant in the warden's care; ``devices``: those on which it is, or was when it left."""

    entry: Entry
    driver: Driver
    tenant: Tenant
    kin: Kin
    standing: Standing = "running"
    outcome: Outcome = field(default_factory=Outcome)
    problem: str = ""
    devices: tuple[int, ...] = ()
    held: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def __post_init__(self) -> None:
        """It is where the engine says."""
        self.devices = self.devices or self.entry.devices

    @property
    def claim(self) -> Claim:
        """Its part of the device."""
        return Claim(self.entry.share_milli, self.entry.qos)

    @property
    def how(self) -> str:
        """What parking is for it."""
        return "checkpoint" if self.entry.means == "cuda" else "stopped"

    def await_low(self, held_mib: Callable[[], int]) -> None:
        """Wait for the least memory of its rhythm; it goes on meanwhile, with its turns."""
        _await_low(self.held, held_mib)

    def park(self, held_mib: Callable[[], int]) -> Outcome:
        """Off the device; on failure everything goes on as before, and the outcome says why."""
        begun, before = time.monotonic(), held_mib()
        self.tenant.refresh()
        pids = self.tenant.pids
        turn = self.entry.turn
        if not pids:
            return Outcome(turn, how=self.how, why="it had nothing on the device")
        try:
            for pid in pids:
                if self.driver.state(pid) is Stage.RUNNING:
                    self.driver.lock(pid, LOCK_MS)
            _at_once(self._checkpoint, pids)
        except Refused as refusal:
            self.release()
            return Outcome(turn, time.monotonic() - begun, 0, before, "none", str(refusal))
        self.tenant.locked = True
        took, after = time.monotonic() - begun, held_mib()
        return Outcome(turn, took, max(before - after, 0), after, self.how)

    def unpark(self, moves: Sequence[Move]) -> Outcome:
        """Back on a device, and going on."""
        begun = time.monotonic()
        pids = self.tenant.pids

        def back(pid: int) -> None:
            if self.driver.state(pid) is Stage.CHECKPOINTED:
                self.driver.restore(pid, moves)

        try:
            _at_once(back, pids)
            self.release()
        except Refused as refusal:
            why = str(refusal)
            return Outcome(self.entry.turn, time.monotonic() - begun, why=why)
        self.devices = self.entry.onto or self.devices
        return Outcome(self.entry.turn, time.monotonic() - begun, how=self.how)

    def release(self) -> None:
        """Let every process go on, wherever it stands."""
        self.tenant.refresh()
        self.tenant.unlock()

    def stands_parked(self) -> bool:
        """Whether all of its processes are off the device."""
        self.tenant.refresh()
        try:
            stages = {self.driver.state(pid) for pid in self.tenant.pids}
        except Refused:
            return False
        off = {Stage.CHECKPOINTED} if self.entry.means == "cuda" else {Stage.LOCKED}
        return bool(stages) and stages <= off | {Stage.CHECKPOINTED}

    def _checkpoint(self, pid: int) -> None:
        if self.driver.state(pid) is Stage.LOCKED:
            self.driver.checkpoint(pid)


def finder(entry: Entry, driver: Driver, kin: Kin) -> Callable[[], list[int]]:
    """How to find the processes of a tenant that are to be locked.

    On CPU slots the worker stands for all of them. On a GPU they are those that the driver knows.
    """
    if entry.means == "signals":
        return lambda: [entry.pid] if entry.alive else []
    known: set[tuple[int, int]] = set()

    def find() -> list[int]:
        if not entry.alive:
            return []
        found = []
        for one in kin():
            if (one.pid, one.ticks) in known or _computes(driver, one.pid):
                known.add((one.pid, one.ticks))
                found.append(one.pid)
        return found

    return find


def let_go(driver: Driver, pid: int, ticks: int) -> None:
    """Make sure that a process which may have been locked by another warden goes on."""
    if tree.is_alive(pid, ticks):
        with suppress(Refused):
            advance(driver, pid)


def _known(kind: type, body: dict[str, Any]) -> dict[str, Any]:
    """The fields that a dataclass has."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in body.items() if name in names}


def _computes(driver: Driver, pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123 - often
            if b"libcuda.so" not in file.read():
                return False
        driver.state(pid)
    except (OSError, Refused):
        return False
    return True


def _at_once(call: Callable[[int], None], pids: Sequence[int]) -> None:
    """For all processes at the same time; raises the first refusal once all are done."""
    if not pids:
        return
    with ThreadPoolExecutor(len(pids)) as pool:
        done = [pool.submit(call, pid) for pid in pids]
    for one in done:
        one.result()


def _await_low(held: deque[float], held_mib: Callable[[], int]) -> None:
    """Wait for the least memory of a job's rhythm, where one can be seen; one period at most."""
    samples = list(held)
    rhythm = cycles.period(samples)
    if rhythm is None:
        return
    lately = samples[-2 * rhythm :]  # what it held while it began is no low of its rhythm
    deadline = time.monotonic() + min(rhythm * SAMPLE_S, _PATIENCE_S)
    while time.monotonic() < deadline and not cycles.is_low(lately, held_mib()):
        time.sleep(SAMPLE_S / 5)
