"""Records of jobs that are not over: made when they are asked for, read before or then."""

from __future__ import annotations

import pytest

from roost.core import JobId
from roost.errors import Fatal, Retryable
from roost.jobs.record import OpenRecords
from roost.store.jobs import StoredJob

ADA, BOB = JobId("ada-1"), JobId("bob-1")


def stored(job: str, progress: float = 0.5) -> StoredJob:
    return StoredJob(job, job.partition("-")[0], "", f'{{"progress": {progress}}}', "{}")


def test_a_job_is_read_when_it_is_asked_for_and_once() -> None:
    read: list[str] = []

    def ask(job: JobId) -> StoredJob:
        read.append(job)
        return stored(job)

    records = OpenRecords({ADA: "ada", BOB: "bob"}, ask)

    assert (list(records), records.of("ada"), records.owned("bob")) == ([ADA, BOB], 1, [BOB])
    assert records[ADA].progress == 0.5
    assert records[ADA] is records[ADA]
    assert read == [ADA]


def test_what_comes_later_does_not_replace_what_has_changed_since() -> None:
    records = OpenRecords({ADA: "ada", BOB: "bob"}, stored)
    records[ADA].progress = 0.75
    del records[BOB]

    records.take([stored(ADA), stored(BOB)])

    assert records[ADA].progress == 0.75
    assert BOB not in records
    assert (records.of("ada"), records.of("bob")) == (1, 0)


def test_what_was_taken_needs_no_store() -> None:
    records = OpenRecords({ADA: "ada"})
    with pytest.raises(Fatal, match="nothing is known of job ada-1"):
        records.__getitem__(ADA)

    records.take([stored(ADA, 0.25)])

    assert records[ADA].progress == 0.25


def test_a_store_that_cannot_be_read_any_more_is_no_trouble_of_a_job() -> None:
    def ask(job: JobId) -> StoredJob:
        raise Retryable(f"no answer about {job}", after=1.0)

    records = OpenRecords({ADA: "ada"}, ask)
    with pytest.raises(Fatal, match="job ada-1 cannot be read: no answer"):
        records.__getitem__(ADA)
