"""What was run as a trace: jobs with the time that they really took, and the machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from roost.api.jobs import JobView
from roost.core.events import Outcome
from roost.core.spec import JobId, JobSpec, NodeId, NodeSpec
from roost.jobfile.model import JobFile
from roost.traces.workload import TraceJob


def ran(view: JobView) -> bool:
    """Whether processes of a job ran: one that ends at once may have taken no time at all."""
    return view.ran_s > 0 or view.exit_code is not None


def trace_job(view: JobView, document: Mapping[str, Any], first: float) -> TraceJob:
    """A job that is over, by its view and its job file; times count from ``first``."""
    file = JobFile.model_validate(document)
    spec = replace(file.spec(view.user), within=None)
    work_s = _work_s(view, spec)
    return TraceJob(JobId(view.id), view.submitted_at - first, spec, work_s, Outcome(view.state))


def _work_s(view: JobView, spec: JobSpec) -> float:
    """What a job did, in seconds at its least workers: more of them do more in the same time."""
    if spec.elastic and spec.gpus and view.gpu_s:
        return view.gpu_s / spec.gpus
    return view.ran_s


def recorded_node(view: Mapping[str, Any]) -> NodeSpec:
    """A machine by its view."""
    return NodeSpec(
        NodeId(view["id"]),
        gpus=int(view["gpus"]),
        kind=str(view.get("kind") or "gpu"),
        cpu_milli=round(1000 * float(view.get("cpus", 0))),
        memory_mib=int(view.get("memory_mib", 0)),
    )
