"""How long finished jobs are kept, and how the space of what is gone is given back.

Jobs that are over are forgotten when their own time (``keep`` in the job file) or the server's has
passed, when there are too many of them, or when the disk is to be kept free. What runs or waits is
never touched, and snapshots stay: they have files of their own. Everything goes in small steps, so
that neither users nor the engine wait for it: a few jobs per transaction, a few entries of the
journal, a few pages of the database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from roost.api.retention import PrunedJobList, PrunedJobView
from roost.api.schema import encode
from roost.core import JobId
from roost.errors import NotFound, Retryable, RoostError
from roost.files import tree_bytes
from roost.jobfile.grammar import write_duration
from roost.live.snapshots import StoreQuery
from roost.store.rows import JobRow, OutlivedQuery

if TYPE_CHECKING:
    from roost.live.driver import Driver

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: The finished jobs that are kept unless more or fewer are asked for.
KEEP_JOBS = 100_000
#: The newest entries of the journal and lines of the event log that stay in any case.
KEEP_ENTRIES = 20_000
KEEP_LINES = 100_000
#: How often to look, in seconds, and after how many looks the disk is measured.
EVERY_S = 60.0
_MEASURE_EVERY = 5
#: Jobs, entries and lines of one step, and the pause after it, in seconds.
_JOBS, _ENTRIES, _LINES = 20, 500, 1000
_PAUSE_S = 0.05
#: Jobs that one look, and one request, forget at most.
_MOST = 2000
PRUNED_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """How long jobs that are over are kept; None: without such a bound."""

    keep_s: float | None = None
    jobs: int | None = KEEP_JOBS
    disk_bytes: int | None = None


class OutlivedJob(NamedTuple):
    """A job that need not be kept, why, and the space that it takes."""

    row: JobRow
    why: str
    size_bytes: int


class RetentionService:
    """Forgets jobs that were kept long enough, and keeps journal, events and database small."""

    def __init__(
        self,
        driver: Driver,
        rule: RetentionRule,
        ask: StoreQuery,
        forget: Callable[[JobId, str], Awaitable[object]],
        busy: Callable[[str], bool],
    ) -> None:
        self._driver, self.rule, self._ask, self._forget = driver, rule, ask, forget
        self._busy = busy
        self._home: Path = driver.private_files.home
        self._looks = 0

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.tidy()
            except Retryable as error:
                _log.info("nothing was pruned: %s", error)
            except RoostError as error:
                _log.warning("nothing was pruned: %s", error)

    async def tidy(self) -> None:
        """Do all that is due, step by step."""
        measure = self._looks % _MEASURE_EVERY == 0
        self._looks += 1
        rule = self.rule if measure else RetentionRule(self.rule.keep_s, self.rule.jobs)
        found = await self.outlived(rule, _MOST, measured=False)
        await self.prune(found, "roost")
        await self.compact()

    async def outlived(
        self, rule: RetentionRule, limit: int, *, measured: bool = True
    ) -> list[OutlivedJob]:
        """The jobs that a rule lets go, the oldest first; ``measured``: with their sizes."""
        now, jobs = self._driver.clock.now(), self._driver.store.jobs
        before = None if rule.keep_s is None else now - rule.keep_s
        rows = await self._ask(jobs.outlived, OutlivedQuery(now, before, rule.jobs, limit=limit))
        found = [OutlivedJob(row, _why(row, rule, now), 0) for row in rows if self._is_free(row)]
        if measured or rule.disk_bytes is not None:
            found = [one._replace(size_bytes=await self._size(one.row)) for one in found]
        if rule.disk_bytes is not None:
            found += await self._too_much(rule.disk_bytes, found, limit - len(found))
        return found

    async def prune(self, jobs: list[OutlivedJob], actor: str) -> int:
        """Forget jobs, a few at a time; how many that were."""
        gone = 0
        for start in range(0, len(jobs), _JOBS):
            step = jobs[start : start + _JOBS]
            told = await asyncio.gather(
                *(self._forget(JobId(one.row.id), actor) for one in step), return_exceptions=True
            )
            for error in told:
                if isinstance(error, BaseException) and not isinstance(error, NotFound):
                    raise error
            gone += len(step)
            await asyncio.sleep(_PAUSE_S)
        return gone

    async def compact(self) -> None:
        """Let go of old entries and lines, and give the space back to the disk."""
        store = self._driver.store
        removed = 1
        while removed:
            removed = await self._step(store.journal.compact, KEEP_ENTRIES, _ENTRIES)
        after: int | None = -1
        while after is not None:
            after = await self._step(store.events.compact, KEEP_LINES, after, _LINES)
        more = True
        while more:
            more = await self._step(store.shrink)

    async def _step(self, call: Callable[..., T], *given: int) -> T:
        """One short transaction, and a pause in which others get their turn."""
        found = await self._ask(call, *given)
        await asyncio.sleep(_PAUSE_S)
        return found

    async def _too_much(
        self, bound: int, before: list[OutlivedJob], limit: int
    ) -> list[OutlivedJob]:
        """The oldest jobs that have to go for a home to fit its bound."""
        used = await asyncio.to_thread(tree_bytes, self._home)
        excess = used - bound - sum(one.size_bytes for one in before)
        if excess <= 0:
            return []
        known, found = {one.row.id for one in before}, list[OutlivedJob]()
        jobs, now = self._driver.store.jobs, self._driver.clock.now()
        query = OutlivedQuery(now, every=True, limit=len(known) + max(limit, 0))
        for row in await self._ask(jobs.outlived, query):
            if excess <= 0:
                break
            if row.id not in known and self._is_free(row):
                size = await self._size(row)
                excess -= size
                found.append(OutlivedJob(row, "the home is larger than its bound", size))
        if excess > 0:
            _log.warning(
                "%s has %d bytes more than it may, and no finished job to forget",
                self._home,
                excess,
            )
        return found

    def _is_free(self, row: JobRow) -> bool:
        """Whether nothing needs a job any more: it is over, and no snapshot is taken of it."""
        job = self._driver.core.jobs.get(JobId(row.id))
        return (job is None or job.state.over) and not self._busy(row.id)

    async def _size(self, row: JobRow) -> int:
        return await asyncio.to_thread(self._driver.engine.size_bytes, JobId(row.id))


def _why(row: JobRow, rule: RetentionRule, now: float) -> str:
    age = now - (row.finished_at or now)
    if row.kept_until is not None:
        return "the time that its job file asked for has passed"
    if rule.keep_s is not None and age > rule.keep_s:
        return f"it ended more than {write_duration(rule.keep_s)} ago"
    return f"there are more than {rule.jobs} newer ones"


def pruned_view(found: Sequence[OutlivedJob], *, more: bool) -> dict[str, Any]:
    """The jobs that are forgotten, as every interface shows them."""
    items = [
        PrunedJobView(
            one.row.id,
            one.row.name,
            one.row.user,
            one.row.state,
            one.row.finished_at,
            one.why,
            one.size_bytes,
        )
        for one in found
    ]
    return encode(PrunedJobList(tuple(items), sum(one.size_bytes for one in found), more))
