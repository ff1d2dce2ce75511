"""What is true of one run: its folder is looked at, its shim held by a pidfd, its end noticed.

What to do about it is for the keeper. A folder that cannot be reached is tried again: what cannot
be looked at may well be alive.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from roost.core.spec import RunId
from roost.engines import Order, Report, Stuck
from roost.engines.local import processes, run_status
from roost.engines.local.launcher import Launcher
from roost.engines.local.parking import SharingService
from roost.engines.local.run_folders import RunFolders
from roost.engines.local.run_status import RunStatus
from roost.errors import RoostError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_LOOK_S, _LOOK_MAX_S = 0.005, 0.2
#: How often to try again to kill what does not die.
_STUCK_S, _STUCK_MAX_S = 1.0, 30.0
#: How often to try again to look at a folder that cannot be reached.
_AGAIN_S, _AGAIN_MAX_S = 0.05, 10.0
#: How long a shim may take to say who it is.
_BIRTH_S = 5.0
GONE = "gone"


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """A wish that the job saves itself; ``done`` says whether it did."""

    done: asyncio.Future[bool]


#: What a keeper is told: an order, a wish, a word of its shim, or that the shim is gone.
Message = Order | SaveRequest | Mapping[str, Any] | str


class BlockingCall(Protocol):
    """Runs a blocking call elsewhere."""

    def __call__(self, call: Callable[..., _T], *args: object) -> Awaitable[_T]:
        """Await the result of a call."""
        ...


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What all keepers share."""

    report: Callable[[Report], None]
    clock: Callable[[], float]
    runs: RunFolders
    launcher: Launcher
    work: BlockingCall
    sharing: SharingService | None = None
    #: For what may take long, so that nobody else has to wait for it.
    slow: BlockingCall | None = None


class ShimHandle:
    """Looks at one run, and notices when its shim ends."""

    def __init__(self, run: RunId, care: EngineContext, within_s: float = math.inf) -> None:
        self.run, self._care = run, care
        self._give_up_at = time.monotonic() + within_s
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._later: deque[Message] = deque()
        self.ready = asyncio.Event()
        self.found = RunStatus("nothing")
        self.error: Exception | None = None
        self.pid = 0
        self._pidfd = -1
        self._phase = ""

    @property
    def idle(self) -> bool:
        """Whether nobody has said anything that was not dealt with."""
        return not self._later and self.inbox.empty()

    @property
    def cgroup(self) -> str:
        """Where its processes are kept together, if anywhere."""
        return self.found.state.cgroup if self.found.state else ""

    def let_go(self) -> None:
        """Stop watching; the run goes on."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            processes.reap(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    async def _message(self) -> Message:
        return self._later.popleft() if self._later else await self.inbox.get()

    async def _look(self) -> None:
        """See what is true; take hold of the shim if one lives, clean up if one was lost."""
        pause, begun = _LOOK_S, time.monotonic()
        while True:
            self.found = await self._surely(run_status.examine, self.run)
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
                told, ours = why(error), is_ours(error)
                _log.warning("run %s: trying again to look: %s", self.run, told, exc_info=ours)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _AGAIN_MAX_S)

    def _take_hold(self) -> bool:
        start = self.found.start
        if start is None:
            return False
        pidfd = processes.hold(start["pid"], start["ticks"], start["boot"])
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
        if start["boot"] == processes.boot_id():
            traces = processes.Traces(state.token, state.mark, state.cgroup)
            pause = _STUCK_S
            while left := await self._care.work(processes.kill_leftovers, traces):
                self._care.report(Stuck(self._care.clock(), self.run, tuple(left)))
                self._is_ready()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _STUCK_MAX_S)
        detail = (
            "its shim was killed"
            if start["boot"] == processes.boot_id()
            else "the machine restarted"
        )
        await self._surely(run_status.conclude, self.run, "lost", detail)

    def _is_current(self, hint: Mapping[str, Any]) -> bool:
        """Whether it is this generation that speaks, not what is still underway of the last."""
        state = self.found.state
        told = hint.get("token"), hint.get("generation")
        return state is not None and told == (state.token, state.generation)

    def _watch(self, pidfd: int, pid: int) -> None:
        self.let_go()
        self._pidfd, self.pid = pidfd, pid
        loop = asyncio.get_running_loop()
        loop.add_reader(pidfd, self._notice)

    def _notice(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.inbox.put_nowait(GONE)

    def _signal(self, number: int) -> None:
        if self._pidfd >= 0:
            processes.send(self._pidfd, number)


def is_ours(error: Exception) -> bool:
    """Whether an error is a mistake of Roost, not of the job or the machine."""
    return not isinstance(error, OSError | RoostError)


def why(error: Exception) -> str:
    """An error in a line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) if isinstance(error, RoostError) else repr(error)
