"""A thousand random starts, suspensions, resumptions and kills: nothing may stay behind.

Programs of the CUDA driver alone, so that one starts in a moment. Each is a tenant by turns, held
by the code that holds shares of jobs; the sharing daemon is killed now and then, too.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from roost.core.allocation import Seat
from roost.core.spec import JobId, Qos, Resources, RunId
from roost.engines.local.gpu.telemetry import Nvml
from roost_bench.gpu.figures import GpuBench, GpuFigure, above, below
from roost_bench.gpu.kinds import attached, sharing_of
from roost_bench.gpu.programs import READY, RUN
from roost_bench.gpu.workers import Broken, MeasuredWorker

_SHARE = Resources(gpus=1, share_milli=125, qos=Qos.EQUAL, gpu_memory_mib=4096)
_AT_ONCE = 8
_CALLS = 1000
_SEED = 15
#: What the device may hold more than before: the driver's own pages come and go.
_NOISE_MIB = 16
_GONE_S = 30.0
#: So long before a measure has to be done nothing new is begun.
_LATE_S = 15.0
#: How often the sharing daemon dies, and how many programs do at which moments.
_HIT_S = 10.0
_AT_ONCE_KILLED, _KILLED = 0.1, 0.15


def leftovers(bench: GpuBench) -> Iterator[GpuFigure]:
    """Random starts, suspensions and kills; then the processes and the memory that are left."""
    nvml = Nvml()
    before = nvml.memory(0).used
    begun = time.monotonic()
    calls = 40 if bench.quick else _CALLS
    play = _Play(bench.scratch / "left", calls, begun + bench.within_s - _LATE_S)
    asyncio.run(play.run())
    deadline = time.monotonic() + _GONE_S
    while (held := nvml.memory(0).used - before) > 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    mine = set(play.pids)
    there = [pid for pid in nvml.processes(0) if pid in mine]
    alive = [pid for pid in play.pids if Path(f"/proc/{pid}").exists()]
    nvml.close()
    bench.notes["calls"] = play.done
    bench.notes["took s"] = round(time.monotonic() - begun, 1)
    bench.notes["troubles"] = play.troubles[:10]
    made = float(sum(play.done.values()))
    yield above("random starts, suspensions and kills", made, "", float(calls))
    yield below("left behind: memory", float(max(held, 0)), "MiB", _NOISE_MIB)
    yield below("left behind: processes", float(len({*there, *alive})), "", 1.0)
    yield below("calls that went wrong", float(len(play.troubles)), "", 1.0)


class _Play:
    """Some programs that come and go, and what was done to them."""

    def __init__(self, folder: Path, calls: int, until: float) -> None:
        self.folder, self.left, self._until = folder, calls, until
        self._chance = random.Random(_SEED)  # noqa: S311 - no secret
        self.done: dict[str, int] = {}
        self.pids: list[int] = []
        self.troubles: list[str] = []

    async def run(self) -> None:
        """Until so many calls were made, or there is no more time."""
        async with sharing_of(self.folder) as self._sharing:
            killer = asyncio.create_task(self._hit())
            await asyncio.gather(*(self._lives(number) for number in range(_AT_ONCE)))
            killer.cancel()

    async def _lives(self, number: int) -> None:
        """One program after the other."""
        count = 0
        while self.left > 0 and time.monotonic() < self._until:
            count += 1
            await self._life(RunId(JobId(f"left-{number}"), count))

    async def _life(self, run: RunId) -> None:
        """From a start to the end, at any moment."""
        self._did("start")
        job = MeasuredWorker("raw", self.folder, self._chance.choice((16, 64, 256)))
        self.pids.append(job.pid)
        try:
            if self._chance.random() < _AT_ONCE_KILLED:  # it has nothing on the device yet
                self._did("kill at once")
                return
            await asyncio.to_thread(job.until, READY)
            seat = await attached(self._sharing, run, job.pid, _SHARE)
            job.tell(RUN)
            for _ in range(self._chance.randint(0, 3)):
                if not await self._suspend(run, job, seat):
                    return
            self._did("kill")
        except Broken as error:
            self.troubles.append(str(error))
        finally:
            job.end()
            await self._sharing.detach(run)

    async def _suspend(self, run: RunId, job: MeasuredWorker, seat: Seat) -> bool:
        """Suspend and resume; False if it was killed meanwhile."""
        self._did("suspend")
        if self._chance.random() < _KILLED:
            parking = asyncio.create_task(self._sharing.park(run))
            await asyncio.sleep(self._chance.random() * 0.3)
            self._did("kill while it is suspended")
            job.process.kill()
            await parking
            return False
        parked = await self._sharing.park(run)
        if parked.how == "none":
            self.troubles.append(f"suspend: {parked.why}")
            return False
        if self._chance.random() < _KILLED:
            self._did("kill while it is off")
            return False
        self._did("resume")
        back = await self._sharing.unpark(run, [seat])
        if back.how == "none":
            self.troubles.append(f"resume: {back.why}")
        return back.how != "none"

    async def _hit(self) -> None:
        """The sharing daemon dies now and then."""
        while True:
            await asyncio.sleep(_HIT_S)
            with suppress(ProcessLookupError, KeyError):
                os.kill(self._sharing._files.status()["pid"], signal.SIGKILL)  # noqa: SLF001
                self._did("kill of the daemon")

    def _did(self, what: str) -> None:
        self.left -= 1
        self.done[what] = self.done.get(what, 0) + 1
