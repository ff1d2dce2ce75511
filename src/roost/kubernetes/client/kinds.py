"""The kinds of objects that Roost reads and writes, and where an API server keeps them.

A kind is a value: its path says how to reach it, so the rest of the package needs no class per
kind. Objects themselves are plain dictionaries as JSON has them; what they mean is for others.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import quote

from roost.errors import InvalidSpec

#: An object of the API as JSON has it.
Object = dict[str, Any]


class ResourceKind(NamedTuple):
    """A kind of object: its group ("" for the oldest ones), version, and its names."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What objects of this kind carry as ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name that permissions use: ``pods``, ``jobs.batch``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """The path under which the whole group and version lies."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """The path of a collection, of an object in it, or of an object's subresource.

        Names may come from people: whatever they say, the path leads to this kind.
        """
        path = self.root
        if self.namespaced and namespace:
            path += f"/namespaces/{_segment(namespace)}"
        path += f"/{self.plural}"
        if name:
            path += f"/{_segment(name)}"
        return f"{path}/{sub}" if sub else path


_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


def _segment(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    if name in {".", ".."}:
        raise InvalidSpec(f"{name!r} is no name of an object")
    return quote(name, safe="")


NODES = ResourceKind("", "v1", "nodes", "Node", namespaced=False)
PODS = ResourceKind("", "v1", "pods", "Pod")
SERVICES = ResourceKind("", "v1", "services", "Service")
CONFIG_MAPS = ResourceKind("", "v1", "configmaps", "ConfigMap")
SECRETS = ResourceKind("", "v1", "secrets", "Secret")
NAMESPACES = ResourceKind("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS = ResourceKind("events.k8s.io", "v1", "events", "Event")
DISRUPTION_BUDGETS = ResourceKind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
LEASES = ResourceKind("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES = ResourceKind(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
RESOURCE_CLAIMS = ResourceKind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES = ResourceKind(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
DEVICE_CLASSES = ResourceKind(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False
)
VOLUME_CLAIMS = ResourceKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = ResourceKind("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = ResourceKind(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
STORAGE_CAPACITIES = ResourceKind(
    "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"
)
CSI_DRIVERS = ResourceKind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_NODES = ResourceKind("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
VOLUME_ATTACHMENTS = ResourceKind(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)
BATCH_JOBS = ResourceKind("batch", "v1", "jobs", "Job")

POD_TEMPLATES = ResourceKind("", "v1", "podtemplates", "PodTemplate")
#: What Cluster Autoscaler is asked by for the nodes of a whole gang.
PROVISIONING_REQUESTS = ResourceKind(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest"
)

POD_GROUPS = ResourceKind("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
VOLCANO_POD_GROUPS = ResourceKind("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
KAI_POD_GROUPS = ResourceKind("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup")
#: Kubernetes' own gangs: in a Workload since 1.35, in objects of their own since 1.36.
WORKLOADS = ResourceKind("scheduling.k8s.io", "v1alpha1", "workloads", "Workload")
SCHEDULING_GROUPS = ResourceKind("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
JOB_SETS = ResourceKind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
PYTORCH_JOBS = ResourceKind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
TF_JOBS = ResourceKind("kubeflow.org", "v1", "tfjobs", "TFJob")
MPI_JOBS = ResourceKind("kubeflow.org", "v1", "mpijobs", "MPIJob")
MPI_JOBS_V2 = ResourceKind("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
XGBOOST_JOBS = ResourceKind("kubeflow.org", "v1", "xgboostjobs", "XGBoostJob")
PADDLE_JOBS = ResourceKind("kubeflow.org", "v1", "paddlejobs", "PaddleJob")
JAX_JOBS = ResourceKind("kubeflow.org", "v1", "jaxjobs", "JAXJob")
RAY_CLUSTERS = ResourceKind("ray.io", "v1", "rayclusters", "RayCluster")
LEADER_WORKER_SETS = ResourceKind(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"
)
#: Kinds of others that say how large the gangs of their pods are.
GANG_OWNERS = (
    *(PYTORCH_JOBS, TF_JOBS, MPI_JOBS, MPI_JOBS_V2, XGBOOST_JOBS, PADDLE_JOBS, JAX_JOBS),
    *(JOB_SETS, RAY_CLUSTERS, LEADER_WORKER_SETS, BATCH_JOBS),
    *(POD_GROUPS, VOLCANO_POD_GROUPS, KAI_POD_GROUPS, WORKLOADS, SCHEDULING_GROUPS),
)

JOBS = ResourceKind("roost.dev", "v1alpha1", "jobs", "Job")
QUEUES = ResourceKind("roost.dev", "v1alpha1", "queues", "Queue")
CLUSTER_QUEUES = ResourceKind(
    "roost.dev", "v1alpha1", "clusterqueues", "ClusterQueue", namespaced=False
)

#: Kueue's objects, in the versions in which they are read: those of the first that has one count.
KUEUE_GROUP = "kueue.x-k8s.io"
_KUEUE_VERSIONS = ("v1beta2", "v1beta1")


def _kueue(
    plural: str, kind: str, *older: str, namespaced: bool = False
) -> tuple[ResourceKind, ...]:
    versions = (*_KUEUE_VERSIONS, *older)
    return tuple(ResourceKind(KUEUE_GROUP, one, plural, kind, namespaced) for one in versions)


KUEUE_CLUSTER_QUEUES = _kueue("clusterqueues", "ClusterQueue")
KUEUE_LOCAL_QUEUES = _kueue("localqueues", "LocalQueue", namespaced=True)
KUEUE_FLAVORS = _kueue("resourceflavors", "ResourceFlavor")
KUEUE_COHORTS = _kueue("cohorts", "Cohort", "v1alpha1")
KUEUE_PRIORITY_CLASSES = _kueue("workloadpriorityclasses", "WorkloadPriorityClass")
KUEUE_KINDS = (
    *(*KUEUE_CLUSTER_QUEUES, *KUEUE_LOCAL_QUEUES, *KUEUE_FLAVORS),
    *(*KUEUE_COHORTS, *KUEUE_PRIORITY_CLASSES),
)
