"""Between objects of the API server and what the core and the engines read.

A Job object holds a job file, spelled so that one type per field will do, and what only a cluster
knows: whether it is suspended, how many replicas are wanted, what to set of its pods.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from roost.core import WHOLE, QueueId, QueueSpec
from roost.core.cells import CellPromise
from roost.core.quota import CPU, KIND, MEMORY, Quota
from roost.errors import InvalidSpec
from roost.jobfile import JobFile, grammar
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, JOBS, Object
from roost.kubernetes.crds.fields import MAX_NAME
from roost.kubernetes.crds.schema import BEYOND, RENAMED
from roost.kubernetes.objects import quantities

_WRITTEN = {own: name for name, own in RENAMED.items()}


def job_object(
    file: JobFile,
    namespace: str,
    *,
    pod: Mapping[str, Any] | None = None,
    parcels: Sequence[str] = (),
) -> Object:
    """A job file as a Job; raises InvalidSpec for a name that a cluster cannot hold.

    ``parcels`` have the folder that it was sent with (``objects.folder_parcels``).
    """
    if len(file.name) > MAX_NAME:
        raise InvalidSpec(f"name: at most {MAX_NAME} characters on Kubernetes, found {file.name!r}")
    document = file.document()
    document.pop("name", None)
    spec = {RENAMED.get(name, name): value for name, value in document.items()}
    if isinstance(spec.get("workdir"), str):
        spec["workdir"] = {"path": spec["workdir"]}
    if "sent" in spec.get("workdir", ()):
        if not parcels:
            raise InvalidSpec("workdir.sent: such a folder is brought by roost --context submit")
        spec["workdir"] = {**spec["workdir"], "parcels": list(parcels)}
    spec = _spelled(spec)
    if "roles" in spec:
        spec["roles"] = {name: _spelled(role) for name, role in spec["roles"].items()}
    if pod:
        spec["pod"] = copy.deepcopy(dict(pod))
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": file.name, "namespace": namespace},
        "spec": spec,
    }


def job_file(job: Object) -> JobFile:
    """The job file in a Job; raises JobFileErrors with all that is wrong."""
    name = job["metadata"]["name"]
    spec = {
        _WRITTEN.get(field, field): value
        for field, value in job.get("spec", {}).items()
        if field not in BEYOND and field != "pod"
    }
    if isinstance(workdir := spec.get("workdir"), Mapping):
        spec["workdir"] = {key: value for key, value in workdir.items() if key != "parcels"}
    return JobFile.from_document({**spec, "name": name}, f"job {name}")


def parcels_of(job: Object) -> tuple[str, ...]:
    """The parcels of the folder that a job was sent with; raises InvalidSpec if it has none."""
    workdir = job.get("spec", {}).get("workdir") or {}
    found = tuple(str(name) for name in workdir.get("parcels") or ())
    if workdir.get("sent") and not found:
        raise InvalidSpec("workdir.parcels: the folder that was sent is nowhere")
    return found


def pod_of(job: Object) -> Object:
    """What its user sets of the job's pods; a copy."""
    return copy.deepcopy(job.get("spec", {}).get("pod") or {})


def is_suspended(job: Object) -> bool:
    """Whether its user wants the job off its devices."""
    return bool(job.get("spec", {}).get("suspend", False))


def wanted_replicas(job: Object) -> int | None:
    """How many workers its user wants; None leaves it to the policy."""
    found = job.get("spec", {}).get("replicas")
    return None if found is None else int(found)


def ttl_s(job: Object) -> float | None:
    """How long the object stays after the end of the job; None: for ever."""
    found = job.get("spec", {}).get("ttl")
    return None if found is None else grammar.read_duration(found)


def secrets_name(job: Object) -> str:
    """The Secret that has the values of the job's secrets."""
    return str(job.get("spec", {}).get("secrets_from") or f"{job['metadata']['name']}-secrets")


