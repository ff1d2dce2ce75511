"""The public Philly trace: attempts become work, and holes in it are survived."""

from __future__ import annotations

import json

import pytest

from roost.core.events import Outcome
from roost.errors import InvalidSpec, InvalidTrace
from roost.files import TextFile
from roost.traces.philly_json import read_philly_json
from roost.traces.workload import Workload

Attempt = dict[str, object]


def attempt(start: str | None, end: str | None, *gpus: int) -> Attempt:
    """An attempt on as many machines as there are numbers of GPUs."""
    detail = [{"ip": f"m{n}", "gpus": [f"gpu{g}" for g in range(n)]} for n in gpus]
    return {
        "start_time": start and f"2020-01-01 {start}",
        "end_time": end and f"2020-01-01 {end}",
        "detail": detail,
    }


def entry(*attempts: Attempt, **changed: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "jobid": "j",
        "status": "Pass",
        "vc": "blue",
        "user": "ann",
        "submitted_time": "2020-01-01 00:00:00",
        "attempts": attempts,
    }
    return fields | changed


def parse(*entries: object, skip_bad_rows: bool = False) -> Workload:
    text = TextFile("cluster_job_log", json.dumps(entries))
    return read_philly_json(text, skip_bad_rows=skip_bad_rows)


RAN = attempt("00:00:10", "00:01:10", 2, 2)


def test_attempts_add_up_and_all_but_the_last_failed() -> None:
    tries = [
        attempt("00:00:10", "00:00:20", 8),
        attempt("00:01:00", "00:01:30", 8),
        attempt("00:02:00", "00:03:00", 4),
    ]
    (job,) = parse(entry(*tries, status="Failed")).jobs

    assert (job.id, job.outcome, job.work_s) == ("j", Outcome.FAILED, 100.0)
    assert job.fails_at_s == (10.0, 40.0)
    assert job.spec.max_retries == 2
    assert job.spec.workers == (4, 4)
    assert (job.spec.queue, job.spec.user, job.spec.run_time_s) == ("blue", "ann", 100.0)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("Pass", Outcome.SUCCEEDED),
        ("Killed", Outcome.CANCELLED),
        ("Failed", Outcome.FAILED),
    ],
)
def test_statuses_become_outcomes(status: str, outcome: Outcome) -> None:
    assert parse(entry(RAN, status=status)).jobs[0].outcome is outcome


def test_gpus_are_those_of_the_last_attempt_that_lists_any() -> None:
    (job,) = parse(entry(RAN, attempt("00:02:00", "00:02:10"))).jobs
    assert job.spec.workers == (4, 4)


def test_a_job_that_still_runs_is_cut_at_the_last_moment_of_the_trace() -> None:
    running = entry(attempt("00:00:10", None, 1), jobid="running")
    workload = parse(running, entry(RAN, submitted_time="2020-01-01 00:02:00"))
    assert {job.id: job.work_s for job in workload.jobs} == {"running": 110.0, "j": 60.0}


def test_an_attempt_without_an_end_stops_where_the_next_one_starts() -> None:
    (job,) = parse(entry(attempt("00:00:10", None, 1), attempt("00:00:40", "00:01:00", 1))).jobs
    assert (job.work_s, job.fails_at_s) == (50.0, (30.0,))


@pytest.mark.parametrize("missing", [None, "None", "NA", ""])
def test_attempts_without_a_start_do_not_count(missing: str | None) -> None:
    hole: Attempt = {"start_time": missing, "end_time": missing, "detail": None}
    (job,) = parse(entry(RAN, hole, {})).jobs
    assert (job.work_s, job.fails_at_s) == (60.0, ())


def test_attempts_of_no_length_do_not_count() -> None:
    backwards = attempt("01:59:00", "01:02:00", 1)
    (job,) = parse(entry(backwards, attempt("02:00:00", "02:01:00", 1))).jobs
    assert (job.work_s, job.fails_at_s) == (60.0, ())
    assert parse(entry(backwards)).jobs[0].work_s == 0.0


def test_a_missing_submission_is_that_of_the_first_start() -> None:
    late = entry(RAN, jobid="late", submitted_time="None")
    assert [job.submitted_at for job in parse(entry(RAN), late).jobs] == [0.0, 10.0]


def test_jobs_that_never_ran_are_noted() -> None:
    workload = parse(
        entry(RAN),
        entry(jobid="a"),
        entry(jobid="b", attempts=None),
        entry(attempt("00:00:10", "00:00:20"), jobid="c"),
    )
    assert [job.id for job in workload.jobs] == ["j"]
    assert [(row.line, row.why) for row in workload.skipped] == [
        (2, "it never started"),
        (3, "it never started"),
        (4, "no attempt says which GPUs it had"),
    ]


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        (7, "jobid"),
        (entry(RAN), "jobid"),
        (entry(RAN, jobid=""), "jobid"),
        (entry(RAN, jobid="k", status="Running"), "status"),
        (entry(RAN, jobid="k", vc=None), "vc"),
        (entry(RAN, jobid="k", submitted_time="soon"), "submitted_time"),
        (entry(RAN, jobid="k", attempts={}), "attempts"),
        (entry(RAN, jobid="k", attempts=[5]), "attempts"),
        (entry(RAN | {"end_time": 5}, jobid="k"), "attempts[0].end_time"),
        (entry(RAN | {"detail": [{"gpus": 4}]}, jobid="k"), "attempts[0].detail[0].gpus"),
    ],
)
def test_a_bad_job_names_its_place_in_the_list(bad: object, column: str) -> None:
    with pytest.raises(InvalidTrace) as caught:
        parse(entry(RAN), bad)
    assert (caught.value.line, caught.value.column) == (2, column)

    workload = parse(entry(RAN), bad, skip_bad_rows=True)
    assert [(row.line, row.column) for row in workload.skipped] == [(2, column)]


@pytest.mark.parametrize(
    "text", ["{}", "[", '[{"a": }]', "[" * 100_000, f"[{'9' * 5000}]", "nonsense", "[]", ""]
)
def test_what_is_not_a_list_of_jobs_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_philly_json(TextFile("log", text))
    assert "\n" not in str(caught.value)
