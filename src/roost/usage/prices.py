"""Prices of GPU hours: by kind, each from a day on, in one currency, with its source.

A price is whole: millionths of the currency for a GPU hour. What has no price has none; it is never
taken to be free. A new price begins on its day and alters nothing before.
"""

from __future__ import annotations

import bisect
import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Final

from roost.errors import InvalidSpec
from roost.usage.spells import GPU_HOUR

#: Parts of a currency's unit.
MICRO: Final = 1_000_000
#: A price that is older than so many days is said to be old.
OLD_DAYS: Final = 90
#: Stands for all kinds that have no price of their own.
ANY_KIND: Final = "*"
COLUMNS: Final = ("kind", "price", "currency", "from", "source")
_MOST = Decimal(100_000)
_MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Price:
    """What a GPU hour of a kind costs from a day on."""

    kind: str
    micro: int
    currency: str
    since: date
    source: str = ""

    @property
    def since_ms(self) -> int:
        """The beginning of its day, UTC."""
        return (
            int(datetime(self.since.year, self.since.month, self.since.day, tzinfo=UTC).timestamp())
            * 1000
        )

    def is_old(self, today: date) -> bool:
        """Whether it is so old that people should be told."""
        return (today - self.since).days > OLD_DAYS

    def row(self) -> dict[str, str]:
        """The price as a line of a table."""
        amount = f"{Decimal(self.micro) / MICRO:f}"
        return dict(
            zip(
                COLUMNS,
                (self.kind, amount, self.currency, self.since.isoformat(), self.source),
                strict=True,
            )
        )


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices of one currency; empty: nothing has a price."""

    prices: tuple[Price, ...] = ()
    _dated: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Sort them by kind and day; raises InvalidSpec where they have several currencies."""
        currencies = sorted({price.currency for price in self.prices})
        if len(currencies) > 1:
            raise InvalidSpec(
                f"prices in {' and '.join(currencies)} cannot be added: use one currency"
            )
        dated: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        for kind in {price.kind for price in self.prices}:
            rows = sorted((p.since_ms, p.micro) for p in self.prices if p.kind == kind)
            days = tuple(day for day, _ in rows)
            if len(set(days)) < len(days):
                raise InvalidSpec(f"{kind} has two prices from the same day on")
            dated[kind] = days, tuple(micro for _, micro in rows)
        object.__setattr__(self, "_dated", dated)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.prices)

    @property
    def currency(self) -> str:
        """What they are in; empty: there are none."""
        return self.prices[0].currency if self.prices else ""

    def at(self, kind: str, at_ms: int) -> int | None:
        """The price of a GPU hour at a time; None: there is none."""
        days, micros = self._dated.get(kind) or self._dated.get(ANY_KIND) or ((), ())
        place = bisect.bisect_right(days, at_ms)
        return micros[place - 1] if place else None

    def pieces(self, kind: str, begin_ms: int, end_ms: int) -> Iterator[tuple[int, int | None]]:
        """A time cut where the price of a kind changes: how long, and the price then."""
        days, _ = self._dated.get(kind) or self._dated.get(ANY_KIND) or ((), ())
        if not days or begin_ms >= days[-1] or end_ms <= days[0]:
            yield end_ms - begin_ms, self.at(kind, begin_ms)
            return
        cuts = [begin_ms, *(day for day in days if begin_ms < day < end_ms), end_ms]
        for begin, end in pairwise(cuts):
            yield end - begin, self.at(kind, begin)

    def old(self, today: date) -> list[str]:
        """Kinds whose newest price is old."""
        newest: dict[str, Price] = {}
        for price in sorted(self.prices, key=lambda price: price.since):
            newest[price.kind] = price
        return sorted(kind for kind, price in newest.items() if price.is_old(today))


def amount(cost: int) -> float:
    """A sum of costs, as totals count it, in units of the currency."""
    return cost / GPU_HOUR / MICRO


def flat(micro: int, currency: str, since: date = date(1970, 1, 1)) -> PriceList:
    """One price for every kind."""
    return PriceList((Price(ANY_KIND, micro, currency, since),))


def money(text: str, what: str) -> int:
    """Millionths of what a text such as ``2.30`` says; raises InvalidSpec."""
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise InvalidSpec(f"{what}: {text[:40]!r} is no amount of money, such as 2.30") from None
    if not value.is_finite() or not 0 <= value <= _MOST:
        raise InvalidSpec(f"{what}: {text[:40]} is not between 0 and {_MOST}")
    return int((value * MICRO).to_integral_value())


def day(text: str, what: str) -> date:
    """A day such as 2026-08-01; raises InvalidSpec."""
    try:
        return date.fromisoformat(text.strip()[:10])
    except ValueError:
        raise InvalidSpec(f"{what}: {text[:40]!r} is no day, such as 2026-08-01") from None


def read_prices(lines: Iterable[str], what: str) -> PriceList:
    """Read a table with the columns kind, price, currency, from and source; raises InvalidSpec."""
    rows = csv.DictReader(lines)
    missing = [name for name in COLUMNS[:4] if name not in (rows.fieldnames or ())]
    if missing:
        raise InvalidSpec(
            f"{what}: the column {missing[0]} is missing; needed: {', '.join(COLUMNS)}"
        )
    found = []
    for number, row in enumerate(rows, 2):
        where = f"{what}, line {number}"
        if number > _MOST_ROWS:
            raise InvalidSpec(f"{what}: more than {_MOST_ROWS} prices")
        kind, currency = (row["kind"] or "").strip(), (row["currency"] or "").strip().upper()
        if not kind or len(kind) > 64:  # noqa: PLR2004 - as long as a kind may be
            raise InvalidSpec(f"{where}: it names no kind of GPU")
        if len(currency) != 3 or not currency.isalpha():  # noqa: PLR2004 - as ISO 4217 has it
            raise InvalidSpec(f"{where}: {currency[:10]!r} is no currency, such as USD")
        source = (row.get("source") or "").strip()[:200]
        found.append(
            Price(
                kind,
                money(row["price"] or "", where),
                currency,
                day(row["from"] or "", where),
                source,
            )
        )
    return PriceList(tuple(found))


def per_hour(value: float, what: str) -> int:
    """Millionths of a price that was worked out; raises InvalidSpec where it is no price."""
    if not math.isfinite(value) or not 0 <= value <= _MOST:
        raise InvalidSpec(f"{what}: {value} is no price")
    return round(value * MICRO)
