"""``roost bench gavel``: a row per run, and errors that say what to do."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.benchmarks.test_gavel import LINE, RATES
from tests.unit.cli.told import roost

KEYS = [
    *("policy", "workload", "jobs_per_hour", "seed", "jobs", "mean_jct_h", "p99_jct_h"),
    *("makespan_h", "mean_rho", "worst_rho", "preemptions", "gpu_hours_per_job", "wall_s"),
    "decision_ms_p50",
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "throughputs.json").write_text(json.dumps(RATES))
    (tmp_path / "physical-x.trace").write_text(LINE.format(36000, 1, 0) * 3)
    return tmp_path


def test_json_is_a_list_of_runs(data: Path) -> None:
    said = roost("bench", "gavel", "--data", data, "-p", "fifo,las", "-o", "json")
    rows = json.loads(said.out)
    assert [list(row) for row in rows] == [KEYS, KEYS]
    assert [(row["policy"], row["jobs"]) for row in rows] == [("fifo", 3), ("las", 3)]
    assert "[2/2]" in said.err


def test_rates_are_run_in_turn(data: Path) -> None:
    said = roost(
        *("bench", "gavel", "--data", data, "-p", "fifo", "--jobs-per-hour", "1,0"),
        *("--count", "5", "--cluster", "1:1:1", "-o", "csv"),
    )
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [row["jobs_per_hour"] for row in rows] == ["1.0", "0.0"]
    assert {row["jobs"] for row in rows} == {"5"}


def test_the_table_compares_with_the_first_policy(data: Path) -> None:
    said = roost("bench", "gavel", "--data", data, "-p", "fifo,srtf")
    head, first, second = said.out.splitlines()
    assert "MEAN JCT H" in head
    assert "WORST" in head
    assert "1.00x" in first
    assert "physical-x" in second


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("--trace", "y"), "no trace 'y'"),
        (("--cluster", "3"), "36:36:36"),
        (("--cluster", "a:b:c"), "36:36:36"),
        (("--jobs-per-hour", "x"), "such as 2,4,6"),
        (("--jobs-per-hour", ","), "such as 2,4,6"),
        (("--jobs-per-hour", "1", "--trace", "x"), "not both"),
        (("-p", "fifi"), "did you mean 'fifo'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(data: Path, asked: tuple[str, ...], told: str) -> None:
    assert told in roost("bench", "gavel", "--data", data, "-p", "fifo", *asked).error


def test_a_folder_without_the_table_is_refused(tmp_path: Path) -> None:
    assert "throughputs.json" in roost("bench", "gavel", "--data", tmp_path, "-p", "fifo").error
