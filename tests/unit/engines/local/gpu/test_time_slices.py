"""The turns of a device, carried out on a driver in memory and in made-up time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

import pytest
from tests.unit.engines.local.gpu.fakes import FakeDriver

from roost.engines.local.gpu.driver import NOT_READY, NOT_SUPPORTED, Stage
from roost.engines.local.gpu.slices import BEST_EFFORT, Claim
from roost.engines.local.gpu.time_slices import LockThreads, SliceRunner, TenantProcesses


class World:
    """A clock that turns, and work that is done while a process is unlocked."""

    def __init__(self, *pids: int) -> None:
        self.driver = FakeDriver(*pids)
        self.now = 0.0
        self.busy = set(pids)
        self.used = dict.fromkeys(pids, 0.0)
        self.exact = True
        self.runner = SliceRunner(self, clock=lambda: self.now)

    def used_s(self, pids: Sequence[int]) -> float:
        return sum(self.used[pid] for pid in pids)

    def tells(self, pids: Sequence[int]) -> bool:
        return bool(pids) and self.exact

    def join(self, pid: int, claim: Claim) -> TenantProcesses:
        tenant = TenantProcesses(self.driver, lambda: [pid] if pid in self.driver.stages else [])
        self.runner.join(str(pid), claim, tenant)
        return tenant

    def wait(self, for_s: float) -> None:
        self.now += for_s
        running = [pid for pid in self.busy if self.driver.stages.get(pid) is Stage.RUNNING]
        for pid in running:
            self.used[pid] += for_s / len(running)

    def run(self, for_s: float) -> None:
        end = self.now + for_s
        while self.now < end:
            self.runner.step(self.wait)


def test_one_at_a_time_and_each_its_part() -> None:
    world = World(1, 2)
    world.join(1, Claim(750))
    world.join(2, Claim(250))
    world.run(40.0)
    assert world.used[1] / world.now == pytest.approx(0.75, rel=0.03)
    assert world.used[2] / world.now == pytest.approx(0.25, rel=0.03)


def test_an_idle_neighbour_is_noticed_and_comes_back() -> None:
    world = World(1, 2)
    world.join(1, Claim(500))
    world.join(2, Claim(500, BEST_EFFORT))
    world.busy = {2}
    world.run(10.0)
    assert world.runner.slices.part("2") == 1.0
    assert world.driver.stages[1] is Stage.RUNNING  # idle, and free to show that it is back
    world.busy = {1, 2}
    world.run(8.0)
    assert world.runner.slices.light == set()
    assert world.runner.slices.part("2") == pytest.approx(0.5)


def test_where_no_meter_knows_the_device_any_work_counts_as_all() -> None:
    world = World(1, 2)
    world.exact = False
    world.join(1, Claim(500))
    world.join(2, Claim(500))
    world.busy = set()
    world.run(10.0)
    assert world.runner.slices.light == {"1", "2"}
    world.busy = {1, 2}
    world.run(5.0)
    assert world.runner.slices.light == set()


def test_what_cannot_be_locked_is_a_problem_of_its_tenant_alone() -> None:
    world = World(1, 2)
    bad, good = world.join(1, Claim(500)), world.join(2, Claim(500))
    world.driver.refuse["lock", 1] = NOT_SUPPORTED
    world.run(3.0)
    assert "will not lock 1" in bad.problem
    assert good.problem == ""


def test_a_process_that_does_not_stop_in_time_is_tried_again() -> None:
    world = World(1, 2)
    slow = world.join(1, Claim(500))
    world.join(2, Claim(500))
    world.driver.refuse["lock", 1] = NOT_READY
    while world.driver.calls.count(("lock", 1)) < 4:
        world.run(0.1)
    del world.driver.refuse["lock", 1]
    world.run(20.0)
    assert slow.problem == ""
    assert world.used[1] / world.now == pytest.approx(0.5, abs=0.05)


def test_one_that_never_stops_is_told_and_leaves_the_others_their_turns() -> None:
    world = World(1, 2, 3)
    never = world.join(1, Claim(300))
    world.join(2, Claim(300))
    world.join(3, Claim(300))
    world.driver.refuse["lock", 1] = NOT_READY
    world.run(50.0)
    assert "its share of the device is not held" in never.problem
    assert world.driver.calls.count(("lock", 1)) == 5
    world.run(50.0)
    assert world.driver.calls.count(("lock", 1)) == 6
    # It has half of each of their turns; nobody is locked for it, and it has no turn of its own.
    assert world.used[2] / world.now == pytest.approx(0.25, abs=0.03)


def test_a_process_that_is_gone_is_no_problem() -> None:
    world = World(1, 2)
    gone = world.join(1, Claim(500))
    world.join(2, Claim(500))
    world.run(1.0)
    del world.driver.stages[1]
    world.run(2.0)
    assert gone.problem == ""
    assert gone.pids == []


def test_a_new_process_of_a_locked_tenant_is_locked_too() -> None:
    world = World(1, 2, 3)
    pids = [1]
    world.runner.join("a", Claim(500), TenantProcesses(world.driver, lambda: list(pids)))
    world.join(2, Claim(500))
    world.run(1.0)
    pids.append(3)
    world.run(5.0)
    assert ("lock", 3) in world.driver.calls
    assert world.used[3] / 5.0 == pytest.approx(0.5, abs=0.4)


def test_at_the_end_everybody_is_unlocked() -> None:
    world = World(1, 2)
    world.join(1, Claim(500))
    world.join(2, Claim(500))
    world.run(1.0)
    assert Stage.LOCKED in world.driver.stages.values()
    world.runner.close()
    assert set(world.driver.stages.values()) == {Stage.RUNNING}


def test_who_leaves_stays_as_it_is() -> None:
    world = World(1, 2)
    world.join(1, Claim(500))
    world.join(2, Claim(500))
    world.run(1.0)
    locked = next(name for name, one in world.runner.tenants.items() if one.locked)
    tenant = world.runner.leave(locked)
    assert tenant is not None
    assert world.driver.stages[int(locked)] is Stage.LOCKED
    world.run(1.0)
    assert world.driver.stages[int(locked)] is Stage.LOCKED


class HungLocks(LockThreads):
    """Locks that are never done."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begun: list[Future[None]] = []

    def begin(self, lock: Callable[[], None]) -> Future[None]:
        del lock
        self.begun.append(Future())
        return self.begun[-1]

    def wait(self, locks: Iterable[Future[None]], for_s: float) -> None:
        del locks
        self.world.wait(for_s)

    def close(self) -> None:
        pass


