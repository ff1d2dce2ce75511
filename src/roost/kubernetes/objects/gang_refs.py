"""Which gang a pod belongs to: read from its labels, annotations and owners.

A gang starts as a whole or not at all. In this order a pod belongs to

    a Roost Job          label roost.dev/job, and a Job of roost.dev owns it
    a group of its own   roost.dev/group with roost.dev/group-size, labels or annotations
    a PodGroup           of the coscheduling plug-in (label scheduling.x-k8s.io/pod-group, formerly
                         pod-group.scheduling.sigs.k8s.io), of Volcano (annotation
                         scheduling.k8s.io/group-name, either with scheduling.volcano.sh/group-name)
                         or of KAI (annotation pod-group-name)
    a Workload           Kubernetes' own groups: spec.schedulingGroup, spec.workloadRef
    a Kubeflow job       label training.kubeflow.org/job-name; the kind is that of its owner, or of
                         the operator that made it: the launcher of an MPIJob v2 is the pod of a Job
    a JobSet             label jobset.sigs.k8s.io/jobset-name; what a TrainJob (v2) becomes
    a RayCluster         that owns it; what a RayJob and a RayService become
    a group              of a LeaderWorkerSet: labels leaderworkerset.sigs.k8s.io/name, group-index
    a batch Job          if it is Indexed: then its pods work together; otherwise each is on its own
    no owner             a plain pod is a gang of one

How large it is stands in the object that owns the gang, unless the pod says it: ``gang_sizes``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from roost.core.allocation import WORKER
from roost.core.spec import JobId
from roost.errors import InvalidSpec
from roost.kubernetes.client import kinds
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.values import (
    annotations_of,
    digits,
    labels_of,
    quoted,
    section,
    sections,
    text,
)

#: Larger than any gang that an API server could hold the pods of.
MOST_MEMBERS = 100_000
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)

JOB, ROLE, INDEX = "roost.dev/job", "roost.dev/role", "roost.dev/index"
#: The kind of gang that is a Job of Roost's own.
ROOST = "roost"
GROUP, GROUP_SIZE = "roost.dev/group", "roost.dev/group-size"
_KUBEFLOW = "training.kubeflow.org/"
_JOB_SET = "jobset.sigs.k8s.io/"
_LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io/"
_VOLCANO_TASK, _VOLCANO_INDEX = "volcano.sh/task-spec", "volcano.sh/task-index"
_COMPLETION = "batch.kubernetes.io/job-completion-index"
#: Pods that one Job of a JobSet can have before the numbers of two Jobs would meet.
_PER_JOB = 1 << 20

#: As (whether it is a label, its key, the kind of the group).
_POD_GROUPS = (
    (True, "scheduling.x-k8s.io/pod-group", kinds.POD_GROUPS),
    (True, "pod-group.scheduling.sigs.k8s.io", kinds.POD_GROUPS),
    (True, "scheduling.volcano.sh/group-name", kinds.VOLCANO_POD_GROUPS),
    (False, "scheduling.k8s.io/group-name", kinds.VOLCANO_POD_GROUPS),
    (False, "scheduling.volcano.sh/group-name", kinds.VOLCANO_POD_GROUPS),
    (False, "pod-group-name", kinds.KAI_POD_GROUPS),
)
#: The operators that name themselves on pods whose owner is another object than their job.
_OPERATORS = {
    "mpi-operator": ("kubeflow.org", "v2beta1", "MPIJob"),
    "mpijob-controller": ("kubeflow.org", "v1", "MPIJob"),
    "pytorchjob-controller": ("kubeflow.org", "v1", "PyTorchJob"),
    "tfjob-controller": ("kubeflow.org", "v1", "TFJob"),
    "xgboostjob-controller": ("kubeflow.org", "v1", "XGBoostJob"),
    "paddlejob-controller": ("kubeflow.org", "v1", "PaddleJob"),
    "jaxjob-controller": ("kubeflow.org", "v1", "JAXJob"),
}
_OWNERS = {(kind.group, kind.version, kind.kind): kind for kind in kinds.GANG_OWNERS}
_KUBEFLOW_KINDS = frozenset(kind for _, _, kind in _OPERATORS.values())


class GangOwner(NamedTuple):
    """The object that a gang belongs to; ``uid`` is empty where only its name is known."""

    group: str
    version: str
    kind: str
    name: str
    uid: str = ""

    @property
    def resource_kind(self) -> kinds.ResourceKind | None:
        """Its kind, if that is one which says how large gangs are."""
        return _OWNERS.get(self[:3])


class GangRef(NamedTuple):
    """A gang as one of its pods names it.

    ``id`` is its name in the core. ``size`` is how many pods start together; None if only the
    owner knows. ``part`` is the part of its owner that the pod belongs to, where that can matter,
    and ``first`` whether others of the part may have to wait until it has a node.
    """

    id: JobId
    kind: str
    name: str
    namespace: str
    size: int | None
    owner: GangOwner | None
    part: str = ""
    first: bool = False

    @property
    def alone(self) -> bool:
        """Whether it is a gang of one pod that stands for itself."""
        return self.kind == "pod"


def gang_of(pod: Object) -> GangRef:
    """The gang that a pod belongs to."""
    metadata = section(pod, "metadata")
    labels, annotations = section(metadata, "labels"), section(metadata, "annotations")
    namespace = text(metadata, "namespace", "default")
    owner = _controller(metadata)
    ref = (
        _of_job(labels, namespace, owner)
        or _of_group(labels, annotations, namespace)
        or _of_pod_group(labels, annotations, namespace)
        or _of_workload(section(pod, "spec"), namespace)
        or _of_kubeflow(labels, namespace, owner)
        or _of_job_set(labels, annotations, namespace, owner)
        or _of_ray(namespace, owner)
        or _of_leader_worker_set(labels, namespace)
        or _of_batch(labels, annotations, namespace, owner)
    )
    if ref is not None:
        return ref
    name = text(metadata, "name")
    if not name:
        raise InvalidSpec("a pod must have a name")
    return alone(namespace, name)._replace(owner=owner)


def alone(namespace: str, name: str) -> GangRef:
    """A pod that stands for itself."""
    return GangRef(gang_id(namespace, "pod", name), "pod", name, namespace, 1, None)


def role_of(pod: Object) -> str:
    """What part a pod plays in its gang: "worker" unless a label says otherwise."""
    labels = labels_of(pod)
    for name in (
        ROLE,
        f"{_KUBEFLOW}replica-type",
        f"{_KUBEFLOW}job-role",
        f"{_JOB_SET}replicatedjob-name",
        "ray.io/group",
        _VOLCANO_TASK,
    ):
        if found := text(labels, name):
            return found.lower()
    return "leader" if _leads(labels) else WORKER


def index_of(pod: Object) -> int:
    """Its number within its role; in a JobSet with gaps, but in order."""
    labels, annotations = labels_of(pod), annotations_of(pod)
    for name in (
        INDEX,
        f"{_KUBEFLOW}replica-index",
        f"{_LEADER_WORKER_SET}worker-index",
        _VOLCANO_INDEX,
    ):
        if name in labels:
            return digits(labels[name], f"label {name}", MOST_MEMBERS)
    found = labels.get(_COMPLETION, annotations.get(_COMPLETION))
    index = 0 if found is None else digits(found, f"label {_COMPLETION}", _PER_JOB - 1)
    job = labels.get(f"{_JOB_SET}job-index")
    if job is not None:
        index += _PER_JOB * digits(job, f"label {_JOB_SET}job-index", MOST_MEMBERS)
    return index


def _of_job(labels: Object, namespace: str, owner: GangOwner | None) -> GangRef | None:
    ours = (kinds.JOBS.group, kinds.JOBS.kind)
    if JOB not in labels or owner is None or (owner.group, owner.kind) != ours:
        return None
    return GangRef(JobId(f"{namespace}.{owner.name}"), ROOST, owner.name, namespace, None, owner)


def _of_group(labels: Object, annotations: Object, namespace: str) -> GangRef | None:
    source = labels if GROUP in labels else annotations
    if GROUP not in source:
        return None
    name = _checked_name(source[GROUP], GROUP)
    given = labels.get(GROUP_SIZE, annotations.get(GROUP_SIZE))
    if given is None:
        raise InvalidSpec(f"{GROUP} says nothing without {GROUP_SIZE}, the number of its pods")
    size = checked_size(digits(given, GROUP_SIZE, MOST_MEMBERS), GROUP_SIZE)
    return GangRef(gang_id(namespace, "group", name), "group", name, namespace, size, None)


def _of_pod_group(labels: Object, annotations: Object, namespace: str) -> GangRef | None:
    for labelled, key, kind in _POD_GROUPS:
        if found := (labels if labelled else annotations).get(key):
            name = _checked_name(found, key)
            gang = gang_id(namespace, "podgroup", name)
            return GangRef(gang, "podgroup", name, namespace, None, _owner(kind, name))
    return None


def _of_workload(spec: Object, namespace: str) -> GangRef | None:
    """The group that Kubernetes' own API names, as version 1.36 has it, or as 1.35 does."""
    if spec.get("schedulingGroup"):
        named = section(spec, "schedulingGroup").get("podGroupName")
        name = _checked_name(named, "schedulingGroup.podGroupName")
        owner = _owner(kinds.SCHEDULING_GROUPS, name)
        return GangRef(
            gang_id(namespace, "podgroup", name), "podgroup", name, namespace, None, owner
        )
    if not spec.get("workloadRef"):
        return None
    ref = section(spec, "workloadRef")
    owner = _owner(kinds.WORKLOADS, _checked_name(ref.get("name"), "workloadRef.name"))
    part = _checked_name(ref.get("podGroup"), "workloadRef.podGroup")
    name = ".".join(filter(None, (owner.name, part, text(ref, "podGroupReplicaKey"))))
    return GangRef(
        gang_id(namespace, "workload", name), "workload", name, namespace, None, owner, part
    )


