"""Gangs of Ray, of LeaderWorkerSets, of Volcano's tasks and of Kubernetes' own groups."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kubernetes.kube_objects import Object, pod

from roost.errors import InvalidSpec
from roost.kubernetes.client import kinds
from roost.kubernetes.objects.gang_refs import gang_of, index_of, role_of
from roost.kubernetes.objects.gang_sizes import completed, size_of
from roost.kubernetes.objects.trimming import trimmer

TRAINING = "training.kubeflow.org/"
SET = "leaderworkerset.sigs.k8s.io/"


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("XGBoostJob", "xgbReplicaSpecs"),
        ("PaddleJob", "paddleReplicaSpecs"),
        ("JAXJob", "jaxReplicaSpecs"),
    ],
)
def test_all_jobs_of_the_training_operator_say_their_size(kind: str, field: str) -> None:
    one = pod(
        "x-worker-1",
        labels={
            f"{TRAINING}job-name": "x",
            f"{TRAINING}replica-type": "worker",
            f"{TRAINING}replica-index": "1",
        },
        owner=("kubeflow.org/v1", kind, "x"),
    )
    ref = gang_of(one)

    assert ref.id == f"team.{kind.lower()}.x"
    assert completed(ref, {"spec": {field: {"Worker": {"replicas": 3}}}}).size == 3


def ray_pod(group: str = "gpu") -> Object:
    labels = {"ray.io/cluster": "ray", "ray.io/group": group}
    return pod(f"ray-{group}", labels=labels, owner=("ray.io/v1", "RayCluster", "ray"))


def ray_cluster(*groups: Object, **spec: Any) -> Object:
    return {"metadata": {"name": "ray"}, "spec": {"workerGroupSpecs": list(groups), **spec}}


@pytest.mark.parametrize(
    ("groups", "spec", "size"),
    [
        ([], {}, 1),
        ([{"replicas": 6}], {}, 7),
        ([{"replicas": 2, "numOfHosts": 4}, {"replicas": 1}], {}, 10),
        ([{"replicas": 1, "minReplicas": 3}], {}, 4),
        ([{"replicas": 9, "maxReplicas": 5}], {}, 6),
        ([{"replicas": 6, "suspend": True}, {"replicas": 1}], {}, 2),
        # What its autoscaler adds later is placed as it comes.
        (
            [{"replicas": 6, "minReplicas": 2, "maxReplicas": 8}],
            {"enableInTreeAutoscaling": True},
            3,
        ),
        ([{"replicas": 6}], {"enableInTreeAutoscaling": True}, 1),
    ],
)
def test_a_ray_cluster_is_its_head_and_all_its_workers(
    groups: list[Object], spec: Object, size: int
) -> None:
    ref = gang_of(ray_pod())

    assert (ref.id, ref.kind) == ("team.raycluster.ray", "raycluster")
    assert completed(ref, ray_cluster(*groups, **spec)).size == size
    assert (role_of(ray_pod("headgroup")), role_of(ray_pod())) == ("headgroup", "gpu")


def lws_pod(group: int, worker: int) -> Object:
    labels = {
        f"{SET}name": "llm",
        f"{SET}group-index": f"{group}",
        f"{SET}worker-index": f"{worker}",
    }
    return pod(f"llm-{group}-{worker}", labels=labels, owner=("apps/v1", "StatefulSet", "llm"))


def leader_worker_set(size: int, *, exclusive: bool = False, **spec: Any) -> Object:
    notes = {f"{SET}exclusive-topology": "rack"} if exclusive else {}
    return {
        "metadata": {"name": "llm", "annotations": notes},
        "spec": {"replicas": 3, "leaderWorkerTemplate": {"size": size}, **spec},
    }


def test_each_group_of_a_leader_worker_set_is_a_gang() -> None:
    refs = [gang_of(lws_pod(group, worker)) for group, worker in ((0, 0), (0, 2), (1, 1))]
    whole = [completed(ref, leader_worker_set(3)) for ref in refs]

    assert [(ref.id, ref.size) for ref in whole] == [
        ("team.leaderworkerset.llm.0", 3),
        ("team.leaderworkerset.llm.0", 3),
        ("team.leaderworkerset.llm.1", 3),
    ]
    assert refs[0].owner is not None
    assert (refs[0].owner.kind, refs[0].owner.name) == ("LeaderWorkerSet", "llm")
    assert (role_of(lws_pod(0, 0)), role_of(lws_pod(0, 2))) == ("leader", "worker")
    assert index_of(lws_pod(0, 2)) == 2


@pytest.mark.parametrize(
    "owner",
    [leader_worker_set(3, startupPolicy="LeaderReady"), leader_worker_set(3, exclusive=True)],
)
def test_workers_that_come_after_their_leader_do_not_hold_it_up(owner: Object) -> None:
    leader, worker = (completed(gang_of(lws_pod(1, number)), owner) for number in (0, 1))

    assert (leader.id, leader.size) == ("team.leaderworkerset.llm.1.leader", 1)
    assert (worker.id, worker.size) == ("team.leaderworkerset.llm.1.workers", 2)


@pytest.mark.parametrize(
    "labels",
    [
        {f"{SET}name": "../x", f"{SET}group-index": "0"},
        {f"{SET}name": "llm", f"{SET}group-index": "-1"},
        {f"{SET}name": ["llm"], f"{SET}group-index": "0"},
    ],
)
def test_senseless_groups_of_a_set_are_refused(labels: Object) -> None:
    with pytest.raises(InvalidSpec):
        gang_of(pod(labels=labels))


def grouped(**spec: Any) -> Object:
    found = pod("x")
    found["spec"] |= spec
    return found


def test_groups_of_kubernetes_own() -> None:
    ref = gang_of(grouped(schedulingGroup={"podGroupName": "ring"}))
    gang = {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}

    assert (ref.id, ref.owner is not None and ref.owner.version) == (
        "team.podgroup.ring",
        "v1alpha2",
    )
    assert completed(ref, gang).size == 4
    assert completed(ref, {"spec": {"schedulingPolicy": {"basic": {}}}}).size == 1


def test_groups_of_a_workload() -> None:
    workload = {
        "metadata": {"name": "llm"},
        "spec": {
            "podGroups": [
                {"name": "workers", "policy": {"gang": {"minCount": 8}}},
                {"name": "driver", "policy": {"basic": {}}},
            ]
        },
    }

    def of(group: str, key: str = "") -> tuple[str, int | None]:
        told = {"name": "llm", "podGroup": group, **({"podGroupReplicaKey": key} if key else {})}
        found = completed(gang_of(grouped(workloadRef=told)), workload)
        return found.id, found.size

    assert of("workers") == ("team.workload.llm.workers", 8)
    assert of("workers", "1") == ("team.workload.llm.workers.1", 8)
    assert of("driver") == ("team.workload.llm.driver", 1)
    with pytest.raises(InvalidSpec, match="has no group 'other'"):
        of("other")


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulingGroup": {"podGroupName": "a/b"}},
        {"schedulingGroup": ["ring"]},
        {"workloadRef": {"name": "llm"}},
        {"workloadRef": "llm"},
    ],
)
def test_senseless_references_are_refused(spec: Object) -> None:
    with pytest.raises(InvalidSpec):
        gang_of(grouped(**spec))


def test_tasks_of_volcano_are_roles() -> None:
    one = pod("x", labels={"volcano.sh/task-spec": "ps", "volcano.sh/task-index": "2"})

    assert (role_of(one), index_of(one)) == ("ps", 2)


def test_mirrors_keep_sizes_and_leave_out_templates() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    owners = (
        (kinds.RAY_CLUSTERS, ray_cluster({"replicas": 2, "template": template})),
        (
            kinds.LEADER_WORKER_SETS,
            {"spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}},
        ),
    )
    for kind, owner in owners:
        trim = trimmer(kind)
        assert trim is not None
        small = trim(owner)
        assert "containers" not in str(small)
        assert size_of(small, kind.kind) == size_of(owner, kind.kind)

    small_pod = trimmer(kinds.PODS)
    assert small_pod is not None
    kept = small_pod(grouped(schedulingGroup={"podGroupName": "ring"}))
    assert gang_of(kept).id == "team.podgroup.ring"


JOB_SET = "jobset.sigs.k8s.io/"
EXCLUSIVE = f"alpha.{JOB_SET}exclusive-topology"


def job_set_pod(part: str, number: int) -> Object:
    return pod(
        f"slices-{part}-0-{number}",
        labels={f"{JOB_SET}jobset-name": "slices", f"{JOB_SET}replicatedjob-name": part},
        annotations={"batch.kubernetes.io/job-completion-index": str(number)},
        owner=("batch/v1", "Job", f"slices-{part}-0"),
    )


def job_set(notes: Object, of_job: Object, **spec: Any) -> Object:
    template = {"metadata": {"annotations": of_job}, "spec": {"parallelism": 4, "completions": 4}}
    driver = {"name": "driver", "template": {"spec": {"parallelism": 1}}}
    workers = {"name": "workers", "replicas": 3, "template": template}
    return {
        "metadata": {"name": "slices", "annotations": notes},
        "spec": {"replicatedJobs": [driver, workers], **spec},
    }


@pytest.mark.parametrize(("notes", "of_job"), [({EXCLUSIVE: "rack"}, {}), ({}, {EXCLUSIVE: "r"})])
def test_pods_that_come_when_the_first_have_a_domain_do_not_hold_these_up(
    notes: Object, of_job: Object
) -> None:
    owner = job_set(notes, of_job)
    places = (("driver", 0), ("workers", 0), ("workers", 3))
    found = [completed(gang_of(job_set_pod(*place)), owner) for place in places]

    assert [(ref.id, ref.size) for ref in found] == [
        ("team.jobset.slices.leaders", 4),
        ("team.jobset.slices.leaders", 4),
        ("team.jobset.slices.workers", 9),
    ]


def test_of_a_job_set_in_order_each_part_has_leaders_of_its_own() -> None:
    owner = job_set({EXCLUSIVE: "rack"}, {}, startupPolicy={"startupPolicyOrder": "InOrder"})
    places = (("driver", 0), ("workers", 0), ("workers", 1))
    found = [completed(gang_of(job_set_pod(*place)), owner) for place in places]

    assert [(ref.id, ref.size) for ref in found] == [
        ("team.jobset.slices.driver", 1),
        ("team.jobset.slices.workers.leaders", 3),
        ("team.jobset.slices.workers.workers", 9),
    ]


def test_a_job_set_whose_nodes_are_labelled_starts_as_one() -> None:
    owner = job_set({EXCLUSIVE: "rack", f"alpha.{JOB_SET}node-selector": "true"}, {})
    found = completed(gang_of(job_set_pod("workers", 2)), owner)

    assert (found.id, found.size) == ("team.jobset.slices", 13)
