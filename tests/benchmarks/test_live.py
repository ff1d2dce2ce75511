"""What ``roost bench live`` says of its measures."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from tests.unit.cli.told import roost

from roost_bench.live import command, resizes
from roost_bench.live.command import Figure, Measure, Say, Sizes, above, below
from roost_bench.live.overhead import interval, overhead
from roost_bench.live.restarts import moments
from roost_bench.live.server import percentile
from roost_bench.live.soak import soak


def fine(sizes: Sizes, say: Say) -> Iterator[Figure]:
    say(f"{sizes.burst} jobs")
    yield below("fine", 12.34567, "ms", 100)
    yield below("fine-memory", 80.0, "MB")


def slow(_sizes: Sizes, _say: Say) -> Iterator[Figure]:
    yield below("slow", 3.0, "s", 3)


@pytest.fixture(autouse=True)
def _two_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "measures", lambda: {"fine": fine, "slow": slow})


def test_figures_come_as_a_list_with_their_goals() -> None:
    told = roost("bench", "live", "--only", "fine", "-o", "json")

    assert told.status == 0
    assert json.loads(told.out) == [
        {
            "name": "fine",
            "value": 12.346,
            "unit": "ms",
            "goal": 100,
            "least": False,
            "passed": True,
        },
        {
            "name": "fine-memory",
            "value": 80.0,
            "unit": "MB",
            "goal": None,
            "least": False,
            "passed": True,
        },
    ]
    assert told.err == "fine: 1000 jobs\n"


def test_a_missed_goal_is_a_status_of_its_own() -> None:
    told = roost("bench", "live", "--quick")

    assert told.status == 1
    assert told.out.splitlines() == [
        "MEASURE        VALUE      GOAL  PASSED",
        "fine         12.3 ms  < 100 ms  yes",
        "fine-memory    80 MB",
        "slow             3 s     < 3 s  no",
    ]
    assert told.err == "fine: 50 jobs\n"


@pytest.mark.parametrize(("value", "status"), [(5.0, 0), (4.9, 1)])
def test_a_figure_may_have_to_reach_its_goal(
    value: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = above("ratio", value, "times", 5)
    monkeypatch.setattr(command, "measures", lambda: {"ratio": lambda *_: iter([figure])})
    told = roost("bench", "live")

    assert told.status == status
    assert told.out.splitlines()[1].endswith(f">= 5 times  {'no' if status else 'yes'}")


@pytest.mark.parametrize("measure", [resizes.resize, resizes.same, overhead, moments])
def test_without_torch_measures_that_need_it_say_so(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resizes, "find_spec", lambda _name: None)
    said: list[str] = []

    assert list(measure(Sizes(), said.append)) == []
    assert said == ["skipped: PyTorch is not installed"]


def test_the_help_names_every_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    told = roost("bench", "live", "--help").out

    assert [name for name in command.measures() if name not in told] == []


def test_the_interval_of_a_median_is_where_it_lies_in_19_of_20_cases() -> None:
    chance = random.Random(4)
    inside = 0
    for _ in range(1000):
        low, high = interval([chance.gauss(3.0, 2.0) for _ in range(40)])
        inside += low <= 3.0 <= high
    assert 930 <= inside <= 985


def test_an_unknown_measure_is_refused_before_anything_runs() -> None:
    told = roost("bench", "live", "--only", "fine,slwo")

    assert "did you mean 'slow'" in told.error


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0
    assert percentile(range(200), 0.99) == 198


def test_the_disk_stays_bounded() -> None:
    figures = {one.name: one for one in soak(command.QUICK, lambda _: None)}
    assert figures["soak-job"].passed, figures
    # So few jobs do not fill the pages that the database has: its own growth is not looked at.
    assert figures["soak-disk"].value < 32
