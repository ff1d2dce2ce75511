"""Alibaba's openb: the nodes and pods of a production GPU cluster (clusterdata gpu-v2023).

A pod becomes a job with one worker. It arrives when it was created and runs from when it was
scheduled (or else created) until it was deleted. How its phase is read:

- Running: succeeded. Most are services, which run until their owner takes them down.
- Succeeded, Failed: as they say.
- Pending: cancelled. It was never scheduled; its work is the time its owner waited for it.

Its QoS class becomes a priority: BE 0, Burstable 1, LS (latency-sensitive) 2, Guaranteed 3. Some
variants have no times: their pods arrive one second apart, in the order of the file, and each
stays for ``stay_s``, by default a day, so that all of them are there at once.
"""

from __future__ import annotations

from functools import lru_cache, partial

from roost.core.events import Outcome
from roost.core.spec import WHOLE, JobId, JobSpec, NodeId, NodeSpec, Resources
from roost.files import Source
from roost.traces.rows import Reading, TableRow
from roost.traces.workload import TraceJob, Workload

_OUTCOMES = {
    "Running": Outcome.SUCCEEDED,
    "Succeeded": Outcome.SUCCEEDED,
    "Failed": Outcome.FAILED,
    "Pending": Outcome.CANCELLED,
}
_PRIORITIES = {"BE": 0, "Burstable": 1, "LS": 2, "Guaranteed": 3}
_DAY = 86400.0


def read_openb(
    source: Source,
    *,
    nodes: Source | None = None,
    stay_s: float = _DAY,
    skip_bad_rows: bool = False,
) -> Workload:
    """Read a file of pods, and the file of the nodes they ran on."""
    reading = Reading(source, skip_bad_rows=skip_bad_rows)
    rows = reading.rows("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    workload = reading.workload(rows, partial(_job, stay_s=stay_s), key="name")
    if nodes is not None:
        workload.nodes = read_openb_nodes(nodes)
    return workload


def read_openb_nodes(source: Source) -> tuple[NodeSpec, ...]:
    """Read a file of nodes; those without GPUs are of the kind ``cpu``."""
    reading = Reading(source)
    rows = reading.rows("sn", "cpu_milli", "memory_mib", "gpu", "model")
    return tuple(reading.each(rows, _node, key="sn"))


def _job(row: TableRow, *, stay_s: float) -> TraceJob:
    submitted_at, work_s = _times(row, stay_s)
    spec = JobSpec(
        resources=_resources(
            row.whole("num_gpu"),
            _share(row),
            row.text("gpu_spec", ""),
            row.whole("cpu_milli"),
            row.whole("memory_mib"),
        ),
        priority=row.choice("qos", _PRIORITIES, 0),
        run_time_s=work_s,
    )
    outcome = row.choice("pod_phase", _OUTCOMES, Outcome.SUCCEEDED)
    return TraceJob(JobId(row.text("name")), submitted_at, spec, work_s, outcome)


def _times(row: TableRow, stay_s: float) -> tuple[float, float]:
    if not row.has("creation_time"):
        return float(row.line), stay_s
    created = row.number("creation_time")
    scheduled = row.number("scheduled_time", created)
    deleted = row.number("deletion_time")
    if deleted < scheduled:
        raise row.bad("deletion_time", f"at least {scheduled:g}", row.cell("deletion_time"))
    return created, deleted - scheduled


def _share(row: TableRow) -> int:
    """Read the share of each GPU; only a single GPU can be shared."""
    gpus = row.whole("num_gpu")
    if gpus == 0:
        return WHOLE
    return row.whole("gpu_milli", low=1 if gpus == 1 else WHOLE, high=WHOLE)


def _node(row: TableRow) -> NodeSpec:
    return NodeSpec(
        NodeId(row.text("sn")),
        gpus=row.whole("gpu"),
        kind=row.text("model", "cpu"),
        cpu_milli=row.whole("cpu_milli"),
        memory_mib=row.whole("memory_mib"),
    )


@lru_cache(maxsize=4096)
def _resources(gpus: int, share_milli: int, kinds: str, cpu_milli: int, memory: int) -> Resources:
    return Resources(
        gpus=gpus,
        share_milli=share_milli,
        kinds=tuple(dict.fromkeys(filter(None, kinds.split("|")))),
        cpu_milli=cpu_milli,
        memory_mib=memory,
    )
