"""One run in the engine's care: orders come in one after the other, what becomes of them goes out.

The folder says what is true (``run_status``); a keeper holds what is under way: what to report once
the workers are up or frozen, and what to start once this generation has ended. It lives as long as
its run has a process; after that, the folder is enough.

A resize is first asked of the shim, which changes the members of a job that can do that while it
runs and ends the generation otherwise: then the next one starts with what was wanted. Both are
written down as one intent before the shim hears of it, so whoever is killed, the next server finds
either the old size, the new one, or an end that is to be followed by a start.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

from roost.core.actions import Launch, Migrate, Resize, Resume, Stop, Suspend
from roost.core.allocation import Allocation
from roost.core.events import Resized, Started, Suspended
from roost.core.spec import RunId
from roost.engines import Order, Stuck
from roost.engines.local import run_status
from roost.engines.local.generations import Generations, NextGeneration, told, uptime
from roost.engines.local.run_record import MemberWish, RunRecord, needs_of
from roost.engines.local.seating import can_change, without_lost
from roost.engines.local.shim_handle import GONE, EngineContext, Message, SaveRequest, is_ours, why
from roost.engines.seating import Seating
from roost.errors import RoostError
from roost.failpoints import hit

_log = logging.getLogger(__name__)
#: How long a job may take to leave its GPU by itself, or to come back, before it is made to.
_OFFLOAD_S = 10.0


class Keeper(Generations):
    """Takes care of one run."""

    def __init__(self, run: RunId, care: EngineContext, within_s: float = math.inf) -> None:
        super().__init__(run, care, within_s)
        self._when_frozen = False
        self._returning: NextGeneration | None = None

    async def live(self, *, adopt: bool) -> None:
        """See what is true, then obey until nothing is alive.

        Raises what kept it from looking for so long that it is to give up.
        """
        if adopt:
            hit("adopt.before")
        await self._look()
        await self._catch_up()
        if adopt:
            await self._tell()
            hit("adopt.after")
        self._is_ready()
        while self.found.kind == "alive" or not self.idle:
            message = await self._message()
            try:
                await self._handle(message)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run must have an end
                _log.warning("run %s: %s", self.run, why(error), exc_info=is_ours(error))
                if self.found.kind not in {"alive", "over"}:
                    await self._fail("never-started", why(error))

    async def _handle(self, message: Message) -> None:
        if isinstance(message, Order):
            await self._obey(message)
        elif isinstance(message, SaveRequest):
            await self._save(message)
        elif message == GONE:
            await self._gone()
        elif isinstance(message, Mapping) and self._is_current(message):
            await self._hear(message)

    async def _obey(self, order: Order) -> None:
        action, self._asked_at, self._hindrance = order.action, uptime(), ""
        match action:
            case Launch():
                await self._launch(order, action)
            case Stop():
                await self._stop()
            case Suspend():
                await self._suspend(order)
            case Resume():
                await self._resume(order, action.allocation)
            case Resize() | Migrate():
                await self._resize(order, action.allocation)
            case _:
                assert_never(action)

    async def _launch(self, order: Order, action: Launch) -> None:
        if self.found.kind != "nothing":
            await self._tell()
            return
        state = self.found.state or RunRecord(self.run, secrets.token_hex(8))
        state.needs = needs_of(action.spec)
        state.least, state.most = action.spec.workers
        await self._begin(order, state, action.allocation, Started)

    async def _suspend(self, order: Order) -> None:
        if self.found.kind == "between":
            await self._want("suspend")
            await self._look()
        state = self.found.state
        if self.found.kind != "alive" or self._phase == "frozen" or state is None:
            await self._tell()
        elif await self._can_freeze(order, state):
            self._when_frozen = True
            self._signal(signal.SIGUSR1)
        else:
            self._next = None
            await self._want("suspend")
            self._signal(signal.SIGTERM)

    async def _resume(self, order: Order, allocation: Allocation) -> None:
        state = self.found.state
        if self.found.kind == "alive" and self._phase == "frozen" and state:
            if self._same_gang(allocation):
                await self._thaw(order, allocation, state)
            else:
                await self._replace(order, allocation, Started)
        elif self.found.kind == "alive" and state and state.parked:
            self._returning = NextGeneration(order, allocation, Started)
            await self._return(state)
        elif self.found.kind in {"parked", "between"} and state:
            await self._begin(order, state, allocation, Started)
        else:
            await self._tell()

    async def _resize(self, order: Order, allocation: Allocation) -> None:
        state = self.found.state
        if self.found.kind == "alive" and state:
            if state.wish and state.wish.parts == allocation.parts:
                await self._change(order, allocation, state, state.wish)
            elif state.parts != allocation.parts or state.intent:
                await self._alter(order, allocation, state)
            elif self._phase == "running":
                self._care.report(self._as_told(state))
            else:
                self._when_running = Resized
        elif self.found.kind in {"parked", "between"} and state:
            self._asked_at = state.wish.asked_at if state.wish else self._asked_at
            await self._begin(order, state, allocation, Resized)
        else:
            await self._tell()

    async def _alter(self, order: Order, allocation: Allocation, state: RunRecord) -> None:
        """Change the members of a run that is up, or start it anew where that cannot be."""
        settled = self._phase == "running" and not state.intent and not state.wish
        if settled and await self._move(order, allocation, state):
            return
        if not settled or not can_change(state, allocation):
            await self._replace(order, allocation, Resized)
            return
        seating = Seating(state, allocation)
        number, asked_at = state.changes + 1, self._asked_at
        wish = MemberWish(number, allocation.parts, seating.ranks, seating.members, asked_at)
        await self._change(order, allocation, state, wish)

    async def _move(self, order: Order, allocation: Allocation, state: RunRecord) -> bool:
        """Let the driver move processes that know nothing of it to other GPUs; False if it cannot.

        A job that can change its members does that: it goes on while the new ones get ready.
        """
        if self._elastic or not self._same_gang(allocation) or not self._is_movable(order, state):
            return False
        begun = uptime()
        await self._note_parked(state)
        problem = await self._parking.leave(state)
        moved = replace(state, parts=allocation.parts)
        problem = problem or await self._parking.come_back(moved)
        if problem:
            _log.info("run %s starts anew elsewhere: %s", self.run, problem)
            self._hindrance = problem
            return False
        state.parts, state.parked = allocation.parts, False
        await self._settle(state)
        stood = uptime() - begun
        self._care.report(Resized(self._care.clock(), self.run, self._took(), stood))
        return True

    def _is_movable(self, order: Order, state: RunRecord) -> bool:
        """Whether the driver can take a run off its GPUs while its processes live on."""
        freezes = order.program is None or order.program.suspend == "freeze"
        theirs = self._parking.concerns(state) and not self._parking.stays(state)
        return freezes and theirs and self._care.launcher.machine.real

    async def _note_parked(self, state: RunRecord) -> None:
        """Write down that a run is about to leave its devices."""
        state.parked = True
        await self._care.work(run_status.save, self._care.runs, state)

    async def _change(
        self, order: Order, allocation: Allocation, state: RunRecord, wish: MemberWish
    ) -> None:
        """Have the shim bring about a wish; if it ends instead, the next generation does."""
        self._next, self._when_running = NextGeneration(order, allocation, Resized), None
        state.wish, state.changes, self._asked_at = wish, wish.number, wish.asked_at
        try:
            seated = await self._care.work(self._care.launcher.wanted, order, state)
        except (RoostError, OSError) as error:
            _log.info("run %s starts anew: %s", self.run, why(error))
            self._hindrance = why(error)
            await self._replace(order, allocation, Resized)
            return
        hit("resize.before-wanted")
        state.intent = "resize"
        await self._care.work(run_status.save, self._care.runs, state)
        try:
            await self._care.work(self._care.launcher.want, state, seated)
        except (OSError, ValueError) as error:  # no room for it: the old way needs none
            _log.info("run %s starts anew: %s", self.run, why(error))
            self._hindrance = why(error)
            self._signal(signal.SIGTERM)
            return
        hit("resize.after-wanted")
        self._signal(signal.SIGHUP)
        hit("resize.after-signal")

    async def _changed(self, answer: object) -> None:
        """The shim says that a wish has come true."""
        state = self.found.state
        wish = state.wish if state else None
        members = _ids(answer)
        if not isinstance(answer, dict) or state is None or wish is None:
            return
        if answer.get("number") != wish.number or len(members) != len(wish.members):
            return
        state.parts, state.ranks, state.members = wish.parts, wish.ranks, members
        state.wish, state.intent, state.shrank = None, "", ""
        self._next = None
        await self._settle(state)
        hit("resize.before-answer")
        took = max(uptime() - wish.asked_at, 0.0)
        self._care.report(Resized(self._care.clock(), self.run, took, _seconds(answer, "pause_s")))

    def _as_told(self, state: RunRecord) -> Resized:
        """The answer to an order that was carried out, for whom the first one did not reach."""
        answer = self.found.start.get("change") if self.found.start else None
        if not isinstance(answer, dict) or answer.get("number") != state.changes:
            return Resized(self._care.clock(), self.run)
        took, pause = _seconds(answer, "took_s"), _seconds(answer, "pause_s")
        return Resized(self._care.clock(), self.run, took, pause)

    async def _lost(self, members: tuple[str, ...], reason: str) -> None:
        """The shim says that workers are gone and the others go on."""
        state = self.found.state
        if state is None or state.wish or state.intent or not members:
            return
        if len(members) >= len(state.members) or not set(members) <= set(state.members):
            return
        state.parts, state.ranks = without_lost(state, members)
        state.members, state.shrank = members, reason[:500] or "workers were lost"
        await self._settle(state)
        self._tell_shrank(state)

    async def _settle(self, state: RunRecord) -> None:
        """Write down who is where now, and have their limits held."""
        state.cpus = self._care.launcher.pins(state)
        await self._surely(run_status.save, state)
        await self._enrol()

    async def _catch_up(self) -> None:
        """Learn what the shim did while nobody listened."""
        start, state = self.found.start, self.found.state
        if self.found.kind != "alive" or start is None or state is None:
            return
        self._elastic = start.get("elastic") is True
        await self._changed(start.get("change"))
        if not state.wish:
            lost = start.get("lost")
            reason = str(lost.get("why", "")) if isinstance(lost, dict) else ""
            await self._lost(_ids(start), reason)
        await self._enrol(up=self._phase in {"running", "frozen"})

    async def _can_freeze(self, order: Order, state: RunRecord) -> bool:
        """Take a run off its devices as far as need be; False if it has to be stopped for that."""
        freezes = order.program is None or order.program.suspend == "freeze"
        if not freezes or state.wish or state.intent:
            return False
        if self._parking.concerns(state) and not self._parking.stays(state):
            await self._note_parked(state)
            if self._care.launcher.machine.real:
                await self._offload(state, out=True)
        problem = await self._parking.leave(state)
        if problem:
            _log.info("run %s is stopped to suspend it: %s", self.run, problem)
            self._hindrance = problem
        return not problem

    async def _thaw(self, order: Order, allocation: Allocation, state: RunRecord) -> None:
        state.parts = allocation.parts
        state.cpus = self._care.launcher.pins(state)
        await self._care.work(run_status.save, self._care.runs, state)
        if state.parked:
            self._returning = NextGeneration(order, allocation, Started)
        self._when_running, self._when_frozen = Started, False
        self._signal(signal.SIGUSR2)

    async def _return(self, state: RunRecord) -> None:
        """Put a run that was parked back on its devices; then it has started."""
        back, self._returning = self._returning, None
        if back is None:
            return
        problem = await self._parking.come_back(state)
        if not problem and not await self._offload(state, out=False):
            problem = "it cannot be told to return to its GPU"
        if problem:
            _log.info("run %s starts anew: %s", self.run, problem)
            self._hindrance = problem
            await self._replace(*back)
            return
        state.parked = False
        await self._care.work(run_status.save, self._care.runs, state)
        self._when_running = None
        self._care.report(Started(self._care.clock(), self.run, self._took()))

    async def _offload(self, state: RunRecord, *, out: bool) -> bool:
        """Have a job that can do that move its state off the GPU, or back; wait a little for it.

        Nobody waits for one to come back that did not say it had left. False if it cannot even be
        asked.
        """
        if not self._elastic:
            return True
        number = await self._ask_job(state, "offload", wanted=out)
        if number is None:
            return False
        self._signal(signal.SIGHUP)
        answers = out or self._offloaded == number - 1
        deadline = time.monotonic() + (_OFFLOAD_S if answers else 0.0)
        while self._offloaded < number and (left := deadline - time.monotonic()) > 0:
            try:
                message = await asyncio.wait_for(self.inbox.get(), left)
            except TimeoutError:
                break
            if not isinstance(message, Mapping):
                self._later.append(message)
                break
            if self._is_current(message):
                await self._hear(message)
        return True

    async def _hear(self, hint: Mapping[str, Any]) -> None:
        """A word of the shim."""
        match hint:
            case {"told": words}:
                self._care.report(told(self._care.clock(), self.run, words))
            case {"stuck": [*pids]} if all(isinstance(pid, int) for pid in pids):
                self._care.report(Stuck(self._care.clock(), self.run, tuple(pids)))
            case {"change": answer}:
                await self._changed(answer)
            case {"lost": {"why": str(reason)} as lost}:
                await self._lost(_ids(lost), reason)
            case {"saved_for": int(number)}:
                self._has_saved(number, done=True)
            case {"offloaded": int(number)}:
                self._offloaded = number
            case {"elastic": True}:
                self._elastic = True
            case {"phase": str(phase)}:
                self._phase = phase
                await self._on_phase()

    async def _on_phase(self) -> None:
        state, now = self.found.state, self._care.clock()
        if self._phase == "running" and self._when_running and state:
            if self._returning:
                await self._return(state)
                return
            await self._enrol()
            answer, self._when_running = self._when_running, None
            took = self._took()
            if answer is Resized:  # by a new generation: it stood still all the while
                self._care.report(Resized(now, self.run, took, took, self._hindered()))
            else:
                self._care.report(Started(now, self.run, took, self._hindered()))
        elif self._phase == "frozen" and self._when_frozen:
            self._when_frozen = False
            self._care.report(Suspended(now, self.run, math.inf, self._took()))


def _seconds(answer: Mapping[str, Any], name: str) -> float | None:
    found = answer.get(name)
    return float(found) if isinstance(found, int | float) and found >= 0 else None


def _ids(body: object) -> tuple[str, ...]:
    """The members that a record of the shim names; it may have been spoilt."""
    found = body.get("members") if isinstance(body, dict) else None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        return ()
    return tuple(found)
