from __future__ import annotations

from datetime import date

import pytest

from roost.errors import InvalidSpec
from roost.usage.prices import Price, PriceList, money, read_prices

HEAD = "kind,price,currency,from,source"


def test_a_table_is_read() -> None:
    found = read_prices([HEAD, "A100,2.30,usd,2026-01-01,our books"], "prices.csv")
    assert found.prices == (Price("A100", 2_300_000, "USD", date(2026, 1, 1), "our books"),)
    assert found.prices[0].row()["price"] == "2.3"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["kind,price", "A100,1"], "the column currency is missing"),
        ([HEAD, ",1,USD,2026-01-01,"], "line 2: it names no kind"),
        ([HEAD, "A100,-1,USD,2026-01-01,"], "line 2: -1 is not between 0"),
        ([HEAD, "A100,,USD,2026-01-01,"], "line 2: '' is no amount of money"),
        ([HEAD, "A100,nan,USD,2026-01-01,"], "not between"),
        ([HEAD, "A100,1,dollars,2026-01-01,"], "is no currency"),
        ([HEAD, "A100,1,USD,soon,"], "is no day"),
        ([HEAD, "A100,1,USD,2026-01-01,", "H100,1,EUR,2026-01-01,"], "EUR and USD cannot be added"),
        (
            [HEAD, "A100,1,USD,2026-01-01,", "A100,2,USD,2026-01-01,"],
            "two prices from the same day",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(lines: list[str], why: str) -> None:
    with pytest.raises(InvalidSpec, match=why):
        read_prices(lines, "prices.csv")


def test_a_kind_of_its_own_goes_before_any() -> None:
    start = date(2026, 1, 1)
    prices = PriceList((Price("*", 5, "USD", start), Price("A100", 7, "USD", start)))
    at = prices.prices[0].since_ms
    assert (prices.at("A100", at), prices.at("T4", at), prices.at("A100", at - 1)) == (7, 5, None)


def test_old_prices_are_named() -> None:
    prices = PriceList((Price("A100", 7, "USD", date(2026, 1, 1)),))
    assert prices.old(date(2026, 3, 1)) == []
    assert prices.old(date(2026, 6, 1)) == ["A100"]


def test_money_is_whole() -> None:
    assert money("0.000001", "it") == 1
    with pytest.raises(InvalidSpec):
        money("1e9", "it")
