"""Shares of CPU slots for real: busy processes, a sharing daemon, and what happens to it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from roost.core.allocation import Seat
from roost.core.spec import CPU_SLOT, JobId, NodeId, NodeSpec, Qos, Resources, RunId, Way
from roost.engines.local.devices import Machine
from roost.engines.local.gpu.sharing import GpuSharing
from roost.engines.local.gpu.signals import cpu_s, family
from roost.engines.local.shim import process_tree

NODE = NodeId("here")
A, B = RunId(JobId("a"), 1), RunId(JobId("b"), 1)
BUSY = "import os\nos.sched_setaffinity(0, {%d})\nwhile True: pass"


class Worker:
    """A worker at a share of the first slot."""

    def __init__(self, source: str, share_milli: int, qos: Qos = Qos.FIXED) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", source])  # noqa: S603 - our own
        self.need = Resources(share_milli=share_milli, qos=qos)
        self.seat = Seat("worker", 0, (0,), share_milli, NODE)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def used_s(self) -> float:
        return cpu_s([self.pid])

    @property
    def stopped(self) -> bool:
        return all(one.state == "T" for one in family(self.pid))

    async def enter(self, sharing: GpuSharing, run: RunId) -> None:
        process = process_tree.look(self.pid)
        assert process is not None
        found = {"worker-0": (self.pid, process.ticks)}
        await sharing.attach(run, [self.seat], {"worker": self.need}, found)


@pytest.fixture
def busy() -> Iterator[Callable[..., Worker]]:
    """Starts workers on one core; ends them at the end."""
    core = min(os.sched_getaffinity(0))
    workers = []

    def start(share_milli: int, qos: Qos = Qos.FIXED, source: str = BUSY % core) -> Worker:
        workers.append(Worker(source, share_milli, qos))
        return workers[-1]

    yield start
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


@asynccontextmanager
async def shared(home: Path) -> AsyncIterator[GpuSharing]:
    machine = Machine(NodeSpec(NODE, gpus=1, kind=CPU_SLOT), (0,))
    sharing = GpuSharing(home, machine, sys.executable)
    await sharing.start()
    try:
        yield sharing
    finally:
        await sharing.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose daemon is told to end, and does."""
    yield tmp_path
    with suppress(ProcessLookupError, KeyError):
        os.kill(daemon(tmp_path), signal.SIGTERM)
    deadline = time.monotonic() + 60
    while GpuSharing(tmp_path, Machine(NodeSpec(NODE), ()), "")._files.has_daemon():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def daemon(home: Path) -> int:
    """The process that guards, which says so before it does anything."""
    return int(GpuSharing(home, Machine(NodeSpec(NODE), ()), "")._files.status()["pid"])


