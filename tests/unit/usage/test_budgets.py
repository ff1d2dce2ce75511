from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from roost.errors import InvalidSpec, NotFound, RoostError
from roost.usage.budgets import Budget, SpentBook, Standing, figure, read_amount
from roost.usage.prices import MICRO, PriceList, flat
from roost.usage.spells import MS, Spell
from roost.usage.totals import DAY_MS

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC).timestamp()  # a Thursday
MIDNIGHT = int(datetime(2026, 11, 19, tzinfo=UTC).timestamp()) * MS
HOUR = 3_600_000


def held(**more: Any) -> Spell:
    fields = {"begin_ms": MIDNIGHT - HOUR, "end_ms": MIDNIGHT + HOUR, "gpu_milli": 2000, **more}
    return Spell(
        n=1, job="a", attempt=1, user="ada", queue="vision", node="n", kind="A100", **fields
    )


def test_periods_begin_at_midnight() -> None:
    began = {
        every: datetime.fromtimestamp(
            Budget("user", "ada", 1, every=every).since_ms(NOON) / MS, UTC
        )
        for every in ("day", "week", "month", "year")
    }
    assert {every: (at.year, at.month, at.day, at.hour) for every, at in began.items()} == {
        "day": (2026, 11, 19, 0),
        "week": (2026, 11, 16, 0),
        "month": (2026, 11, 1, 0),
        "year": (2026, 1, 1, 0),
    }


def test_a_spell_counts_in_the_period_in_which_it_was() -> None:
    book = SpentBook()
    book.add(held(grown_milli=1000))
    today = Budget("user", "ada", MICRO, every="day")
    assert book.used(today, NOON, PriceList()) == 2 * MICRO
    assert book.used(Budget("queue", "vision", 1), NOON, PriceList()) == 4 * MICRO
    assert book.used(Budget("user", "bob", 1), NOON, PriceList()) == 0
    free = Budget("user", "ada", 1, every="day", growth_is_free=True)
    assert book.used(free, NOON, PriceList()) == MICRO
    in_money = Budget("user", "ada", 1, "USD", "day")
    assert book.used(in_money, NOON, flat(3 * MICRO, "USD")) == 6 * MICRO
    assert book.used(in_money, NOON, flat(3 * MICRO, "EUR")) == 0


def test_what_machines_lost_is_not_charged() -> None:
    book = SpentBook()
    book.add(
        held(lost=HOUR * 2000, blame="platform", begin_ms=MIDNIGHT, end_ms=MIDNIGHT + 2 * HOUR)
    )
    assert book.used(Budget("user", "ada", 1), NOON + DAY_MS / MS, PriceList()) == 2 * MICRO


def test_a_job_is_admitted_if_what_is_left_is_enough() -> None:
    standing = Standing(Budget("queue", "vision", 10 * MICRO), used=6 * MICRO, committed=2 * MICRO)
    assert standing.left == 2 * MICRO
    assert standing.admits(2 * MICRO)
    assert not standing.admits(2 * MICRO + 1)
    assert not Standing(standing.budget, used=10 * MICRO).admits(0)
    assert standing.refusal(3 * MICRO) == (
        "over budget: queue vision has 10 GPUh a month, 6 used and 2 expected of jobs before it; "
        "it would use 3"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: read_amount("-5", "GPUh"),
        lambda: read_amount("much", "GPUh"),
        lambda: read_amount("inf", "GPUh"),
        lambda: read_amount("5", "bananas"),
        lambda: Budget("user", "", 1),
        lambda: Budget("user", "ada", -1),
        lambda: Budget("user", "ada", 1, every="fortnight"),
        lambda: Budget("user", "ada", 1, then="kill"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises((InvalidSpec, NotFound)) as refused:
        wrong()
    assert isinstance(refused.value, RoostError)


def test_amounts() -> None:
    assert read_amount("500", "gpuh") == (500 * MICRO, "GPUh")
    assert read_amount("12.5", "usd") == (12_500_000, "USD")
    assert [figure(value) for value in (0, 2000, 1_500_000, 1_234_000_000)] == [
        *("0", "0.002", "1.5", "1,234"),
    ]
