"""Objects of other projects as their users write them, for Roost to place.

Each has four pods with two GPUs each, unless it says otherwise, which go to nodes with the label
``pool``: so several can be tried on one cluster, each with nodes of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from roost.kubernetes.client import kinds
from roost.kubernetes.client.kinds import Object, ResourceKind

POOL = "test.roost.dev/pool"
GPUS, PODS = 2, 4

TRAIN_JOBS = ResourceKind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
RUNTIMES = ResourceKind(
    *("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime"),
    namespaced=False,
)
RAY_JOBS = ResourceKind("ray.io", "v1", "rayjobs", "RayJob")


class Sample(NamedTuple):
    """An object to create, and the name of the gang that it becomes."""

    kind: ResourceKind
    body: Object
    gang: str

    @property
    def name(self) -> str:
        """What it is called; the nodes that its pods go to have that label."""
        return str(self.body["metadata"]["name"])


def template(pool: str, container: str = "main", **spec: Any) -> Object:
    """What pods are made of."""
    limits = {"nvidia.com/gpu": str(GPUS)}
    image = {"name": container, "image": "example.org/train:1", "command": ["train"]}
    return {
        "metadata": {"labels": {"team": "birds"}},
        "spec": {
            "schedulerName": "roost",
            "nodeSelector": {POOL: pool},
            "containers": [{**image, "resources": {"limits": limits}}],
            **spec,
        },
    }


def kubeflow(
    kind: ResourceKind,
    roles: Mapping[str, int],
    name: str = "",
    pods: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Sample:
    """A job of the training operator with so many pods of each role; ``pods`` is for their spec."""
    word = kind.kind.removesuffix("Job").lower()
    name = name or f"kf-{word}"
    prefix = {"PyTorchJob": "pytorch", "XGBoostJob": "xgb", "TFJob": "tf"}.get(kind.kind, word)
    container = {"TFJob": "tensorflow"}.get(kind.kind, word)
    replicas = {
        role: {
            "replicas": count,
            "restartPolicy": "Never",
            "template": template(name, container, **(pods or {})),
        }
        for role, count in roles.items()
    }
    body = _object(kind, name, {f"{prefix}ReplicaSpecs": replicas, **spec})
    return Sample(kind, body, f"default.{kind.kind.lower()}.{name}")


def batch(pool: str, pods: int, **spec: Any) -> Object:
    """The template of an indexed Job."""
    body = {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "backoffLimit": 0,
        "template": template(pool, restartPolicy="Never"),
        **spec,
    }
    return {"spec": body}


def job_set(name: str = "jobset", **spec: Any) -> Sample:
    """A JobSet of two parts: one pod, and three."""
    parts = [
        {"name": "driver", "replicas": 1, "template": batch(name, 1)},
        {"name": "workers", "replicas": 1, "template": batch(name, 3)},
    ]
    body = _object(kinds.JOB_SETS, name, {"replicatedJobs": parts, **spec})
    return Sample(kinds.JOB_SETS, body, f"default.jobset.{name}")


def training_runtime(name: str = "torch") -> Object:
    """What an administrator sets up for TrainJobs: PyTorch on so many nodes as they say."""
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {**template("trainjob", "node")}},
        },
    }
    spec = {
        "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
        "template": {"spec": {"replicatedJobs": [job]}},
    }
    body = _object(RUNTIMES, name, spec)
    del body["metadata"]["namespace"]
    body["metadata"]["labels"] = {"trainer.kubeflow.org/framework": "torch"}
    return body


def train_job(name: str = "trainjob", nodes: int = PODS, **spec: Any) -> Sample:
    """A TrainJob: it becomes a JobSet of its name."""
    body = _object(
        TRAIN_JOBS, name, {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": nodes}, **spec}
    )
    return Sample(TRAIN_JOBS, body, f"default.jobset.{name}")


def ray_cluster(name: str = "raycluster", **spec: Any) -> Sample:
    """A RayCluster: a head and three workers."""
    body = _object(kinds.RAY_CLUSTERS, name, ray_spec(name, **spec))
    return Sample(kinds.RAY_CLUSTERS, body, f"default.raycluster.{name}")


def ray_spec(pool: str, **spec: Any) -> Object:
    """What a RayCluster is made of."""
    group = {
        "groupName": "workers",
        "replicas": PODS - 1,
        "minReplicas": 1,
        "maxReplicas": 8,
        "rayStartParams": {},
        "template": template(pool),
    }
    head = {"rayStartParams": {}, "template": template(pool)}
    return {
        "rayVersion": "2.46.0",
        "headGroupSpec": head,
        "workerGroupSpecs": [group],
        **spec,
    }


def ray_job(name: str = "rayjob") -> Sample:
    """A RayJob: it makes a RayCluster of a name of its own."""
    spec = {"entrypoint": "python train.py", "rayClusterSpec": ray_spec(name)}
    return Sample(RAY_JOBS, _object(RAY_JOBS, name, spec), f"default.raycluster.{name}")


def leader_worker_set(name: str = "lws", groups: int = 1, **spec: Any) -> Sample:
    """A LeaderWorkerSet of groups of four."""
    body = _object(
        kinds.LEADER_WORKER_SETS,
        name,
        {
            "replicas": groups,
            "leaderWorkerTemplate": {"size": PODS, "workerTemplate": template(name)},
            **spec,
        },
    )
    return Sample(kinds.LEADER_WORKER_SETS, body, f"default.leaderworkerset.{name}.0")


def _object(kind: ResourceKind, name: str, spec: Object) -> Object:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


#: One of each kind for which there is a real controller.
SAMPLES = (
    kubeflow(kinds.PYTORCH_JOBS, {"Master": 1, "Worker": 3}),
    kubeflow(kinds.TF_JOBS, {"Chief": 1, "PS": 1, "Worker": 2}),
    kubeflow(kinds.MPI_JOBS, {"Launcher": 1, "Worker": 3}),
    kubeflow(kinds.XGBOOST_JOBS, {"Master": 1, "Worker": 3}),
    kubeflow(kinds.PADDLE_JOBS, {"Master": 1, "Worker": 3}),
    kubeflow(kinds.JAX_JOBS, {"Worker": 4}),
    job_set(),
    train_job(),
    ray_cluster(),
    ray_job(),
    leader_worker_set(),
)
