"""``roost bench optimus`` and ``roost bench blocks``: figures per policy, swept over values."""

from __future__ import annotations

import csv
import io
import json

from tests.unit.cli.told import roost

from roost_bench.optimus.benchmark import OptimusBench
from roost_bench.optimus.command import _settings

SMALL = ("bench", "optimus", "--jobs", "6", "--nodes", "6", "--seeds", "2")


def test_json_is_a_list_of_policies_with_confidence_intervals() -> None:
    rows = json.loads(roost(*SMALL, "--policies", "fifo,drf", "-o", "json").out)

    assert [row["policy"] for row in rows] == ["fifo", "drf"]
    first = rows[0]
    assert (first["jobs"], first["nodes"], first["seeds"]) == (6, 6, 2)
    assert first["mean_jct_h"] > 0
    assert first["mean_jct_h_ci"] > 0
    assert first["jct_ratio"] == 1.0
    assert first["mean_jct_h"] <= first["p99_jct_h"] <= first["makespan_h"]


def test_a_table_names_what_was_swept() -> None:
    said = roost(*SMALL, "--policies", "fifo", "--sweep", "load=0.3/0.9")

    lines = said.out.splitlines()
    assert lines[0].split()[:2] == ["POLICY", "LOAD"]
    assert [line.split()[:2] for line in lines[1:]] == [["fifo", "0.3"], ["fifo", "0.9"]]
    assert "fifo, seed 1" in said.err


def test_csv_has_a_row_for_each_value() -> None:
    said = roost(*SMALL, "--policies", "drf", "--sweep", "mode=sync/async", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(said.out)))

    assert [row["value"] for row in rows] == ["sync", "async"]
    assert [row["workload"] for row in rows] == ["sync, poisson", "async, poisson"]


def test_parameters_of_policies_are_swept_where_they_have_them() -> None:
    swept = list(_settings(OptimusBench(), ["optimus", "drf"], "speed-error=0/0.5"))

    assert [texts for _, _, texts in swept] == [
        ["optimus:speed_error=0", "drf"],
        ["optimus:speed_error=0.5", "drf"],
    ]


def test_a_sweep_of_nothing_or_of_something_unknown_is_refused() -> None:
    for wrong in ("load", "colour=1/2", "load=much"):
        assert (
            wrong.partition("=")[0] in roost(*SMALL, "--policies", "fifo", "--sweep", wrong).error
        )


def test_blocks_are_compared_by_both_rules() -> None:
    rows = json.loads(roost("bench", "blocks", "--servers", "4", "--draws", "3", "-o", "json").out)

    assert {(row["network"], row["rule"]) for row in rows} >= {
        ("resnet50", "balanced"),
        ("resnet50", "threshold"),
    }
    assert all(row["size"] < 1.02 for row in rows if row["rule"] == "balanced")
    assert "BALANCED" in roost("bench", "blocks", "--servers", "2").out.upper()
