"""The generations of one run: how one begins, how it ends and what then, and what is told of it.

Each is a shim with its workers. Which one is wanted, and why, is for the keeper.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, NamedTuple

from roost.core.allocation import Allocation, seats
from roost.core.events import Resized, Shrank, Started, Suspended
from roost.core.spec import RunId
from roost.elastic.protocol import checked
from roost.engines import Ended, Ending, Order, ProgressReport
from roost.engines.local import run_status
from roost.engines.local.parking import Parking
from roost.engines.local.run_record import RunRecord
from roost.engines.local.run_status import RunStatus
from roost.engines.local.shim_handle import EngineContext, SaveRequest, ShimHandle, why
from roost.engines.local.usage_sampler import SampledRun
from roost.errors import RoostError

_log = logging.getLogger(__name__)

Answer = type[Started | Resized]


class NextGeneration(NamedTuple):
    """What to start once this generation has ended, and what to call it."""

    order: Order
    allocation: Allocation
    answer: Answer


class Generations(ShimHandle):
    """Begins and ends the generations of one run."""

    def __init__(self, run: RunId, care: EngineContext, within_s: float = math.inf) -> None:
        super().__init__(run, care, within_s)
        self._parking = Parking(run, care.sharing, care.launcher.machine)
        self._when_running: Answer | None = None
        self._moving: Awaitable[None] | None = None
        self._next: NextGeneration | None = None
        self._asked_at = math.inf
        #: What the workers of this generation can do, and did, with their state on the GPU.
        self._elastic = False
        self._offloaded = 0
        self._problem = ""
        #: What came in the way of the gentler course that the next report is about.
        self._hindrance = ""
        self._saving: list[tuple[int, asyncio.Future[bool]]] = []

    @property
    def watched(self) -> SampledRun | None:
        """Where it runs, while it does."""
        state = self.found.state
        up = self._phase == "running" and self.pid and state is not None
        return SampledRun(self.pid, state) if up and state is not None else None

    async def save(self, within_s: float) -> bool:
        """Have the job save itself now; False if it cannot, or takes too long."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.inbox.put_nowait(SaveRequest(done))
        finished, _ = await asyncio.wait([done], timeout=within_s)
        return bool(finished) and done.result()

    def let_go(self) -> None:
        """Stop watching; the run goes on."""
        super().let_go()
        self._has_saved(math.inf, done=False)

    async def _save(self, saving: SaveRequest) -> None:
        state = self.found.state
        able = self.found.kind == "alive" and self._phase == "running" and self._elastic
        if state is None or not able:
            saving.done.set_result(False)
            return
        number = await self._ask_job(state, "save", wanted=True)
        if number is None:
            saving.done.set_result(False)
            return
        self._saving.append((number, saving.done))
        self._signal(signal.SIGHUP)

    async def _ask_job(self, state: RunRecord, what: str, *, wanted: bool) -> int | None:
        """Write down a wish for the job, which the shim passes on; its number, if it could be."""
        want = self._care.launcher.want
        try:
            asked = await self._care.work(want, state, {}, {what: wanted})
        except (RoostError, OSError, ValueError) as error:
            _log.warning("run %s cannot be asked to %s: %s", self.run, what, why(error))
            return None
        return int(asked[what])

    def _has_saved(self, number: float, *, done: bool) -> None:
        """Tell all who waited for a checkpoint up to that number."""
        for one in [one for one in self._saving if one[0] <= number]:
            self._saving.remove(one)
            if not one[1].done():
                one[1].set_result(done)

    async def _stop(self) -> None:
        kind = self.found.kind
        if kind == "nothing":
            self._care.report(Ended(self._care.clock(), self.run, (), "stopped"))
        elif kind == "alive":
            self._next = None
            self._signal(signal.SIGTERM)
            await self._want("")
        elif kind in {"parked", "between"}:
            if self.found.end is None:
                await self._fail("stopped", "")
                return
            await self._want("")
            await self._look()
            await self._tell()
        else:
            await self._tell()

    async def _replace(self, order: Order, allocation: Allocation, answer: Answer) -> None:
        """End this generation as kindly as the job allows, then start the next."""
        self._next = NextGeneration(order, allocation, answer)
        self._when_running = None
        await self._want("resize")
        self._signal(signal.SIGTERM)

    async def _begin(
        self, order: Order, state: RunRecord, allocation: Allocation, answer: Answer
    ) -> None:
        self._next, self._phase, self._when_running = None, "", answer
        self._elastic, self._offloaded, self._problem = False, 0, ""
        state.parked = False
        self.found = RunStatus(self.found.kind, state)
        first = order.restore is not None and not state.generation
        work = (first and self._care.slow) or self._care.work
        pid, pidfd = await work(self._care.launcher.launch, order, state, allocation)
        self.found = RunStatus("alive", state)
        self._watch(pidfd, pid)
        self._moving = self._care.work(self._care.launcher.limits.move, state.cgroup, self.pid)
        await self._enrol(up=False)

    async def _fail(self, cause: Ending, detail: str) -> None:
        """The run is over without a shim that could say so."""
        end = await self._surely(run_status.conclude, self.run, cause, detail)
        self.found = RunStatus("over", self.found.state, None, end)
        await self._tell()

    async def _want(self, intent: Any) -> None:
        """Write down what the end of this generation is for."""
        state = self.found.state
        if state is not None and state.intent != intent:
            state.intent = intent
            await self._care.work(run_status.save, self._care.runs, state)

    async def _gone(self) -> None:
        """The shim has ended."""
        self.let_go()
        if self._moving is not None:
            await self._moving
        self._problem = self._problem or self._parking.problem()
        await self._parking.end()
        await self._look()
        found = self.found
        if found.kind == "between" and self._next and found.state:
            order, allocation, answer = self._next
            self._hindrance = self._hindrance or str((found.end or {}).get("detail", ""))
            await self._begin(order, found.state, allocation, answer)
        elif found.kind == "nothing" or (found.kind == "between" and found.end is None):
            words = await self._surely(run_status.last_words, self.run)
            await self._fail("never-started" if words else "lost", words or "its shim was killed")
        elif found.kind != "alive":
            await self._tell(self._took())

    async def _tell(self, took_s: float | None = None) -> None:
        """Report what is true, and before that what the job said last of itself.

        ``took_s`` is for what has just become true.
        """
        words = await self._surely(run_status.told, self.run)
        kind, now = self.found.kind, self._care.clock()
        if words and kind != "nothing":
            self._care.report(told(now, self.run, words))
        if kind == "over" and self.found.end is not None:
            self._care.runs.unmark(self.run)
            ended = run_status.ended(self.run, self.found.end, now)
            detail = "; ".join(filter(None, (self._problem, ended.detail)))
            self._care.report(replace(ended, detail=detail, problem=self._problem))
        elif kind == "parked" or (kind == "alive" and self._phase == "frozen"):
            kept = 0.0 if kind == "parked" else math.inf
            self._care.report(Suspended(now, self.run, kept, took_s, self._hindered()))
        elif kind == "alive" and self._phase == "running":
            self._care.report(Started(now, self.run, took_s))
        elif kind == "alive":
            self._when_running = self._when_running or Started
        if kind == "alive" and self.found.state and self.found.state.shrank:
            self._tell_shrank(self.found.state)

    def _tell_shrank(self, state: RunRecord) -> None:
        held = Allocation(state.parts)
        self._care.report(Shrank(self._care.clock(), self.run, held, state.shrank))

    async def _enrol(self, *, up: bool = True) -> None:
        """Have limits and slices held; a run whose limits cannot be held is not let run.

        Before its workers are ``up`` there is nobody to hold, but what serves it has to stay.
        """
        state = self.found.state
        if state is None or not self._parking.concerns(state):
            return
        start = await self._surely(run_status.started, self.run) if up else None
        workers = start.get("workers") if start else None
        try:
            await self._parking.enrol(state, workers if isinstance(workers, dict) else {})
        except (RoostError, OSError, ValueError, TypeError) as error:
            self._problem = f"its share of the GPU cannot be held: {why(error)}"
            _log.warning("run %s: %s", self.run, self._problem)
            await self._stop()

    def _hindered(self) -> str:
        """What came in the way of the gentler course; told once."""
        told, self._hindrance = self._hindrance, ""
        return told

    def _took(self) -> float | None:
        """Seconds since the order, if this keeper was given one."""
        return max(uptime() - self._asked_at, 0.0) if self._asked_at < math.inf else None

    def _same_gang(self, allocation: Allocation) -> bool:
        now = self.found.state.seats if self.found.state else ()
        return Counter(seat.role for seat in seats(allocation)) == Counter(
            seat.role for seat in now
        )


def told(now: float, run: RunId, words: object) -> ProgressReport:
    """What a job says of itself, as far as it may."""
    # It may come from the job itself, where that shares the server's account.
    return ProgressReport(now, run, **checked(words))  # type: ignore[arg-type]


def uptime() -> float:
    """Seconds since boot: they go on whatever happens to clocks and servers."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
