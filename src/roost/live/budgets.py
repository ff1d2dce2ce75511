"""Budgets of one machine: what is used of them, which jobs wait for them, and who is told.

A job that does not fit is taken and suspended in one batch of the journal, so that no kill comes in
between; its record says why. What may go on is resumed, in the order of submission. Used is what
the store has of spells that are over, and what the meter knows of those that go on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from roost.api.charging import BudgetView
from roost.api.schema import encode
from roost.core import Event, Job, JobId, JobSpec, ResumeRequested, Submitted, SuspendRequested
from roost.errors import Conflict, Retryable, RoostError
from roost.live.intake import Command
from roost.live.snapshots import StoreQuery
from roost.store.metering import UsageQuery
from roost.usage.budgets import GPU_HOURS, Budget, SpentBook, Standing, figure
from roost.usage.prices import MICRO, PriceList
from roost.usage.spells import MS, AnySpell, Spell, to_ms

if TYPE_CHECKING:
    from roost.jobs.record import JobRecord
    from roost.live.driver import Driver

_log = logging.getLogger(__name__)

#: How often budgets are looked at, in seconds, and for how long a standing is taken to be so.
EVERY_S = 60.0
_FRESH_S = 1.0
#: Spells that have just ended and that a reading of the store may miss.
_RECENT = 20_000
_ITSELF = "roost"


class BudgetService:
    """Holds jobs that are beyond a budget, and lets them go on."""

    def __init__(self, driver: Driver, ask: StoreQuery) -> None:
        self._driver, self._ask = driver, ask
        self.prices = PriceList()
        self._budgets: tuple[Budget, ...] = ()
        self._book = SpentBook()
        self._recent: deque[Spell] = deque(maxlen=_RECENT)
        self._standings: dict[Budget, tuple[float, Standing]] = {}
        self._warned: dict[tuple[str, str], int] = {}
        self._errors = 0
        self._task: asyncio.Task[None] | None = None
        driver.budgets = self

    async def start(self) -> None:
        """Read what was used, and begin to look."""
        await self.load()
        self._task = asyncio.create_task(self._run(), name="budgets")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def load(self) -> None:
        """Take over budgets and prices, and what was used in their periods."""
        self._budgets, self.prices, book, read = await self._ask(self._read)
        for spell in self._recent:  # they may have ended while it was read
            if spell.n not in read:
                book.add(spell)
        self._book = book
        self._standings.clear()

    def _read(self) -> tuple[tuple[Budget, ...], PriceList, SpentBook, set[int]]:
        store, now = self._driver.store, self._driver.clock.now()
        budgets, book, read = tuple(store.budgets.all()), SpentBook(), set[int]()
        if budgets:
            since = min(budget.since_ms(now) for budget in budgets)
            for spell in store.usage.find(UsageQuery(since)):
                if isinstance(spell, Spell) and spell.end_ms is not None:
                    book.add(spell)
                    read.add(spell.n)
        return budgets, store.prices.all(), book, read

    def ended(self, spells: Iterable[AnySpell]) -> None:
        """Count spells that a batch has ended."""
        for spell in spells:
            if isinstance(spell, Spell) and spell.end_ms is not None:
                self._recent.append(spell)
                self._book.add(spell)

    # -- questions -----------------------------------------------------------------------------

    def refusal(self, spec: JobSpec, now: float) -> str:
        """Why a job must not start, by the budgets of its user and its queue; empty: it may."""
        standings = [self.standing(budget, now) for budget in self._of(spec)]
        for standing in standings:
            expected = self._expected(standing.budget, spec, now)
            if standing.budget.then != "tell" and not standing.admits(expected):
                return standing.refusal(expected)
        for standing in standings:  # until they are worked out anew
            standing.committed += self._expected(standing.budget, spec, now)
        return ""

    def notes(self, spec: JobSpec, kind: str, now: float) -> Iterator[str]:
        """What a plan says of cost and budgets."""
        seconds = self._seconds(spec)
        if not math.isfinite(seconds):
            hours = None
        else:
            hours = seconds * spec.gpu_milli(spec.workers.min) / MS / 3600
        if self.prices and kind:
            price = self.prices.at(kind, to_ms(now))
            if price is None:
                yield f"cost unknown: {kind} has no price"
            elif hours is not None:
                yield f"would cost about {hours * price / MICRO:,.2f} {self.prices.currency}"
        for budget in self._of(spec):
            left = self.standing(budget, now).left
            whose = f"left to {budget.subject} {budget.name}"
            if hours is None:
                yield f"{figure(left)} {budget.unit} {whose}; how much it will use is not known"
            else:
                expected = self._expected(budget, spec, now)
                yield f"would use {figure(expected)} of {figure(left)} {budget.unit} {whose}"

    def shown(self) -> list[dict[str, Any]]:
        """All budgets as views."""
        now = self._driver.clock.now()
        return [self._view(budget, now) for budget in self._budgets]

    def standing(self, budget: Budget, now: float) -> Standing:
        """How a budget stands; worked out at most once in a second."""
        at, known = self._standings.get(budget, (-math.inf, Standing(budget)))
        if not 0 <= now - at < _FRESH_S:
            known = Standing(budget, self._used(budget, now), self._committed(budget, now))
            self._standings[budget] = now, known
        return known

    def _view(self, budget: Budget, now: float) -> dict[str, Any]:
        standing = self.standing(budget, now)
        waiting = [job.id for job, _ in self._held() if budget in self._of(job.spec)]
        view = BudgetView(
            *(budget.subject, budget.name, budget.amount / MICRO, budget.unit, budget.every),
            *(budget.then, budget.growth_is_free, budget.since_ms(now) / MS),
            *(standing.used / MICRO, standing.committed / MICRO, standing.left / MICRO),
            tuple(waiting),
        )
        return encode(view)

    def _of(self, spec: JobSpec) -> list[Budget]:
        """The budgets that a job counts in."""
        whose = {("user", spec.user), ("queue", spec.queue)}
        return [budget for budget in self._budgets if (budget.subject, budget.name) in whose]

    def _used(self, budget: Budget, now: float) -> int:
        used, since, until = (
            self._book.used(budget, now, self.prices),
            budget.since_ms(now),
            to_ms(now),
        )
        for spell in self._driver.meter.open:
            if isinstance(spell, Spell) and spell.node and _is_of(budget, spell.user, spell.queue):
                milli = spell.gpu_milli - (spell.grown_milli if budget.growth_is_free else 0)
                held = spell.clipped_ms(since, until) * milli
                used += budget.worth(held, spell.kind, self.prices, until)
        return used

    def _committed(self, budget: Budget, now: float) -> int:
        """What jobs are expected to hold yet that run, or may start."""
        amount = 0
        for job in self._driver.core.jobs.values():
            if job.state.over or not _is_of(budget, job.spec.user, job.spec.queue):
                continue
            run = job.run
            if run is None and job.held and self._why(job.id):
                continue
            amount += self._worth(budget, job.spec, self._left_s(job, now), now)
        return amount

    def _left_s(self, job: Job, now: float) -> float:
        """How long a job will still run, as far as anybody knows."""
        run = job.run
        if run is not None and run.started_at is not None:
            return run.remaining_s(now)
        return math.inf if job.spec.training is not None else job.remaining_s

    def _expected(self, budget: Budget, spec: JobSpec, now: float) -> int:
        return self._worth(budget, spec, self._seconds(spec), now)

    def _seconds(self, spec: JobSpec) -> float:
        """How long a job is expected to run; of one that counts its work in steps nobody knows."""
        seconds = self._driver.core.history.expected_s(spec)
        return math.inf if seconds is None or spec.training is not None else seconds

    def _worth(self, budget: Budget, spec: JobSpec, seconds: float, now: float) -> int:
        """What a job's least workers use in a time; nobody knows what lasts for ever."""
        if not 0 < seconds < math.inf:
            return 0
        held = round(seconds * MS) * spec.gpu_milli(spec.workers.min)
        if budget.unit == GPU_HOURS:
            return budget.worth(held, "", self.prices, to_ms(now))
        kinds = spec.resources.kinds or {node.spec.kind for node in self._driver.core.ledger.order}
        return max((budget.worth(held, kind, self.prices, to_ms(now)) for kind in kinds), default=0)

    def _why(self, job: JobId) -> str:
        record = self._driver.records.get(job)
        return "" if record is None else record.over_budget

    def _held(self) -> Iterator[tuple[Job, JobRecord]]:
        """Jobs that wait for a budget, in the order of submission."""
        for job in self._driver.core.jobs.values():
            if job.held and not job.state.over and self._why(job.id):
                yield job, self._driver.records[job.id]

    # -- what follows --------------------------------------------------------------------------

    def held_back(self, event: Event, now: float) -> tuple[Event, ...]:
        """What keeps a job from starting for which a budget has no room: both, or neither."""
        core, records = self._driver.core, self._driver.records
        if not isinstance(event, Submitted):
            return ()
        if event.job in core.jobs or event.spec.queue not in core.queues:
            return ()  # it is about to be refused
        why = self.refusal(event.spec, now)
        if why and (record := records.get(event.job)) is not None:
            record.over_budget = why
            return (SuspendRequested(now, event.job),)
        return ()

    def check_resume(self, job: JobId, now: float) -> None:
        """A user may resume a job only if the budgets have room for it; raises Conflict."""
        record, known = self._driver.records.get(job), self._driver.core.jobs.get(job)
        if record is None or known is None or not record.over_budget:
            return
        if why := self.refusal(known.spec, now):
            raise Conflict(f"job {job} goes on by itself when its budget has room: {why}")
        record.over_budget = ""

    async def look(self) -> None:
        """Hold, suspend and resume what budgets ask for."""
        if self._errors != self._driver.counts.append_errors:  # what was counted may not be so
            self._errors = self._driver.counts.append_errors
            await self.load()
        now = self._driver.clock.now()
        self._standings.clear()
        for budget in self._budgets:
            standing = self.standing(budget, now)
            if standing.warns:
                self._warn(standing, now)
            if standing.spent and budget.then != "tell":
                await self._stop(standing)
        self._standings.clear()
        for job, record in list(self._held()):
            if not self.refusal(job.spec, now):
                record.over_budget = ""
                await self._order(lambda at, name=job.id: ResumeRequested(at, name))  # type: ignore[misc]

    async def _stop(self, standing: Standing) -> None:
        """Hold what waits and, where the budget says so, suspend what runs."""
        budget = standing.budget
        for job in list(self._driver.core.jobs.values()):
            if job.state.over or job.held or not _is_of(budget, job.spec.user, job.spec.queue):
                continue
            record = self._driver.records.get(job.id)
            if record is not None and (job.run is None or budget.then == "suspend"):
                record.over_budget = standing.refusal(0)
                await self._order(lambda at, name=job.id: SuspendRequested(at, name))  # type: ignore[misc]

    def _warn(self, standing: Standing, now: float) -> None:
        budget, since = standing.budget, standing.budget.since_ms(now)
        if self._warned.get((budget.subject, budget.name)) != since:
            self._warned[budget.subject, budget.name] = since
            _log.warning("%s", standing.refusal(0))

    async def _order(self, event: Callable[[float], Event]) -> None:
        answer = asyncio.get_running_loop().create_future()
        await self._driver.ask(Command(event, _ITSELF, answer))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.look()
            except Retryable as error:
                _log.warning("budgets were not looked at: %s", error)
            except RoostError:
                _log.exception("budgets were not looked at")


def _is_of(budget: Budget, user: str, queue: str) -> bool:
    """Whether what a user does in a queue counts in a budget."""
    return budget.name == (user if budget.subject == "user" else queue)
