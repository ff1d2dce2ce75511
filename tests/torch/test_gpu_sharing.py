"""Shares of a real GPU through ``GpuSharing``: turns, limits, parking, side by side.

Needs pytest, PyTorch and a GPU, nothing else of what Roost depends on:

    PYTHONPATH=src python3 -m pytest -c /dev/null -q -m gpu tests/torch/test_gpu_sharing.py
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from roost.core.allocation import Seat
from roost.core.spec import JobId, NodeId, NodeSpec, Qos, Resources, RunId, Way
from roost.engines.local.devices import Machine
from roost.engines.local.gpu.driver import CudaDriver, DriverRefused, Stage
from roost.engines.local.gpu.mps import available
from roost.engines.local.gpu.restorable import driver_version
from roost.engines.local.gpu.sharing import GpuSharing
from roost.engines.local.gpu.telemetry import Nvml
from roost.engines.local.shim import process_tree
from roost_bench.gpu.programs import (
    CHECK,
    CODE,
    COUNT,
    FINE,
    FIRST,
    OUT_OF_MEMORY,
    READY,
    RUN,
    SECOND,
)
from roost_bench.gpu.workers import MeasuredWorker, rates

NODE = NodeId("here")
A, B = RunId(JobId("a"), 1), RunId(JobId("b"), 1)


def has_gpu() -> bool:
    """Whether there is a GPU, and torch to use it."""
    if importlib.util.find_spec("torch") is None:
        return False
    try:
        Nvml().close()
    except DriverRefused:
        return False
    return True


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="no torch with a GPU here")]


class World:
    """The first GPU, shared; jobs on it end with the test."""

    def __init__(self, home: Path, sharing: GpuSharing, nvml: Nvml) -> None:
        self.home, self.sharing, self.nvml = home, sharing, nvml
        self.jobs: list[MeasuredWorker] = []

    async def job(
        self, kind: str, run: RunId, need: Resources, amount: float = 0
    ) -> tuple[MeasuredWorker, Seat]:
        """A job as the engine starts it: environment, process, attached."""
        seat = Seat("worker", 0, (0,), need.share_milli, NODE)
        env: Mapping[str, str] = await asyncio.to_thread(self.sharing.env, seat, need)
        job = MeasuredWorker(kind, self.home, amount, env)
        self.jobs.append(job)
        process = process_tree.look(job.pid)
        assert process is not None
        workers = {"worker-0": (job.pid, process.ticks)}
        await self.sharing.attach(run, [seat], {"worker": need}, workers)
        await asyncio.to_thread(job.until, READY)
        return job, seat

    async def until(self, true: Callable[[], bool], within_s: float = 60.0) -> None:
        deadline = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < deadline, self.sharing._files.status()
            await asyncio.sleep(0.02)


@asynccontextmanager
async def shared(home: Path) -> AsyncIterator[World]:
    nvml = Nvml()
    total = nvml.memory(0).total
    node = NodeSpec(NODE, gpus=1, kind="GPU", gpu_memory_mib=total)
    sharing = GpuSharing(home, Machine(node, (0,)), sys.executable)
    await sharing.start()
    world = World(home, sharing, nvml)
    try:
        yield world
    finally:
        for job in world.jobs:
            job.end()
        for run in (A, B):
            await sharing.detach(run)
        for daemon in sharing._daemons.values():
            daemon.stop()
        with suppress(ProcessLookupError, KeyError):
            os.kill(sharing._files.status()["pid"], signal.SIGTERM)
        await sharing.close()
        nvml.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    log = tmp_path / "gpu" / "warden.log"
    words = log.read_text() if log.exists() else ""
    assert "Traceback" not in words, words


def test_turns_give_each_its_part(home: Path) -> None:
    async def go() -> None:
        async with shared(home) as world:
            large, _ = await world.job("chain", A, Resources(share_milli=750))
            small, _ = await world.job("chain", B, Resources(share_milli=250))
            found = await asyncio.to_thread(rates, [large, small], [large, small], 8.0)
            assert found[0] / sum(found) == pytest.approx(0.75, abs=0.04)
            assert world.sharing.problem(A) == world.sharing.problem(B) == ""

    asyncio.run(go())


def test_a_killed_warden_is_replaced_and_turns_go_on(home: Path) -> None:
    async def go() -> None:
        async with shared(home) as world:
            one, _ = await world.job("chain", A, Resources(share_milli=500))
            other, _ = await world.job("chain", B, Resources(share_milli=500))
            for job in (one, other):
                job.tell(RUN)
            await asyncio.sleep(1.0)
            first = world.sharing._files.status()["pid"]
            os.kill(first, signal.SIGKILL)
            await world.until(lambda: world.sharing._files.status()["pid"] != first)
            found = await asyncio.to_thread(rates, [one, other], [one, other], 6.0)
            assert found[0] / sum(found) == pytest.approx(0.5, abs=0.05)

    asyncio.run(go())


def test_a_whole_job_leaves_the_gpu_and_comes_back(home: Path) -> None:
    async def go() -> None:
        async with shared(home) as world:
            job, seat = await world.job("hold", A, Resources(), 1)
            job.tell(RUN)
            await world.until(lambda: job.get(COUNT) > 0)
            full = world.nvml.memory(0).used
            parked = await world.sharing.park(A)
            assert (parked.how, parked.why) == ("checkpoint", "")
            assert parked.freed_mib > 1024
            assert full - world.nvml.memory(0).used > 1024
            count = job.get(COUNT)
            await asyncio.sleep(0.5)
            assert job.get(COUNT) == count
            back = await world.sharing.unpark(A, [seat])
            assert (back.how, back.why) == ("checkpoint", "")
            await world.until(lambda: job.get(COUNT) > count)
            job.tell(CHECK)
            assert await asyncio.to_thread(job.until, CODE) == FINE

    asyncio.run(go())


def test_a_share_leaves_the_gpu_while_its_neighbour_goes_on(home: Path) -> None:
    async def go() -> None:
        async with shared(home) as world:
            leaver, seat = await world.job("hold", A, Resources(share_milli=500), 1)
            other, _ = await world.job("chain", B, Resources(share_milli=500, qos=Qos.EQUAL))
            for job in (leaver, other):
                job.tell(RUN)
            await asyncio.sleep(1.0)
            assert (await world.sharing.park(A)).how == "checkpoint"
            count = other.get(COUNT)
            await world.until(lambda: other.get(COUNT) > count + 50)
            assert (await world.sharing.unpark(A, [seat])).how == "checkpoint"
            count = leaver.get(COUNT)
            await world.until(lambda: leaver.get(COUNT) > count)

    asyncio.run(go())


def test_pytorch_keeps_to_the_limit_of_a_share(home: Path) -> None:
    async def go() -> None:
        async with shared(home) as world:
            need = Resources(share_milli=500, gpu_memory_mib=4096)
            job, _ = await world.job("take", A, need, 8192)
            job.tell(RUN)
            assert await asyncio.to_thread(job.until, CODE) == OUT_OF_MEMORY
            assert job.get(FIRST) < 4096

    asyncio.run(go())


def test_what_goes_past_pytorch_is_ended_with_a_reason(home: Path) -> None:
    async def go() -> None:
        async with shared(home) as world:
            need = Resources(share_milli=500, gpu_memory_mib=4096)
            job, _ = await world.job("take-raw", A, need, 8192)
            job.tell(RUN)
            await world.until(lambda: job.process.poll() is not None)
            assert job.process.returncode == -signal.SIGKILL
            assert "over its limit of 4096 MiB" in world.sharing.problem(A)

    asyncio.run(go())


@pytest.mark.skipif(bool(available()), reason="no MPS here")
def test_side_by_side_both_run_and_a_lost_daemon_is_told(home: Path) -> None:
    async def go() -> None:
        async with shared(home) as world:
            need = Resources(share_milli=500, way=Way.SPATIAL)
            one, _ = await world.job("chain", A, need)
            other, _ = await world.job("chain", B, need)
            found = await asyncio.to_thread(rates, [one, other], [one, other], 3.0)
            assert found[0] / sum(found) == pytest.approx(0.5, abs=0.03)
            assert (await world.sharing.park(A)).how == "none"
            daemon = world.sharing._daemon(0)
            assert world.sharing.problem(A) == ""
            process = daemon._process()
            assert process is not None
            os.kill(process.pid, signal.SIGKILL)
            await world.until(lambda: "MPS daemon" in world.sharing.problem(A))

    asyncio.run(go())


def test_side_by_side_a_limit_counts_all_processes_of_a_job(home: Path) -> None:
    if why := available():
        pytest.skip(why)

    async def go() -> None:
        async with shared(home) as world:
            need = Resources(share_milli=250, way=Way.SPATIAL, gpu_memory_mib=8192)
            job, _ = await world.job("take-three", A, need, 6 * 1024)
            job.tell(RUN)
            await world.until(lambda: "over its limit of 8192" in world.sharing.problem(A))
            await world.until(lambda: job.process.poll() is not None)

    asyncio.run(go())


def test_memory_that_processes_share_is_not_taken_off_by_a_driver_that_cannot_bring_it_back(
    home: Path,
) -> None:
    async def go() -> None:
        async with shared(home) as world:
            job, seat = await world.job("shared", A, Resources(share_milli=500))
            assert (job.get(FIRST), job.get(SECOND)) == (0.0, 0.0)  # it does share
            parked = await world.sharing.park(A)
            if driver_version() >= 610:
                assert parked.how == "checkpoint"
                assert (await world.sharing.unpark(A, [seat])).how == "checkpoint"
            else:
                assert "CUDA IPC" in parked.why
            assert job.process.poll() is None

    asyncio.run(go())


def test_a_service_below_its_share_is_never_locked(home: Path) -> None:
    async def go() -> None:
        async with shared(home) as world:
            need = Resources(share_milli=300)
            serve, _ = await world.job("serve", A, need)
            busy, _ = await world.job("queue", B, Resources(share_milli=700, qos=Qos.BEST_EFFORT))
            serve.tell(RUN)
            busy.tell(RUN)
            await asyncio.sleep(10.0)  # until it is known to be light
            driver, stages = CudaDriver(), set()
            for _ in range(200):
                stages.add(driver.state(serve.pid))
                await asyncio.sleep(0.01)
            assert stages == {Stage.RUNNING}

    asyncio.run(go())