def _of_kubeflow(labels: Object, namespace: str, owner: GangOwner | None) -> GangRef | None:
    found = labels.get(f"{_KUBEFLOW}job-name")
    if not found:
        return None
    name = _checked_name(found, f"{_KUBEFLOW}job-name")
    if owner is None or owner.group != "kubeflow.org" or owner.kind not in _KUBEFLOW_KINDS:
        known = _OPERATORS.get(text(labels, f"{_KUBEFLOW}operator-name"))
        if known is None:
            return None
        owner = GangOwner(*known, name)
    kind = owner.kind.lower()
    return GangRef(gang_id(namespace, kind, name), kind, name, namespace, None, owner)


def _of_job_set(
    labels: Object, annotations: Object, namespace: str, owner: GangOwner | None
) -> GangRef | None:
    key = f"{_JOB_SET}jobset-name"
    found = labels.get(key) or annotations.get(key)
    if not found or owner is None:
        return None
    name = _checked_name(found, key)
    job_set = _owner(kinds.JOB_SETS, name, text(labels, f"{_JOB_SET}jobset-uid"))
    part = text(labels, f"{_JOB_SET}replicatedjob-name")
    first = labels.get(_COMPLETION, annotations.get(_COMPLETION)) == "0"
    gang = gang_id(namespace, "jobset", name)
    return GangRef(gang, "jobset", name, namespace, None, job_set, part, first)


