"""What is true of one run: its folder is looked at, its shim held by a pidfd, its end noticed.

The keeper decides what to do about it. A folder that cannot be reached is tried again: what cannot
be looked at may well be alive.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from roost.core.spec import RunId
from roost.engines import Report, Stuck
from roost.engines.local import containers, processes, run_status
from roost.engines.local.launch_pause import LaunchPause
from roost.engines.local.launcher import Launcher
from roost.engines.local.parking import SharingService
from roost.engines.local.run_folders import RunFolders
from roost.engines.local.run_status import RunStatus
from roost.errors import RoostError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
#: How often to look for a shim that is about to write its record.
_LOOK_S, _LOOK_MAX_S = 0.005, 0.2
#: How often to try again to kill what does not die.
_STUCK_S, _STUCK_MAX_S = 1.0, 30.0
#: How often to try again to look at a folder that cannot be reached.
_AGAIN_S, _AGAIN_MAX_S = 0.05, 10.0
#: How long a shim may take to write its record.
_BIRTH_S = 5.0


class BlockingCall(Protocol):
    """Runs a blocking call on another thread."""

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
    pause: LaunchPause
    sharing: SharingService | None = None
    #: For what may take long, on threads of its own: short calls never wait for it.
    slow: BlockingCall | None = None


class ShimHandle:
    """Looks at one run and holds its shim; ``on_gone`` is called, on the loop, when that ends.

    ``status`` is what was last seen in the folder, ``phase`` what the shim said last, ``ready`` is
    set once the run is known or can be left alone. It gives up looking ``within_s`` seconds.
    """

    def __init__(
        self,
        run: RunId,
        context: EngineContext,
        on_gone: Callable[[], None],
        within_s: float = math.inf,
    ) -> None:
        self.run, self._context, self._on_gone = run, context, on_gone
        self._give_up_at = time.monotonic() + within_s
        self.ready = asyncio.Event()
        self.status = RunStatus("nothing")
        self.phase = ""
        self.pid = 0
        self._pidfd = -1

    async def look(self) -> None:
        """See what is true; take hold of the shim if one lives, clean up if one was lost."""
        pause, begun = _LOOK_S, time.monotonic()
        while True:
            self.status = await self.surely(run_status.examine, self.run)
            if self.status.kind == "lost":
                await self._clean_up()
                continue
            if self.status.kind != "alive" or self._take_hold():
                return
            # The lock is held and no record fits: the shim just began and writes its record next,
            # or it wrote its end and lets go of the lock next. Both are a moment away.
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LOOK_MAX_S)
            if time.monotonic() - begun > _BIRTH_S and not self.ready.is_set():
                _log.warning("run %s: its shim lives and does not say who it is", self.run)
                self.mark_ready()

    def mark_ready(self) -> None:
        """Let the start of the engine go on: the run is known, or holds its devices as it did."""
        self._give_up_at = math.inf
        self.ready.set()

    async def surely(self, call: Callable[..., _T], *args: object) -> _T:
        """The result of a call on the folders, tried until they can be reached.

        What cannot be looked at may well be alive: nothing is said or done until it is known.
        """
        pause = _AGAIN_S
        while True:
            try:
                return await self._context.work(call, self._context.runs, *args)
            except Exception as error:
                hopeless = not isinstance(error, OSError) and self._give_up_at < math.inf
                if hopeless or time.monotonic() + pause > self._give_up_at:
                    raise
                told, ours = why(error), is_ours(error)
                _log.warning("run %s: trying again to look: %s", self.run, told, exc_info=ours)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _AGAIN_MAX_S)

    def hold(self, pidfd: int, pid: int) -> None:
        """Watch a shim from now on. A pidfd becomes readable when its process has ended."""
        self.let_go()
        self._pidfd, self.pid = pidfd, pid
        asyncio.get_running_loop().add_reader(pidfd, self._notice)

    def let_go(self) -> None:
        """Stop watching; the run goes on."""
        if self._pidfd >= 0:
            # The reader first: the loop must not poll a number that may be another file's soon.
            asyncio.get_running_loop().remove_reader(self._pidfd)
            processes.reap(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def signal(self, number: int) -> None:
        """Signal the shim, if there is one; by its pidfd, so never another process."""
        if self._pidfd >= 0:
            processes.send(self._pidfd, number)

    def is_current(self, hint: Mapping[str, Any]) -> bool:
        """Whether a datagram is of this generation, not one of the last that is still under way."""
        record = self.status.record
        told = hint.get("token"), hint.get("generation")
        return record is not None and told == (record.token, record.generation)

    def _take_hold(self) -> bool:
        start = self.status.start
        if start is None:
            return False
        pidfd = processes.hold(start["pid"], start["ticks"], start["boot"])
        if pidfd is None:
            return False
        self.phase = start["phase"]
        self.hold(pidfd, start["pid"])
        return True

    def _notice(self) -> None:
        # A pidfd stays readable: without this the loop would call again and again.
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._on_gone()

    async def remove_containers(self) -> None:
        """Remove what is left of the containers of a run without a shim."""
        record = self.status.record
        if record is not None and record.container:
            # By what made them: another runtime may be the first that works here by now.
            runtime = containers.named(record.container)
            await self._context.work(runtime.remove, record.token)

    async def _clean_up(self) -> None:
        """Kill what a lost shim left behind, then write down its end.

        In this order: while a process is alive it holds its devices, and an end in the folder would
        let the next server give them to another run.
        """
        record, start = self.status.record, self.status.start
        if record is None or start is None:
            return
        same_boot = start["boot"] == processes.boot_id()
        if same_boot:
            traces = processes.Traces(record.token, record.mark, record.cgroup)
            pause = _STUCK_S
            while left := await self._context.work(processes.kill_leftovers, traces):
                self._context.report(Stuck(self._context.clock(), self.run, tuple(left)))
                self.mark_ready()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _STUCK_MAX_S)
            await self.remove_containers()
        detail = "its shim was killed" if same_boot else "the machine restarted"
        await self.surely(run_status.conclude, self.run, "lost", detail)


def is_ours(error: Exception) -> bool:
    """Whether an error is a mistake of Roost, not of the job or the machine."""
    return not isinstance(error, OSError | RoostError)


def why(error: Exception) -> str:
    """An error in a line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) if isinstance(error, RoostError) else repr(error)
