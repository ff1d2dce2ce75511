"""One run and the GPUs it shares: enrolled while it runs, taken off them while it is suspended.

What can be done to a GPU is for ``gpu.Sharing``; here is when to do it, and for which runs. Where
nothing is shared and nothing is a GPU, there is nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from roost.core.allocation import Seat
from roost.core.spec import WHOLE, Resources, RunId, Way
from roost.engines.local.devices import Machine
from roost.engines.local.run_record import RunRecord
from roost.errors import RoostError

_log = logging.getLogger(__name__)


class ParkReport(Protocol):
    """What parking came to."""

    @property
    def how(self) -> str:
        """``checkpoint``: off the GPU; ``stopped``: its memory stays; ``none``: nothing."""
        ...

    @property
    def why(self) -> str:
        """Why it came to no more than that."""
        ...


class SharingService(Protocol):
    """What lets runs share GPUs and leave them (``roost.engines.local.gpu.Sharing``)."""

    async def attach(
        self,
        run: RunId,
        seats: Sequence[Seat],
        needs: Mapping[str, Resources],
        workers: Mapping[str, tuple[int, int]],
    ) -> None:
        """Hold slices and limits for these processes from now on; once more does no harm."""
        ...

    async def detach(self, run: RunId) -> None:
        """A run is over."""
        ...

    async def park(self, run: RunId) -> ParkReport:
        """Take a run off its GPUs."""
        ...

    async def unpark(self, run: RunId, seats: Sequence[Seat]) -> ParkReport:
        """Put a run back on GPUs: those it had, or others."""
        ...

    def problem(self, run: RunId) -> str:
        """What went wrong for a run; "" if nothing did."""
        ...

    def beside(self, run: RunId) -> str:
        """With whom it shares faults; "" if with nobody."""
        ...


class Parking:
    """The shared devices of one run."""

    def __init__(self, run: RunId, sharing: SharingService | None, machine: Machine) -> None:
        self._run, self._sharing, self._machine = run, sharing, machine
        self._enrolled = False

    def concerns(self, record: RunRecord) -> bool:
        """Whether there is anything to do for such a run."""
        if self._sharing is None or self._machine.partitioned:
            return False
        held = [part for part in record.parts if part.gpus]
        return any(self._machine.real or part.share_milli < WHOLE for part in held)

    def stays(self, record: RunRecord) -> bool:
        """Whether its memory stays on the GPU whatever is done: it shares it the spatial way."""
        return any(
            part.share_milli < WHOLE and record.needs[part.role].way is Way.SPATIAL
            for part in record.parts
            if part.gpus and part.role in record.needs
        )

    async def enrol(self, record: RunRecord, workers: Mapping[str, Any]) -> None:
        """Have slices and limits held for the processes of a run; raises RoostError."""
        if self._sharing is None or not self.concerns(record):
            return
        known = {seat.name for seat in record.seats}
        found = {
            name: (int(pid), int(ticks)) for name, (pid, ticks) in workers.items() if name in known
        }
        self._enrolled = True
        await self._sharing.attach(self._run, record.seats, record.needs, found)

    async def leave(self, record: RunRecord) -> str:
        """Take a run off its GPUs; why it cannot be frozen then, or nothing."""
        if self._sharing is None or not self.concerns(record):
            return "its GPU memory would stay" if self._machine.real else ""
        if self.stays(record):
            return ""
        try:
            parked = await self._sharing.park(self._run)
        except (RoostError, OSError) as error:
            return str(error) if self._machine.real else ""
        if parked.how == "none" and self._machine.real:
            return parked.why or "it cannot leave its GPU"
        return ""

    async def come_back(self, record: RunRecord) -> str:
        """Put a run back on GPUs once it runs again; why it cannot be, or nothing."""
        if self._sharing is None or not self.concerns(record) or self.stays(record):
            return ""
        try:
            back = await self._sharing.unpark(self._run, record.seats)
        except (RoostError, OSError) as error:
            return str(error)
        if back.how == "none" and self._machine.real:
            return back.why or "it cannot return to a GPU"
        return ""

    async def end(self) -> None:
        """The processes of a run are gone."""
        if self._sharing is None or not self._enrolled:
            return
        self._enrolled = False
        try:
            await asyncio.shield(self._sharing.detach(self._run))
        except (RoostError, OSError) as error:
            _log.warning("run %s: %s", self._run, error)

    def problem(self) -> str:
        """What went wrong on its devices; "" if nothing did."""
        if self._sharing is None or not self._enrolled:
            return ""
        try:
            return self._sharing.problem(self._run)
        except (RoostError, OSError) as error:  # its end is to be told all the same
            return str(error)

    def beside(self) -> str:
        """With whom it shared a GPU so that a fault of one is one of all; "" if with nobody."""
        return self._sharing.beside(self._run) if self._sharing and self._enrolled else ""