def _of_ray(namespace: str, owner: GangOwner | None) -> GangRef | None:
    ray = kinds.RAY_CLUSTERS
    if owner is None or (owner.group, owner.kind) != (ray.group, ray.kind):
        return None
    gang = gang_id(namespace, "raycluster", owner.name)
    return GangRef(gang, "raycluster", owner.name, namespace, None, owner)


def _of_leader_worker_set(labels: Object, namespace: str) -> GangRef | None:
    """The group of a pod: a leader with its workers, of which a set has several."""
    key, number = f"{_LEADER_WORKER_SET}name", f"{_LEADER_WORKER_SET}group-index"
    if not labels.get(key) or number not in labels:
        return None
    owner = _owner(kinds.LEADER_WORKER_SETS, _checked_name(labels[key], key))
    name = f"{owner.name}.{digits(labels[number], f'label {number}', MOST_MEMBERS)}"
    kind = "leaderworkerset"
    part = "leader" if _leads(labels) else "workers"
    return GangRef(gang_id(namespace, kind, name), kind, name, namespace, None, owner, part)


def _leads(labels: Object) -> bool:
    return labels.get(f"{_LEADER_WORKER_SET}worker-index") == "0"


def _owner(kind: kinds.ResourceKind, name: str, uid: str = "") -> GangOwner:
    return GangOwner(kind.group, kind.version, kind.kind, name, uid)


def _of_batch(
    labels: Object, annotations: Object, namespace: str, owner: GangOwner | None
) -> GangRef | None:
    if owner is None or owner.kind != "Job" or owner.group != kinds.BATCH_JOBS.group:
        return None
    if _COMPLETION not in annotations and _COMPLETION not in labels:
        return None
    return GangRef(gang_id(namespace, "job", owner.name), "job", owner.name, namespace, None, owner)


def _controller(metadata: Object) -> GangOwner | None:
    """The one owner that manages an object."""
    for owner in sections(metadata, "ownerReferences"):
        if owner.get("controller") is True:
            group, slash, version = text(owner, "apiVersion").rpartition("/")
            return GangOwner(
                group if slash else "",
                version,
                text(owner, "kind"),
                _checked_name(owner.get("name"), "ownerReferences"),
                text(owner, "uid"),
            )
    return None


def gang_id(namespace: str, kind: str, name: str) -> JobId:
    """The name of a gang in the core."""
    return JobId(f"{namespace}.{kind}.{name}")


def _checked_name(given: object, where: str) -> str:
    if not isinstance(given, str) or _NAME.fullmatch(given) is None:
        raise InvalidSpec(f"{where}: {quoted(given)} is no name of an object")
    return given


def checked_size(size: int, whose: str) -> int:
    """A size, if a gang can have it; raises InvalidSpec."""
    if not 1 <= size <= MOST_MEMBERS:
        raise InvalidSpec(f"{whose}: a gang has 1 to {MOST_MEMBERS} pods, not {size}")
    return size
