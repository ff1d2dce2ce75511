"""What anybody may write on a pod, and what must not come of it: books stay true, others go on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.kubernetes.operator.objects import Cluster, gang, node, pod

from roost import placement, policies
from roost.core import JobId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    DISRUPTION_BUDGETS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    QUEUES,
    Object,
)
from roost.kubernetes.gangs.discovery import GangSource
from roost.kubernetes.jobs.controller import JobController
from roost.kubernetes.objects.pods import decode_plan
from roost.kubernetes.operator.loop import pod_sources
from roost.kubernetes.operator.reconciler import fold
from roost.kubernetes.operator.workload import SourceFactory

GANG, ALONE = JobId("lab.group.team"), JobId("lab.pod.one")


def seated(plan: list[Any], size: int = 2) -> list[Object]:
    """A gang whose first pod is bound to ``a``, with a plan of somebody's own."""
    members = gang("team", size)
    members[0]["spec"]["nodeName"] = "a"
    members[0]["metadata"]["annotations"] |= {
        "roost.dev/plan": json.dumps(plan),
        "roost.dev/seat": "worker-0",
        "roost.dev/gpus": "0",
    }
    return members


def free(cluster: Cluster) -> float:
    """GPUs that nobody holds."""
    return cluster.core.ledger.free_milli / 1000


def test_a_plan_holds_no_seats_but_those_of_pods_that_wait() -> None:
    members = seated([["a", [0, 1, 2, 3], 4], ["b", [0, 1, 2, 3], 4]])
    cluster = Cluster(node("a", 4), node("b", 4), *members)
    assert free(cluster) == 6


@pytest.mark.parametrize(
    "plan",
    [
        [["a", [0]], ["b", [10**12]]],
        [["a", [0]], ["b", [], 10**12]],
        [["a", [0]], ["b", [], 1, "worker", 10**12]],
        [["a", [0]], *[["b", [], 60_000]] * 2],
        [["a", [0]], ["b", [True]]],
        [],
    ],
)
def test_a_plan_of_absurd_amounts_is_no_plan(plan: list[Any]) -> None:
    with pytest.raises(InvalidSpec, match="plan"):
        decode_plan(json.dumps(plan))
    cluster = Cluster(node("a", 4), node("b", 4), *seated(plan))
    assert free(cluster) == 7
    assert cluster.core.jobs[GANG].run is not None


def test_a_plan_that_is_nested_without_end_is_no_plan() -> None:
    with pytest.raises(InvalidSpec, match="cannot be read"):
        decode_plan("[" * 100_000)
    with pytest.raises(InvalidSpec, match="too long"):
        decode_plan("[" * 300_000)


@pytest.mark.parametrize(
    "given",
    [
        {"annotations": {"roost.dev/attempt": "x"}},
        {"labels": {"roost.dev/index": "x"}},
        {"annotations": {"gpu-fraction": "banana"}},
        {"annotations": {"roost.dev/gpu-share": "0.5"}},
        {"scheduler": "default-scheduler", "annotations": {"gpu-fraction": "banana"}},
        {
            "labels": {"roost.dev/job": "x"},
            "ownerReferences": [
                {"apiVersion": "roost.dev/v1alpha1", "kind": "Queue", "name": "q"}
                | {"uid": "u", "controller": True}
            ],
        },
        {
            "labels": {"roost.dev/job": "x"},
            "ownerReferences": [
                {"apiVersion": "roost.dev/v1alpha1", "kind": "Job", "name": "a.b"}
                | {"uid": "u", "controller": True}
            ],
        },
    ],
)
def test_whatever_a_bound_pod_says_it_is_counted(given: dict[str, Any]) -> None:
    cluster = Cluster(node("a", 4), pod("one", 2, node="a", phase="Running", **given))
    assert free(cluster) == 2


def test_devices_that_another_has_are_not_believed() -> None:
    notes = {"roost.dev/gpus": "0"}
    first, second = (pod(name, node="a", annotations=notes) for name in ("one", "two"))
    cluster = Cluster(node("a", 2), first, second)
    assert free(cluster) == 0
    assert cluster.reconciler.nodes.closed == 0


def test_a_node_is_forgiven_when_a_pod_without_room_has_ended() -> None:
    large = pod("one", 8, node="a")
    cluster = Cluster(node("a", 2), large)
    assert cluster.reconciler.nodes.closed == 1
    cluster.put({**large, "status": {"phase": "Failed"}})
    cluster.decide()
    assert cluster.reconciler.nodes.closed == 0


def test_a_part_that_a_jobset_does_not_have_stops_nobody_else() -> None:
    odd = pod(
        "one",
        labels={
            "jobset.sigs.k8s.io/jobset-name": "set",
            "jobset.sigs.k8s.io/replicatedjob-name": "nowhere",
        },
        ownerReferences=[
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        ],
    )
    cluster = Cluster(node("a", 1))
    cluster.objects[JOB_SETS] = {
        ("lab", "set"): {
            "metadata": {"name": "set", "namespace": "lab"},
            "spec": {"replicatedJobs": [{"name": "part", "template": {"spec": {}}}]},
        }
    }
    cluster.put(odd, pod("two"))
    launched = [action.run.job for action in cluster.decide()]
    assert launched == ["lab.pod.two"]


