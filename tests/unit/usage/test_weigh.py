from __future__ import annotations

from dataclasses import replace

import pytest

from roost.errors import InvalidSpec, NotFound
from roost.usage.offers import shipped
from roost.usage.ownership import Ownership
from roost.usage.weigh import (
    ComparisonSetting,
    MeasuredRun,
    break_even,
    check_same,
    digest,
    ranked,
    sensitivity,
    weigh,
)
from roost.usage.weigh_page import page

RUN = MeasuredRun("A100", 7200.0, 4.0, wait_s=60.0, busy=0.5)
GIVEN = ComparisonSetting(Ownership(), shipped(), {"A100": 2.0, "H100": 4.0}, use=0.5)


def test_here_is_measured_and_elsewhere_is_forecast() -> None:
    here, there = weigh(RUN, ["here", "cloud:H100"], GIVEN)
    assert (here.measured, here.run_s, here.units, here.tcs) == (True, 7200.0, 8.0, 0.0)
    assert here.tco == pytest.approx(8 * 3.2246, abs=1e-3)
    assert here.why == "4 GPUs held, 2 used"
    assert (there.measured, there.run_s, there.units, there.tco) == (False, 3600.0, 8.0, None)
    assert there.tcs == pytest.approx(4 * 4.09)
    assert there.carbon_kg == pytest.approx(0.7 * 4 * 0.5 * 1.54 * 0.475)


def test_egress_is_part_of_what_a_renter_pays() -> None:
    (there,) = weigh(RUN, ["cloud:H100"], replace(GIVEN, egress_gb=100.0))
    assert there.tcs == pytest.approx(4 * 4.09 + 9.0)
    assert "9.00 of it egress" in there.why


def test_a_target_without_a_price_is_not_ranked() -> None:
    found = weigh(RUN, ["here", "cloud:H100", "cloud:H100-spot"], GIVEN)
    assert found[2].tcs is None
    assert "no price: not ranked" in found[2].why
    assert [one.target for one in ranked(found)] == ["cloud:H100", "here"]


def test_without_use_there_is_no_useful_hour() -> None:
    (here,) = weigh(RUN, ["here"], replace(GIVEN, use=0.0))
    assert here.tco is None
    assert "no useful hour yet" in here.why


@pytest.mark.parametrize("target", ["moon", "cloud", "cloud:", "mars:H100"])
def test_what_is_no_target_is_refused(target: str) -> None:
    with pytest.raises((InvalidSpec, NotFound)):
        weigh(RUN, [target], GIVEN)


def test_a_kind_of_unknown_speed_is_refused_not_guessed() -> None:
    with pytest.raises(InvalidSpec, match="how fast L4 is, is not known"):
        weigh(RUN, ["cloud:L4"], GIVEN)


def test_only_the_same_workflow_is_weighed() -> None:
    one = {"name": "a", "command": ["train"], "queue": "x", "image": "i@1"}
    same = {**one, "name": "b", "queue": "y"}
    other = {**one, "image": "i@2"}
    assert digest(one) == digest(same) != digest(other)
    check_same(one, same, "job b")
    with pytest.raises(InvalidSpec, match="job c is not the same workflow: image of it differ"):
        check_same(one, other, "job c")


def test_break_even_and_what_moves_the_cost_most() -> None:
    assert break_even(GIVEN, "H100") == pytest.approx(107338.4 / (8 * 8760 * 0.95 * 4.09), abs=1e-4)
    assert break_even(GIVEN, "V100") is None
    moved = sensitivity(GIVEN)
    assert moved["price"][0] < moved["price"][1]
    assert moved["life_years"][0] > moved["life_years"][1]


def test_the_page_is_one_file_in_which_names_are_text() -> None:
    found = weigh(RUN, ["here", "cloud:H100"], GIVEN)
    text = page("<script>alert(1)</script>", found, GIVEN, "H100")
    assert "<script>" not in text
    assert text.count("<svg") == 6
    assert "pays from 39 %" in text
    assert "http" not in text
