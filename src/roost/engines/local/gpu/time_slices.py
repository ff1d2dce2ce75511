"""Carries out the turns of one device: locks tenants whose turn is over, unlocks the next.

``slices`` decides, a driver does, and a meter tells what tenants use. What goes wrong with one
tenant is noted as its problem and does not stop the turns of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

from roost.engines.local.gpu.driver import (
    NOT_INITIALIZED,
    NOT_READY,
    STOPPED,
    CheckpointDriver,
    DriverRefused,
    Stage,
    advance,
)
from roost.engines.local.gpu.slices import BASE_S, LONGEST_S, Claim, Slices, Turn

#: How long a process may take to come to a stop; it goes on if it does not.
LOCK_MS = 10_000
#: A tenant is judged after so much time of its own: NVML's samples are as coarse as a sixth of a
#: second. The part that counts as work where no meter knows the device.
_WINDOW_S = 1.0
_WORKING = 0.05
#: How many locks may be under way at once; how often a tenant is looked at that does not stop.
_LOCKS = 32
_POLL_S = 0.05
_LOOK_S = 1.0
_LOOK_OFTEN_S = 0.25
#: After how many times in a row that a tenant did not stop it is told, and tried less often.
_RESISTS = 5
_AGAIN_S = 60.0
#: After how many refusals in a row for a process it is told.
_REFUSALS = 3


class ActivityMeter(Protocol):
    """Tells how much work processes did."""

    def used_s(self, pids: Sequence[int]) -> float:
        """Seconds of work since the beginning; only differences matter."""
        ...

    def tells(self, pids: Sequence[int]) -> bool:
        """Whether that is time of the device itself, and not merely a sign of work."""
        ...


class LockThreads:
    """Locks tenants on threads: a lock takes milliseconds, and as long as a queue of kernels."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_LOCKS, "lock")

    def begin(self, lock: Callable[[], None]) -> Future[None]:
        """Have a tenant locked."""
        return self._pool.submit(lock)

    def wait(self, locks: Iterable[Future[None]], for_s: float) -> None:
        """Until all are done, but no longer."""
        wait(list(locks), for_s)

    def close(self) -> None:
        """No more locks."""
        self._pool.shutdown(wait=False)


class TenantProcesses:
    """The processes of one tenant, which are locked and unlocked together."""

    def __init__(self, driver: CheckpointDriver, find: Callable[[], list[int]]) -> None:
        self._driver, self._find = driver, find
        self._looked_at = float("-inf")
        self.pids: list[int] = []
        self.locked = False  # all of it
        self.touched = False  # some of it, perhaps
        self._resists = ""
        # By what was asked of which process: how often in a row it was refused, and why.
        self._refusals: dict[tuple[str, int], tuple[int, str]] = {}
        self.had_s = 0.0
        self.free_s = self.used_s = 0.0  # what it paid for and used since it was last judged
        self.seen_s = 0.0  # what the meter counted
        self.stopping: Future[None] | None = None
        self.again_at = float("-inf")  # when to try to lock it
        self._resisted = 0

    @property
    def problem(self) -> str:
        """What keeps it from being held, now; a refusal alone may be one of its last moments."""
        for (_, pid), (times, why) in list(self._refusals.items()):
            if times >= _REFUSALS and pid in self.pids:
                return why
        return self._resists

    def look(self, now: float) -> bool:
        """See from time to time which processes there are; True if there are new ones."""
        often = _LOOK_S if self.pids else _LOOK_OFTEN_S
        if now - self._looked_at < often:
            return False
        self._looked_at = now
        found = self._find()
        fresh = set(found) - set(self.pids)
        self.pids = found
        if fresh and self.locked and not self.is_stopping:
            self._each(self._stop, fresh)
        return bool(fresh)

    def refresh(self) -> None:
        """See now which processes there are."""
        self._looked_at = float("-inf")
        self.look(0.0)

    def lock(self) -> None:
        """Stop its work."""
        self.locked = self.touched = True
        self._each(self._stop, self.pids)

    def tried(self, now: float) -> None:
        """It was to be locked; one that does not come to a stop costs the others their turns."""
        self._resisted = 0 if self.locked else self._resisted + 1
        if self.locked:
            self._resists = ""
        if self._resisted >= _RESISTS:
            self._resists = "does not come to a stop: its share of the device is not held"
            self.again_at = now + _AGAIN_S

    @property
    def is_stopping(self) -> bool:
        """Whether it is being locked, and still works."""
        return self.stopping is not None and not self.stopping.done()

    def settle(self) -> None:
        """Wait until a lock that is under way is over: it has a time limit, and ends with them."""
        while self.is_stopping and self.stopping is not None and self._find():
            wait([self.stopping], _POLL_S)
        self.stopping = None

    def unlock(self) -> None:
        """Let it go on, whatever was done to it before."""
        self.settle()  # a lock that succeeds after this would stay
        self.locked = self.touched = False
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
                if refusal.code == NOT_INITIALIZED or pid not in self._find():
                    # It ends just now: the driver says that it does not use CUDA.
                    self.pids = [one for one in self.pids if one != pid]
                    continue
                self.locked = False
                times, _ = self._refusals.get((call.__name__, pid), (0, ""))
                self._refusals[call.__name__, pid] = times + 1, str(refusal)
            else:
                self._refusals.pop((call.__name__, pid), None)