def queue_spec(queue: Object) -> QueueSpec:
    """What a ClusterQueue promises; raises InvalidSpec."""
    spec = queue.get("spec", {})
    return QueueSpec(
        id=QueueId(queue["metadata"]["name"]),
        quota_milli=_milli(spec.get("quota")),
        limit_milli=_milli(spec.get("limit")),
        weight=float(spec.get("weight", 1.0)),
        priority=int(spec.get("priority", 0)),
        parent=QueueId(str(spec["parent"])) if spec.get("parent") else None,
        lending_milli=_milli(spec.get("lending")),
        quotas=tuple(map(_quota, spec.get("quotas") or ())),
        cells=tuple(map(_cell_promise, spec.get("cells") or ())),
        overflows=bool(spec.get("overflows", True)),
    )


def _cell_promise(promise: Mapping[str, Any]) -> CellPromise:
    """A promise of cells; one by its name says nothing else."""
    return CellPromise(
        int(promise.get("count", 1)),
        str(promise.get("level", "")),
        str(promise.get("kind", "")),
        int(promise.get("gpus", 0)),
        str(promise.get("tree", "")),
        str(promise.get("name", "")),
    )


def _cell_promise_object(promise: CellPromise) -> Object:
    if promise.pinned:
        return {"name": promise.pinned}
    given = {"kind": promise.kind, "gpus": promise.gpus, "tree": promise.tree}
    told: Object = {name: value for name, value in given.items() if value}
    return {"count": promise.count, "level": promise.level, **told}


def _quota(promise: Mapping[str, Any]) -> Quota:
    """A promise of one resource: GPUs and CPUs in thousandths, memory in MiB, others in pieces."""
    name = str(promise["resource"])
    read = quantities.whole
    if name == CPU or name.startswith(KIND):
        read = quantities.milli
    elif name == MEMORY:
        read = quantities.mib
    given = (promise.get(field) for field in ("nominal", "borrowing", "lending"))
    nominal, borrowing, lending = (None if one is None else read(one, name) for one in given)
    return Quota(name, nominal or 0, borrowing, lending)


def _quota_object(quota: Quota) -> Object:
    def told(amount: int) -> str:
        if quota.resource == CPU or quota.resource.startswith(KIND):
            return f"{amount}m"
        return f"{amount}Mi" if quota.resource == MEMORY else str(amount)

    names = ("nominal", "borrowing", "lending")
    given = {n: told(one) for n, one in zip(names, quota[1:], strict=True) if one is not None}
    return {"resource": quota.resource, **given}


def cluster_queue_object(queue: QueueSpec) -> Object:
    """The inverse of ``queue_spec``."""
    spec: Object = {"weight": queue.weight, "priority": queue.priority}
    gpus = {"quota": queue.quota_milli, "limit": queue.limit_milli, "lending": queue.lending_milli}
    for name, milli in gpus.items():
        if milli is not None:
            spec[name] = milli // WHOLE if milli % WHOLE == 0 else milli / WHOLE
    if queue.parent is not None:
        spec["parent"] = queue.parent
    if queue.quotas:
        spec["quotas"] = list(map(_quota_object, queue.quotas))
    if not queue.overflows:
        spec["overflows"] = False
    if queue.cells:
        spec["cells"] = list(map(_cell_promise_object, queue.cells))
    return {
        "apiVersion": CLUSTER_QUEUES.api_version,
        "kind": CLUSTER_QUEUES.kind,
        "metadata": {"name": queue.id},
        "spec": spec,
    }


def _spelled(section: Mapping[str, Any]) -> Object:
    """A section with its resources as an object can hold them: no fractions but in ``gpus``."""
    found = dict(section)
    resources = dict(found.pop("resources", {}))
    match resources.get("gpu"):
        case int() | float():
            found["gpus"] = resources.pop("gpu")
        case list():
            resources["any_of"] = resources.pop("gpu")
    if isinstance(resources.get("cpu"), float):
        resources["cpu"] = str(resources["cpu"])
    return {**found, "resources": resources} if resources else found


def _milli(gpus: float | None) -> int | None:
    return None if gpus is None else round(gpus * WHOLE)
