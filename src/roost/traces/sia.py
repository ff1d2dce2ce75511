"""Sia's workloads (SOSP'23): adaptive jobs of five applications.

Columns: name, time (s), application, num_replicas, batch_size. They do not say how long a job
runs, so each application has a nominal run time: that of one T4 with the best batch size in each
epoch, computed from the measured tables of Sia's artifact. A job may have 1 to 64 workers with one
GPU each, the bounds Sia itself puts, and pays the start penalty of its application for every
restart and resize. The replicas and batch size in the file are what the rigid baselines use; they
are checked and dropped. Times stay as they are.

``read_rows`` gives the rows as they are, for a simulation that knows how these applications learn
(``roost_bench.sia.benchmark``) and needs no nominal run times.
"""

from __future__ import annotations

from typing import NamedTuple

from roost.core.spec import Costs, JobId, JobSpec, Range
from roost.files import Source
from roost.traces.rows import Reading, TableRow
from roost.traces.workload import TraceJob, Workload


class NominalRun(NamedTuple):
    """What the file does not say about a job: its run time on one T4, and its costs."""

    run_time_s: float
    costs: Costs


def _application(hours: float, penalty_s: float) -> NominalRun:
    return NominalRun(round(hours * 3600.0, 1), Costs(restart_s=penalty_s, resize_s=penalty_s))


class SiaJob(NamedTuple):
    """A row of a workload: ``workers`` and ``batch`` are how a rigid job was tuned beforehand."""

    id: JobId
    submitted_at: float
    application: str
    workers: int
    batch: int


APPLICATIONS = {
    "cifar10": _application(1.859, 50.0),
    "deepspeech2": _application(5.511, 25.0),
    "bert": _application(4.511, 120.0),
    "yolov3": _application(10.32, 80.0),
    "imagenet": _application(177.5, 250.0),
}
_WORKERS = Range(1, 64)


_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


def read_rows(source: Source) -> list[SiaJob]:
    """Read the rows of a Sia workload, in order of submission."""
    reading = Reading(source)
    rows = reading.each(reading.rows(*_COLUMNS), _row, key="name")
    return sorted(rows, key=lambda row: row.submitted_at)


def read_sia(source: Source, *, skip_bad_rows: bool = False) -> Workload:
    """Read a Sia workload."""
    reading = Reading(source, skip_bad_rows=skip_bad_rows)
    rows = reading.rows(*_COLUMNS)
    return reading.workload(rows, _job, key="name", from_zero=False)


def _row(row: TableRow) -> SiaJob:
    row.choice("application", APPLICATIONS)
    return SiaJob(
        JobId(row.text("name")),
        row.number("time"),
        row.text("application"),
        row.whole("num_replicas", low=1),
        row.whole("batch_size", low=1),
    )


def _job(row: TableRow) -> TraceJob:
    job = _row(row)
    run_time_s, costs = APPLICATIONS[job.application]
    spec = JobSpec(
        workers=_WORKERS, application=job.application, run_time_s=run_time_s, costs=costs
    )
    return TraceJob(job.id, job.submitted_at, spec, run_time_s)
