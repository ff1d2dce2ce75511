from __future__ import annotations

from roost_bench.usage import measures


def test_the_measures_of_a_small_history() -> None:
    found = {measure.name: measure for measure in measures(300)}
    assert found["held + idle + out of service - capacity"].passed
    assert found["spells"].value > 300
    assert found["an event, mean"].unit == "ms"
