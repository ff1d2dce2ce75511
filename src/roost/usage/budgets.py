"""Budgets: how much a user or a queue may use in a month, and what happens beyond that.

A budget is in GPU hours or in money. What jobs held in the running period is *used*; what running
and admitted jobs are still expected to hold is *committed*. A job that does not fit into the rest
is held before it starts; under ``suspend`` runs step aside once everything is used; under ``tell``
people are only told.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, TypeAlias

from roost.errors import InvalidSpec, unknown
from roost.usage.prices import MICRO, PriceList
from roost.usage.spells import GPU_HOUR, MS, Spell
from roost.usage.totals import DAY_MS, FORGIVEN

Subject: TypeAlias = Literal["user", "queue"]
SUBJECTS: Final[tuple[Subject, ...]] = ("user", "queue")
#: After how much of it a warning is due.
WARN_AT: Final = 0.8
#: The unit of a budget in GPU hours; others are currencies.
GPU_HOURS: Final = "GPUh"
EVERY: Final = ("day", "week", "month", "year", "ever")
THEN: Final = ("tell", "hold", "suspend")
_MOST = Decimal(10**9)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a user or a queue may use: ``amount`` is in millionths of its unit."""

    subject: Subject
    name: str
    amount: int
    unit: str = GPU_HOURS
    every: str = "month"
    then: str = "hold"
    growth_is_free: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidSpec for words that mean nothing."""
        for what, value, known in (
            ("subject of a budget", self.subject, SUBJECTS),
            ("period", self.every, EVERY),
            ("consequence", self.then, THEN),
        ):
            if value not in known:
                raise InvalidSpec(str(unknown(what, value, known)))
        if not self.name:
            raise InvalidSpec("a budget is that of a user or a queue: give a name")
        if not 0 <= self.amount <= int(_MOST) * MICRO:
            raise InvalidSpec(f"a budget is between 0 and {_MOST}")

    @property
    def text(self) -> str:
        """The budget in words, such as ``500 GPUh a month``."""
        often = "in all" if self.every == "ever" else f"a {self.every}"
        return f"{figure(self.amount)} {self.unit} {often}"

    def since_ms(self, now: float) -> int:
        """When the period began in which a time lies, UTC; weeks begin on Mondays."""
        at = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        match self.every:
            case "ever":
                return 0
            case "week":
                at -= timedelta(days=at.weekday())
            case "month":
                at = at.replace(day=1)
            case "year":
                at = at.replace(month=1, day=1)
            case _:
                pass
        return int(at.timestamp()) * MS

    def worth(self, held: int, kind: str, prices: PriceList, at_ms: int) -> int:
        """What GPU time counts in this budget, in millionths; without a price it counts nothing."""
        if self.unit == GPU_HOURS:
            return held * MICRO // GPU_HOUR
        price = prices.at(kind, at_ms) if prices.currency == self.unit else None
        return 0 if price is None else held * price // GPU_HOUR

    def document(self) -> dict[str, Any]:
        """Its fields, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Standing:
    """How a budget stands: used, and committed to jobs that run or may start."""

    budget: Budget
    used: int = 0
    committed: int = 0

    @property
    def left(self) -> int:
        """What is left of it, if all goes as expected; never less than nothing."""
        return max(0, self.budget.amount - self.used - self.committed)

    @property
    def spent(self) -> bool:
        """Whether all of it is used."""
        return self.used >= self.budget.amount

    @property
    def warns(self) -> bool:
        """Whether people are to be warned."""
        return self.used >= WARN_AT * self.budget.amount

    def admits(self, expected: int) -> bool:
        """Whether a job may start that is expected to use so much."""
        rest = self.budget.amount - self.used - self.committed
        return rest > 0 and expected <= rest

    def refusal(self, expected: int) -> str:
        """Why a job has to wait, in words."""
        budget = self.budget
        whose = f"{budget.subject} {budget.name} has {budget.text}"
        used = f"{figure(self.used)} used"
        if self.committed:
            used += f" and {figure(self.committed)} expected of jobs before it"
        asks = f"; it would use {figure(expected)}" if expected else ""
        return f"over budget: {whose}, {used}{asks}"


def read_amount(text: str, unit: str) -> tuple[int, str]:
    """Millionths and the unit of ``500 GPUh`` or ``1200 USD``; raises InvalidSpec."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise InvalidSpec(f"{text[:40]!r} is no amount: say 500 GPUh, or 1200 USD") from None
    if not value.is_finite() or not 0 <= value <= _MOST:
        raise InvalidSpec(f"a budget is between 0 and {_MOST}, not {text[:40]}")
    if unit.lower() == GPU_HOURS.lower():
        return int(value * MICRO), GPU_HOURS
    if len(unit) != 3 or not unit.isalpha():  # noqa: PLR2004 - as ISO 4217 has it
        raise InvalidSpec(f"{unit[:20]!r} is no unit of a budget: GPUh, or a currency such as USD")
    return int(value * MICRO), unit.upper()


def figure(micro: int) -> str:
    """Millionths as people read them."""
    value = micro / MICRO
    if 0 < value < 1:
        return f"{value:.2g}"
    return f"{value:,.2f}".rstrip("0").rstrip(".")


class SpentBook:
    """What spells that are over held, by user and by queue, kind and day.

    Periods of budgets begin at midnight, so that days are fine enough.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], dict[tuple[int, str], int]] = {}
        self._grown: dict[tuple[str, str], dict[tuple[int, str], int]] = {}

    def add(self, spell: Spell) -> None:
        """Count a spell that is over; what machines and the scheduler lost of it is not charged."""
        if spell.end_ms is None or not spell.node:
            return
        forgiven = spell.lost if spell.blame in FORGIVEN else 0
        begin = spell.begin_ms
        while begin < spell.end_ms:
            end = min(spell.end_ms, (begin // DAY_MS + 1) * DAY_MS)
            held = (end - begin) * spell.gpu_milli
            if end == spell.end_ms:
                held = max(0, held - forgiven)
            place = begin // DAY_MS * DAY_MS, spell.kind
            for whose in (("user", spell.user), ("queue", spell.queue)):
                _count(self._held.setdefault(whose, {}), place, held)
                grown = min(held, (end - begin) * spell.grown_milli)
                _count(self._grown.setdefault(whose, {}), place, grown)
            begin = end

    def used(self, budget: Budget, now: float, prices: PriceList) -> int:
        """What counts of them in the running period of a budget, in millionths of its unit."""
        since, whose = budget.since_ms(now), (budget.subject, budget.name)
        grown = self._grown.get(whose, {}) if budget.growth_is_free else {}
        return sum(
            budget.worth(held - grown.get((day, kind), 0), kind, prices, day)
            for (day, kind), held in self._held.get(whose, {}).items()
            if day >= since
        )


def _count(amounts: dict[tuple[int, str], int], place: tuple[int, str], amount: int) -> None:
    if amount:
        amounts[place] = amounts.get(place, 0) + amount
