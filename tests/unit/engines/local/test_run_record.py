"""What a run's record says after a restart, and of earlier versions."""

from __future__ import annotations

import pytest

from roost.core.spec import JobId, RunId
from roost.engines.local.run_record import RunRecord


@pytest.mark.parametrize("runtime", ["", "podman", "docker"])
def test_a_record_is_read_as_it_was_written(runtime: str) -> None:
    record = RunRecord(RunId(JobId("box"), 1), "token", container=runtime)
    assert RunRecord.decode(record.encode()) == record


def test_earlier_versions_told_only_that_there_are_containers() -> None:
    body = RunRecord(RunId(JobId("box"), 1), "token").encode()
    assert RunRecord.decode({**body, "container": True}).container == "podman"
    assert RunRecord.decode({**body, "container": False}).container == ""
