from __future__ import annotations

from datetime import date

import pytest

from roost.errors import InvalidSpec, NotFound
from roost.usage.offers import is_old, read_offers, shipped

TODAY = date(2026, 11, 1)
SKYPILOT = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region"
GPUHUNT = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size"


def test_the_list_that_ships_is_dated_and_has_sources() -> None:
    found = shipped()
    middle = found.middle("H100", spot=False)
    assert middle is not None
    assert (middle.micro, middle.currency, middle.dated) == (4_090_000, "USD", date(2026, 8, 1))
    assert all(offer.source and offer.micro for offer in found.offers)
    assert found.middle("H100", spot=True) is None
    assert is_old(middle, date(2026, 12, 1))
    assert not is_old(middle, date(2026, 9, 1))
    with pytest.raises(NotFound, match="did you mean 'H100'"):
        found.check_kind("H10")


def test_a_catalogue_of_skypilot_is_by_gpu() -> None:
    rows = [
        "p5,192,2048,H100,8,80.0,24.0,us-east",
        "cpu,4,16,,,0.2,,us-east",
        "odd,4,16,A100,1,,,us-east",
    ]
    found = read_offers([SKYPILOT, *rows], "catalogue.csv", TODAY)
    told = [(offer.kind, offer.micro, offer.spot, offer.source) for offer in found.offers]
    assert told == [
        ("H100", 10_000_000, False, "SkyPilot, us-east"),
        ("H100", 3_000_000, True, "SkyPilot, us-east"),
    ]
    assert found.unpriced == 2


def test_a_catalogue_of_gpuhunt_is_by_gpu() -> None:
    rows = ["a2,us,5.0,12,85,2,A100,40,False,100", "free,us,0,1,1,1,A100,40,True,1"]
    found = read_offers([GPUHUNT, *rows], "gpuhunt.csv", TODAY)
    assert [(one.kind, one.micro, one.spot, one.dated) for one in found.offers] == [
        ("A100", 2_500_000, False, TODAY)
    ]
    assert found.unpriced == 1


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["a,b", "1,2"], "neither our columns"),
        ([SKYPILOT, "x,1,1,H100,8,-4,,us"], "catalogue.csv, line 2: -4 is not between"),
        (
            ["kind,price,currency,spot,dated", "A,1,USD,no,2026-01-01", "B,1,EUR,no,2026-01-01"],
            "EUR and USD cannot be compared",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(lines: list[str], why: str) -> None:
    with pytest.raises(InvalidSpec, match=why):
        read_offers(lines, "catalogue.csv", TODAY)
