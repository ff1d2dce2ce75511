"""Gavel's traces: both forms, and the rates that turn steps into time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roost.errors import InvalidSpec, InvalidTrace, NotFound
from roost.files import TextFile
from roost.traces.gavel import read_gavel

TEN = 'LM (batch size 5)\tpy "x" --a, b\tlm\t--steps\t1\t600\t{}\t5\t-1.000000\t{}\n'
SEVEN = "LM (batch size 5)\tpython x\t--steps\t1\t600\t{}\t{}\n"
RATES = TextFile(
    "throughputs.json",
    json.dumps(
        {
            "v100": {
                "('LM (batch size 5)', 2)": {"null": 20.0, "('A3C', 1)": [1.0, 2.0]},
                "('LM (batch size 5)', 4)": {"null": 30.0},
                "('A3C', 1)": {"null": 0.0},
            },
            "k80": {"('LM (batch size 5)', 1)": {"null": 2}},
        }
    ),
)


def test_ten_columns_are_read() -> None:
    text = TEN.format(2, 30) + TEN.format(4, 0)
    first, second = read_gavel(TextFile("a.trace", text), throughputs=RATES).jobs

    assert (first.id, first.submitted_at, first.work_s) == ("gavel-2", 0.0, 20.0)
    assert (second.id, second.submitted_at, second.work_s) == ("gavel-1", 30.0, 30.0)
    assert first.spec.application == "LM (batch size 5)"
    assert (first.spec.workers, first.spec.priority, first.spec.run_time_s) == ((4, 4), 5, 20.0)


def test_seven_columns_are_read() -> None:
    (job,) = read_gavel(TextFile("a.trace", SEVEN.format(7, 2)), throughputs=RATES).jobs
    assert (job.submitted_at, job.work_s, job.spec.workers) == (0.0, 30.0, (2, 2))
    assert job.spec.priority == 1


@pytest.mark.parametrize(("workers", "rate"), [(1, 10), (2, 20), (3, 30), (4, 30), (16, 120)])
def test_rates_that_were_not_measured_grow_from_the_nearest_smaller_one(
    workers: int, rate: float
) -> None:
    (job,) = read_gavel(TextFile("a.trace", SEVEN.format(0, workers)), throughputs=RATES).jobs
    assert job.work_s == 600 / rate


def test_the_table_of_rates_may_lie_beside_the_trace(tmp_path: Path) -> None:
    (tmp_path / "throughputs.json").write_text(RATES.text)
    (tmp_path / "a.trace").write_text(SEVEN.format(0, 1))
    assert read_gavel(tmp_path / "a.trace", kind="k80").jobs[0].work_s == 300.0


def test_without_a_table_one_rate_has_to_be_given(tmp_path: Path) -> None:
    (tmp_path / "a.trace").write_text(SEVEN.format(0, 1))
    with pytest.raises(InvalidSpec, match="steps_per_s=NUMBER"):
        read_gavel(tmp_path / "a.trace")
    assert read_gavel(tmp_path / "a.trace", steps_per_s=4.0).jobs[0].work_s == 150.0
    with pytest.raises(InvalidSpec, match="must be a positive number"):
        read_gavel(tmp_path / "a.trace", steps_per_s=0.0)


def test_a_type_without_a_rate_and_an_unknown_kind_are_refused() -> None:
    strange = TextFile("a.trace", SEVEN.format(0, 1) + SEVEN.format(0, 1).replace("LM", "A3C"))
    with pytest.raises(InvalidTrace, match="line 2, column 'job_type'"):
        read_gavel(strange, throughputs=RATES)
    assert read_gavel(strange, throughputs=RATES, skip_bad_rows=True).skipped[0].line == 2
    with pytest.raises(NotFound, match="did you mean 'v100'"):
        read_gavel(strange, throughputs=RATES, kind="v10")


@pytest.mark.parametrize(
    "text", ["[]", "3", "{", '{"v100": 3}', '{"v100": {"a": {}}}', "[" * 99999]
)
def test_a_table_of_another_shape_is_refused_in_one_line(text: str) -> None:
    trace = TextFile("a.trace", SEVEN.format(0, 1))
    with pytest.raises((InvalidSpec, NotFound)) as caught:
        read_gavel(trace, throughputs=TextFile("rates.json", text))
    assert "\n" not in str(caught.value)


def test_lines_of_another_width_are_refused() -> None:
    with pytest.raises(InvalidTrace, match="expected 7 tab-separated columns or 10"):
        read_gavel(TextFile("a.trace", "a\tb\tc\n"), steps_per_s=1.0)
