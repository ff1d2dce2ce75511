from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from roost_bench.command import bench
from roost_bench.rhythm.benchmark import measure


@pytest.mark.parametrize("seed", [1, 2])
def test_periods_are_found_and_none_where_there_is_none(seed: int) -> None:
    figures = {figure.name: figure for figure in measure(seed, 100)}

    assert figures["right: saw"].value >= 92.0
    assert figures["right: square"].value >= 95.0
    assert figures["right: dip"].value >= 80.0
    assert figures["false: all"].value <= 1.0


def test_the_command_shows_rows_with_goals() -> None:
    done = CliRunner().invoke(bench, ["rhythm", "--each", "20", "-o", "json"])

    rows = json.loads(done.stdout)
    assert {"name", "value", "unit", "goal", "passed"} == set(rows[0])
    assert done.exit_code == (0 if all(row["passed"] for row in rows) else 1)
