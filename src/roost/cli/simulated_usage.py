"""Usage of a simulated run, and what it costs: ``roost simulate --price``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from roost.cli.output import print_table
from roost.usage.meter import Meter
from roost.usage.ownership import HOURS, Ownership
from roost.usage.prices import MICRO, PriceList, amount, flat, money, per_hour
from roost.usage.spells import GPU_HOUR, AnySpell, to_ms
from roost.usage.totals import ChargeRule, Period, UsageTotals, total

if TYPE_CHECKING:
    from roost.core import Action, Decision, Event, JobId
    from roost.sim.simulation import Simulation

_OWN = "own"


class WorldUsage:
    """Meters a simulation, batch by batch."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._meter = simulation, Meter()
        self._spells: dict[int, AnySpell] = {}
        self._since_ms = to_ms(simulation.now)

    def note(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        """Take in a batch."""
        from roost.jobs.history import touched

        core = self._simulation.core
        jobs: dict[JobId, None] = touched(core, events, actions)
        jobs |= {decision.job: None for decision in decisions}
        for spell in self._meter.fold(core, events, jobs):
            self._spells[spell.n] = spell

    def totals(self, price: str) -> tuple[UsageTotals, PriceList]:
        """What it comes to by queue, at a price such as 2.30, or at what an own node costs."""
        period = Period(self._since_ms, to_ms(self._simulation.now))
        plain = total(self._spells.values(), period, ("queue",))
        prices = flat(_micro(price, plain, period), "")
        return total(self._spells.values(), period, ("queue",), ChargeRule(prices)), prices


def print_usage(usage: WorldUsage, price: str) -> None:
    """Show who held how much and what that cost; the last line is what nobody paid for."""
    found, prices = usage.totals(price)
    rows = [
        {
            "queue": name,
            "jobs": str(len(row.jobs)),
            "gpu-hours": f"{row.held / GPU_HOUR:,.1f}",
            "lost": f"{sum(row.lost.values()) / GPU_HOUR:,.1f}",
            "waiting": f"{row.waiting / GPU_HOUR:,.1f}",
            "cost": f"{amount(row.cost):,.2f}",
        }
        for (name,), row in sorted(found.rows.items())
    ]
    click.echo()
    print_table(rows)
    everything = amount(found.total.cost + found.idle_cost)
    click.echo(
        f"cost at {prices.prices[0].micro / MICRO:.4g} a GPU hour: jobs "
        f"{amount(found.total.cost):,.2f} + charged to nobody {amount(found.idle_cost):,.2f} "
        f"= {everything:,.2f}; idle {found.idle / GPU_HOUR:,.1f}, out of service "
        f"{found.out_of_service / GPU_HOUR:,.1f} of {found.capacity / GPU_HOUR:,.1f} GPU hours"
    )


def _micro(price: str, found: UsageTotals, period: Period) -> int:
    """Millionths of a price of an hour in service; of an own node, all of whose cost it carries."""
    word, _, settings = price.partition(":")
    if word != _OWN:
        return money(price, "--price")
    from roost.settings import build

    own = build(Ownership, "--price own", settings)
    hours = (period.until_ms - period.since_ms) / 3_600_000
    in_service = (found.capacity - found.out_of_service) / GPU_HOUR
    if not in_service:
        return 0
    gpus = found.capacity / GPU_HOUR / hours
    cost = own.total / own.gpus * gpus * hours / HOURS
    return per_hour(cost / in_service, "--price own")