class SliceRunner:
    """The turns of one device; call ``step`` again and again, from one thread."""

    def __init__(
        self,
        meter: ActivityMeter | None = None,
        base_s: float = BASE_S,
        *,
        locks: LockThreads | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slices = Slices(base_s)
        self.tenants: dict[str, TenantProcesses] = {}
        self._meter, self._clock = meter, clock
        self._locks = locks or LockThreads()

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
        begun = self._clock()
        self._look(begun)
        turn = self.slices.turn({name for name, one in self.tenants.items() if one.is_stopping})
        stopped = self._change(turn)
        started = self._clock()
        # Those that were stopped ran until they were: the driver divided the device meanwhile.
        ran = _divided(started - begun, self._running(turn) | stopped)
        running = self._running(turn)
        if locks := [one.stopping for one in self.tenants.values() if one.stopping is not None]:
            self._locks.wait(locks, turn.length_s)  # what has come to a stop pays no more
        else:
            wait(turn.length_s)
        ended = self._clock()
        for name, had_s in _divided(ended - started, running).items():
            ran[name] = ran.get(name, 0.0) + had_s
        self._charge(turn, ran, ended - begun, ended - started)

    def unlock(self) -> None:
        """Unlock all, for now."""
        for tenant in self.tenants.values():
            tenant.unlock()

    def close(self) -> None:
        """Unlock all, for good."""
        self.unlock()
        self._locks.close()

    def _look(self, now: float) -> None:
        """See which processes there are, and which locks are done."""
        for name, tenant in self.tenants.items():
            tenant.look(now)
            if tenant.pids:
                self.slices.present(name)
            else:
                self.slices.absent(name)
            if tenant.stopping is not None and tenant.stopping.done():
                tenant.stopping = None
                tenant.tried(now)

    def _change(self, turn: Turn) -> set[str]:
        """Lock and unlock as it must be, at the same time; returns those that had to stop.

        It does not wait for ever: a program that hangs must not end the turns of the others.
        """
        now = self._clock()
        stop = {
            name: one
            for name, one in self.tenants.items()
            if name not in turn.free and not (one.locked or one.is_stopping) and now >= one.again_at
        }
        for tenant in stop.values():
            tenant.stopping = self._locks.begin(tenant.lock)
        for name in turn.free:
            if self.tenants[name].touched and not self.tenants[name].is_stopping:
                self.tenants[name].unlock()
        locks = [one.stopping for one in stop.values() if one.stopping is not None]
        if locks:
            self._locks.wait(locks, LONGEST_S)
        for tenant in stop.values():
            if tenant.stopping is not None and tenant.stopping.done():
                tenant.stopping = None
                tenant.tried(self._clock())
        return set(stop)

    def _running(self, turn: Turn) -> set[str]:
        """The tenants that run in a turn: who has it, and who did not come to a stop."""
        light = self.slices.light
        held = {
            name
            for name, one in self.tenants.items()
            if name not in turn.free and (one.is_stopping or not one.locked)
        }
        return (held | ({turn.holder} if turn.holder is not None else set())) - light

    def _charge(self, turn: Turn, ran: dict[str, float], passed_s: float, had_s: float) -> None:
        """Have everybody pay for the time that it had, and see who needs turns."""
        used = {name: self._used(name, passed_s) for name in self.tenants}
        light = {name: self._charged(name, used[name], passed_s) for name in self.slices.light}
        self.slices.passed(passed_s, ran, light)
        left = max(1.0 - sum(light.values()) / passed_s, 0.0) if passed_s > 0 else 0.0
        for name, tenant in self.tenants.items():
            tenant.had_s += had_s if name in turn.free else 0.0
            self._judge(name, used[name], ran.get(name, 0.0) * left)

    def _used(self, name: str, passed_s: float) -> float:
        """How long a tenant used the device since this was last asked."""
        tenant = self.tenants[name]
        if self._meter is None:
            return passed_s if tenant.pids else 0.0
        seen_s = self._meter.used_s(tenant.pids)
        # A process that ended takes its part of the sum with it.
        work_s, tenant.seen_s = max(seen_s - tenant.seen_s, 0.0), seen_s
        return work_s

    def _charged(self, name: str, used_s: float, passed_s: float) -> float:
        """What a tenant pays that was not locked: all the time, where work is seen and no more."""
        if self._meter is None or self._meter.tells(self.tenants[name].pids):
            return used_s
        return passed_s if used_s >= _WORKING * passed_s else 0.0

    def _judge(self, name: str, used_s: float, free_s: float) -> None:
        """Whether a tenant that has turns needs them; ``free_s`` is what it pays for."""
        tenant = self.tenants[name]
        tenant.used_s += used_s
        tenant.free_s += free_s
        if tenant.free_s < _WINDOW_S:
            return
        if self._meter is not None:
            used_s = tenant.used_s
            if not self._meter.tells(tenant.pids) and used_s >= _WORKING * tenant.free_s:
                used_s = tenant.free_s
            self.slices.judged(name, used_s, tenant.free_s)
        tenant.used_s = tenant.free_s = 0.0


def _divided(time_s: float, running: AbstractSet[str]) -> dict[str, float]:
    """The part of some time that each had, where the driver divides it evenly."""
    return dict.fromkeys(running, time_s / max(len(running), 1))
