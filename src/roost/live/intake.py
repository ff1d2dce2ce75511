"""The inbox of the driver: commands of users and reports of the engine, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from roost.core import Event, JobId, RunId
from roost.engines import ProgressReport, Report
from roost.errors import RoostError
from roost.jobs.record import JobRecord

if TYPE_CHECKING:
    from roost.live.batches import DecidedBatch


@dataclass(slots=True)
class Command:
    """A command of a user: an event, and what goes with it into the journal and the views."""

    event: Callable[[float], Event]
    actor: str
    answer: asyncio.Future[DecidedBatch]
    record: JobRecord | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    deletes: str = ""

    def refuse(self, error: RoostError) -> None:
        """Answer that it was not done."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(frozen=True, slots=True)
class StartupReports:
    """All that an engine reported while it started: one instant.

    ``left`` are jobs that began in the home that this one is a copy of: they are cancelled here.
    """

    reports: tuple[Report, ...]
    left: tuple[JobId, ...] = ()


Item = Command | Report | StartupReports

#: What holds for one number of workers alone.
_TIMED = ("step_s", "sync_s", "local_batch")
_SAID = tuple(one.name for one in fields(ProgressReport) if one.name not in ("time", "run"))


class Inbox:
    """Items in order of arrival; of what a run says of itself, only the last word counts."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._told: dict[RunId, ProgressReport] = {}
        self._work = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Take one more."""
        if isinstance(item, ProgressReport):
            earlier = self._told.get(item.run)
            self._told[item.run] = item if earlier is None else _merged(earlier, item)
            if earlier is not None:
                return  # its place in the line is kept
        self._items.append(item)
        self._work.set()

    def put_back(self, items: Iterable[Item]) -> None:
        """Put these in front again, in their order."""
        self._items.extendleft(reversed(list(items)))
        self._work.set()

    def take(self, most: int) -> list[Item]:
        """The first ones."""
        taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
        return [self._told.pop(i.run, i) if isinstance(i, ProgressReport) else i for i in taken]

    async def wait(self, timeout_s: float | None) -> None:
        """Until there is something, or that long."""
        if not self._items:
            self._work.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._work.wait(), timeout_s)

    def refuse(self, error: RoostError) -> None:
        """Answer all commands that wait: nothing was done. Reports stay."""
        for item in self._items:
            if isinstance(item, Command):
                item.refuse(error)
        self._items = deque(item for item in self._items if not isinstance(item, Command))


def _merged(earlier: ProgressReport, later: ProgressReport) -> ProgressReport:
    # What was timed with another number of workers holds no more.
    resized = later.world is not None and later.world != earlier.world
    names = [name for name in _SAID if not (resized and name in _TIMED)]
    kept = {name: getattr(earlier, name) for name in names if getattr(later, name) is None}
    return replace(later, **kept)
