"""Gavel's traces (OSDI'20): tab-separated, without a header, in a form of 10 or of 7 columns.

They count work in training steps. Rates, in steps per second, turn it into run times: those of
Gavel's ``throughputs.json`` (``throughputs`` reads it), of a job alone on one kind of GPU (V100
unless told otherwise). A type that was not measured is an error. Without such a file,
``steps_per_s`` has to give one rate for all jobs.

The scale factor is the number of workers, with one GPU each. The type becomes the application,
the weight the priority (1 in the older form, which has none); deadlines are dropped. The id of a
job names its line.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Protocol

from roost.core.spec import JobId, JobSpec
from roost.errors import InvalidSpec
from roost.files import Source
from roost.traces.rows import Reading, TableRow, rigid
from roost.traces.throughputs import Throughputs, read_throughputs
from roost.traces.workload import TraceJob, Workload

_TEN = (
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "slo",
    "arrival_time",
)
_SEVEN = (
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "arrival_time",
    "scale_factor",
)
#: The name under which a table of rates is looked for beside a trace.
BESIDE = "throughputs.json"


def read_gavel(
    source: Source,
    *,
    throughputs: Source | None = None,
    kind: str = "v100",
    steps_per_s: float | None = None,
    skip_bad_rows: bool = False,
) -> Workload:
    """Read a Gavel trace; rates come from the ``throughputs.json`` given, or beside the trace."""
    reading = Reading(source, skip_bad_rows=skip_bad_rows)
    rate = _rate(reading.text.file, throughputs, kind, steps_per_s)
    return reading.workload(reading.bare_rows(_TEN, _SEVEN), partial(_job, rate=rate))


class _Rate(Protocol):
    def __call__(self, row: TableRow, job_type: str, workers: int) -> float: ...


def _job(row: TableRow, rate: _Rate) -> TraceJob:
    job_type = row.text("job_type")
    workers = row.whole("scale_factor", low=1)
    work_s = row.number("total_steps") / rate(row, job_type, workers)
    spec = JobSpec(
        workers=rigid(workers),
        application=job_type,
        priority=round(row.number("priority_weight", 1.0)),
        run_time_s=work_s,
    )
    return TraceJob(JobId(f"gavel-{row.line}"), row.number("arrival_time"), spec, work_s)


def _rate(file: str, throughputs: Source | None, kind: str, steps_per_s: float | None) -> _Rate:
    if steps_per_s is not None:
        if not 0 < steps_per_s < math.inf:
            msg = f"steps_per_s must be a positive number, got {steps_per_s}"
            raise InvalidSpec(msg)
        return lambda *_: steps_per_s
    beside = Path(file).with_name(BESIDE)
    if throughputs is None and not beside.is_file():
        msg = (
            f"{file} counts work in steps: give throughputs=FILE ({BESIDE} of Gavel) or "
            "steps_per_s=NUMBER to turn them into time"
        )
        raise InvalidSpec(msg)
    table = read_throughputs(throughputs or beside)
    table.check_kind(kind)
    return partial(_measured, table, kind)


def _measured(table: Throughputs, kind: str, row: TableRow, job_type: str, workers: int) -> float:
    rate = table.rate(kind, job_type, workers)
    if not rate:
        raise row.bad("job_type", "a type that the table of rates has", job_type)
    return rate
