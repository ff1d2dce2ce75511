"""Ten kinds of programs off the GPU and back: each must end with the result of one undisturbed.

They are shares by turns on one GPU, all at once, held by the code that holds shares of jobs. The
programs know nothing of it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from roost.core.allocation import WORKER, Seat
from roost.core.spec import JobId, NodeId, NodeSpec, Qos, Resources, RunId
from roost.engines.local.devices import Machine
from roost.engines.local.gpu.sharing import GpuSharing, ParkResult
from roost.engines.local.gpu.telemetry import Nvml
from roost.engines.local.shim import process_tree
from roost_bench.gpu.figures import GpuBench, GpuFigure, above, below
from roost_bench.gpu.programs import CODE, COUNT, FIRST, KINDS, READY, RUN
from roost_bench.gpu.workers import Broken, MeasuredWorker

_NODE = NodeId("here")
#: So many steps each has done before it is taken off the GPU, and how long all may take.
_BEGUN = 20
_ALL_S = 150.0
_SHARE = Resources(gpus=1, share_milli=80, qos=Qos.BEST_EFFORT, gpu_memory_mib=16384)


def kinds(bench: GpuBench) -> Iterator[GpuFigure]:
    """Suspend and resume ten kinds of programs, and compare what they compute."""
    bench.say("undisturbed")
    wanted = _undisturbed(bench, bench.scratch / "alone")
    bench.say("suspended and resumed, as shares by turns")
    found = asyncio.run(_suspended(bench, bench.scratch / "shared"))
    for kind in KINDS:
        parked, back, result = found[kind]
        same = result != 0 and result == wanted.get(kind)
        bench.notes[kind] = {
            "suspend": parked.how,
            "why": parked.why or back.why,
            "result": [wanted.get(kind), result],
        }
        yield below(f"{kind}: suspend", parked.took_s, "s")
        yield below(f"{kind}: resume", back.took_s, "s")
        good = same and parked.how == back.how == "checkpoint"
        yield above(f"{kind}: came back, same result to the bit", float(good), "", 1.0)


def _undisturbed(bench: GpuBench, folder: Path) -> dict[str, float]:
    folder.mkdir()
    found = {}
    with ExitStack() as stack:
        jobs = {kind: MeasuredWorker(kind, folder) for kind in KINDS}
        for job in jobs.values():
            stack.callback(job.end)
        for kind, job in jobs.items():
            try:
                job.until(READY)
                job.tell(RUN)
                job.until(CODE, _ALL_S)
                found[kind] = job.get(FIRST)
            except Broken as error:
                bench.notes[f"{kind}, undisturbed"] = str(error)
    return found


@asynccontextmanager
async def sharing_of(folder: Path) -> AsyncIterator[GpuSharing]:
    """What holds shares of the first GPU, with a daemon of its own; all of it ends."""
    await asyncio.to_thread(folder.mkdir)
    nvml = Nvml()
    node = NodeSpec(_NODE, gpus=1, kind="GPU", gpu_memory_mib=nvml.memory(0).total)
    nvml.close()
    sharing = GpuSharing(folder, Machine(node, (0,)), sys.executable)
    await sharing.start()
    try:
        yield sharing
    finally:
        for daemon in sharing._daemons.values():  # noqa: SLF001 - they would stay for a while
            await asyncio.to_thread(daemon.stop)
        await sharing.close()
        await sharing.rest()


async def attached(sharing: GpuSharing, run: RunId, pid: int, need: Resources = _SHARE) -> Seat:
    """A process as a tenant."""
    seat = Seat(WORKER, 0, (0,), need.share_milli, _NODE)
    process = process_tree.look(pid)
    if process is None:
        raise Broken("a job is gone")
    await sharing.attach(run, [seat], {WORKER: need}, {seat.name: (pid, process.ticks)})
    return seat


async def _suspended(
    bench: GpuBench, folder: Path
) -> dict[str, tuple[ParkResult, ParkResult, float]]:
    async with sharing_of(folder) as sharing:
        with ExitStack() as stack:
            jobs = {kind: MeasuredWorker(kind, folder) for kind in KINDS}
            for job in jobs.values():
                stack.callback(job.end)
            stories = [_story(bench, sharing, kind, job) for kind, job in jobs.items()]
            found = await asyncio.gather(*stories)
    return dict(zip(KINDS, found, strict=True))


async def _story(
    bench: GpuBench, sharing: GpuSharing, kind: str, job: MeasuredWorker
) -> tuple[ParkResult, ParkResult, float]:
    run = RunId(JobId(kind), 1)
    parked = back = ParkResult()
    try:
        await asyncio.to_thread(job.until, READY)
        seat = await attached(sharing, run, job.pid)
        job.tell(RUN)
        await asyncio.to_thread(job.wait, lambda: job.get(COUNT) >= _BEGUN, "steps", _ALL_S)
        parked = await sharing.park(run)
        before = job.get(COUNT)
        await asyncio.sleep(1.0)
        # One step may have been on its way: its end is all that may still be told.
        if parked.how == "checkpoint" and job.get(COUNT) > before + 1:
            parked = ParkResult(why="it went on while it was suspended")
        if parked.how != "none":
            back = await sharing.unpark(run, [seat])
        await asyncio.to_thread(job.until, CODE, _ALL_S)
    except Broken as error:
        bench.notes[f"{kind}, suspended"] = str(error)
    result = job.get(FIRST)
    await sharing.detach(run)
    return parked, back, result
