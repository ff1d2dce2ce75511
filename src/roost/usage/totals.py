"""Totals of usage: what spells come to by user, queue, application, label, node, job or day.

A pure function of spells and prices, in whole numbers: the rows add up to the total, and the total,
what was idle and what was out of service add up to the capacity, to the last milli-GPU and
millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from roost.errors import InvalidSpec, unknown
from roost.usage.prices import PriceList
from roost.usage.spells import AnySpell, NodeSpell, Spell

#: By what usage can be told; ``label:KEY`` tells it by the values of one label.
KEYS = ("user", "queue", "application", "label", "node", "job", "day")
DAY_MS = 86_400_000
#: Lost work of these blames is not charged: it was not the job's doing.
FORGIVEN = ("scheduler", "platform")
_MOST_KEYS = 3
_SUMS = (
    *("held", "grown", "measured", "busy", "waiting", "cpu", "memory"),
    *("charged", "unpriced", "cost"),
)


class Period(NamedTuple):
    """From when to when, in milliseconds."""

    since_ms: int
    until_ms: int


@dataclass(slots=True)
class Amounts:
    """What was used, in micro-GPU-seconds, milli-CPU-milliseconds and MiB-milliseconds.

    ``measured`` is the part of what was held of which it is known how busy it was. ``cost`` is in
    millionths of the currency times GPU hours, so that it is whole; ``unpriced`` has no price.
    """

    jobs: set[str] = field(default_factory=set)
    held: int = 0
    grown: int = 0
    measured: int = 0
    busy: int = 0
    waiting: int = 0
    cpu: int = 0
    memory: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    charged: int = 0
    unpriced: int = 0
    cost: int = 0

    def take(self, other: Amounts) -> None:
        """Add other amounts."""
        self.jobs |= other.jobs
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for blame, amount in other.lost.items():
            self.lost[blame] = self.lost.get(blame, 0) + amount

    @property
    def wasted(self) -> int:
        """What was held and measured, and not busy."""
        return self.measured - self.busy


@dataclass(slots=True)
class UsageTotals:
    """Rows by their keys, the total, and what else the cluster had."""

    by: tuple[str, ...]
    period: Period
    rows: dict[tuple[str, ...], Amounts] = field(default_factory=dict)
    total: Amounts = field(default_factory=Amounts)
    capacity: int = 0
    out_of_service: int = 0
    idle_cost: int = 0
    idle_unpriced: int = 0

    @property
    def idle(self) -> int:
        """What nobody held of what was in service."""
        return self.capacity - self.out_of_service - self.total.held


@dataclass(frozen=True, slots=True)
class ChargeRule:
    """What is charged for: prices, and whether growth on idle GPUs is free."""

    prices: PriceList = field(default_factory=PriceList)
    growth_is_free: bool = False


@dataclass(frozen=True, slots=True)
class UsageRequest:
    """What is asked of usage: by which keys, of which time, of a user or a job if that is so.

    Only who sees ``all`` is told what the cluster had.
    """

    by: str = "user"
    since: float = 0.0
    until: float | None = None
    user: str = ""
    job: str = ""
    all: bool = True


def keys_of(text: str) -> tuple[str, ...]:
    """The keys of ``user``, or of ``user,day``; raises InvalidSpec."""
    keys = tuple(text.split(","))
    if len(keys) > _MOST_KEYS or len(set(keys)) < len(keys):
        raise InvalidSpec(f"usage is told by up to {_MOST_KEYS} different keys, such as user,day")
    for key in keys:
        if key not in KEYS and not (key.startswith("label:") and key != "label:"):
            raise InvalidSpec(str(unknown("key of usage", key, (*KEYS, "label:KEY"))))
    return keys


def total(
    spells: Iterable[AnySpell],
    period: Period,
    by: Sequence[str] = ("user",),
    charging: ChargeRule | None = None,
) -> UsageTotals:
    """Add up what lies in a period; what goes on lasts until its end."""
    charging = charging or ChargeRule()
    found = UsageTotals(tuple(by), period)
    worth = _Worth()
    for spell in spells:
        if isinstance(spell, NodeSpell):
            _add_node(found, spell, charging, worth)
            continue
        for begin, end in _pieces(spell, period, days="day" in by):
            key = tuple(_key(spell, name, begin) for name in by)
            row = found.rows.get(key)
            if row is None:
                row = found.rows[key] = Amounts()
            _add(row, spell, Period(begin, end), charging)
    for row in found.rows.values():
        found.total.take(row)
    found.idle_cost, found.idle_unpriced = worth.idle(found.total, charging)
    return found


@dataclass(slots=True)
class _Worth:
    """What devices in service were worth, held or not."""

    cost: int = 0
    unpriced: int = 0

    def idle(self, held: Amounts, charging: ChargeRule) -> tuple[int, int]:
        """What is left of it for nobody: idle GPUs, and what was held and is not charged."""
        if not charging.prices:
            return 0, 0
        return self.cost - held.cost, self.unpriced - held.unpriced


def _add_node(found: UsageTotals, spell: NodeSpell, charging: ChargeRule, worth: _Worth) -> None:
    begin = max(spell.begin_ms, found.period.since_ms)
    end = begin + spell.clipped_ms(*found.period)
    if end <= begin:
        return
    found.capacity += (end - begin) * spell.gpu_milli
    found.out_of_service += (end - begin) * spell.out_milli
    for lasts, price in charging.prices.pieces(spell.kind, begin, end):
        amount = lasts * (spell.gpu_milli - spell.out_milli)
        if price is None:
            worth.unpriced += amount
        else:
            worth.cost += amount * price


def _pieces(spell: Spell, period: Period, *, days: bool) -> Iterator[tuple[int, int]]:
    begin = max(spell.begin_ms, period.since_ms)
    end = begin + spell.clipped_ms(*period)
    if end <= begin and not (spell.lost and period.since_ms <= begin < period.until_ms):
        return
    while days and begin // DAY_MS < (end - 1) // DAY_MS:
        midnight = (begin // DAY_MS + 1) * DAY_MS
        yield begin, midnight
        begin = midnight
    yield begin, end


def _add(amounts: Amounts, spell: Spell, piece: Period, charging: ChargeRule) -> None:
    begin, end = piece
    amounts.jobs.add(spell.job)
    if not spell.node:
        amounts.waiting += (end - begin) * spell.gpu_milli
        return
    amounts.held += (end - begin) * spell.gpu_milli
    amounts.grown += (end - begin) * spell.grown_milli
    amounts.cpu += (end - begin) * spell.cpu_milli
    amounts.memory += (end - begin) * spell.memory_mib
    if spell.measured:
        measured = Period(spell.begin_ms, spell.measured_to_ms)
        amounts.measured += _part(spell.measured, measured, piece)
        amounts.busy += _part(spell.busy, measured, piece)
    milli = spell.gpu_milli - (spell.grown_milli if charging.growth_is_free else 0)
    for lasts, price in charging.prices.pieces(spell.kind, begin, end):
        _charge(amounts, lasts * milli, price)
    if spell.lost and spell.end_ms is not None and begin <= spell.end_ms <= end:
        amounts.lost[spell.blame] = amounts.lost.get(spell.blame, 0) + spell.lost
        if spell.blame in FORGIVEN:
            _charge(amounts, -min(spell.lost, _held(spell)), charging.prices.at(spell.kind, end))


def _held(spell: Spell) -> int:
    return ((spell.end_ms or spell.begin_ms) - spell.begin_ms) * spell.gpu_milli


def _charge(amounts: Amounts, amount: int, price: int | None) -> None:
    amounts.charged += amount
    if price is None:
        amounts.unpriced += amount
    else:
        amounts.cost += amount * price


def _part(amount: int, whole: Period, piece: Period) -> int:
    """What of an amount lies in a piece, if it is spread evenly; pieces add up to all of it."""
    lasts = whole.until_ms - whole.since_ms
    if not amount or lasts <= 0:
        return 0

    def until(at: int) -> int:
        return amount * (min(max(at, whole.since_ms), whole.until_ms) - whole.since_ms) // lasts

    return until(piece.until_ms) - until(piece.since_ms)


def _key(spell: Spell, name: str, begin_ms: int) -> str:
    if name == "day":
        return datetime.fromtimestamp(begin_ms / 1000, UTC).strftime("%Y-%m-%d")
    if name == "label":
        return ",".join(f"{key}={value}" for key, value in spell.labels)
    if name.startswith("label:"):
        return dict(spell.labels).get(name.removeprefix("label:"), "")
    return str(getattr(spell, name))
