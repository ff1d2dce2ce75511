"""The Philly trace as the Sia artifact flattened it: one line per job, no outcomes.

Columns: timestamp, duration (s), num_gpus, gpu_time, cluster. The virtual cluster becomes the
queue; every job succeeds and declares its true run time; it runs as workers with one GPU each.
The id of a job names its line.
"""

from __future__ import annotations

from roost.core.spec import JobId, JobSpec, QueueId
from roost.files import Source
from roost.traces.rows import Reading, TableRow, rigid
from roost.traces.workload import TraceJob, Workload


def read_philly_csv(source: Source, *, skip_bad_rows: bool = False) -> Workload:
    """Read the flat form of the Philly trace."""
    reading = Reading(source, skip_bad_rows=skip_bad_rows)
    rows = reading.rows("timestamp", "duration", "num_gpus", "cluster")
    return reading.workload(rows, _job)


def _job(row: TableRow) -> TraceJob:
    duration = row.number("duration")
    spec = JobSpec(
        workers=rigid(row.whole("num_gpus", low=1)),
        queue=QueueId(row.text("cluster")),
        run_time_s=duration,
    )
    return TraceJob(JobId(f"philly-{row.line}"), row.moment("timestamp"), spec, duration)
