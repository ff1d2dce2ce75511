"""How large a gang is: read from the object that owns it.

What starts together is what its controller makes together. A JobSet may start its parts one after
the other, a LeaderWorkerSet its workers when their leader is ready: then each part is a gang of its
own, for what comes later waits for what came before, and both cannot wait for each other. So it is
with an exclusive topology: a JobSet or LeaderWorkerSet makes the rest when the first have a node.
"""

from __future__ import annotations

from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.gang_refs import GangRef, checked_size, gang_id
from roost.kubernetes.objects.values import (
    annotations_of,
    integer,
    quoted,
    section,
    sections,
    text,
)

#: A LeaderWorkerSet with this annotation makes workers once their leader has a node.
_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
#: A Job of a JobSet that has it, or whose JobSet has it, makes them once its first pod has a node;
#: not so if nodes were labelled for it beforehand.
_EXCLUSIVE_JOB = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_LABELLED = "alpha.jobset.sigs.k8s.io/node-selector"


def completed(ref: GangRef, owner: Object) -> GangRef:
    """The gang with its size, from the object that owns it; perhaps a part of what it names."""
    if ref.size is not None:
        return ref
    match ref.kind:
        case "jobset" if ref.part:
            return _part_of_job_set(ref, owner)
        case "leaderworkerset" if _leader_comes_first(owner):
            size = 1 if ref.part == "leader" else max(1, _group_size(section(owner, "spec")) - 1)
            return _apart(ref, f"{ref.name}.{ref.part}", size)
        case "workload":
            return ref._replace(size=_workload_size(owner, ref.part))
    return ref._replace(size=size_of(owner, ref.owner.kind if ref.owner else ""))


def _part_of_job_set(ref: GangRef, owner: Object) -> GangRef:
    """The pods of a JobSet that are made at the same time as a pod."""
    together = _started_with(ref.part, owner)
    size = _job_set_size(owner, together)
    name = ref.name if together is None else f"{ref.name}.{together[0]}"
    late = {
        text(job, "name"): integer(job, "replicas", 1) * (_pods_of(job) - 1)
        for job in sections(section(owner, "spec"), "replicatedJobs")
        if _is_exclusive(owner, job) and (together is None or text(job, "name") in together)
    }
    count = sum(late.values())
    if count and ref.part in late and not ref.first:
        return _apart(ref, f"{name}.workers", count)
    if count:
        return _apart(ref, f"{name}.leaders", size - count)
    return ref._replace(size=size) if together is None else _apart(ref, name, size)


def _is_exclusive(owner: Object, job: Object) -> bool:
    """Whether a Job of a JobSet has a domain of its own, which its first pod chooses."""
    notes = annotations_of(owner) | annotations_of(section(job, "template"))
    return _EXCLUSIVE_JOB in notes and _LABELLED not in notes


def _apart(ref: GangRef, name: str, size: int) -> GangRef:
    """A part of a gang as a gang of its own."""
    size = checked_size(size, f"{ref.kind} {name}")
    return ref._replace(id=gang_id(ref.namespace, ref.kind, name), name=name, size=size)


def size_of(owner: Object, kind: str = "") -> int:
    """How many pods of an object start together.

    Objects that an API server lists do not say of which kind they are; then the caller does.
    """
    kind, spec = text(owner, "kind") or kind, section(owner, "spec")
    match kind:
        case "PodGroup":
            size = _pod_group_size(spec)
        case "JobSet":
            size = _job_set_size(owner)
        case "RayCluster":
            size = _ray_size(spec)
        case "LeaderWorkerSet":
            size = _group_size(spec)
        case "Job":
            # Of those that are done already no more pods come.
            size = max(1, _job_size(spec, integer(section(owner, "status"), "succeeded")))
        case _:
            size = _kubeflow_size(kind, spec)
    return checked_size(size, f"{kind or 'the object'} {_named(owner)}")


def _pod_group_size(spec: Object) -> int:
    """As all say it, or as Kubernetes' own groups do: those that are no gang start one by one."""
    if "schedulingPolicy" not in spec:
        return integer(spec, "minMember", 1)
    return integer(section(section(spec, "schedulingPolicy"), "gang"), "minCount", 1)


def _workload_size(owner: Object, group: str) -> int:
    for each in sections(section(owner, "spec"), "podGroups"):
        if text(each, "name") == group:
            least = integer(section(section(each, "policy"), "gang"), "minCount", 1)
            return checked_size(least, f"Workload {_named(owner)}")
    raise InvalidSpec(f"Workload {_named(owner)} has no group {quoted(group)}")


def _ray_size(spec: Object) -> int:
    """The head and all workers; with Ray's own autoscaler, the least it may have of them."""
    least = spec.get("enableInTreeAutoscaling") is True
    size = 1
    for group in sections(spec, "workerGroupSpecs"):
        if group.get("suspend") is True:
            continue
        fewest = integer(group, "minReplicas")
        replicas = integer(group, "replicas", fewest)
        if least or replicas < fewest:
            replicas = fewest
        if group.get("maxReplicas") is not None:
            replicas = min(replicas, max(fewest, integer(group, "maxReplicas")))
        size += replicas * integer(group, "numOfHosts", 1)
    return size


def _group_size(spec: Object) -> int:
    return integer(section(spec, "leaderWorkerTemplate"), "size", 1)


def _leader_comes_first(owner: Object) -> bool:
    """Whether workers are made only when their leader is ready, or has a node."""
    ready = section(owner, "spec").get("startupPolicy") == "LeaderReady"
    return ready or _EXCLUSIVE in annotations_of(owner)


def _kubeflow_size(kind: str, spec: Object) -> int:
    replicas = [key for key in spec if key.endswith("ReplicaSpecs")]
    if len(replicas) != 1:
        raise InvalidSpec(f"an object of kind {quoted(kind)} does not say how many pods it has")
    policy = section(section(spec, "runPolicy"), "schedulingPolicy")
    least = integer(policy, "minAvailable")
    if least:
        return least
    roles = section(spec, replicas[0])
    late = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
    return sum(
        integer(section(roles, role), "replicas", 1)
        for role in roles
        if not (late and role == "Launcher")
    )


def _job_set_size(owner: Object, parts: tuple[str, ...] | None = None) -> int:
    size = 0
    for job in sections(section(owner, "spec"), "replicatedJobs"):
        if parts is None or text(job, "name") in parts:
            size += integer(job, "replicas", 1) * _pods_of(job)
    return checked_size(size, f"JobSet {_named(owner)}")


def _pods_of(job: Object) -> int:
    return _job_size(section(section(job, "template"), "spec"))


def _started_with(part: str, owner: Object) -> tuple[str, ...] | None:
    """The parts of a JobSet that start together with one; None if all of them do."""
    spec = section(owner, "spec")
    after = {
        text(job, "name"): sorted(text(one, "name") for one in sections(job, "dependsOn"))
        for job in sections(spec, "replicatedJobs")
    }
    if part not in after:
        raise InvalidSpec(f"JobSet {_named(owner)} has no part {quoted(part)}")
    if section(spec, "startupPolicy").get("startupPolicyOrder") == "InOrder":
        return (part,) if len(after) > 1 else None
    together = tuple(name for name, before in after.items() if before == after[part])
    return together if len(together) < len(after) else None


def _job_size(spec: Object, done: int = 0) -> int:
    parallel = integer(spec, "parallelism", 1)
    if spec.get("completions") is None:
        return parallel
    return min(parallel, integer(spec, "completions") - done)


def _named(owner: Object) -> str:
    return quoted(text(section(owner, "metadata"), "name"))
