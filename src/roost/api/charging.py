"""Prices and budgets: what a GPU hour costs, and who may use how much."""

from __future__ import annotations

from dataclasses import dataclass, field

from roost.api.schema import WireView


@dataclass(frozen=True, slots=True)
class PriceView(WireView):
    """What a GPU hour of a kind costs from a day on (UTC)."""

    kind: str
    price: str = field(metadata={"description": "A decimal number, with all its digits."})
    currency: str
    since: str
    source: str = ""
    old: bool = field(default=False, metadata={"description": "Older than 90 days."})


@dataclass(frozen=True, slots=True)
class PriceLines(WireView):
    """All prices, by kind and day."""

    items: tuple[PriceView, ...]


@dataclass(frozen=True, slots=True)
class BudgetView(WireView):
    """The budget of a user or a queue, and how it stands in the running period."""

    subject: str
    name: str
    amount: float
    unit: str
    every: str
    then: str
    growth_is_free: bool = False
    since: float = 0.0
    used: float = 0.0
    committed: float = field(
        default=0.0, metadata={"description": "Expected of jobs that run or may start."}
    )
    left: float = 0.0
    held: tuple[str, ...] = field(
        default=(), metadata={"description": "Jobs that wait because of it."}
    )


@dataclass(frozen=True, slots=True)
class BudgetList(WireView):
    """Budgets that the caller may know of."""

    items: tuple[BudgetView, ...]
