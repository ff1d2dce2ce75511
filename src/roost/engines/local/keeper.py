"""One run in the engine's care: orders come in one after the other, what becomes of them goes out.

The folder says what is true (``examine``); a keeper holds what is under way: the shim's pidfd, what
to report once the workers are up or frozen, and what to start once this generation has ended. It
lives as long as its run has a process; after that, the folder is enough.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, assert_never

from roost.core.actions import Launch, Migrate, Resize, Resume, Stop, Suspend
from roost.core.allocation import Allocation, seats
from roost.core.events import Resized, Started, Suspended
from roost.core.spec import RunId
from roost.engines import Ended, Ending, Order, Report, Stuck, Told
from roost.engines.local import examine, proc
from roost.engines.local.examine import Found
from roost.engines.local.folder import Runs
from roost.engines.local.launch import Launcher
from roost.engines.local.shim.output import checked
from roost.engines.local.state import State, needs_of
from roost.errors import RoostError
from roost.failpoints import hit

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_LOOK_S, _LOOK_MAX_S = 0.005, 0.2
#: How often to try again to kill what does not die.
_STUCK_S, _STUCK_MAX_S = 1.0, 30.0
#: How often to try again to look at a folder that cannot be reached.
_AGAIN_S, _AGAIN_MAX_S = 0.05, 10.0
#: How long a shim may take to say who it is.
_BIRTH_S = 5.0
_GONE = "gone"

#: What a keeper is told: an order, a word of its shim, or that the shim is gone.
Message = Order | Mapping[str, Any] | str


class Work(Protocol):
    """Runs a blocking call elsewhere."""

    def __call__(self, call: Callable[..., _T], *args: object) -> Awaitable[_T]:
        """Await the result of a call."""
        ...


@dataclass(frozen=True, slots=True)
class Care:
    """What all keepers share."""

    report: Callable[[Report], None]
    clock: Callable[[], float]
    runs: Runs
    launcher: Launcher
    work: Work


class Keeper:
    """Takes care of one run."""

    def __init__(self, run: RunId, care: Care, within_s: float = math.inf) -> None:
        self.run, self._care = run, care
        self._give_up_at = time.monotonic() + within_s
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.ready = asyncio.Event()
        self.found = Found("nothing")
        self.error: Exception | None = None
        self.pid = 0
        self._pidfd = -1
        self._phase = ""
        self._when_running: type[Started | Resized] | None = None
        self._when_frozen = False
        self._moving: Awaitable[None] | None = None
        self._next: tuple[Order, Allocation, type[Started | Resized]] | None = None

    @property
    def cgroup(self) -> str:
        """Where its processes are kept together, if anywhere."""
        return self.found.state.cgroup if self.found.state else ""

    async def live(self, *, adopt: bool) -> None:
        """See what is true, then obey until nothing is alive.

        Raises what kept it from looking for so long that it is to give up.
        """
        if adopt:
            hit("adopt.before")
        await self._look()
        if adopt:
            await self._tell()
            hit("adopt.after")
        self._is_ready()
        while self.found.kind == "alive" or not self.inbox.empty():
            message = await self.inbox.get()
            try:
                await self._handle(message)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run must have an end
                _log.warning("run %s: %s", self.run, _why(error), exc_info=_is_ours(error))
                if self.found.kind not in {"alive", "over"}:
                    await self._fail("never-started", _why(error))

    def let_go(self) -> None:
        """Stop watching; the run goes on."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            proc.reap(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    async def _handle(self, message: Message) -> None:
        if isinstance(message, Order):
            await self._obey(message)
        elif message == _GONE:
            await self._gone()
        elif isinstance(message, Mapping) and self._is_current(message):
            self._hear(message)

    async def _obey(self, order: Order) -> None:
        action = order.action
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
        state = self.found.state or State(self.run, secrets.token_hex(8))
        state.needs = needs_of(action.spec)
        await self._begin(order, state, action.allocation, Started)

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

    async def _suspend(self, order: Order) -> None:
        if self.found.kind == "between":
            await self._want("suspend")
            await self._look()
        if self.found.kind != "alive" or self._phase == "frozen":
            await self._tell()
        elif self._freezes(order):
            self._when_frozen = True
            self._signal(signal.SIGUSR1)
        else:
            self._next = None
            await self._want("suspend")
            self._signal(signal.SIGTERM)

    async def _resume(self, order: Order, allocation: Allocation) -> None:
        if self.found.kind == "alive" and self._phase == "frozen":
            if self._same_gang(allocation):
                await self._thaw(allocation)
            else:
                await self._replace(order, allocation, Started)
        elif self.found.kind in {"parked", "between"} and self.found.state:
            await self._begin(order, self.found.state, allocation, Started)
        else:
            await self._tell()

    async def _resize(self, order: Order, allocation: Allocation) -> None:
        state = self.found.state
        if self.found.kind == "alive" and state:
            if state.parts != allocation.parts or state.intent:
                await self._replace(order, allocation, Resized)
            elif self._phase == "running":
                self._care.report(Resized(self._care.clock(), self.run))
            else:
                self._when_running = Resized
        elif self.found.kind in {"parked", "between"} and state:
            await self._begin(order, state, allocation, Resized)
        else:
            await self._tell()

    async def _thaw(self, allocation: Allocation) -> None:
        state = self.found.state
        if state is not None:
            state.parts = allocation.parts
            state.cpus = self._care.launcher.pins(state)
            await self._care.work(examine.save, self._care.runs, state)
        self._when_running, self._when_frozen = Started, False
        self._signal(signal.SIGUSR2)

    async def _replace(
        self, order: Order, allocation: Allocation, answer: type[Started | Resized]
    ) -> None:
        """End this generation as kindly as the job allows, then start the next."""
        self._next = (order, allocation, answer)
        self._when_running = None
        await self._want("resize")
        self._signal(signal.SIGTERM)

    async def _begin(
        self, order: Order, state: State, allocation: Allocation, answer: type[Started | Resized]
    ) -> None:
        self._next, self._phase, self._when_running = None, "", answer
        self.found = Found(self.found.kind, state)
        pid, pidfd = await self._care.work(self._care.launcher.launch, order, state, allocation)
        self.found = Found("alive", state)
        self._watch(pidfd, pid)
        self._moving = self._care.work(self._care.launcher.limits.move, state.cgroup, self.pid)

    async def _fail(self, cause: Ending, detail: str) -> None:
        """The run is over without a shim that could say so."""
        end = await self._surely(examine.conclude, self.run, cause, detail)
        self.found = Found("over", self.found.state, None, end)
        await self._tell()

    async def _want(self, intent: Any) -> None:
        """Write down what the end of this generation is for."""
        state = self.found.state
        if state is not None and state.intent != intent:
            state.intent = intent
            await self._care.work(examine.save, self._care.runs, state)

    async def _gone(self) -> None:
        """The shim has ended."""
        self.let_go()
        if self._moving is not None:
            await self._moving
        await self._look()
        found = self.found
        if found.kind == "between" and self._next and found.state:
            order, allocation, answer = self._next
            await self._begin(order, found.state, allocation, answer)
        elif found.kind == "nothing" or (found.kind == "between" and found.end is None):
            words = await self._surely(examine.last_words, self.run)
            await self._fail("never-started" if words else "lost", words or "its shim was killed")
        elif found.kind != "alive":
            await self._tell()

    async def _look(self) -> None:
        """See what is true; take hold of the shim if one lives, clean up if one was lost."""
        pause, begun = _LOOK_S, time.monotonic()
        while True:
            self.found = await self._surely(examine.examine, self.run)
            if self.found.kind == "lost":
                await self._bury()
                continue
            if self.found.kind != "alive" or self._take_hold():
                return
            # A shim that is being born or about to end: its lock or its record is a moment away.
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LOOK_MAX_S)
            if time.monotonic() - begun > _BIRTH_S and not self.ready.is_set():
                _log.warning("run %s: its shim lives and does not say who it is", self.run)
                self._is_ready()

    def _is_ready(self) -> None:
        """Nobody needs to wait for it any more: it is known, or holds its devices as it did."""
        self._give_up_at = math.inf
        self.ready.set()

    async def _surely(self, call: Callable[..., _T], *args: object) -> _T:
        """The result of a call on the folders, tried until they can be reached.

        What cannot be looked at may well be alive: nothing is said or done until it is known.
        """
        pause = _AGAIN_S
        while True:
            try:
                return await self._care.work(call, self._care.runs, *args)
            except Exception as error:
                hopeless = not isinstance(error, OSError) and self._give_up_at < math.inf
                if hopeless or time.monotonic() + pause > self._give_up_at:
                    raise
                why, ours = _why(error), _is_ours(error)
                _log.warning("run %s: trying again to look: %s", self.run, why, exc_info=ours)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _AGAIN_MAX_S)

    def _take_hold(self) -> bool:
        start = self.found.start
        if start is None:
            return False
        pidfd = proc.hold(start["pid"], start["ticks"], start["boot"])
        if pidfd is None:
            return False
        self._phase = start["phase"]
        self._watch(pidfd, start["pid"])
        return True

    async def _bury(self) -> None:
        """Kill what a lost shim left behind; until it is dead it holds its devices."""
        state, start = self.found.state, self.found.start
        if state is None or start is None:
            return
        if start["boot"] == proc.boot_id():
            traces = proc.Traces(state.token, state.mark, state.cgroup)
            pause = _STUCK_S
            while left := await self._care.work(proc.kill_leftovers, traces):
                self._care.report(Stuck(self._care.clock(), self.run, tuple(left)))
                self._is_ready()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _STUCK_MAX_S)
        detail = (
            "its shim was killed" if start["boot"] == proc.boot_id() else "the machine restarted"
        )
        await self._surely(examine.conclude, self.run, "lost", detail)

    async def _tell(self) -> None:
        """Report what is true, and before that what the job said last of itself."""
        told = await self._surely(examine.told, self.run)
        kind, now = self.found.kind, self._care.clock()
        if told and kind != "nothing":
            self._care.report(_told(now, self.run, told))
        if kind == "over" and self.found.end is not None:
            self._care.runs.unmark(self.run)
            self._care.report(examine.ended(self.run, self.found.end, now))
        elif kind == "parked" or (kind == "alive" and self._phase == "frozen"):
            self._care.report(Suspended(now, self.run, 0.0))
        elif kind == "alive" and self._phase == "running":
            self._care.report(Started(now, self.run))
        elif kind == "alive":
            self._when_running = self._when_running or Started

    def _hear(self, hint: Mapping[str, Any]) -> None:
        """A word of the shim."""
        now = self._care.clock()
        match hint:
            case {"told": words}:
                self._care.report(_told(now, self.run, words))
            case {"stuck": [*pids]} if all(isinstance(pid, int) for pid in pids):
                self._care.report(Stuck(now, self.run, tuple(pids)))
            case {"phase": str(phase)}:
                self._phase = phase
        if self._phase == "running" and self._when_running:
            answer, self._when_running = self._when_running, None
            self._care.report(answer(now, self.run))
        elif self._phase == "frozen" and self._when_frozen:
            self._when_frozen = False
            self._care.report(Suspended(now, self.run, 0.0))

    def _is_current(self, hint: Mapping[str, Any]) -> bool:
        """Whether it is this generation that speaks, not what is still underway of the last."""
        state = self.found.state
        told = hint.get("token"), hint.get("generation")
        return state is not None and told == (state.token, state.generation)

    def _freezes(self, order: Order) -> bool:
        wanted = order.program is None or order.program.suspend == "freeze"
        return wanted and not self._care.launcher.machine.real

    def _same_gang(self, allocation: Allocation) -> bool:
        now = self.found.state.seats if self.found.state else ()
        return Counter(seat.role for seat in seats(allocation)) == Counter(
            seat.role for seat in now
        )

    def _watch(self, pidfd: int, pid: int) -> None:
        self.let_go()
        self._pidfd, self.pid = pidfd, pid
        loop = asyncio.get_running_loop()
        loop.add_reader(pidfd, self._notice)

    def _notice(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.inbox.put_nowait(_GONE)

    def _signal(self, number: int) -> None:
        if self._pidfd >= 0:
            proc.send(self._pidfd, number)


def _told(now: float, run: RunId, words: object) -> Told:
    # It may come from the job itself, where that shares the server's account.
    return Told(now, run, **checked(words))  # type: ignore[arg-type]


def _is_ours(error: Exception) -> bool:
    """Whether an error is a mistake of Roost, not of the job or the machine."""
    return not isinstance(error, OSError | RoostError)


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) if isinstance(error, RoostError) else repr(error)