def test_a_queue_of_others_cannot_be_named() -> None:
    one = pod("one", labels={"roost.dev/queue": "vip"})
    cluster = Cluster(node("a", 1))
    cluster.objects[CLUSTER_QUEUES] = {("", "vip"): {"metadata": {"name": "vip"}}}
    cluster.put(one)
    cluster.decide()
    assert ALONE not in cluster.core.jobs
    assert "vip" not in cluster.core.queues
    queue = {
        "metadata": {"name": "vip", "namespace": "lab"},
        "spec": {"clusterQueue": "vip"},
    }
    cluster.objects[QUEUES] = {("lab", "vip"): queue}
    cluster.reconciler.observe(QUEUES, None, queue)
    cluster.decide()
    assert cluster.core.jobs[ALONE].spec.queue == "vip"


def test_what_runs_goes_on_when_its_queue_is_gone() -> None:
    cluster = Cluster(node("a", 1), pod("one", node="a", labels={"roost.dev/queue": "gone"}))
    assert cluster.core.jobs[ALONE].spec.queue == "default"


def test_a_gang_in_which_every_pod_is_another_is_refused() -> None:
    members = gang("team", 80)
    for number, member in enumerate(members, 1):
        (container,) = member["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": f"{number}m"}}
    cluster = Cluster(node("a", 1), *members)
    cluster.decide()
    assert GANG not in cluster.core.jobs


def test_who_must_not_preempt_does_not() -> None:
    cluster = Cluster(node("a", 1), pod("low", node="a", phase="Running"))
    cluster.put(pod("one", spec={"priority": 9, "preemptionPolicy": "Never"}))
    assert cluster.decide() == []
    cluster.put(pod("two", spec={"priority": 9}))
    assert [action.run.job for action in cluster.decide()] == ["lab.pod.low"]


def test_who_asks_again_and_again_to_be_looked_at_is_noted_once() -> None:
    cluster = Cluster(node("a", 1))
    for _ in range(3):
        cluster.reconciler.requeue_at(ALONE, 2000.0)
    cluster.reconciler.requeue_at(ALONE, 2001.0)
    assert len(cluster.reconciler._due) == 2


def test_a_pod_of_a_job_that_cannot_be_is_counted() -> None:
    owner = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": "a.b", "uid": "u"}
    odd = pod("one", 2, node="a", phase="Running", ownerReferences=[owner | {"controller": True}])
    core = fold(
        {NODES: [node("a", 4)], PODS: [odd]},
        policies.policy("priority"),
        placement.placer("consolidate"),
        1000.0,
        [SourceFactory(JobController.kinds, JobController), *pod_sources()],
    )
    assert core.ledger.free_milli == 2000


def test_a_pod_of_a_job_that_is_gone_takes_room_until_it_has_left() -> None:
    owner = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": "train", "uid": "u"}
    late = pod("one", 2, node="a", phase="Running", ownerReferences=[owner | {"controller": True}])
    late["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster = Cluster(
        node("a", 4), late, sources=[SourceFactory(JobController.kinds, JobController)]
    )
    assert free(cluster) == 2
    cluster.remove(late)
    cluster.decide()
    assert free(cluster) == 4
    assert not cluster.core.jobs
    assert not cluster.reconciler.workloads


@pytest.mark.parametrize("kind", ["Other", "Pod", "Group", "Job"])
def test_no_gang_is_called_like_somebody_elses_pod(kind: str) -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": "one", "uid": "u"}
    odd = pod(
        "two",
        labels={"training.kubeflow.org/job-name": "one"},
        ownerReferences=[owner | {"controller": True}],
    )
    cluster = Cluster(node("a", 4), pod("one", scheduler="default-scheduler", node="a"), odd)
    assert set(cluster.reconciler.workloads) == {"lab.other.one", "lab.pod.two"}


def test_a_pod_under_two_budgets_is_not_chosen() -> None:
    low = pod("low", node="a", phase="Running", labels={"app": "train"})
    selector = {"selector": {"matchLabels": {"app": "train"}}}
    budgets: dict[tuple[str, str], Object] = {
        ("lab", name): {
            "metadata": {"name": name, "namespace": "lab"},
            "spec": selector,
            "status": {"disruptionsAllowed": 1},
        }
        for name in ("first", "second")
    }
    cluster = Cluster(node("a", 1), low, objects={DISRUPTION_BUDGETS: budgets})
    (gangs,) = (one for one in cluster.reconciler.sources if isinstance(one, GangSource))
    (said,) = gangs.budgets.changes(gangs.gangs, cluster.time)
    assert "two disruption budgets" in said.why
    cluster.core.fold(said)
    assert not list(gangs.budgets.changes(gangs.gangs, cluster.time))
    cluster.put(pod("one", spec={"priority": 9}))
    assert cluster.decide() == []
