"""The worked example of the formulas: eight H100 for 320 000, one of 64 nodes."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from roost.errors import InvalidSpec
from roost.usage.ownership import SOURCES, Ownership

EXAMPLE = Ownership()


def test_the_items_of_a_year() -> None:
    assert {name: round(cost) for name, cost in EXAMPLE.items().items() if cost} == {
        "capital": 71_680,
        "maintenance": 16_000,
        "electricity": 9_632,
        "space": 6_120,
        "staff": 3_906,
    }
    assert round(EXAMPLE.total) == 107_338
    assert round(EXAMPLE.total / 8) == 13_417


@pytest.mark.parametrize(("use", "cost"), [(0.3, 5.37), (0.5, 3.22), (0.7, 2.30), (0.9, 1.79)])
def test_a_useful_hour(use: float, cost: float) -> None:
    found = EXAMPLE.per_hour(use)
    assert found is not None
    assert round(found, 2) == cost


@pytest.mark.parametrize(
    ("offer", "use"), [(1.87, 0.86), (2.89, 0.56), (3.85, 0.42), (6.98, 0.23), (9.80, 0.16)]
)
def test_break_even(offer: float, use: float) -> None:
    found = EXAMPLE.break_even(offer)
    assert found is not None
    assert round(found, 2) == use


def test_one_node_takes_a_quarter_of_a_person_and_life_is_the_largest_lever() -> None:
    alone = replace(EXAMPLE, nodes=1)
    assert round(alone.total) == 165_932
    assert round(alone.per_hour(0.7) or 0, 2) == 3.56
    lives = [replace(EXAMPLE, life_years=years).per_hour(0.7) or 0 for years in (3, 7)]
    assert [round(cost, 2) for cost in lives] == [3.33, 1.86]


def test_no_use_no_useful_hour() -> None:
    assert EXAMPLE.per_hour(0.0) is None
    assert EXAMPLE.break_even(0.0) is None


@pytest.mark.parametrize(
    "wrong",
    [{"life_years": 0.0}, {"price": -1.0}, {"kwh": float("nan")}, {"gpus": 0}, {"load": 1.5}],
)
def test_what_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSpec):
        replace(EXAMPLE, **wrong)  # type: ignore[arg-type]


def test_every_default_that_is_a_rate_has_a_source() -> None:
    named = {field.name for field in fields(Ownership)}
    assert named - SOURCES.keys() == {"price", "gpus", "nodes", "software", "other"}
