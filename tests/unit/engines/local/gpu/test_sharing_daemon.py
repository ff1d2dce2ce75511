"""The sharing daemon, step by step, with a driver in memory and real processes that do nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engines.local.gpu.fakes import FakeDriver, FakeMachinery

from roost.engines.local.gpu import sharing_daemon as daemon_module
from roost.engines.local.gpu import tenant as tenant_module
from roost.engines.local.gpu.driver import NOT_INITIALIZED, NOT_SUPPORTED, Stage
from roost.engines.local.gpu.sharing_daemon import SharingDaemon
from roost.engines.local.gpu.state_files import StateFiles
from roost.engines.local.gpu.tenant import TenantRequest
from roost.engines.local.gpu.time_slices import SliceRunner
from roost.engines.local.shim import process_tree


class World:
    """Two idle processes that pass for CUDA ones, and daemons over them."""

    def __init__(self, folder: Path, pids: list[int]) -> None:
        self.pids = pids
        self.driver = FakeDriver(*pids)
        self.machinery = FakeMachinery(self.driver, folder / "huge")
        self.files = StateFiles(folder)
        self.daemon = SharingDaemon(self.files, self.machinery)

    def request(self, number: int = 0, **more: Any) -> TenantRequest:
        pid = self.pids[number]
        process = process_tree.look(pid)
        assert process is not None
        body = {"devices": (0,), "share_milli": 500, "qos": "fixed", "means": "cuda", **more}
        return TenantRequest(f"job#1/worker-{number}", pid, process.ticks, **body)

    def wants(self, *requests: TenantRequest) -> None:
        self.files.want(requests)
        self.daemon.once()

    def told(self, number: int = 0) -> Any:
        return self.files.status()["tenants"][f"job#1/worker-{number}"]

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not true():
            assert time.monotonic() < deadline, self.files.status()
            self.daemon.once()
            time.sleep(0.005)

    def crash(self) -> None:
        """The sharing daemon is gone without a word; another one takes over."""
        for thread in self.daemon._threads.values():
            thread.do(partial(_abandon, thread.runner))
            thread.close()
        self.daemon._pool.shutdown()
        self.daemon = SharingDaemon(self.files, self.machinery)
        self.daemon._adopt()


def _abandon(runner: SliceRunner) -> None:
    """Leave everybody as they are."""
    for name in list(runner.tenants):
        runner.leave(name)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(tenant_module, "_computes", lambda driver, pid: pid in driver.stages)
    processes = [subprocess.Popen(["/bin/sleep", "600"]) for _ in range(2)]
    found = World(tmp_path, [process.pid for process in processes])
    yield found
    found.daemon.close()
    for process in processes:
        process.kill()
        process.wait()


def test_tenants_have_turns_until_they_leave(world: World) -> None:
    world.wants(world.request(0), world.request(1))
    world.until(lambda: Stage.LOCKED in world.driver.stages.values())
    world.wants()
    assert set(world.driver.stages.values()) == {Stage.RUNNING}


def test_a_tenant_is_parked_and_brought_back(world: World) -> None:
    world.machinery.memory = {world.pids[0]: 3000}
    world.wants(world.request(want="park", turn=1))
    world.until(lambda: world.told()["outcome"]["turn"] == 1)
    assert world.told()["standing"] == "parked"
    assert world.told()["outcome"]["how"] == "checkpoint"
    assert world.driver.stages[world.pids[0]] is Stage.CHECKPOINTED
    world.wants(world.request(want="run", turn=2, onto=(1,)))
    world.until(lambda: world.told()["outcome"]["turn"] == 2)
    assert world.told()["standing"] == "running"
    assert world.driver.moves == [("GPU-0", "GPU-1")]


def test_who_cannot_be_parked_goes_on_and_says_why(world: World) -> None:
    world.driver.refuse["checkpoint", world.pids[0]] = NOT_SUPPORTED
    world.wants(world.request(want="park", turn=1, sliced=False))
    world.until(lambda: world.told()["outcome"]["turn"] == 1)
    assert world.told()["outcome"]["how"] == "none"
    assert "will not checkpoint" in world.told()["outcome"]["why"]
    assert world.driver.stages[world.pids[0]] is Stage.RUNNING


def test_over_its_memory_limit_a_tenant_is_ended_with_a_reason(world: World) -> None:
    world.wants(world.request(memory_mib=1000, sliced=False))
    world.machinery.memory = {world.pids[0]: 2000}
    world.until(lambda: world.told()["standing"] == "gone")
    assert world.told()["problem"] == "held 2000 MiB of GPU memory, over its limit of 1000 MiB"


def test_a_whole_gpu_has_its_memory_limit_held_too(world: World) -> None:
    del world.driver.stages[world.pids[0]]  # it has not touched the GPU yet
    world.wants(world.request(share_milli=1000, sliced=False, memory_mib=100))
    assert world.told()["processes"] == 0
    world.driver.stages[world.pids[0]] = Stage.RUNNING
    world.machinery.memory = {world.pids[0]: 900}
    world.until(lambda: "900 MiB" in world.told()["problem"])


def test_at_its_end_everybody_is_unlocked_but_the_parked(world: World) -> None:
    world.wants(world.request(0), world.request(1, want="park", turn=1))
    world.until(lambda: world.told(1)["standing"] == "parked")
    world.daemon.close()
    assert world.driver.stages[world.pids[0]] is Stage.RUNNING
    assert world.driver.stages[world.pids[1]] is Stage.CHECKPOINTED
    assert [pid for pid, _, _ in world.files.held()] == [world.pids[1]]
    world.daemon = SharingDaemon(world.files, world.machinery)


def test_the_next_warden_unlocks_those_who_are_to_run(world: World) -> None:
    world.wants(world.request(0), world.request(1))
    world.until(lambda: Stage.LOCKED in world.driver.stages.values())
    world.driver.stages[world.pids[0]] = Stage.LOCKED
    world.crash()
    assert set(world.driver.stages.values()) == {Stage.RUNNING}


def test_the_next_warden_knows_who_is_parked_and_what_was_answered(world: World) -> None:
    world.wants(world.request(want="park", turn=3))
    world.until(lambda: world.told()["outcome"]["turn"] == 3)
    world.crash()
    world.daemon.once()
    assert world.told()["standing"] == "parked"
    assert world.told()["outcome"]["turn"] == 3
    world.wants(world.request(want="run", turn=4))
    world.until(lambda: world.told()["outcome"]["turn"] == 4)
    assert world.driver.stages[world.pids[0]] is Stage.RUNNING


def test_what_a_dead_daemon_brought_back_is_back(world: World) -> None:
    world.wants(world.request(want="park", turn=1))
    world.until(lambda: world.told()["outcome"]["turn"] == 1)
    world.files.want([world.request(want="run", turn=2, onto=(1,))])
    world.driver.stages[world.pids[0]] = Stage.RUNNING  # and then it died, before it could say so
    world.crash()
    world.until(lambda: world.told()["outcome"]["turn"] == 2)
    assert world.told()["outcome"]["how"] == "checkpoint"
    assert world.told()["standing"] == "running"
    assert world.daemon._tenants["job#1/worker-0"].devices == (1,)


def test_whom_a_dead_warden_locked_and_nobody_names_is_not_forgotten(world: World) -> None:
    world.wants(world.request(0))
    world.until(lambda: world.files.held() != [])
    world.driver.stages[world.pids[0]] = Stage.LOCKED
    world.files.want([])
    world.crash()
    assert world.driver.stages[world.pids[0]] is Stage.RUNNING


def test_a_worker_that_ended_is_taken_off(world: World) -> None:
    world.wants(world.request(0), world.request(1))
    os.kill(world.pids[0], signal.SIGKILL)
    world.until(lambda: world.told()["standing"] == "gone")
    assert world.told(1)["standing"] == "running"


def test_another_process_of_the_same_name_is_another_tenant(world: World) -> None:
    world.wants(world.request(0))
    other = world.request(1)
    world.wants(TenantRequest.decode({**other.encode(), "key": "job#1/worker-0"}))
    world.until(lambda: [pid for pid, _, _ in world.files.held()] == [world.pids[1]])


def test_files_of_another_version_are_read_as_far_as_they_are_known(world: World) -> None:
    world.wants(world.request(want="park", turn=1))
    world.until(lambda: world.told()["standing"] == "parked")
    request, status = world.files.wanted()[0].encode(), world.files.status()
    status["tenants"][request["key"]]["outcome"]["colour"] = "blue"
    world.files.tell(status)
    assert TenantRequest.decode({**request, "colour": "blue"}) == world.files.wanted()[0]
    world.crash()
    world.daemon.once()
    assert (world.told()["standing"], world.told()["outcome"]["turn"]) == ("parked", 1)


def test_without_work_it_ends(world: World) -> None:
    world.daemon._linger_s = 0.0
    world.daemon.run()
    world.daemon = SharingDaemon(world.files, world.machinery)


def test_one_warden_at_a_time(world: World) -> None:
    assert not world.files.has_daemon()
    lock = world.files.lock()
    assert lock is not None
    assert world.files.has_daemon()
    assert world.files.lock() is None
    os.close(lock)
    assert not world.files.has_daemon()


def test_parking_waits_for_the_low_of_a_rhythm(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    held = deque(float(value) for value in [100, 400, 700, 900, 700, 400] * 10)
    now = iter([900, 700, 400, 105])
    tenant_module._await_low(held, lambda: next(now))
    assert len(slept) == 3


def test_what_a_job_held_while_it_began_is_no_low_of_its_rhythm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenant_module, "SAMPLE_S", 0.05)
    rhythm = [300.0, 300.0, 300.0, 900.0, 900.0, 900.0] * 20
    now = iter([900, 880, 310, 5])  # it never comes back to nothing
    tenant_module._await_low(deque([0.0, 5.0, 5.0, *rhythm]), lambda: next(now))
    assert next(now) == 5


def test_parking_does_not_wait_where_there_is_no_rhythm() -> None:
    def never() -> int:
        raise AssertionError

    tenant_module._await_low(deque([500.0] * 60), never)


def parked(world: World) -> None:
    """The first tenant is off its GPU, with 3000 MiB in the host."""
    world.machinery.memory = {world.pids[0]: 3000}
    world.driver.on_checkpoint = lambda pid: world.machinery.memory.pop(pid, None)
    world.wants(world.request(want="park", turn=1))
    world.until(lambda: world.told()["standing"] == "parked")
    assert world.told()["outcome"]["freed_mib"] == 3000


def test_what_does_not_fit_into_the_host_is_not_parked(world: World) -> None:
    world.machinery.memory, world.machinery.host = {world.pids[0]: 3000}, 2000
    world.wants(world.request(want="park", turn=1))
    world.until(lambda: world.told()["outcome"]["turn"] == 1)
    assert world.told()["standing"] == "running"
    assert "takes 3000 MiB of host memory" in world.told()["outcome"]["why"]
    assert ("checkpoint", world.pids[0]) not in world.driver.calls


def test_what_comes_back_waits_for_room_and_says_so(world: World) -> None:
    parked(world)
    world.machinery.free = 2000
    world.wants(world.request(want="run", turn=2))
    world.until(lambda: "waits for 3000 MiB" in world.told()["problem"])
    assert ("restore", world.pids[0]) not in world.driver.calls
    world.machinery.free = 3000
    world.until(lambda: world.told()["standing"] == "running")
    assert world.told()["problem"] == ""
    assert world.driver.stages[world.pids[0]] is Stage.RUNNING


def test_without_room_for_long_it_stays_parked_and_can_be_asked_again(world: World) -> None:
    parked(world)
    world.machinery.free, world.daemon.room_s = 2000, 0.0
    world.wants(world.request(want="run", turn=2))
    world.until(lambda: world.told()["outcome"]["turn"] == 2)
    assert (world.told()["standing"], world.told()["outcome"]["how"]) == ("parked", "none")
    assert "GPU memory" in world.told()["outcome"]["why"]
    world.machinery.free = 3000
    world.wants(world.request(want="run", turn=3))
    world.until(lambda: world.told()["standing"] == "running")


def test_a_process_that_ended_meanwhile_does_not_keep_the_others_away(world: World) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(daemon_module, "finder", lambda *_: lambda: list(world.pids))
        world.wants(world.request(want="park", turn=1))
        world.until(lambda: world.told()["standing"] == "parked")
    world.driver.refuse["state", world.pids[1]] = NOT_INITIALIZED  # it does not use CUDA (3)
    world.wants(world.request(want="run", turn=2))
    world.until(lambda: world.told()["outcome"]["turn"] == 2)
    assert world.told()["outcome"]["how"] == "checkpoint"
    assert world.driver.stages[world.pids[0]] is Stage.RUNNING


def test_a_process_that_the_driver_does_not_know_keeps_a_tenant_from_being_parked(
    world: World,
) -> None:
    del world.driver.stages[world.pids[0]]
    world.machinery.memory = {world.pids[0]: 700}
    world.wants(world.request(want="park", turn=1))
    world.until(lambda: world.told()["outcome"]["turn"] == 1)
    assert "does not know it" in world.told()["outcome"]["why"]


def test_a_tenant_side_by_side_has_its_limit_held_over_all_its_processes(world: World) -> None:
    world.wants(world.request(memory_mib=8192, sliced=False, means="mps"))
    world.machinery.memory = {world.pids[0]: 8000}
    world.daemon.once()
    assert world.told()["problem"] == ""
    child = subprocess.Popen(["/bin/sleep", "600"])
    try:
        with pytest.MonkeyPatch.context() as patch:
            tree = world.daemon._tenants["job#1/worker-0"].processes
            patch.setattr(tree, "_find", lambda: [world.pids[0], child.pid])
            world.machinery.memory[child.pid] = 6000
            world.until(lambda: "14000 MiB" in world.told()["problem"])
        assert "over its limit of 8192 MiB" in world.told()["problem"]
        assert child.wait(60) == -signal.SIGKILL
    finally:
        child.kill()


def test_a_tenant_side_by_side_is_never_touched(world: World) -> None:
    world.wants(world.request(memory_mib=8192, sliced=False, means="mps"))
    os.kill(world.pids[0], signal.SIGSTOP)
    world.wants()  # it is let go, and stays as it is
    process = process_tree.look(world.pids[0])
    assert process is not None
    assert process.state == "T"
    assert world.driver.calls == []


def test_the_next_daemon_goes_on_waiting_for_room(world: World) -> None:
    parked(world)
    world.machinery.free = 2000
    world.wants(world.request(want="run", turn=2))
    world.until(lambda: "waits for" in world.told()["problem"])
    world.daemon.stopping = True
    world.daemon.close()
    assert world.told()["outcome"]["turn"] < 2  # nothing was answered
    world.daemon = SharingDaemon(world.files, world.machinery)
    world.daemon._adopt()
    world.until(lambda: "waits for 3000 MiB" in world.told()["problem"])
    assert world.driver.stages[world.pids[0]] is Stage.CHECKPOINTED
    world.machinery.free = 3000
    world.until(lambda: world.told()["standing"] == "running")
