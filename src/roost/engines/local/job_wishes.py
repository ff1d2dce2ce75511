"""What a running job is asked to do by itself: save a checkpoint, leave its GPU, come back.

A wish is a number in ``wanted.json``, written before SIGHUP tells the shim to look. The shim passes
it on to the workers in ``members.json``, and their answer comes back as a datagram with the same
number.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
from dataclasses import dataclass

from roost.engines.local.run_record import RunRecord
from roost.engines.local.shim_handle import EngineContext, ShimHandle, why
from roost.errors import RoostError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """A wish that the job saves itself; ``done`` says whether it did."""

    done: asyncio.Future[bool]


class JobWishes:
    """The wishes to the workers of one generation, and their answers.

    ``elastic``: the workers said that they answer such wishes. ``offloaded``: the number of the
    last wish to leave the GPU, or to come back, that they fulfilled.
    """

    def __init__(self, context: EngineContext, shim: ShimHandle) -> None:
        self._context, self._shim = context, shim
        self.elastic = False
        self.offloaded = 0
        self._saving: list[tuple[int, asyncio.Future[bool]]] = []

    def reset(self) -> None:
        """Another generation begins, which has said nothing yet."""
        self.elastic, self.offloaded = False, 0

    async def save(self, request: SaveRequest) -> None:
        """Ask for a checkpoint; the request is answered when it is there, or cannot be."""
        status, number = self._shim.status, None
        able = status.kind == "alive" and self._shim.phase == "running" and self.elastic
        if status.record is not None and able:
            number = await self.ask(status.record, "save", wanted=True)
        if number is None:
            request.done.set_result(False)
            return
        # Known before the signal: the answer may come while this coroutine is not running.
        self._saving.append((number, request.done))
        self._shim.signal(signal.SIGHUP)

    def saved(self, number: float, *, done: bool = True) -> None:
        """Answer all requests for a checkpoint up to that number."""
        # A checkpoint that was made for a later request serves earlier ones just as well.
        for one in [one for one in self._saving if one[0] <= number]:
            self._saving.remove(one)
            if not one[1].done():
                one[1].set_result(done)

    def give_up(self) -> None:
        """No shim will answer any more."""
        self.saved(math.inf, done=False)

    async def ask(self, record: RunRecord, what: str, *, wanted: bool) -> int | None:
        """Write a wish down for the shim; its number, or None if it could not be written.

        The caller sends SIGHUP, once it is ready for the answer.
        """
        # On a thread: the file may be on a slow disk, and the loop serves all runs.
        want = self._context.launcher.want
        try:
            asked = await self._context.work(want, record, {}, {what: wanted})
        except (RoostError, OSError, ValueError) as error:
            _log.warning("run %s cannot be asked to %s: %s", record.run, what, why(error))
            return None
        return int(asked[what])
