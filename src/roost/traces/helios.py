"""The Helios traces of SenseTime (SC'21), in their public form and as Lucid's simulator reads them.

Columns: job_id, user, vc, gpu_num, cpu_num, state, submit_time, duration; node_num, jobname and
model are used where they are there, other columns are not. Times are dates or seconds. A job that
ran into its time limit or lost its node counts as failed, as in the paper; suspended ones (there
is one) are left out. Jobs run as workers with one GPU each, and declare their true run time.
"""

from __future__ import annotations

from functools import lru_cache, partial

from roost.core.events import Outcome
from roost.core.spec import JobId, JobSpec, QueueId, Resources
from roost.files import Source
from roost.traces.rows import NoJob, Reading, TableRow, rigid
from roost.traces.workload import TraceJob, Workload

_OUTCOMES = {
    "COMPLETED": Outcome.SUCCEEDED,
    "CANCELLED": Outcome.CANCELLED,
    "FAILED": Outcome.FAILED,
    "TIMEOUT": Outcome.FAILED,
    "NODE_FAIL": Outcome.FAILED,
    "SUSPENDED": Outcome.STOPPED,
}


def read_helios(source: Source, *, cpus: bool = False, skip_bad_rows: bool = False) -> Workload:
    """Read a Helios trace.

    With ``cpus``, jobs ask for their CPUs and those without GPUs are kept; otherwise only GPUs
    count, and jobs without any are skipped.
    """
    reading = Reading(source, skip_bad_rows=skip_bad_rows)
    rows = reading.rows("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")
    return reading.workload(rows, partial(_job, cpus=cpus), key="job_id")


def _job(row: TableRow, *, cpus: bool) -> TraceJob:
    outcome = row.choice("state", _OUTCOMES)
    gpus = row.whole("gpu_num")
    if outcome is Outcome.STOPPED:
        raise NoJob("state", "it was suspended and never ended")
    if not gpus and not cpus:
        raise NoJob("gpu_num", "it needs no GPU; cpus=True keeps such jobs")
    duration = row.number("duration")
    workers = gpus or row.whole("node_num", 1, low=1)
    cpu_milli = 1000 * row.whole("cpu_num") // workers if cpus else 0
    spec = JobSpec(
        workers=rigid(workers),
        resources=_resources(min(gpus, 1), cpu_milli),
        queue=QueueId(row.text("vc")),
        user=row.text("user"),
        application=row.text("model", "") or row.text("jobname", ""),
        run_time_s=duration,
    )
    return TraceJob(JobId(row.text("job_id")), row.moment("submit_time"), spec, duration, outcome)


@lru_cache(maxsize=4096)
def _resources(gpus: int, cpu_milli: int) -> Resources:
    return Resources(gpus=gpus, cpu_milli=cpu_milli)
