"""Two processes that share GPU memory (CUDA IPC): off the GPU and back, or refused beforehand.

Drivers before 610 bring such a job off the device without complaint and do not restore it. So it
has to be refused, and to go on; or to share as before when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from roost.core.spec import JobId, RunId
from roost_bench.gpu.figures import GpuBench, GpuFigure, above
from roost_bench.gpu.kinds import attached, sharing_of
from roost_bench.gpu.programs import CODE, COUNT, FIRST, READY, RUN, SECOND, THIRD
from roost_bench.gpu.workers import Broken, MeasuredWorker

_BEGUN, _ON_S = 20, 20.0


def ipc(bench: GpuBench) -> Iterator[GpuFigure]:
    """Suspend such a job; the notes say by what it could be told from others."""
    good = asyncio.run(_suspended(bench, bench.scratch / "ipc"))
    yield above("CUDA IPC: refused beforehand, or shares as before", float(good), "", 1.0)


async def _suspended(bench: GpuBench, folder: Path) -> bool:
    run, notes = RunId(JobId("ipc"), 1), bench.notes
    async with sharing_of(folder) as sharing:
        job = MeasuredWorker("shared", folder)
        try:
            await asyncio.to_thread(job.until, READY)
            notes["export, import"] = [job.get(FIRST), job.get(SECOND)]
            seat = await attached(sharing, run, job.pid)
            job.tell(RUN)
            await asyncio.to_thread(job.wait, lambda: job.get(COUNT) >= _BEGUN, "steps")
            pids = (job.pid, int(job.get(THIRD)))
            notes["files"] = {pid: sorted(_files(pid)) for pid in pids}
            parked = await sharing.park(run)
            notes["suspend"] = [parked.how, parked.why]
            if parked.how != "none":
                back = await sharing.unpark(run, [seat])
                notes["resume"] = [back.how, back.why]
            before = job.get(COUNT)
            await asyncio.to_thread(job.wait, lambda: job.get(COUNT) > before + 5, "more", _ON_S)
        except Broken as error:
            notes["broken"] = str(error)
            return False
        finally:
            notes["words"] = job.words()
            await sharing.detach(run)
            wrong = job.get(CODE) != 0
            job.end()
    return not wrong and (parked.how != "none" or bool(parked.why))


def _files(pid: int) -> set[str]:
    """What a process maps and has open, but for libraries."""
    found: set[str] = set()
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            _, mapped, path = line.partition("/")
            found |= {f"maps {mapped}{path}"} if mapped else set()
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(f"open {one.readlink()}")
    return {one for one in found if ".so" not in one and "/lib" not in one}
