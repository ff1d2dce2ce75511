"""Usage as people and programs see it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from roost.api.schema import encode
from roost.api.usage import CapacityUseView, SpellView, UsageRowView, UsageView
from roost.core import WHOLE
from roost.usage.prices import PriceList, amount
from roost.usage.spells import MS, AnySpell, NodeSpell, to_ms
from roost.usage.totals import (
    Amounts,
    ChargeRule,
    Period,
    UsageRequest,
    UsageTotals,
    keys_of,
    total,
)


def usage_view(
    spells: Iterable[AnySpell], query: UsageRequest, charging: ChargeRule, now: float
) -> dict[str, Any]:
    """Totals of what was asked for; raises InvalidSpec for keys that there are not."""
    until = min(now, now if query.until is None else query.until)
    period = Period(to_ms(query.since), max(to_ms(query.since), to_ms(until)))
    found = total(spells, period, keys_of(query.by), charging)
    prices = charging.prices
    today = datetime.fromtimestamp(now, UTC).date()
    view = UsageView(
        period.since_ms / MS,
        period.until_ms / MS,
        found.by,
        prices.currency,
        tuple(prices.old(today)),
        tuple(
            _row(dict(zip(found.by, keys, strict=True)), found.rows[keys], prices)
            for keys in sorted(found.rows)
        ),
        _row({}, found.total, prices),
        _cluster(found, prices) if query.all and not (query.user or query.job) else None,
    )
    return encode(view)


def spell_views(spells: Iterable[AnySpell], now: float) -> list[dict[str, Any]]:
    """The spells of a job."""
    found = []
    for spell in spells:
        if isinstance(spell, NodeSpell):
            continue
        lasts = spell.clipped_ms(spell.begin_ms, to_ms(now))
        view = SpellView(
            spell.begin_ms / MS,
            None if spell.end_ms is None else spell.end_ms / MS,
            "held" if spell.node else "waiting",
            *(spell.attempt, spell.node, spell.kind),
            *(spell.gpu_milli / WHOLE, spell.grown_milli / WHOLE),
            lasts * spell.gpu_milli if spell.node else 0,
            spell.busy if spell.measured else None,
            *(spell.lost, spell.blame),
        )
        found.append(encode(view))
    return found


def _row(keys: dict[str, str], found: Amounts, prices: PriceList) -> UsageRowView:
    # What nobody paid for costs nothing; what has no price has no cost.
    unknown = not prices or (found.unpriced and not found.cost)
    return UsageRowView(
        keys,
        len(found.jobs),
        found.held,
        found.grown,
        found.busy if found.measured else None,
        found.wasted if found.measured else None,
        found.held - found.measured,
        dict(sorted(found.lost.items())),
        found.waiting,
        found.cpu,
        found.memory,
        None if unknown else amount(found.cost),
        found.unpriced,
    )


def _cluster(found: UsageTotals, prices: PriceList) -> CapacityUseView:
    return CapacityUseView(
        found.capacity,
        found.total.held,
        found.idle,
        found.out_of_service,
        amount(found.idle_cost) if prices else None,
    )