async def until(true: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def spent(*workers: Worker, total_s: float = 2.5) -> list[float]:
    """The parts of the CPU time of some workers, over so much of it: others may be busy too."""
    before = [worker.used_s for worker in workers]
    begun = sum(before)
    await until(lambda: sum(worker.used_s for worker in workers) - begun > total_s, 60.0)
    used = [worker.used_s - was for worker, was in zip(workers, before, strict=True)]
    return [one / sum(used) for one in used]


def test_unequal_shares_of_a_slot(home: Path, busy: Callable[..., Worker]) -> None:
    async def go() -> None:
        async with shared(home) as sharing:
            large, small = busy(750), busy(250)
            await large.enter(sharing, A)
            await small.enter(sharing, B)
            await until(lambda: large.stopped or small.stopped)
            assert (await spent(large, small))[0] == pytest.approx(0.75, abs=0.08)
            await sharing.detach(A)
            await sharing.detach(B)
            await until(lambda: not large.stopped and not small.stopped)

    asyncio.run(go())


def test_a_fixed_share_is_a_part_of_the_time_even_alone(
    home: Path, busy: Callable[..., Worker]
) -> None:
    async def go() -> None:
        async with shared(home) as sharing:
            worker = busy(250)
            await worker.enter(sharing, A)
            await until(lambda: worker.stopped)
            begun, before = time.monotonic(), worker.used_s
            await asyncio.sleep(3.0)
            assert worker.used_s - before < 0.4 * (time.monotonic() - begun)

    asyncio.run(go())


def test_best_effort_takes_what_an_idle_owner_leaves(
    home: Path, busy: Callable[..., Worker]
) -> None:
    async def go() -> None:
        async with shared(home) as sharing:
            owner = busy(500, source="import time; time.sleep(600)")
            guest = busy(500, Qos.BEST_EFFORT)
            await owner.enter(sharing, A)
            await guest.enter(sharing, B)
            await until(lambda: guest.stopped)  # it is not known yet that the owner is idle
            await asyncio.sleep(4.0)
            seen = []
            for _ in range(100):
                seen.append(guest.stopped)
                await asyncio.sleep(0.01)
            assert not any(seen)

    asyncio.run(go())


def test_a_parked_tenant_does_nothing_until_it_is_brought_back(
    home: Path, busy: Callable[..., Worker]
) -> None:
    async def go() -> None:
        async with shared(home) as sharing:
            worker = busy(500)
            await worker.enter(sharing, A)
            parked = await sharing.park(A)
            assert (parked.how, parked.why) == ("stopped", "")
            before = worker.used_s
            await asyncio.sleep(0.5)
            assert worker.stopped
            assert worker.used_s == before
            assert (await sharing.unpark(A, [worker.seat])).how == "stopped"
            await until(lambda: worker.used_s > before + 0.1)

    asyncio.run(go())


def test_a_killed_warden_is_replaced_and_nobody_stays_stopped(
    home: Path, busy: Callable[..., Worker]
) -> None:
    async def go() -> None:
        async with shared(home) as sharing:
            one, other, parked = busy(400), busy(400), busy(200)
            await one.enter(sharing, A)
            await other.enter(sharing, B)
            await parked.enter(sharing, RunId(JobId("c"), 1))
            await sharing.park(RunId(JobId("c"), 1))
            await until(lambda: one.stopped or other.stopped)
            first = daemon(home)
            os.kill(first, signal.SIGKILL)
            await until(lambda: daemon(home) != first)
            assert min(await spent(one, other)) > 0.35
            assert parked.stopped

    asyncio.run(go())


def test_who_is_let_go_while_there_is_no_warden_goes_on(
    home: Path, busy: Callable[..., Worker]
) -> None:
    async def go() -> None:
        async with shared(home) as sharing:
            worker = busy(100)
            await worker.enter(sharing, A)
            await until(lambda: worker.stopped and sharing._files.held() != [])
            os.kill(daemon(home), signal.SIGKILL)
            await until(lambda: not sharing._files.has_daemon())
            await sharing.detach(A)
            await until(lambda: not worker.stopped)

    asyncio.run(go())


def test_the_warden_outlives_the_server_and_is_found_by_the_next(
    home: Path, busy: Callable[..., Worker]
) -> None:
    async def go() -> None:
        one, other = busy(500), busy(500)
        async with shared(home) as sharing:
            await one.enter(sharing, A)
            await other.enter(sharing, B)
            await until(lambda: one.stopped or other.stopped)
            first = daemon(home)
        assert min(await spent(one, other, total_s=1.0)) > 0.3
        async with shared(home) as sharing:
            await one.enter(sharing, A)
            await other.enter(sharing, B)
            assert daemon(home) == first
            assert (await sharing.park(B)).how == "stopped"
            await sharing.unpark(B, [other.seat])

    asyncio.run(go())


def test_told_to_end_the_warden_lets_everybody_go(home: Path, busy: Callable[..., Worker]) -> None:
    async def go() -> None:
        async with shared(home) as sharing:
            worker = busy(100)
            await worker.enter(sharing, A)
            await until(lambda: worker.stopped)
        os.kill(daemon(home), signal.SIGTERM)
        await until(lambda: not sharing._files.has_daemon())
        assert not worker.stopped

    asyncio.run(go())


def test_what_a_slot_cannot_do_is_said(tmp_path: Path) -> None:
    sharing = GpuSharing(tmp_path, Machine(NodeSpec(NODE, gpus=1, kind=CPU_SLOT), (0,)), "")
    assert "by turns" in sharing.check(Resources(share_milli=500, way=Way.SPATIAL))
    assert sharing.check(Resources(share_milli=500)) == ""
    assert sharing.check(Resources()) == ""


def test_what_a_machine_without_a_driver_cannot_do_is_said(tmp_path: Path) -> None:
    sharing = GpuSharing(tmp_path, Machine(NodeSpec(NODE, gpus=1, kind="H200"), (0,)), "")
    if not Path("/dev/nvidiactl").exists():
        assert "no NVIDIA driver" in sharing.check(Resources(share_milli=500))
        assert "no CUDA MPS" in sharing.check(Resources(share_milli=500, way=Way.SPATIAL))


def test_its_own_processes_need_the_standard_library_alone() -> None:
    gpu = Path(sys.modules[GpuSharing.__module__].__file__ or "").with_name("__main__.py")
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-I", "-S", str(gpu), "daemon", "/nowhere", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "ModuleNotFoundError" not in done.stderr
