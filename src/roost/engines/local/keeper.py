"""One run in the engine's care: orders come in one after the other, what becomes of them goes out.

The folder says what is true (``run_status``); a keeper holds what is under way: what to report once
the workers are up or frozen, and what to start once this generation has ended.

A resize is first asked of the shim, which changes the members of a job that can do that while it
runs and ends the generation otherwise: then the next one starts with what was wanted. Both are
written down as one intent before the shim hears of it. So after a crash of either process the next
server finds the old size, the new one, or an end that is to be followed by a start.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import signal
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, assert_never

from roost.core.actions import Launch, Migrate, Resize, Resume, Stop, Suspend
from roost.core.allocation import Allocation
from roost.core.events import Resized, Started, Suspended
from roost.core.spec import RunId
from roost.engines import Delayed, RunOrder, Stuck
from roost.engines.local import containers, run_status
from roost.engines.local.generations import Generations, NextGeneration, progress_report, uptime
from roost.engines.local.job_wishes import SaveRequest
from roost.engines.local.launch_pause import TRIES, Trouble, delay_s, words
from roost.engines.local.launcher import launch_bytes
from roost.engines.local.run_record import MemberWish, RunRecord, needs_of
from roost.engines.local.run_status import RunStatus
from roost.engines.local.seating import can_change, without_lost
from roost.engines.local.shim_handle import EngineContext, ShimHandle, is_ours, why
from roost.engines.local.usage_sampler import SampledRun
from roost.engines.seating import Seating
from roost.errors import Retryable, RoostError
from roost.failpoints import hit

_log = logging.getLogger(__name__)
#: How long a job may take to leave its GPU by itself, or to come back, before it is made to.
_OFFLOAD_S = 10.0


class Restraint(NamedTuple):
    """Why no more output of a run is kept, if that is so, and whether it has to end."""

    why: str
    ends: bool


#: What a keeper is told: an order, a request, a restraint, a datagram of its shim, or one of two
#: words: the shim is gone; what the machine could not do may be tried again.
Message = RunOrder | SaveRequest | Restraint | Mapping[str, Any] | str
_GONE, _AGAIN = "gone", "again"


class Keeper:
    """Takes care of one run, in one task of the engine's loop.

    1. It looks into the folder (``ShimHandle.look``). If a shim lives, it holds it by a pidfd; if
       one was lost, it kills what is left and writes down the end.
    2. It catches up: a change or a loss of members that the shim finished while no server listened
       is read from ``start.json`` and reported.
    3. Messages come in through ``inbox``, one after the other: orders of the driver, datagrams of
       the shim, and the news that the shim has ended. The engine puts them there on the same loop.
    4. An order is written to ``run.json`` before the shim gets a signal about it; the shim answers
       with a datagram, and the answer is reported. A report is made once its cause is on disk.
    5. When the shim has ended, the folder says what that means: the next generation begins, or the
       run is parked, or it is over and that is reported.
    6. The keeper ends when nothing is alive and no message is left. The folder is enough then.
    """

    def __init__(self, run: RunId, context: EngineContext, within_s: float = math.inf) -> None:
        self.run, self._context = run, context
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        #: Messages that came while an answer was waited for; they are next.
        self._postponed: deque[Message] = deque()
        self._shim = ShimHandle(run, context, lambda: self.inbox.put_nowait(_GONE), within_s)
        self._generations = Generations(run, context, self._shim)
        self._wishes, self._parking = self._generations.wishes, self._generations.parking
        self._when_frozen = False
        self._returning: NextGeneration | None = None
        #: What is to be tried again once the machine can do it, and how often it was.
        self._held: Message | None = None
        self._tries = 0
        #: What ended the keeper, if that was no end of the run.
        self.error: Exception | None = None

    @property
    def ready(self) -> asyncio.Event:
        """Set once the run is known, or can be left alone."""
        return self._shim.ready

    @property
    def status(self) -> RunStatus:
        """What was last seen of the run."""
        return self._shim.status

    @property
    def pid(self) -> int:
        """The number of its shim; 0 if there was none."""
        return self._shim.pid

    @property
    def idle(self) -> bool:
        """Whether every message was dealt with."""
        return not self._postponed and self.inbox.empty()

    @property
    def cgroup(self) -> str:
        """Where its processes are kept together, if anywhere."""
        return self.status.record.cgroup if self.status.record else ""

    @property
    def sampled(self) -> SampledRun | None:
        """Where it runs, while it does."""
        record = self.status.record
        up = self._shim.phase == "running" and self.pid and record is not None
        return SampledRun(self.pid, record) if up and record is not None else None

    def let_go(self) -> None:
        """Stop watching; the run goes on."""
        self._generations.let_go()

    async def save(self, within_s: float) -> bool:
        """Have the job save itself now; False if it cannot, or takes too long."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.inbox.put_nowait(SaveRequest(done))
        finished, _ = await asyncio.wait([done], timeout=within_s)
        return bool(finished) and done.result()

    async def live(self, *, adopt: bool) -> None:
        """See what is true, then obey until nothing is alive.

        Raises what kept it from looking for so long that it is to give up.
        """
        if adopt:
            hit("adopt.before")
        await self._shim.look()
        await self._catch_up()
        if adopt:
            await self._generations.tell()
            hit("adopt.after")
        self._shim.mark_ready()
        while self._shim.status.kind == "alive" or not self.idle or self._held is not None:
            message = self._postponed.popleft() if self._postponed else await self.inbox.get()
            try:
                await self._handle(message)
            except (OSError, Retryable) as trouble:
                await self._hold(message, trouble)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run must have an end
                _log.warning("run %s: %s", self.run, why(error), exc_info=is_ours(error))
                if self._shim.status.kind not in {"alive", "over"}:
                    await self._generations.fail("never-started", why(error))

    async def _hold(self, message: Message, trouble: Trouble) -> None:
        """Keep what the machine could not do, until it can: that is no fault of the job.

        An order that comes meanwhile replaces the one that is held.
        """
        _log.warning("run %s: %s", self.run, why(trouble))
        waits = self._shim.status.kind not in {"alive", "over"}
        if self._tries > TRIES and waits:
            await self._generations.fail("never-started", f"Trouble: {why(trouble)}")
        if self._tries > TRIES or not (waits or isinstance(message, RunOrder | str)):
            self._tries = 0
            return
        if waits:
            await self._shim.look()
            self._context.report(Delayed(self._context.clock(), self.run, words(trouble)))
        self._held = message
        record = self._shim.status.record
        workers = max(len(record.seats), 2 * record.most) if record else 0
        self._context.pause.hold(self._released, launch_bytes(workers))

    def _released(self, paused: bool) -> None:  # noqa: FBT001 - what a pause tells
        """The machine works. If it did all the while, the trouble is of this run alone."""
        self._tries = 0 if paused else self._tries + 1
        again_s = 0.0 if paused else delay_s(self._tries)
        asyncio.get_running_loop().call_later(again_s, self.inbox.put_nowait, _AGAIN)

    async def _handle(self, message: Message) -> None:
        if isinstance(message, RunOrder):
            self._held = None
            await self._obey(message)
        elif message == _AGAIN:
            held, self._held = self._held, None
            if isinstance(held, RunOrder):
                await self._obey(held)
            elif held is not None and self._shim.status.kind == "alive":
                await self._generations.ended()
            elif held is not None:
                await self._generations.go_on()
        elif isinstance(message, SaveRequest):
            await self._wishes.save(message)
        elif isinstance(message, Restraint):
            await self._restrain(message)
        elif message == _GONE:
            await self._generations.ended()
        elif isinstance(message, Mapping) and self._shim.is_current(message):
            await self._hear(message)

    async def _restrain(self, told: Restraint) -> None:
        """Write a restraint down, and have the shim look, unless it is in force already."""
        record = self._shim.status.record
        if self._shim.status.kind != "alive" or record is None:
            return
        if told != (record.restraint, record.restraint_ends):
            record.restraint, record.restraint_ends = told
            await self._shim.surely(run_status.save, record)
            self._shim.signal(signal.SIGHUP)

    async def _obey(self, order: RunOrder) -> None:
        action, self._generations.asked_at, self._generations.hindrance = order.action, uptime(), ""
        match action:
            case Launch():
                await self._launch(order, action)
            case Stop():
                await self._generations.stop()
            case Suspend():
                await self._suspend(order)
            case Resume():
                await self._resume(order, action.allocation)
            case Resize() | Migrate():
                await self._resize(order, action.allocation)
            case _:
                assert_never(action)

    async def _launch(self, order: RunOrder, action: Launch) -> None:
        if self._shim.status.kind != "nothing":
            await self._generations.tell()
            return
        record = self._shim.status.record or RunRecord(self.run, secrets.token_hex(8))
        record.needs = needs_of(action.spec)
        record.least, record.most = action.spec.workers
        await self._generations.begin(order, record, action.allocation, Started)

    async def _suspend(self, order: RunOrder) -> None:
        if self._shim.status.kind == "between":
            await self._generations.intend("suspend")
            await self._shim.look()
        record = self._shim.status.record
        if self._shim.status.kind != "alive" or self._shim.phase == "frozen" or record is None:
            await self._generations.tell()
        elif await self._can_freeze(order, record):
            # It is off its devices already, so a freeze cannot keep a neighbour from them.
            self._when_frozen = True
            self._shim.signal(signal.SIGUSR1)
        else:
            self._generations.next = None
            # Written down before the signal: when the shim has ended, only run.json tells a run
            # that is parked from one that is over.
            await self._generations.intend("suspend")
            self._shim.signal(signal.SIGTERM)

    async def _resume(self, order: RunOrder, allocation: Allocation) -> None:
        record = self._shim.status.record
        if self._shim.status.kind == "alive" and self._shim.phase == "frozen" and record:
            if self._generations.same_workers(allocation):
                await self._thaw(order, allocation, record)
            else:
                await self._generations.replace(order, allocation, Started)
        elif self._shim.status.kind == "alive" and record and record.parked:
            self._returning = NextGeneration(order, allocation, Started)
            await self._return(record)
        elif self._shim.status.kind in {"parked", "between"} and record:
            await self._generations.begin(order, record, allocation, Started)
        else:
            await self._generations.tell()

    async def _resize(self, order: RunOrder, allocation: Allocation) -> None:
        record = self._shim.status.record
        if self._shim.status.kind == "alive" and record:
            if record.wish and record.wish.parts == allocation.parts:
                await self._change(order, allocation, record, record.wish)
            elif record.parts != allocation.parts or record.intent:
                await self._alter(order, allocation, record)
            elif self._shim.phase == "running":
                self._context.report(self._as_told(record))
            else:
                self._generations.when_running = Resized
        elif self._shim.status.kind in {"parked", "between"} and record:
            if record.wish:  # it was asked for while the last generation ran
                self._generations.asked_at = record.wish.asked_at
            await self._generations.begin(order, record, allocation, Resized)
        else:
            await self._generations.tell()

    async def _alter(self, order: RunOrder, allocation: Allocation, record: RunRecord) -> None:
        """Change the members of a run that is up, or start it anew where that cannot be."""
        settled = self._shim.phase == "running" and not record.intent and not record.wish
        if settled and await self._move(order, allocation, record):
            return
        if not settled or not can_change(record, allocation):
            await self._generations.replace(order, allocation, Resized)
            return
        seating = Seating(record, allocation)
        number, asked_at = record.changes + 1, self._generations.asked_at
        wish = MemberWish(number, allocation.parts, seating.ranks, seating.members, asked_at)
        await self._change(order, allocation, record, wish)

    async def _move(self, order: RunOrder, allocation: Allocation, record: RunRecord) -> bool:
        """Let the driver move processes that know nothing of it to other GPUs; False if it cannot.

        A job that can change its members does that: it goes on while the new ones get ready.
        """
        same = self._generations.same_workers(allocation)
        if self._wishes.elastic or not same or not self._is_movable(order, record):
            return False
        begun = uptime()
        await self._note_parked(record)
        problem = await self._parking.leave(record)
        moved = replace(record, parts=allocation.parts)
        problem = problem or await self._parking.come_back(moved)
        if problem:
            _log.info("run %s starts anew elsewhere: %s", self.run, problem)
            await self._generations.hinder(record, problem)
            return False
        record.parts, record.parked = allocation.parts, False
        await self._settle(record)
        stood = uptime() - begun
        self._context.report(
            Resized(self._context.clock(), self.run, self._generations.took_s(), stood)
        )
        return True

    def _is_movable(self, order: RunOrder, record: RunRecord) -> bool:
        """Whether the driver can take a run off its GPUs while its processes live on."""
        freezes = order.program is None or order.program.suspend == "freeze"
        theirs = self._parking.concerns(record) and not self._parking.stays(record)
        return freezes and theirs and self._context.launcher.machine.real

    async def _note_parked(self, record: RunRecord) -> None:
        """Write down that a run is about to leave its devices, before it does.

        A server that dies meanwhile leaves a run that its successor brings back.
        """
        record.parked = True
        await self._context.work(run_status.save, self._context.runs, record)

    async def _change(
        self, order: RunOrder, allocation: Allocation, record: RunRecord, wish: MemberWish
    ) -> None:
        """Have the shim bring about a wish; if it ends instead, the next generation does."""
        generations = self._generations
        generations.next = NextGeneration(order, allocation, Resized)
        generations.when_running = None
        record.wish, record.changes, generations.asked_at = wish, wish.number, wish.asked_at
        try:
            seated = await self._context.work(self._context.launcher.wanted, order, record)
        except (RoostError, OSError) as error:
            _log.info("run %s starts anew: %s", self.run, why(error))
            self._generations.hindrance = why(error)
            await self._generations.replace(order, allocation, Resized)
            return
        hit("resize.before-wanted")
        # run.json, then wanted.json, then the signal. If the server dies in between, the next one
        # knows that a change is under way, and gives the same wish again: its number tells the shim
        # whether it knows it already.
        record.intent = "resize"
        await self._context.work(run_status.save, self._context.runs, record)
        try:
            await self._context.work(self._context.launcher.want, record, seated)
        except (OSError, ValueError) as error:  # no room for it: the old way needs none
            _log.info("run %s starts anew: %s", self.run, why(error))
            self._generations.hindrance = why(error)
            self._shim.signal(signal.SIGTERM)
            return
        hit("resize.after-wanted")
        self._shim.signal(signal.SIGHUP)
        hit("resize.after-signal")

    async def _changed(self, answer: object) -> None:
        """The shim says that a wish has come true."""
        record = self._shim.status.record
        wish = record.wish if record else None
        members = _ids(answer)
        if not isinstance(answer, dict) or record is None or wish is None:
            return
        if answer.get("number") != wish.number or len(members) != len(wish.members):
            return
        record.parts, record.ranks, record.members = wish.parts, wish.ranks, members
        record.wish, record.intent, record.shrank = None, "", ""
        self._generations.next = None
        # On disk before it is reported: the journal must not know more than the folder.
        await self._settle(record)
        hit("resize.before-answer")
        took = max(uptime() - wish.asked_at, 0.0)
        self._context.report(
            Resized(self._context.clock(), self.run, took, _seconds(answer, "pause_s"))
        )

    def _as_told(self, record: RunRecord) -> Resized:
        """The answer to an order that was carried out, given again: the first may be lost."""
        answer = self._shim.status.start.get("change") if self._shim.status.start else None
        if not isinstance(answer, dict) or answer.get("number") != record.changes:
            return Resized(self._context.clock(), self.run)
        took, pause = _seconds(answer, "took_s"), _seconds(answer, "pause_s")
        return Resized(self._context.clock(), self.run, took, pause)

    async def _lost(self, members: tuple[str, ...], reason: str) -> None:
        """The shim says that workers are gone and the others go on."""
        record = self._shim.status.record
        if record is None or record.wish or record.intent or not members:
            return
        if len(members) >= len(record.members) or not set(members) <= set(record.members):
            return
        record.parts, record.ranks = without_lost(record, members)
        record.members, record.shrank = members, reason[:500] or "workers were lost"
        await self._settle(record)
        self._generations.tell_shrank(record)

    async def _settle(self, record: RunRecord) -> None:
        """Write down where each worker is now, and have their limits held."""
        record.cpus = self._context.launcher.pins(record)
        await self._shim.surely(run_status.save, record)
        await self._generations.enrol()

    async def _catch_up(self) -> None:
        """Learn what the shim did while no server listened."""
        start, record = self._shim.status.start, self._shim.status.record
        if self._shim.status.kind != "alive" or start is None or record is None:
            return
        self._wishes.elastic = start.get("elastic") is True
        await self._changed(start.get("change"))
        if not record.wish:
            lost = start.get("lost")
            reason = str(lost.get("why", "")) if isinstance(lost, dict) else ""
            await self._lost(_ids(start), reason)
        await self._generations.enrol(up=self._shim.phase in {"running", "frozen"})

    async def _can_freeze(self, order: RunOrder, record: RunRecord) -> bool:
        """Take a run off its devices as far as need be; False if it has to be stopped for that."""
        freezes = order.program is None or order.program.suspend == "freeze"
        ours = not record.container or containers.named(record.container).is_ours
        if not freezes or not ours or record.wish or record.intent:
            return False
        if self._parking.concerns(record) and not self._parking.stays(record):
            await self._note_parked(record)
            if self._context.launcher.machine.real:
                await self._offload(record, out=True)
        problem = await self._parking.leave(record)
        if problem:
            _log.info("run %s is stopped to suspend it: %s", self.run, problem)
            await self._generations.hinder(record, problem)
        return not problem

    async def _thaw(self, order: RunOrder, allocation: Allocation, record: RunRecord) -> None:
        record.parts = allocation.parts
        record.cpus = self._context.launcher.pins(record)
        await self._context.work(run_status.save, self._context.runs, record)
        # Frozen processes cannot be put back on a GPU: first they go on, then they return.
        if record.parked:
            self._returning = NextGeneration(order, allocation, Started)
        self._generations.when_running, self._when_frozen = Started, False
        self._shim.signal(signal.SIGUSR2)

    async def _return(self, record: RunRecord) -> None:
        """Put a run that was parked back on its devices; then it has started."""
        back, self._returning = self._returning, None
        if back is None:
            return
        problem = await self._parking.come_back(record)
        if not problem and not await self._offload(record, out=False):
            problem = "it cannot be told to return to its GPU"
        if problem:
            _log.info("run %s cannot go on where it was: %s", self.run, problem)
            if await self._generations.hinder(record, problem):
                await self._generations.replace(*back)
            else:  # it would start from nothing, and nobody would know
                await self._generations.lose(problem)
            return
        record.parked = False
        await self._context.work(run_status.save, self._context.runs, record)
        self._generations.when_running = None
        self._context.report(Started(self._context.clock(), self.run, self._generations.took_s()))

    async def _offload(self, record: RunRecord, *, out: bool) -> bool:
        """Have a job that can do that move its state off the GPU, or back; wait a little for it.

        A job that did not say it had left is not waited for when it is to come back. False if it
        cannot even be asked.
        """
        if not self._wishes.elastic:
            return True
        number = await self._wishes.ask(record, "offload", wanted=out)
        if number is None:
            return False
        self._shim.signal(signal.SIGHUP)
        answers = out or self._wishes.offloaded == number - 1
        deadline = time.monotonic() + (_OFFLOAD_S if answers else 0.0)
        while self._wishes.offloaded < number and (left := deadline - time.monotonic()) > 0:
            try:
                message = await asyncio.wait_for(self.inbox.get(), left)
            except TimeoutError:
                break
            # An order, or the end of the shim, comes before the answer: it is dealt with next.
            if not isinstance(message, Mapping):
                self._postponed.append(message)
                break
            if self._shim.is_current(message):
                await self._hear(message)
        return True

    async def _hear(self, hint: Mapping[str, Any]) -> None:
        """Take in a datagram of the shim."""
        match hint:
            case {"told": words}:
                self._context.report(progress_report(self._context.clock(), self.run, words))
            case {"stuck": [*pids]} if all(isinstance(pid, int) for pid in pids):
                self._context.report(Stuck(self._context.clock(), self.run, tuple(pids)))
            case {"change": answer}:
                await self._changed(answer)
            case {"lost": {"why": str(reason)} as lost}:
                await self._lost(_ids(lost), reason)
            case {"saved_for": int(number)}:
                self._wishes.saved(number)
            case {"offloaded": int(number)}:
                self._wishes.offloaded = number
            case {"elastic": True}:
                self._wishes.elastic = True
            case {"phase": str(phase)}:
                self._shim.phase = phase
                await self._on_phase()

    async def _on_phase(self) -> None:
        record, now = self._shim.status.record, self._context.clock()
        self._tries = 0
        if self._shim.phase == "running" and self._generations.when_running and record:
            if self._returning:
                await self._return(record)
                return
            await self._generations.enrol()
            answer, self._generations.when_running = self._generations.when_running, None
            took = self._generations.took_s()
            if answer is Resized:  # by a new generation: it stood still all the while
                self._context.report(
                    Resized(now, self.run, took, took, self._generations.hindered())
                )
            else:
                self._context.report(Started(now, self.run, took, self._generations.hindered()))
        elif self._shim.phase == "frozen" and self._when_frozen:
            self._when_frozen = False
            self._context.report(Suspended(now, self.run, math.inf, self._generations.took_s()))


def _seconds(answer: Mapping[str, Any], name: str) -> float | None:
    found = answer.get(name)
    return float(found) if isinstance(found, int | float) and found >= 0 else None


def _ids(body: object) -> tuple[str, ...]:
    """The members that a record of the shim names; it may have been spoilt."""
    found = body.get("members") if isinstance(body, dict) else None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        return ()
    return tuple(found)
