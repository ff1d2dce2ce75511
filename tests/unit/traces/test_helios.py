"""The Helios traces."""

from __future__ import annotations

import pytest

from roost.core.events import Outcome
from roost.errors import InvalidTrace
from roost.files import TextFile
from roost.traces.helios import read_helios
from roost.traces.workload import BadRow, Workload

PUBLIC = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
)
LUCID = "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration\n"


def row(name: str, gpus: int = 4, state: str = "COMPLETED", nodes: int = 1) -> str:
    return f"{name},ann,blue,{gpus},16,{nodes},{state},2020-06-09 18:41:27,,,249,0\n"


def parse(text: str, *, cpus: bool = False) -> Workload:
    return read_helios(TextFile("venus.csv", text), cpus=cpus)


def test_the_public_form_is_read() -> None:
    (job,) = parse(PUBLIC + row("7")).jobs
    assert (job.id, job.submitted_at, job.work_s, job.outcome) == ("7", 0, 249, Outcome.SUCCEEDED)
    assert (job.spec.queue, job.spec.user, job.spec.workers) == ("blue", "ann", (4, 4))
    assert job.spec.resources.cpu_milli == 0


def test_the_form_of_lucid_is_read_with_dates_or_seconds() -> None:
    text = LUCID + "1,ann,blue,train,1,4,FAILED,100,5\n2,ann,blue,eval,2,4,TIMEOUT,130.5,6\n"
    jobs = parse(text).jobs
    assert [(job.submitted_at, job.spec.application) for job in jobs] == [
        (0.0, "train"),
        (30.5, "eval"),
    ]


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("CANCELLED", Outcome.CANCELLED),
        ("FAILED", Outcome.FAILED),
        ("TIMEOUT", Outcome.FAILED),
        ("NODE_FAIL", Outcome.FAILED),
    ],
)
def test_states_become_outcomes(state: str, outcome: Outcome) -> None:
    assert parse(PUBLIC + row("7", state=state)).jobs[0].outcome is outcome


def test_jobs_without_gpus_and_suspended_ones_are_noted() -> None:
    workload = parse(PUBLIC + row("1", 0) + row("2", state="SUSPENDED") + row("3"))
    assert [job.id for job in workload.jobs] == ["3"]
    assert workload.skipped == [
        BadRow(2, "gpu_num", "it needs no GPU; cpus=True keeps such jobs"),
        BadRow(3, "state", "it was suspended and never ended"),
    ]


def test_with_cpus_jobs_ask_for_them_and_need_no_gpus() -> None:
    first, second = parse(PUBLIC + row("1", 0, nodes=2) + row("2", 4), cpus=True).jobs
    assert (first.spec.workers, first.spec.gpus) == ((2, 2), 0)
    assert first.spec.resources.cpu_milli == 8000
    assert (second.spec.gpus, second.spec.resources.cpu_milli) == (4, 4000)


def test_a_strange_state_and_an_id_that_comes_twice_are_refused() -> None:
    with pytest.raises(InvalidTrace, match="line 2, column 'state': expected one of COMPLETED"):
        parse(PUBLIC + row("7", state="ODD"))
    with pytest.raises(InvalidTrace, match="line 3, column 'job_id'"):
        parse(PUBLIC + row("7") + row("7"))
