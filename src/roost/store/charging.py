"""Prices and budgets: what a GPU hour costs, and who may use how much.

They stand beside the journal. Every change adds a line to the event log, in its transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime

from roost.errors import Conflict, NotFound
from roost.store import events
from roost.store.database import Database, Session
from roost.store.encoding import clean
from roost.store.journal import Journal
from roost.store.rows import EventRow
from roost.usage.budgets import Budget
from roost.usage.prices import Price, PriceList

_PRICE = "kind, since, micro, currency, source"
_BUDGET = "subject, name, amount, unit, every, consequence, growth_is_free"


class PriceTable:
    """The prices of a server."""

    def __init__(self, database: Database, journal: Journal, clock: Callable[[], float]) -> None:
        self._database, self._journal, self._clock = database, journal, clock

    def all(self) -> PriceList:
        """Every price."""
        with self._database.reading() as session:
            return _prices(session)

    def add(self, prices: Sequence[Price], *, actor: str = "") -> PriceList:
        """Take over prices; a price that is there already changes nothing.

        Raises Conflict where one would alter what was charged before today, and InvalidSpec where
        the currencies differ.
        """
        today = datetime.fromtimestamp(self._clock(), UTC).date()
        with self._database.writing() as session:
            self._journal.fence(session)
            known = _prices(session)
            fresh = [price for price in prices if price not in known.prices]
            for price in fresh:
                _check_past(known, price, today)
            renewed = {(price.kind, price.since) for price in fresh}
            kept = [p for p in known.prices if (p.kind, p.since) not in renewed]
            found = PriceList((*kept, *fresh))
            for price in fresh:
                session.run(
                    f"INSERT INTO usage_prices ({_PRICE}) VALUES (?, ?, ?, ?, ?) "  # noqa: S608 - constants
                    "ON CONFLICT (kind, since) DO UPDATE SET micro = excluded.micro, "
                    "currency = excluded.currency, source = excluded.source",
                    (
                        clean(price.kind),
                        price.since.isoformat(),
                        price.micro,
                        price.currency,
                        clean(price.source),
                    ),
                )
            if fresh:
                kinds = ", ".join(sorted({price.kind for price in fresh})[:10])
                _note(session, self._clock(), actor, f"prices of {kinds} set")
        return found


class BudgetTable:
    """The budgets of users and queues."""

    def __init__(self, database: Database, journal: Journal, clock: Callable[[], float]) -> None:
        self._database, self._journal, self._clock = database, journal, clock

    def all(self) -> list[Budget]:
        """Every budget, by subject and name."""
        with self._database.reading() as session:
            rows = session.all(f"SELECT {_BUDGET} FROM budgets ORDER BY subject, name")  # noqa: S608 - constants
        return [
            Budget(subject, name, amount, unit, every, then, growth_is_free=bool(free))
            for subject, name, amount, unit, every, then, free in rows
        ]

    def set(self, budget: Budget, *, actor: str = "") -> None:
        """Give a user or a queue a budget, in the place of what it had."""
        with self._database.writing() as session:
            self._journal.fence(session)
            session.run(
                "DELETE FROM budgets WHERE subject = ? AND name = ?", (budget.subject, budget.name)
            )
            session.run(
                f"INSERT INTO budgets ({_BUDGET}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
                (
                    *(budget.subject, clean(budget.name), budget.amount, budget.unit),
                    *(budget.every, budget.then, int(budget.growth_is_free)),
                ),
            )
            text = f"budget of {budget.subject} {budget.name}: {budget.text}, then {budget.then}"
            _note(session, self._clock(), actor, text)

    def delete(self, subject: str, name: str, *, actor: str = "") -> None:
        """Take a budget away; raises NotFound."""
        with self._database.writing() as session:
            self._journal.fence(session)
            gone = session.run(
                "DELETE FROM budgets WHERE subject = ? AND name = ?", (subject, clean(name))
            )
            if gone != 1:
                raise NotFound(f"{subject} {clean(name)[:100]} has no budget")
            _note(session, self._clock(), actor, f"budget of {subject} {clean(name)} taken away")


def _check_past(known: PriceList, price: Price, today: date) -> None:
    """A price change never alters the past; a kind without any price may be given one."""
    before = [other for other in known.prices if other.kind == price.kind]
    if before and price.since < today:
        raise Conflict(
            f"{price.kind} has a price already, and a new one begins today at the earliest: what "
            f"was charged stays (it says from {price.since})"
        )


def _prices(session: Session) -> PriceList:
    rows = session.all(f"SELECT {_PRICE} FROM usage_prices ORDER BY kind, since")  # noqa: S608 - constants
    return PriceList(
        tuple(
            Price(kind, micro, currency, date.fromisoformat(since), source)
            for kind, since, micro, currency, source in rows
        )
    )


def _note(session: Session, time: float, actor: str, text: str) -> None:
    events.note(session, EventRow(0, 0, time, actor, kind="budget", text=text))