def test_nobody_waits_for_one_that_hangs() -> None:
    world = World(1, 2)
    world.runner = SliceRunner(world, locks=(locks := HungLocks(world)), clock=lambda: world.now)
    world.join(1, Claim(500))
    world.join(2, Claim(500))
    while not locks.begun:
        world.run(0.1)
    stuck = next(name for name, one in world.runner.tenants.items() if one.is_stopping)
    before = world.now
    world.runner.step(world.wait)
    assert world.now - before < 2.5
    world.runner.leave(stuck)
    world.run(1.0)
    assert stuck not in world.runner.tenants


def test_a_lock_that_is_over_late_is_undone_before_it_goes_on() -> None:
    driver = FakeDriver(1)
    tenant = TenantProcesses(driver, lambda: [1])
    tenant.refresh()
    lock: Future[None] = Future()
    tenant.stopping = lock
    thread = threading.Thread(target=tenant.unlock)
    thread.start()
    assert thread.is_alive()
    driver.stages[1] = Stage.LOCKED
    lock.set_result(None)
    thread.join(60)
    assert driver.stages[1] is Stage.RUNNING


def test_what_is_refused_in_the_last_moments_of_a_process_is_no_problem() -> None:
    world = World(1, 2)
    ends = world.join(1, Claim(500))
    world.join(2, Claim(500))
    world.run(1.0)
    world.driver.refuse["lock", 1] = 304  # the operating system refused
    while world.driver.calls.count(("lock", 1)) < 2:
        world.run(0.1)
    del world.driver.stages[1]
    world.run(2.0)
    assert ends.problem == ""


def test_a_problem_that_is_over_is_told_no_more() -> None:
    world = World(1, 2)
    bad = world.join(1, Claim(500))
    world.join(2, Claim(500))
    world.driver.refuse["lock", 1] = 999
    world.run(5.0)
    assert "will not lock 1" in bad.problem
    world.driver.refuse.clear()
    world.run(70.0)  # it is tried again once a minute
    assert bad.problem == ""


def test_one_process_that_does_not_stop_leaves_no_other_locked() -> None:
    world = World(1, 2, 3)
    both = TenantProcesses(world.driver, lambda: [1, 3])
    world.runner.join("both", Claim(500), both)
    world.join(2, Claim(500))
    world.driver.refuse["lock", 3] = NOT_READY
    world.run(4.0)
    for _ in range(10):
        world.runner.step(world.wait)
        if world.driver.stages[2] is Stage.LOCKED:  # it is the turn of both
            assert world.driver.stages[1] is Stage.RUNNING
