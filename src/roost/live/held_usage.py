"""Usage of one machine: the meter of the driver, and what its spells come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from roost.api.charging import PriceView
from roost.api.schema import encode
from roost.core import Core, JobId, JobSpec
from roost.jobs.record import OpenRecords
from roost.jobs.usage_views import spell_views, usage_view
from roost.live.budgets import BudgetService
from roost.live.snapshots import StoreQuery
from roost.store import Store
from roost.store.metering import UsageQuery
from roost.usage.budgets import Budget
from roost.usage.meter import Meter
from roost.usage.prices import Price, PriceList
from roost.usage.spells import Spell, to_ms
from roost.usage.totals import ChargeRule, UsageRequest

if TYPE_CHECKING:
    from roost.live.driver import Driver


def restored(store: Store, core: Core, records: OpenRecords) -> Meter:
    """The meter as the last server left it, beside a core of that moment."""

    def labels(job: JobId) -> Mapping[str, str]:
        record = records.get(job)
        return {} if record is None else record.document.get("labels") or {}

    meter = Meter(labels)
    spells, last = store.usage.open()
    meter.restore(spells, core, last)
    return meter


class UsageService:
    """Answers who held what, from the store, and what that cost."""

    def __init__(self, driver: Driver, ask: StoreQuery) -> None:
        self._driver, self._ask = driver, ask
        self._budgets = BudgetService(driver, ask)
        self._store, self._clock = driver.store, driver.clock

    def held_by_queue(self) -> Mapping[str, int]:
        """What jobs of each queue held since the server began, in micro-GPU-seconds."""
        meter, until = self._driver.meter, to_ms(self._clock.now())
        held = Counter(meter.closed)
        for spell in meter.open:
            if isinstance(spell, Spell) and spell.node:
                held[spell.queue] += spell.clipped_ms(spell.begin_ms, until) * spell.gpu_milli
        return held

    async def start(self) -> None:
        """Begin to look after budgets."""
        await self._budgets.start()

    async def close(self) -> None:
        """Stop that."""
        await self._budgets.close()

    def notes(self, spec: JobSpec, plan: Mapping[str, Any]) -> list[str]:
        """What a plan says of cost and budgets."""
        nodes = self._driver.core.ledger.nodes
        places = [nodes[place["node"]].spec.kind for place in plan["placement"]]
        kind = next(iter((*places, *spec.resources.kinds)), "")
        return list(self._budgets.notes(spec, kind, self._clock.now()))

    async def prices(self) -> list[dict[str, Any]]:
        """What GPU hours cost."""
        return _price_views(await self._ask(self._store.prices.all), self._clock.now())

    async def add_prices(self, prices: Sequence[Price], actor: str) -> list[dict[str, Any]]:
        """Take over prices; raises Conflict where one would alter the past."""
        found = await self._ask(self._store.prices.add, prices, actor=actor)
        await self._budgets.load()
        return _price_views(found, self._clock.now())

    async def budgets(self) -> list[dict[str, Any]]:
        """Budgets, and how they stand."""
        return self._budgets.shown()

    async def set_budget(self, budget: Budget, actor: str) -> dict[str, Any]:
        """Give a user or a queue a budget; what waits for it, or must wait, is seen to at once."""
        await self._ask(self._store.budgets.set, budget, actor=actor)
        await self._budgets.load()
        await self._budgets.look()
        whose = (budget.subject, budget.name)
        return next(one for one in self._budgets.shown() if (one["subject"], one["name"]) == whose)

    async def delete_budget(self, subject: str, name: str, actor: str) -> None:
        """Take one away; raises NotFound."""
        await self._ask(self._store.budgets.delete, subject, name, actor=actor)
        await self._budgets.load()
        await self._budgets.look()

    async def report(self, query: UsageRequest) -> dict[str, Any]:
        """Totals of a time; raises InvalidSpec for keys that there are not."""
        return await self._ask(self._report, query)

    async def spells(self, query: UsageRequest) -> list[dict[str, Any]]:
        """The spells of a job."""
        now = self._clock.now()
        asked = UsageQuery(user=query.user, job=query.job)
        return await self._ask(lambda: spell_views(self._store.usage.find(asked), now))

    def _report(self, query: UsageRequest) -> dict[str, Any]:
        now = self._clock.now()
        until = now if query.until is None else min(query.until, now)
        asked = UsageQuery(to_ms(query.since), to_ms(until), query.user, query.job)
        charging = ChargeRule(self._store.prices.all())
        return usage_view(self._store.usage.find(asked), query, charging, now)


def _price_views(prices: PriceList, now: float) -> list[dict[str, Any]]:
    today = datetime.fromtimestamp(now, UTC).date()
    return [
        encode(
            PriceView(
                price.kind,
                price.row()["price"],
                price.currency,
                price.since.isoformat(),
                price.source,
                price.is_old(today),
            )
        )
        for price in sorted(prices.prices, key=lambda price: (price.kind, price.since))
    ]
