"""Carries out the turns of one device: locks tenants whose turn is over, unlocks the next.

``slices`` decides, a driver does, and a meter tells which tenants are idle. What goes wrong with
one tenant is noted as its problem and does not stop the turns of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from roost.engines.local.gpu.driver import (
    NOT_READY,
    STOPPED,
    CheckpointDriver,
    DriverRefused,
    Stage,
    advance,
)
from roost.engines.local.gpu.slices import BASE_S, Claim, Slices

#: How long a process may take to come to a stop; it goes on if it does not.
LOCK_MS = 10_000
#: Time unlocked after which a tenant is judged, and the part of it that counts as work.
_WINDOW_S = 0.3
_WORKING = 0.05
_IDLE_WINDOWS = 4
_LOOK_S = 1.0
_LOOK_OFTEN_S = 0.25
#: After how many times in a row that a tenant did not stop it is told, and tried less often.
_RESISTS = 5
_AGAIN_S = 60.0


class ActivityMeter(Protocol):
    """Tells how much work processes did."""

    def used_s(self, pids: Sequence[int]) -> float:
        """Seconds of work since the beginning; only differences matter."""
        ...


class TenantProcesses:
    """The processes of one tenant, which are locked and unlocked together."""

    def __init__(self, driver: CheckpointDriver, find: Callable[[], list[int]]) -> None:
        self._driver, self._find = driver, find
        self._looked_at = float("-inf")
        self.pids: list[int] = []
        self.locked = False
        self.problem = ""
        self.had_s = 0.0
        self.free_s = 0.0  # unlocked since it was last judged
        self.used_s = 0.0
        self.idle_windows = 0
        self.again_at = float("-inf")  # when to try to lock it
        self._resisted = 0

    def look(self, now: float) -> bool:
        """See from time to time which processes there are; True if there are new ones."""
        often = _LOOK_S if self.pids else _LOOK_OFTEN_S
        if now - self._looked_at < often:
            return False
        self._looked_at = now
        found = self._find()
        fresh = set(found) - set(self.pids)
        self.pids = found
        if fresh and self.locked:
            self._each(self._stop, fresh)
        return bool(fresh)

    def refresh(self) -> None:
        """See now which processes there are."""
        self._looked_at = float("-inf")
        self.look(0.0)

    def lock(self) -> None:
        """Stop its work."""
        self.locked = True
        self._each(self._stop, self.pids)

    def tried(self, now: float) -> None:
        """It was to be locked; one that does not come to a stop costs the others their turns."""
        self._resisted = 0 if self.locked else self._resisted + 1
        if self._resisted >= _RESISTS:
            self.problem = "does not come to a stop: its share of the device is not held"
            self.again_at = now + _AGAIN_S

    def unlock(self) -> None:
        """Let it go on, whatever was done to it before."""
        self.locked = False
        self._each(self._go_on, self.pids)

    def _stop(self, pid: int) -> None:
        try:
            self._driver.lock(pid, LOCK_MS)
        except DriverRefused:
            if self._driver.state(pid) is Stage.RUNNING:
                raise

    def _go_on(self, pid: int) -> None:
        try:
            self._driver.unlock(pid)
        except DriverRefused:  # it stands elsewhere than was thought
            advance(self._driver, pid)

    def _each(self, call: Callable[[int], None], pids: Iterable[int]) -> None:
        for pid in sorted(pids):
            try:
                call(pid)
            except DriverRefused as refusal:
                if refusal.code == STOPPED:
                    continue  # it does nothing anyway
                if refusal.code == NOT_READY:
                    self.locked = False  # it goes on; the next turn tries again
                    continue
                if pid in self._find():
                    self.problem = str(refusal)
                else:
                    self.pids = [one for one in self.pids if one != pid]


class SliceRunner:
    """The turns of one device; call ``step`` again and again, from one thread."""

    def __init__(
        self,
        meter: ActivityMeter | None = None,
        base_s: float = BASE_S,
        *,
        overlap: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slices = Slices(base_s)
        self.tenants: dict[str, TenantProcesses] = {}
        self._meter, self._clock = meter, clock
        self._before: frozenset[str] = frozenset()
        self._locker = ThreadPoolExecutor(1, "lock") if overlap else None

    def join(self, name: str, claim: Claim, tenant: TenantProcesses) -> None:
        """A tenant comes, or asks for something else."""
        self.tenants.setdefault(name, tenant)
        self.slices.join(name, claim)

    def leave(self, name: str) -> TenantProcesses | None:
        """A tenant has no more turns; it stays as it is, locked or not."""
        self.slices.leave(name)
        return self.tenants.pop(name, None)

    def step(self, wait: Callable[[float], object]) -> None:
        """One turn, as long as ``wait`` lets it be."""
        turn = self.slices.turn()
        begun = self._clock()
        self._change(turn.free)
        started = self._clock()
        if self._before != turn.holders:  # the last ones still worked while they were stopped
            self.slices.passed(self._before, started - begun)
        self._before = turn.holders
        wait(turn.length_s)
        had_s = self._clock() - started
        self.slices.passed(turn.holders, had_s)
        for name in turn.free:
            self.tenants[name].had_s += had_s
            self._judge(name, had_s)

    def unlock(self) -> None:
        """Unlock all, for now."""
        for tenant in self.tenants.values():
            tenant.unlock()

    def close(self) -> None:
        """Unlock all, for good."""
        self.unlock()
        if self._locker is not None:
            self._locker.shutdown()

    def _change(self, free: AbstractSet[str]) -> None:
        """Lock and unlock as it must be; at the same time, so that the device never waits."""
        now = self._clock()
        for tenant in self.tenants.values():
            tenant.look(now)
        held = [one for name, one in self.tenants.items() if name not in free]
        stop = [one for one in held if not one.locked and now >= one.again_at]
        go_on = [self.tenants[name] for name in free if self.tenants[name].locked]
        # Locking takes milliseconds: it is done on another thread while the next ones are unlocked.
        stopping = [self._locker.submit(one.lock) for one in stop] if self._locker else []
        if not self._locker:
            for tenant in stop:
                tenant.lock()
        for tenant in go_on:
            tenant.unlock()
        for one in stopping:
            one.result()
        for tenant in stop:
            tenant.tried(self._clock())

    def _judge(self, name: str, free_s: float) -> None:
        """Whether a tenant worked while it could."""
        tenant = self.tenants[name]
        tenant.free_s += free_s
        if self._meter is None or tenant.free_s < _WINDOW_S:
            return
        used_s = self._meter.used_s(tenant.pids)
        working = used_s - tenant.used_s >= _WORKING * tenant.free_s
        tenant.used_s, tenant.free_s = used_s, 0.0
        tenant.idle_windows = 0 if working else tenant.idle_windows + 1
        if working or tenant.idle_windows >= _IDLE_WINDOWS:
            self.slices.found(name, active=working)
