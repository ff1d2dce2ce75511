"""The flat Philly trace."""

from __future__ import annotations

import pytest

from roost.core.spec import JobSpec, QueueId, Range
from roost.errors import InvalidTrace
from roost.files import TextFile
from roost.traces.philly_csv import read_philly_csv
from roost.traces.workload import TraceJob

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_jobs_have_one_gpu_per_worker_and_their_cluster_as_queue() -> None:
    text = HEADER + "2020-01-01 00:01:00,50.0,8,400.0,blue\n2020-01-01 00:00:00,7.5,1,7.5,red\n\n"
    second, first = read_philly_csv(TextFile("p.csv", text)).jobs[::-1]

    assert first.id == "philly-3"
    assert first.submitted_at == 0.0
    spec = JobSpec(workers=Range(8, 8), queue=QueueId("blue"), run_time_s=50.0)
    assert second == TraceJob(second.id, 60.0, spec, 50.0)


def test_a_job_without_gpus_is_refused() -> None:
    with pytest.raises(InvalidTrace, match="line 2, column 'num_gpus'"):
        read_philly_csv(TextFile("p.csv", HEADER + "2020-01-01 00:01:00,50.0,0,400.0,blue\n"))
