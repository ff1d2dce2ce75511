"""``roost bench portal`` measures a real server, and what it shows has goals."""

from __future__ import annotations

import json

from click.testing import CliRunner

from roost_bench.command import bench


def test_small_sizes_are_measured_with_their_goals() -> None:
    done = CliRunner().invoke(bench, ["portal", "--quick", "-o", "json"])
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert {
        "cold load",
        "2 viewers: CPU more",
        "4 viewers: memory more",
        "submit with 4 viewers",
        "decision with 4 viewers",
        "200 jobs: first rows",
        "400 jobs: words",
    } <= rows.keys()
    assert all({"name", "value", "unit", "goal", "passed"} <= row.keys() for row in rows.values())
    assert rows["cold load"]["passed"]
    assert rows["400 jobs: first rows"]["passed"]
    assert done.exit_code == (0 if all(row["passed"] for row in rows.values()) else 1)
