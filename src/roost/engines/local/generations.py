"""The generations of one run: how one begins, how it ends and what then, and what is told of it.

Each is a shim with its workers. The keeper decides which one is wanted, and why. Both run on the
engine's loop, in one task per run: nothing here needs a lock.
"""

from __future__ import annotations

import logging
import math
import signal
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from typing import NamedTuple

from roost.core.allocation import Allocation, seats
from roost.core.events import Resized, Shrank, Started, Suspended
from roost.core.spec import RunId
from roost.elastic.protocol import checked
from roost.engines import NOTHING_SAVED, Ended, Ending, ProgressReport, RunOrder
from roost.engines.local import run_status
from roost.engines.local.job_wishes import JobWishes
from roost.engines.local.parking import Parking
from roost.engines.local.run_record import Intent, RunRecord
from roost.engines.local.run_status import RunStatus
from roost.engines.local.shim_handle import EngineContext, ShimHandle, why
from roost.errors import RoostError

_log = logging.getLogger(__name__)

#: The event that answers an order once the workers are up.
Answer = type[Started | Resized]


class NextGeneration(NamedTuple):
    """What to start once this generation has ended, and what to call it."""

    order: RunOrder
    allocation: Allocation
    answer: Answer


class Generations:
    """Begins and ends the generations of one run.

    ``next`` starts once this generation has ended; ``when_running`` is reported once its workers
    are up. ``asked_at`` is when the order under way came, in seconds since boot. ``hindrance`` says
    what came in the way of the gentler course that the next report is about.
    """

    def __init__(self, run: RunId, context: EngineContext, shim: ShimHandle) -> None:
        self._run, self._context, self._shim = run, context, shim
        self.parking = Parking(run, context.sharing, context.launcher.machine)
        self.wishes = JobWishes(context, shim)
        self.when_running: Answer | None = None
        self.next: NextGeneration | None = None
        self._begun: NextGeneration | None = None
        self.asked_at = math.inf
        self.hindrance = ""
        self._problem = ""
        self._beside = ""
        #: The move of the shim to its cgroup, which must be over before the cgroup is removed.
        self._moving: Awaitable[None] | None = None

    async def begin(
        self, order: RunOrder, record: RunRecord, allocation: Allocation, answer: Answer
    ) -> None:
        """Start a generation; ``answer`` is reported when its workers are up.

        Raises OSError or Retryable, with ``next`` to be begun later, where the machine cannot.
        """
        self.next = NextGeneration(order, allocation, answer)
        if (trouble := self._context.pause.trouble) is not None:
            raise OSError(trouble.errno, trouble.strerror)
        self.when_running, self._shim.phase = answer, ""
        self._problem = ""
        self.wishes.reset()
        record.parked = False
        self._shim.status = RunStatus(self._shim.status.kind, record)
        copies = order.restore is not None or order.sent is not None
        first = copies and not record.generation
        work = (first and self._context.slow) or self._context.work
        # From here on run.json knows the new generation. The pidfd is open before anything else can
        # reap the child.
        pid, pidfd = await work(self._context.launcher.launch, order, record, allocation)
        self._shim.status = RunStatus("alive", record)
        self._shim.hold(pidfd, pid)
        self._begun, self.next = self.next, None
        move = self._context.launcher.limits.move
        self._moving = self._context.work(move, record.cgroup, pid)
        await self.enrol(up=False)

    async def replace(self, order: RunOrder, allocation: Allocation, answer: Answer) -> None:
        """End this generation as kindly as the job allows, then start the next.

        The intent is on disk before the signal: if the server dies in between, the next one sees
        an end that is to be followed by a start, not the end of the run.
        """
        self.next = NextGeneration(order, allocation, answer)
        self.when_running = None
        await self.intend("resize")
        self._shim.signal(signal.SIGTERM)

    async def stop(self) -> None:
        """End the run for good.

        Here the signal goes first: a full disk must not keep a run from being stopped. The journal
        knows of the stop, so the next server orders it again if this one dies in between.
        """
        status, self.next = self._shim.status, None
        if status.kind == "nothing":
            self._context.report(Ended(self._context.clock(), self._run, (), "stopped"))
        elif status.kind == "alive":
            self._shim.signal(signal.SIGTERM)
            # A shim that somebody stopped would hear of it never, and keep its devices.
            self._shim.signal(signal.SIGCONT)
            await self.intend("")
        elif status.kind in {"parked", "between"}:
            if status.end is None or run_status.short_of(status):
                await self.fail("stopped", "")
                return
            await self.intend("")
            await self._shim.look()
            await self.tell()
        else:
            await self.tell()

    async def fail(self, cause: Ending, detail: str) -> None:
        """End a run without a shim that could say so."""
        end = await self._shim.surely(run_status.conclude, self._run, cause, detail)
        self._shim.status = RunStatus("over", self._shim.status.record, None, end)
        await self.tell()

    async def intend(self, intent: Intent) -> None:
        """Write down what the end of this generation is for."""
        record = self._shim.status.record
        if record is not None and record.intent != intent:
            record.intent = intent
            await self._context.work(run_status.save, self._context.runs, record)

    async def ended(self) -> None:
        """The shim has ended: start what is next, or report what became of the run."""
        # The devices are given back before the folder is looked at: the report of the end lets the
        # core give them to another run.
        self.let_go()
        if self._moving is not None:
            await self._moving
        await self._shim.remove_containers()
        self._problem = self._problem or self.parking.problem()
        self._beside = self.parking.beside()
        await self.parking.end()
        await self._shim.look()
        status = self._shim.status
        if (short := run_status.short_of(status)) is not None:
            self.next = self.next or self._begun
            raise short
        if status.kind == "between" and self.next and status.record:
            self.hindrance = self.hindrance or str((status.end or {}).get("detail", ""))
            await self.go_on()
        elif status.kind == "nothing" or (status.kind == "between" and status.end is None):
            words = await self._shim.surely(run_status.last_words, self._run)
            if status.record and (short := run_status.short_by(words)) is not None:
                self.next = self.next or self._begun
                raise short
            await self.fail("never-started" if words else "lost", words or "its shim was killed")
        elif status.kind != "alive":
            await self.tell(self.took_s())

    async def go_on(self) -> None:
        """Begin what is next, if it is still wanted; raises as ``begin`` does."""
        record = self._shim.status.record
        if self.next is not None and record is not None:
            order, allocation, answer = self.next
            await self.begin(order, record, allocation, answer)

    def let_go(self) -> None:
        """Stop watching; the run goes on."""
        self._shim.let_go()
        self.wishes.give_up()

    async def tell(self, took_s: float | None = None) -> None:
        """Report what is true, and before that what the job said last of itself.

        ``took_s`` is for what has just become true.
        """
        words = await self._shim.surely(run_status.told, self._run)
        status, now = self._shim.status, self._context.clock()
        kind, phase = status.kind, self._shim.phase
        if words and kind != "nothing":
            self._context.report(progress_report(now, self._run, words))
        if kind == "over" and status.end is not None:
            self._context.runs.unmark(self._run)
            ended = run_status.ended(self._run, status.end, now)
            detail = "; ".join(filter(None, (self._problem, ended.detail)))
            failed = ended.cause == "exit" and any(one.code != 0 for one in ended.exits)
            problem = self._problem or (self._beside if failed else "")
            self._context.report(replace(ended, detail=detail, problem=problem))
        elif kind == "parked" or (kind == "alive" and phase == "frozen"):
            kept = 0.0 if kind == "parked" else math.inf
            self._context.report(Suspended(now, self._run, kept, took_s, self.hindered()))
        elif kind == "alive" and phase == "running":
            self._context.report(Started(now, self._run, took_s))
        elif kind == "alive":
            self.when_running = self.when_running or Started
        if kind == "alive" and status.record and status.record.shrank:
            self.tell_shrank(status.record)

    def tell_shrank(self, record: RunRecord) -> None:
        """Report what a run holds after it lost workers."""
        held = Allocation(record.parts)
        self._context.report(Shrank(self._context.clock(), self._run, held, record.shrank))

    async def enrol(self, *, up: bool = True) -> None:
        """Have limits and slices held; a run whose limits cannot be held is stopped.

        Before its workers are ``up`` there is no process to hold, but what serves it has to stay.
        """
        record = self._shim.status.record
        if record is None or not self.parking.concerns(record):
            return
        start = await self._shim.surely(run_status.started, self._run) if up else None
        workers = start.get("workers") if start else None
        try:
            await self.parking.enrol(record, workers if isinstance(workers, dict) else {})
        except (RoostError, OSError, ValueError, TypeError) as error:
            self._problem = f"its share of the GPU cannot be held: {why(error)}"
            _log.warning("run %s: %s", self._run, self._problem)
            await self.stop()

    async def hinder(self, record: RunRecord, why: str) -> bool:
        """Note what keeps processes from going on; returns whether there is a checkpoint."""
        saved = await self._context.work(run_status.has_saved, self._context.runs, record)
        self.hindrance = why if saved else f"{why}; {NOTHING_SAVED}"
        return saved

    async def lose(self, why: str) -> None:
        """End a run that was suspended and cannot go on: its state is gone."""
        self._problem = f"it could not be brought back to its GPU: {why}"
        await self.stop()

    def hindered(self) -> str:
        """What came in the way of the gentler course; told once."""
        found, self.hindrance = self.hindrance, ""
        return found

    def took_s(self) -> float | None:
        """Seconds since the order, if there was one."""
        return max(uptime() - self.asked_at, 0.0) if self.asked_at < math.inf else None

    def same_workers(self, allocation: Allocation) -> bool:
        """Whether an allocation has as many workers of each role as the run has now."""
        now = self._shim.status.record.seats if self._shim.status.record else ()
        wanted = Counter(seat.role for seat in seats(allocation))
        return wanted == Counter(seat.role for seat in now)


def progress_report(now: float, run: RunId, words: object) -> ProgressReport:
    """What a job says of itself, as far as it may."""
    # It may come from the job itself, where that shares the server's account.
    return ProgressReport(now, run, **checked(words))  # type: ignore[arg-type]


def uptime() -> float:
    """Seconds since boot: they go on whatever happens to clocks and servers."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
