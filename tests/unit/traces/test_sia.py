"""Sia's workloads."""

from __future__ import annotations

import pytest

from roost.core.spec import Costs
from roost.errors import InvalidTrace
from roost.files import TextFile
from roost.traces.sia import read_sia

HEADER = "name,time,application,num_replicas,batch_size\n"


def test_jobs_are_elastic_and_keep_their_times() -> None:
    (job,) = read_sia(TextFile("w.csv", HEADER + "cifar10-1,670.5,cifar10,8,2048\n")).jobs

    assert (job.id, job.submitted_at, job.work_s) == ("cifar10-1", 670.5, 6692.4)
    assert (job.spec.workers, job.spec.application) == ((1, 64), "cifar10")
    assert job.spec.costs == Costs(restart_s=50.0, resize_s=50.0)


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("a,1,resnet,1,1", "application"),
        ("a,1,bert,0,1", "num_replicas"),
        ("a,1,bert,1,x", "batch_size"),
        ("a,-1,bert,1,1", "time"),
    ],
)
def test_a_bad_job_says_where(line: str, column: str) -> None:
    with pytest.raises(InvalidTrace, match=f"line 2, column '{column}'"):
        read_sia(TextFile("w.csv", f"{HEADER}{line}\n"))
