"""Rows: every kind of bad input names file, line, column, what was expected and what was found."""

from __future__ import annotations

import pytest

from roost.core.spec import JobId, JobSpec
from roost.errors import InvalidSpec, InvalidTrace
from roost.files import TextFile
from roost.traces.rows import NoJob, Reading, TableRow, seconds
from roost.traces.workload import BadRow, TraceJob, Workload


def job(row: TableRow) -> TraceJob:
    """A reader that uses every getter once."""
    if row.text("name", "?") == "none":
        raise NoJob("name", "nothing to run")
    row.whole("gpus", 1, low=1, high=64)
    row.choice("state", {"ok": True, "bad": False}, default=True)
    return TraceJob(
        JobId(row.text("id")), row.moment("at"), JobSpec(), row.number("work", 5.0, high=100.0)
    )


def parse(text: str, *, skip_bad_rows: bool = False, from_zero: bool = True) -> Workload:
    reading = Reading(TextFile("x.csv", text), skip_bad_rows=skip_bad_rows)
    return reading.workload(reading.rows("id", "at"), job, from_zero=from_zero)


def test_jobs_are_sorted_and_count_time_from_the_first() -> None:
    workload = parse("id,at\nb,30\na,10\nc,10\n")
    assert [(job.id, job.submitted_at) for job in workload.jobs] == [("a", 0), ("c", 0), ("b", 20)]
    assert workload.name == "x"
    assert parse("id,at\nb,30\n", from_zero=False).jobs[0].submitted_at == 30


def test_line_ends_blank_lines_quotes_and_spare_commas_do_no_harm() -> None:
    workload = parse('\r\n id , at,work\r\n"a,b", 1 ,2\r\n\r\n  \r\nc,1.0,2,,\r\n\r\n')
    assert [job.id for job in workload.jobs] == ["a,b", "c"]
    assert [job.id for job in parse("id,at\ra,1\rb,2\r").jobs] == ["a", "b"]


def test_whole_numbers_may_be_written_with_a_point() -> None:
    assert parse("id,at,gpus\na,0,4.0\n").jobs


@pytest.mark.parametrize(
    ("cells", "column", "found"),
    [
        (",1,1,1,ok", "id", ""),
        ("a,,1,1,ok", "at", ""),
        ("a,yesterday,1,1,ok", "at", "yesterday"),
        ("a,2017-13-01 00:00:00,1,1,ok", "at", "2017-13-01 00:00:00"),
        ("a,1969-01-01 00:00:00,1,1,ok", "at", "1969-01-01 00:00:00"),
        ("a,1e300,1,1,ok", "at", "1e300"),
        ("a,1,-1,1,ok", "work", "-1"),
        ("a,1,nan,1,ok", "work", "nan"),
        ("a,1,inf,1,ok", "work", "inf"),
        ("a,1,x,1,ok", "work", "x"),
        ("a,1,101,1,ok", "work", "101"),
        ("a,1,1,0,ok", "gpus", "0"),
        ("a,1,1,1.5,ok", "gpus", "1.5"),
        ("a,1,1,inf,ok", "gpus", "inf"),
        ("a,1,1,two,ok", "gpus", "two"),
        (f"a,1,1,{'9' * 5000},ok", "gpus", "9" * 60 + "…"),
        ("a,1,1,1,odd", "state", "odd"),
        ("a,1,1", "state", "a,1,1"),
        ("a,1,1,1,ok,more", "state", "a,1,1,1,ok,more"),
        ('"a,1,1,1,ok', "1", "unexpected end of data"),
        (f"{'a' * 200_000},1,1,1,ok", "1", "field larger than field limit (131072)"),
    ],
)
def test_a_bad_cell_says_where_and_what(cells: str, column: str, found: str) -> None:
    text = f"id,at,work,gpus,state\nfine,1,1,1,ok\n{cells}\n"
    with pytest.raises(InvalidTrace) as caught:
        parse(text)
    error = caught.value
    assert (error.file, error.line, error.column, error.found) == ("x.csv", 3, column, found)
    assert "\n" not in str(error)

    workload = parse(text, skip_bad_rows=True)
    assert [job.id for job in workload.jobs] == ["fine"]
    assert [(row.line, row.column) for row in workload.skipped] == [(3, column)]


def test_reading_goes_on_after_a_bad_row() -> None:
    workload = parse("id,at\na,x\nb,1\nb,2\n" + "c" * 200_000 + ",1\nd,3\n", skip_bad_rows=True)
    assert [job.id for job in workload.jobs] == ["b", "d"]
    assert [row.line for row in workload.skipped] == [2, 4, 5]


def test_an_id_that_comes_twice_is_refused() -> None:
    with pytest.raises(InvalidTrace, match=r"line 3, column 'id': .* found 'a'"):
        parse("id,at\na,1\na,2\n")


def test_a_header_must_have_each_column_once() -> None:
    with pytest.raises(InvalidTrace, match="line 1, column 'at': expected this column"):
        parse("id,work\na,1\n")
    with pytest.raises(InvalidTrace, match="line 1, column 'id': expected each column once"):
        parse("id,at,id\na,1,a\n")
    with pytest.raises(InvalidTrace, match="line 1, column 'id'"):
        parse('"id,at', skip_bad_rows=True)


@pytest.mark.parametrize("text", ["", " \n\n", "id,at\n", "id,at\r\n\r\n"])
def test_an_empty_trace_says_so(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"x.csv: the trace is empty"):
        parse(text)


def test_a_trace_of_bad_rows_only_says_what_is_wrong_with_the_first() -> None:
    with pytest.raises(InvalidSpec, match=r"all 2 rows were skipped; the first one, line 2, .*'x'"):
        parse("id,at\na,x\nb,y\n", skip_bad_rows=True)


def test_rows_with_nothing_to_run_are_noted_and_no_error() -> None:
    workload = parse("id,at,name\na,1,none\nb,1,some\n")
    assert [job.id for job in workload.jobs] == ["b"]
    assert workload.skipped == [BadRow(2, "name", "nothing to run")]


def test_a_job_that_cannot_be_is_a_bad_row() -> None:
    def impossible(row: TableRow) -> TraceJob:
        return TraceJob(JobId(row.text("id")), -1.0, JobSpec(), 1.0)

    reading = Reading(TextFile("x.csv", "id\na\n"))
    with pytest.raises(InvalidTrace, match=r"line 2, column 'id': .*submitted_at"):
        reading.each(reading.rows("id"), impossible)


@pytest.mark.parametrize(
    ("date", "value"),
    [
        ("1970-01-02 00:00:01", 86401.0),
        ("1970-01-01T00:00:00.5", 0.5),
        ("1970-01-01 02:00:00+01:00", 3600.0),
        ("None", None),
        ("", None),
        ("0001-01-01 00:00:00", None),
    ],
)
def test_dates_without_a_zone_are_utc(date: str, value: float | None) -> None:
    assert seconds(date) == value
