"""Usage on Kubernetes, as far as its objects tell: the last run of every Job that is there.

The operator keeps no journal. What a Job held before it was last started, and Jobs that are gone,
are not told; nor is what was idle. Prices are the server's, so there are none here.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roost.core import WHOLE
from roost.errors import NotFound
from roost.jobs.usage_views import spell_views, usage_view
from roost.kubernetes.gateway.commands import unavailable
from roost.store import Store
from roost.store.rows import MOST, JobQuery, JobRow
from roost.usage.budgets import Budget
from roost.usage.prices import Price
from roost.usage.spells import Spell, to_ms
from roost.usage.totals import ChargeRule, UsageRequest


class GatewayUsage:
    """Usage of the Jobs in the lists."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def report(self, query: UsageRequest) -> dict[str, Any]:
        """Totals of a time."""
        now = time.time()
        found = await asyncio.to_thread(lambda: list(self._spells(query)))
        return {**usage_view(found, query, ChargeRule(), now), "cluster": None}

    async def spells(self, query: UsageRequest) -> list[dict[str, Any]]:
        """The spells behind them."""
        found = await asyncio.to_thread(lambda: list(self._spells(query)))
        return spell_views(found, time.time())

    async def prices(self) -> list[dict[str, Any]]:
        """There are none."""
        return []

    async def add_prices(self, prices: Sequence[Price], actor: str) -> list[dict[str, Any]]:  # noqa: ARG002 - whoever asks
        """Say that none are kept."""
        raise unavailable("prices")

    async def budgets(self) -> list[dict[str, Any]]:
        """There are none."""
        return []

    async def set_budget(self, budget: Budget, actor: str) -> dict[str, Any]:  # noqa: ARG002 - whoever asks
        """Say that none are kept."""
        raise unavailable(f"the budget of {budget.name}")

    async def delete_budget(self, subject: str, name: str, actor: str) -> None:  # noqa: ARG002 - whoever asks
        """Say that there is none."""
        raise NotFound(f"{subject} {name} has no budget")

    def held_by_queue(self) -> Mapping[str, int]:
        """What Jobs of each queue held, in micro-GPU-seconds."""
        until, held = to_ms(time.time()), Counter[str]()
        for spell in self._spells(UsageRequest()):
            if spell.node:
                held[spell.queue] += spell.clipped_ms(0, until) * spell.gpu_milli
        return held

    def _spells(self, query: UsageRequest) -> Iterator[Spell]:
        n = 0
        for row in self._rows():
            if query.user not in ("", row.user) or query.job not in ("", row.id):
                continue
            for spell in _of(row):
                n += 1
                spell.n = n
                yield spell

    def _rows(self) -> Iterator[JobRow]:
        offset = 0
        while True:
            page = self._store.jobs.find(JobQuery(sort="id", offset=offset, limit=MOST))
            yield from page.items
            offset += len(page.items)
            if len(page.items) < MOST:
                return


def _of(row: JobRow) -> Iterator[Spell]:
    """How long a Job waited, and what its last run held."""
    view = row.view
    begun, over = row.started_at, row.finished_at
    end = begun if begun is not None else over
    milli = round((view.get("gpus_held") or row.gpus) * WHOLE)
    about: dict[str, Any] = {
        "job": row.id,
        "attempt": int(view.get("attempt") or 0),
        "user": row.user,
        "queue": row.queue,
        "application": str(view.get("application") or ""),
        "labels": tuple(sorted((str(k), str(v)) for k, v in row.labels.items())),
    }
    yield Spell(
        *(0, to_ms(row.submitted_at), None if end is None else to_ms(end)),
        **about,
        gpu_milli=round(row.gpus * WHOLE),
    )
    if begun is None:
        return
    places = view.get("placement") or [{}]
    node = "+".join(sorted({str(place.get("node") or "?") for place in places}))
    kinds = view.get("kinds") or [""]
    yield Spell(
        *(0, to_ms(begun), None if over is None else to_ms(over)),
        **about,
        node=node,
        kind=str(kinds[0]) if len(kinds) == 1 else "",
        gpu_milli=milli,
        measured_to_ms=to_ms(begun),
    )
