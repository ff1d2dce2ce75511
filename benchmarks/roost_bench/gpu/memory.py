"""Memory: limits that hold, suspending jobs that know nothing of it, and one that leaves itself."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from roost.core.allocation import WORKER, Seat
from roost.core.spec import JobId, NodeId, Resources, RunId, Way
from roost.engines.local.gpu import framework_memory, memory_limit
from roost.engines.local.gpu import huge_pages as pages
from roost.engines.local.gpu.driver import CudaDriver, Stage
from roost.engines.local.gpu.telemetry import Nvml
from roost_bench.gpu.figures import GpuBench, GpuFigure, above, below
from roost_bench.gpu.kinds import attached, sharing_of
from roost_bench.gpu.programs import (
    CHECK,
    CODE,
    COUNT,
    FINE,
    FIRST,
    LEAVE,
    OUT_OF_MEMORY,
    READY,
    REST,
    RETURN,
    RUN,
    SECOND,
    THIRD,
)
from roost_bench.gpu.spatial import daemon
from roost_bench.gpu.workers import MeasuredWorker, workers_of

_LIMIT_MIB = 4096
_WANTED_MIB = 8192
_GIB = 1024
#: How long three processes may take to begin and to be seen.
_GREEDY_S = 60.0


def limits(bench: GpuBench) -> Iterator[GpuFigure]:
    """A job that wants twice its limit, three ways."""
    nvml = Nvml()
    hook = framework_memory.write_hook(bench.scratch / "hook")
    env = framework_memory.env(_LIMIT_MIB, nvml.memory(0).total, hook)
    bench.say("by turns: PyTorch's allocator")
    with workers_of(bench.scratch, "take", [env], _WANTED_MIB) as (job,):
        yield from _taken(job, "by turns, PyTorch's allocator")
        bench.notes["by turns"] = job.words()
        bench.notes["device, by turns"] = nvml.memory(0).used
    bench.say("by turns: what goes past PyTorch is seen by NVML")
    with workers_of(bench.scratch, "take-raw", [env], _WANTED_MIB) as (job,):
        yield from _caught(bench, nvml, job)
    bench.say("side by side: MPS")
    with daemon(bench) as mps:
        env = mps.env(500, _LIMIT_MIB, capped=True)
        for kind in ("take", "take-raw"):
            with workers_of(bench.scratch, kind, [env], _WANTED_MIB) as (job,):
                yield from _taken(job, f"side by side, {kind}")
                bench.notes[f"side by side, {kind}"] = job.words()
    nvml.close()
    for way in Way:
        bench.say(f"{way}: three processes of one job")
        ended, why = asyncio.run(_three(bench.scratch / f"three-{way}", way))
        bench.notes[f"{way}, three processes"] = why
        name = f"memory limit, {way}, three processes of half of it each"
        yield above(f"{name}: the job is ended, with the reason", float(bool(why)), "", 1.0)
        yield below(f"{name}: from the order to its end", ended, "s")


def suspend(bench: GpuBench) -> Iterator[GpuFigure]:
    """Checkpoint and restore of jobs that hold much, with the page faults that it costs."""
    for number, setting in enumerate(_pages(bench)):
        with huge_pages(setting):
            for size in (1,) if bench.quick else (8, 40) if number else (1, 8, 40):
                yield from _suspended(bench, size, setting)


def offload(bench: GpuBench) -> Iterator[GpuFigure]:
    """A job that leaves the GPU by itself, into a pinned pool made beforehand."""
    nvml = Nvml()
    size = 1 if bench.quick else 8
    with workers_of(bench.scratch, "offload", [{}], size) as (job,):
        full = nvml.memory(0).used
        job.tell(LEAVE)
        out = job.until(FIRST, 60.0)
        left = nvml.memory(0).used
        job.tell(RETURN)
        back = job.until(SECOND, 60.0)
        job.tell(CHECK)
        code = job.until(CODE, 60.0)
        pinning = job.get(THIRD)
    nvml.close()
    yield below(f"self-offload of {size} GiB: out", out, "s", 0.5)
    yield below(f"self-offload of {size} GiB: back", back, "s", 0.5)
    yield below(f"self-offload of {size} GiB: making the pool", pinning, "s")
    yield GpuFigure(f"self-offload of {size} GiB: freed", float(full - left), "MiB")
    yield above("self-offload: content intact", float(code == FINE), "", 1.0)


async def _three(folder: Path, way: Way) -> tuple[float, str]:
    """One job, three processes that each keep to its limit and together do not."""
    need = Resources(gpus=1, share_milli=500, way=way, gpu_memory_mib=_LIMIT_MIB)
    seat, run = Seat(WORKER, 0, (0,), need.share_milli, NodeId("here")), RunId(JobId("three"), 1)
    async with sharing_of(folder) as sharing:
        env = await asyncio.to_thread(sharing.env, seat, need)
        job = MeasuredWorker("take-three", folder, _LIMIT_MIB // 2, env)
        try:
            await asyncio.to_thread(job.until, READY)
            await attached(sharing, run, job.pid, need)
            job.tell(RUN)
            begun = time.monotonic()
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(job.process.wait, _GREEDY_S)
            took, why = time.monotonic() - begun, sharing.problem(run)
        finally:
            job.end()
            await sharing.detach(run)
        return took, why if "over its limit" in why else ""


def _taken(job: MeasuredWorker, name: str) -> Iterator[GpuFigure]:
    job.tell(RUN)
    code = job.until(CODE, 60.0)
    yield above(f"memory limit, {name}: refused", float(code == OUT_OF_MEMORY), "", 1.0)
    yield below(f"memory limit, {name}: got", job.get(FIRST), "MiB", _LIMIT_MIB + 1)


def _caught(bench: GpuBench, nvml: Nvml, job: MeasuredWorker) -> Iterator[GpuFigure]:
    """Take memory past the framework until the guard sees it, as the warden does."""
    known = job.pid in nvml.processes(0)
    bench.notes["NVML knows the processes"] = known
    bench.notes["processes that NVML knows"] = list(nvml.processes(0))
    job.tell(RUN)
    deadline, why = time.monotonic() + 15.0, ""
    while not why and time.monotonic() < deadline and not job.get(CODE):
        why = memory_limit.over(nvml.processes(0), [job.pid], _LIMIT_MIB)
        time.sleep(0.05)
    bench.notes["guard"] = why
    yield above("memory limit, by turns, past the framework: seen", float(bool(why)), "", 1.0)
    yield below("memory limit, by turns, past the framework: got", job.get(FIRST), "MiB")


def _suspended(bench: GpuBench, size: int, setting: str) -> Iterator[GpuFigure]:
    name = f"{size} GiB, huge pages {setting}"
    bench.say(name)
    driver, nvml = CudaDriver(), Nvml()
    with workers_of(bench.scratch, "hold", [{}], size) as (job,):
        job.tell(RUN)
        time.sleep(0.5)
        full = nvml.memory(0).used
        begun = time.perf_counter()
        driver.lock(job.pid, 10_000)
        locked, before = time.perf_counter(), job.faults()
        driver.checkpoint(job.pid)
        out, parked = time.perf_counter(), job.faults()
        left = nvml.memory(0).used
        stage = driver.state(job.pid)
        time.sleep(0.2)
        back = time.perf_counter()
        driver.restore(job.pid)
        restored, after = time.perf_counter(), job.faults()
        driver.unlock(job.pid)
        count = job.get(COUNT)
        job.wait(lambda: job.get(COUNT) > count, "work after the restore", 30.0)
        working = time.perf_counter()
        job.tell(REST)
        job.tell(CHECK)
        code = job.until(CODE, 60.0)
    nvml.close()
    bench.notes[name] = {
        "faults of checkpoint": [parked[0] - before[0], parked[1] - before[1]],
        "faults of restore": [after[0] - parked[0], after[1] - parked[1]],
        "device MiB": [full, left],
        "state": stage.name,
        "to work again s": working - back,
    }
    yield below(f"suspend {name}: lock", 1000 * (locked - begun), "ms")
    yield below(f"suspend {name}: checkpoint", out - locked, "s")
    yield GpuFigure(f"suspend {name}: page faults", float(parked[0] - before[0]), "")
    yield GpuFigure(f"suspend {name}: freed", float(full - left), "MiB")
    yield below(f"resume {name}: restore", restored - back, "s")
    good = code == FINE and stage is Stage.CHECKPOINTED
    yield above(f"suspend {name}: content intact", float(good), "", 1.0)


def _pages(bench: GpuBench) -> list[str]:
    """As they are, and ``always`` where that may be set."""
    now = pages.current() or "unknown"
    bench.notes["huge pages"] = now
    if now in {"always", "unknown"} or bench.quick:
        return [now]
    try:
        pages.SETTING.write_text(now)
    except OSError as error:
        bench.notes["huge pages cannot be set"] = str(error)
        return [now]
    return [now, "always"]


def set_huge_pages(setting: str) -> None:
    """Set them, if they are not so already and may be."""
    if setting and setting != pages.current():
        with suppress(OSError):
            pages.SETTING.write_text(setting)


@contextmanager
def huge_pages(setting: str) -> Iterator[None]:
    """Transparent huge pages as asked for, and afterwards as they were."""
    before = pages.current()
    if not before or before == setting:
        yield
        return
    pages.SETTING.write_text(setting)
    try:
        yield
    finally:
        pages.SETTING.write_text(before)
