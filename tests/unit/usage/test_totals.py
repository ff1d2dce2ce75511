from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from roost.errors import InvalidSpec
from roost.usage.prices import Price, PriceList, amount, flat
from roost.usage.spells import GPU_HOUR, AnySpell, NodeSpell, Spell
from roost.usage.totals import DAY_MS, ChargeRule, Period, keys_of, total

HOUR = 3_600_000
NODE = NodeSpell(1, 0, None, "n0", "A100", 4000, 0)
HELD = Spell(
    *(2, 0, 10 * HOUR, "a", 1, "ada", "vision", "resnet", (("team", "x"),)),
    node="n0",
    kind="A100",
    gpu_milli=2000,
    grown_milli=500,
    measured=4 * HOUR * 2000,
    busy=HOUR * 2000,
    measured_to_ms=4 * HOUR,
)
WAITS = Spell(3, 0, HOUR, "b", 0, "bob", "speech", gpu_milli=1000)
ALL: list[AnySpell] = [NODE, HELD, WAITS]
DAY = Period(0, 24 * HOUR)


def test_rows_add_up_to_the_total_and_that_to_the_capacity() -> None:
    found = total(ALL, DAY)
    assert found.rows["ada",].held == found.total.held == 20 * GPU_HOUR
    assert found.rows["bob",].waiting == GPU_HOUR
    assert found.capacity == 96 * GPU_HOUR
    assert found.idle == 76 * GPU_HOUR
    assert (found.total.busy, found.total.wasted) == (2 * GPU_HOUR, 6 * GPU_HOUR)


@pytest.mark.parametrize("cut", [1, HOUR, 3 * HOUR + 7, 9 * HOUR])
def test_however_a_time_is_cut_its_pieces_add_up(cut: int) -> None:
    whole = total(ALL, DAY).total
    first, second = total(ALL, Period(0, cut)).total, total(ALL, Period(cut, DAY[1])).total
    for name in ("held", "grown", "busy", "measured", "waiting"):
        assert getattr(first, name) + getattr(second, name) == getattr(whole, name)


def test_keys() -> None:
    long = replace(HELD, begin_ms=DAY_MS - HOUR, end_ms=DAY_MS + 2 * HOUR)
    found = total([long], Period(0, 9 * DAY_MS), ("day", "label:team"))
    assert {keys: row.held for keys, row in found.rows.items()} == {
        ("1970-01-01", "x"): 2 * GPU_HOUR,
        ("1970-01-02", "x"): 4 * GPU_HOUR,
    }
    assert total([HELD, WAITS], DAY, ("label",)).rows.keys() == {("team=x",), ("",)}
    for wrong in ("users", "user,user", "user,day,node,job", "label:", ""):
        with pytest.raises(InvalidSpec):
            keys_of(wrong)


def test_what_has_no_price_has_no_cost() -> None:
    prices = PriceList((Price("H100", 1_000_000, "USD", date(1970, 1, 1)),))
    found = total(ALL, DAY, charging=ChargeRule(prices))
    assert found.total.cost == 0
    assert found.total.unpriced == 20 * GPU_HOUR


def test_a_price_alters_nothing_before_its_day() -> None:
    prices = PriceList(
        (
            Price("*", 1_000_000, "USD", date(1970, 1, 1)),
            Price("*", 3_000_000, "USD", date(1970, 1, 2)),
        )
    )
    late = replace(HELD, begin_ms=DAY_MS - HOUR, end_ms=DAY_MS + HOUR)
    found = total([late], Period(0, 9 * DAY_MS), charging=ChargeRule(prices))
    assert amount(found.total.cost) == pytest.approx(2 * 1 + 2 * 3)


def test_jobs_and_what_is_charged_to_nobody_are_all_that_was_in_service() -> None:
    lost = replace(HELD, lost=GPU_HOUR, blame="platform")
    found = total(
        [NODE, lost, WAITS], DAY, charging=ChargeRule(flat(2_000_000, "USD"), growth_is_free=True)
    )
    assert amount(found.total.cost) == pytest.approx((20 - 5 - 1) * 2.0)
    assert amount(found.total.cost + found.idle_cost) == pytest.approx(96 * 2.0)
    assert found.total.lost == {"platform": GPU_HOUR}
