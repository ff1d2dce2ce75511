"""Which gang a pod belongs to, and how large that is: read from labels and owners.

A gang starts as a whole or not at all. In this order a pod belongs to

    a Roost Job          label roost.dev/job, and a Job of roost.dev owns it
    a group of its own   roost.dev/group with roost.dev/group-size, labels or annotations
    a PodGroup           of the coscheduling plug-in (label scheduling.x-k8s.io/pod-group, formerly
                         pod-group.scheduling.sigs.k8s.io), of Volcano (annotation
                         scheduling.k8s.io/group-name, either with scheduling.volcano.sh/group-name)
                         or of KAI (annotation pod-group-name)
    a Kubeflow job       label training.kubeflow.org/job-name; the kind is that of its owner, or of
                         the operator that made it: the launcher of an MPIJob v2 is the pod of a Job
    a JobSet             label jobset.sigs.k8s.io/jobset-name; what a TrainJob (v2) becomes
    a batch Job          if it is Indexed: then its pods work together; otherwise each is on its own
    no owner             a plain pod is a gang of one

How large it is stands in the object that owns the gang, unless the pod says it: whoever has that
object asks ``completed`` for the whole answer.
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
    integer,
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
_COMPLETION = "batch.kubernetes.io/job-completion-index"
#: Pods that one Job of a JobSet can have before the numbers of two Jobs would meet.
_PER_JOB = 1 << 20

_COSCHEDULING = ("scheduling.x-k8s.io", "v1alpha1", "PodGroup")
_VOLCANO = ("scheduling.volcano.sh", "v1beta1", "PodGroup")
_KAI = ("scheduling.run.ai", "v2alpha2", "PodGroup")
#: As (whether it is a label, its key, the kind of the group).
_POD_GROUPS = (
    (True, "scheduling.x-k8s.io/pod-group", _COSCHEDULING),
    (True, "pod-group.scheduling.sigs.k8s.io", _COSCHEDULING),
    (True, "scheduling.volcano.sh/group-name", _VOLCANO),
    (False, "scheduling.k8s.io/group-name", _VOLCANO),
    (False, "scheduling.volcano.sh/group-name", _VOLCANO),
    (False, "pod-group-name", _KAI),
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
_KUBEFLOW_KINDS = frozenset(kind for _, _, kind in _OPERATORS.values())


class GangOwner(NamedTuple):
    """The object that a gang belongs to; ``uid`` is empty where only its name is known."""

    group: str
    version: str
    kind: str
    name: str
    uid: str = ""


class GangRef(NamedTuple):
    """A gang as one of its pods names it.

    ``id`` is its name in the core. ``size`` is how many pods start together; None if only the
    owner knows. ``part`` is the part of its owner that the pod belongs to, where that can matter.
    """

    id: JobId
    kind: str
    name: str
    namespace: str
    size: int | None
    owner: GangOwner | None
    part: str = ""

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
        or _of_kubeflow(labels, namespace, owner)
        or _of_job_set(labels, annotations, namespace, owner)
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
    return GangRef(_id(namespace, "pod", name), "pod", name, namespace, 1, None)


def completed(ref: GangRef, owner: Object) -> GangRef:
    """The gang with its size, from the object that owns it.

    A JobSet may start its parts one after the other; then each part is a gang of its own, for what
    comes later waits for what came before, and both cannot wait for each other.
    """
    if ref.size is not None:
        return ref
    if ref.kind == "jobset" and ref.part:
        together = _started_with(ref.part, owner)
        if together is not None:
            name = f"{ref.name}.{together[0]}"
            size = _job_set_size(owner, together)
            return ref._replace(id=_id(ref.namespace, ref.kind, name), name=name, size=size)
    return ref._replace(size=size_of(owner, ref.owner.kind if ref.owner else ""))


def size_of(owner: Object, kind: str = "") -> int:
    """How many pods of an object start together.

    Objects that an API server lists do not say of which kind they are; then the caller does.
    """
    kind, spec = text(owner, "kind") or kind, section(owner, "spec")
    match kind:
        case "PodGroup":
            size = integer(spec, "minMember", 1)
        case "JobSet":
            size = _job_set_size(owner)
        case "Job":
            # Of those that are done already no more pods come.
            size = max(1, _job_size(spec, integer(section(owner, "status"), "succeeded")))
        case _:
            size = _kubeflow_size(kind, spec)
    return _checked_size(size, f"{kind or 'the object'} {_named(owner)}")


def role_of(pod: Object) -> str:
    """What part a pod plays in its gang: "worker" unless a label says otherwise."""
    labels = labels_of(pod)
    for name in (
        ROLE,
        f"{_KUBEFLOW}replica-type",
        f"{_KUBEFLOW}job-role",
        f"{_JOB_SET}replicatedjob-name",
    ):
        if found := text(labels, name):
            return found.lower()
    return WORKER


def index_of(pod: Object) -> int:
    """Its number within its role; in a JobSet with gaps, but in order."""
    labels, annotations = labels_of(pod), annotations_of(pod)
    for name in (INDEX, f"{_KUBEFLOW}replica-index"):
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
    size = _checked_size(digits(given, GROUP_SIZE, MOST_MEMBERS), GROUP_SIZE)
    return GangRef(_id(namespace, "group", name), "group", name, namespace, size, None)


def _of_pod_group(labels: Object, annotations: Object, namespace: str) -> GangRef | None:
    for labelled, key, kind in _POD_GROUPS:
        if found := (labels if labelled else annotations).get(key):
            name = _checked_name(found, key)
            gang = _id(namespace, "podgroup", name)
            return GangRef(gang, "podgroup", name, namespace, None, GangOwner(*kind, name))
    return None


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
    return GangRef(_id(namespace, kind, name), kind, name, namespace, None, owner)


def _of_job_set(
    labels: Object, annotations: Object, namespace: str, owner: GangOwner | None
) -> GangRef | None:
    key = f"{_JOB_SET}jobset-name"
    found = labels.get(key) or annotations.get(key)
    if not found or owner is None:
        return None
    name = _checked_name(found, key)
    job_set = GangOwner(
        kinds.JOB_SETS.group,
        kinds.JOB_SETS.version,
        kinds.JOB_SETS.kind,
        name,
        text(labels, f"{_JOB_SET}jobset-uid"),
    )
    part = text(labels, f"{_JOB_SET}replicatedjob-name")
    return GangRef(_id(namespace, "jobset", name), "jobset", name, namespace, None, job_set, part)


def _of_batch(
    labels: Object, annotations: Object, namespace: str, owner: GangOwner | None
) -> GangRef | None:
    if owner is None or owner.kind != "Job" or owner.group != kinds.BATCH_JOBS.group:
        return None
    if _COMPLETION not in annotations and _COMPLETION not in labels:
        return None
    return GangRef(_id(namespace, "job", owner.name), "job", owner.name, namespace, None, owner)


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
            pods = _job_size(section(section(job, "template"), "spec"))
            size += integer(job, "replicas", 1) * pods
    return _checked_size(size, f"JobSet {_named(owner)}")


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


def _id(namespace: str, kind: str, name: str) -> JobId:
    return JobId(f"{namespace}.{kind}.{name}")


def _named(owner: Object) -> str:
    return quoted(text(section(owner, "metadata"), "name"))


def _checked_name(given: object, where: str) -> str:
    if not isinstance(given, str) or _NAME.fullmatch(given) is None:
        raise InvalidSpec(f"{where}: {quoted(given)} is no name of an object")
    return given


def _checked_size(size: int, whose: str) -> int:
    if not 1 <= size <= MOST_MEMBERS:
        raise InvalidSpec(f"{whose}: a gang has 1 to {MOST_MEMBERS} pods, not {size}")
    return size
