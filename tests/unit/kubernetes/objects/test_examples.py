"""The examples in ``deploy/examples``: the gangs that are found are those that each file names.

Pods are made here as their controllers make them: with their labels, annotations and owners.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.pages import ROOT

from roost.kubernetes.client import kinds
from roost.kubernetes.client.kinds import JOBS, Object
from roost.kubernetes.crds import job_file, queue_spec
from roost.kubernetes.objects.gang_refs import GangRef, gang_of
from roost.kubernetes.objects.gang_sizes import completed
from roost.kubernetes.objects.needs import needs
from roost.kubernetes.objects.trimming import trimmer

FOLDER = ROOT / "deploy" / "examples"
FILES = sorted(FOLDER.glob("*.yaml"))
TRAINING, SET = "training.kubeflow.org/", "leaderworkerset.sigs.k8s.io/"
JOB_SET, COMPLETION = "jobset.sigs.k8s.io/", "batch.kubernetes.io/job-completion-index"


def documents(path: Path) -> list[Object]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]


def promised(path: Path) -> dict[str, int]:
    """The gangs that a file says it makes, with their sizes."""
    head = re.search(r"^# Gangs: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    pairs = (one.rpartition(" of ") for one in head[1].split(", ")) if head else ()
    return {name: int(size) for name, _, size in pairs}


def made(
    template: Object,
    owner: tuple[str, str, str],
    labels: Mapping[str, Any],
    notes: Mapping[str, str] | None = None,
) -> Object:
    """A pod of a template."""
    api, kind, name = owner
    reference = {"apiVersion": api, "kind": kind, "name": name, "uid": "u", "controller": True}
    given = template.get("metadata") or {}
    return {
        "metadata": {
            "name": f"{name}-x",
            "namespace": "team",
            "labels": {**given.get("labels", {}), **{k: str(v) for k, v in labels.items()}},
            "annotations": {**given.get("annotations", {}), **(notes or {})},
            "ownerReferences": [reference],
        },
        "spec": template["spec"],
    }


def kubeflow(found: Object) -> Iterator[Object]:
    name, (roles,) = (
        found["metadata"]["name"],
        [value for key, value in found["spec"].items() if key.endswith("ReplicaSpecs")],
    )
    own = (found["apiVersion"], found["kind"], name)
    for role, given in roles.items():
        for index in range(given["replicas"]):
            labels = {
                f"{TRAINING}job-name": name,
                f"{TRAINING}replica-type": role.lower(),
                f"{TRAINING}replica-index": index,
            }
            owner = own
            if found["kind"] == "MPIJob" and role == "Launcher":  # it is the pod of a Job
                owner = ("batch/v1", "Job", f"{name}-launcher")
                labels[f"{TRAINING}operator-name"] = "mpi-operator"
            yield made(given["template"], owner, labels)


def job_set(found: Object) -> Iterator[Object]:
    name = found["metadata"]["name"]
    for part in found["spec"]["replicatedJobs"]:
        for job in range(part.get("replicas", 1)):
            spec = part["template"]["spec"]
            for index in range(spec.get("parallelism", 1)):
                labels = {
                    f"{JOB_SET}jobset-name": name,
                    f"{JOB_SET}replicatedjob-name": part["name"],
                    f"{JOB_SET}job-index": job,
                    COMPLETION: index,
                }
                owner = ("batch/v1", "Job", f"{name}-{part['name']}-{job}")
                yield made(spec["template"], owner, labels)


def ray(name: str, spec: Object) -> Iterator[Object]:
    owner = ("ray.io/v1", "RayCluster", name)
    labels = {"ray.io/cluster": name, "ray.io/group": "headgroup"}
    yield made(spec["headGroupSpec"]["template"], owner, labels)
    for group in spec["workerGroupSpecs"]:
        for _ in range(group["replicas"]):
            labels = {"ray.io/cluster": name, "ray.io/group": group["groupName"]}
            yield made(group["template"], owner, labels)


def leader_worker_set(found: Object) -> Iterator[Object]:
    name, spec = found["metadata"]["name"], found["spec"]
    template = spec["leaderWorkerTemplate"]
    for group in range(spec["replicas"]):
        for index in range(template["size"]):
            labels = {
                f"{SET}name": name,
                f"{SET}group-index": group,
                f"{SET}worker-index": index,
            }
            own = template["workerTemplate" if index else "leaderTemplate"]
            yield made(own, ("apps/v1", "StatefulSet", name), labels)


def batch(found: Object) -> Iterator[Object]:
    name, spec = found["metadata"]["name"], found["spec"]
    for index in range(spec["parallelism"]):
        notes = {COMPLETION: str(index)}
        yield made(spec["template"], ("batch/v1", "Job", name), {}, notes)


Controller = Callable[[list[Object]], tuple[Object | None, list[Object]]]


def of_trainer(found: list[Object]) -> tuple[Object, list[Object]]:
    """What a TrainJob becomes: the JobSet of its runtime, with its name and its nodes."""
    runtime, job = found
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    (part,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    part["template"]["spec"] |= {"parallelism": job["spec"]["trainer"]["numNodes"]}
    owner = {"kind": "JobSet", "metadata": job["metadata"], "spec": {"replicatedJobs": [part]}}
    return owner, list(job_set(owner))


def of_ray_job(found: list[Object]) -> tuple[Object, list[Object]]:
    (job,) = found
    name = f"{job['metadata']['name']}-x7k2p"
    spec = job["spec"]["rayClusterSpec"]
    owner = {"kind": "RayCluster", "metadata": {"name": name}, "spec": spec}
    return owner, list(ray(name, spec))


def from_one(make: Callable[[Object], Iterator[Object]]) -> Controller:
    return lambda found: (found[0], list(make(found[0])))


#: Whoever makes the pods of what a file begins with.
CONTROLLERS: dict[str, Controller] = {
    **dict.fromkeys(
        ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"), from_one(kubeflow)
    ),
    "JobSet": from_one(job_set),
    "TrainingRuntime": of_trainer,
    "RayCluster": from_one(lambda one: ray(one["metadata"]["name"], one["spec"])),
    "RayJob": of_ray_job,
    "LeaderWorkerSet": from_one(leader_worker_set),
    "PodGroup": lambda found: (found[0], found[1:]),
    "Pod": lambda found: (None, found),
    "batch": from_one(batch),
}


def gangs(path: Path) -> dict[str, int]:
    """The gangs of a file, each with its size, once its pods are made."""
    found = documents(path)
    kind = "batch" if found[0]["apiVersion"] == "batch/v1" else found[0]["kind"]
    owner, pods = CONTROLLERS[kind](found)
    assert pods
    sizes: dict[str, int] = {}
    members: Counter[str] = Counter()
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "roost"
        needs(pod)  # Roost can read what it asks for
        ref = _whole(gang_of(pod), owner)
        sizes[ref.id] = ref.size or 0
        members[ref.id] += 1
    assert all(members[name] >= size for name, size in sizes.items())
    return sizes


def _whole(ref: GangRef, owner: Object | None) -> GangRef:
    if owner is None or ref.size is not None:
        return ref
    assert ref.owner is not None
    kind = ref.owner.resource_kind
    assert kind in kinds.GANG_OWNERS, "such owners are not mirrored"
    trim = trimmer(kind)
    return completed(ref, trim(owner) if trim else owner)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_makes_the_gangs_that_it_names(path: Path) -> None:
    found = documents(path)
    if promised(path):
        assert gangs(path) == promised(path)
    for one in found:
        assert one["metadata"].get("namespace") == "team" or one["kind"] == "ClusterQueue"
        if one["apiVersion"] == JOBS.api_version and one["kind"] == "Job":
            assert job_file(one).name == one["metadata"]["name"]
        elif one["kind"] == "ClusterQueue":
            assert queue_spec(one).id == one["metadata"]["name"]
    assert promised(path) or any(one["apiVersion"] == JOBS.api_version for one in found)


def test_there_is_an_example_of_every_kind_in_the_documentation() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    table = text.partition("| kind | its gang |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", table.replace("RayService", "")))
    shown = {one["kind"] for path in FILES for one in documents(path)}
    assert named - {"Indexed", "LeaderReady", "Workload"} <= shown
    assert {path.stem for path in FILES} >= {
        *("fraction", "elastic-job", "queues", "topology", "pods", "batch-job"),
        *("podgroup-coscheduling", "podgroup-volcano", "podgroup-kai"),
    }
