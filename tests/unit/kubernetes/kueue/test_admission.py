"""Pods in Kueue's queues: who begins, where, and what is said to the others."""

from __future__ import annotations

import pytest
from tests.unit.kubernetes.kueue.kueue_objects import (
    ANY,
    CLUSTER_QUEUE,
    FLAVOR,
    GPUS,
    LOCAL_QUEUE,
    cluster_queue,
    flavour,
    group,
    labelled,
    local_queue,
    promise,
    put,
    queued,
    rank,
    remove,
    world,
)
from tests.unit.kubernetes.operator.objects import SPACE, Cluster, gang, node, pod

from roost.core import JobId, Launch
from roost.kubernetes.client.kinds import (
    BATCH_JOBS,
    KUEUE_CLUSTER_QUEUES,
    NAMESPACES,
    QUEUES,
    Object,
)
from roost.kubernetes.gangs.discovery import GangSource
from roost.kubernetes.kueue.controller import GRACE_S
from roost.testing.checks import validate

ALL = group(default={GPUS: promise(2)})


def team(*pods: Object, nodes: list[Object] | None = None, **given: list[Object]) -> Cluster:
    """One ClusterQueue with two GPUs, and one way into it."""
    there = {
        "queues": [cluster_queue("team", ALL)],
        "locals": [local_queue("mine", "team")],
        "flavors": [flavour("default")],
    }
    return world(nodes or [node("a", 8)], list(pods), **{**there, **given})


def running(cluster: Cluster) -> list[str]:
    """What runs, by the names of the pods."""
    cluster.decide()
    cluster.decide()
    validate(cluster.core, limits=False)  # what ran before a queue was stopped goes on
    found = [job for job in cluster.core.jobs.values() if job.run is not None]
    return sorted(str(job.id).rpartition(".")[2] for job in found)


def said(cluster: Cluster, name: str) -> str:
    """Why a pod is not even submitted."""
    source = next(one for one in cluster.reconciler.sources if isinstance(one, GangSource))
    return source.gangs[JobId(f"{SPACE}.pod.{name}")].problem


def test_what_a_queue_was_promised_runs_and_no_more() -> None:
    cluster = team(*(queued(name, "mine") for name in ("p1", "p2", "p3")))
    assert running(cluster) == ["p1", "p2"]
    why = cluster.core.explain(JobId(f"{SPACE}.pod.p3"))
    assert why is not None
    assert why.reason.text.startswith("its queue is at its limit")


def test_an_older_version_of_the_objects_will_do() -> None:
    older = KUEUE_CLUSTER_QUEUES[1]
    cluster = team(*(queued(name, "mine") for name in ("p1", "p2", "p3")), queues=[])
    assert running(cluster) == []
    cluster.objects[older] = {}
    put(cluster, older, cluster_queue("team", ALL))
    assert running(cluster) == ["p1", "p2"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"locals": []}, "there is no LocalQueue 'mine'"),
        ({"queues": []}, "leads to ClusterQueue 'team', which does not exist"),
        ({"flavors": []}, "names ResourceFlavor 'default', which does not exist"),
        ({"queues": [cluster_queue("team", ALL, stopPolicy="Hold")]}, "'team' is stopped (Hold)"),
        ({"locals": [local_queue("mine", "team", stopPolicy="Hold")]}, "'mine' is stopped"),
        ({"queues": [cluster_queue("team", ALL, namespaceSelector=None)]}, "does not take jobs"),
        (
            {"queues": [cluster_queue("team", group(default={GPUS: promise("many")}))]},
            "nominalQuota of nvidia.com/gpu must be a quantity",
        ),
    ],
)
def test_what_does_not_add_up_is_a_sentence(given: dict[str, list[Object]], sentence: str) -> None:
    cluster = team(queued("p1", "mine"), **given)
    assert running(cluster) == []
    assert sentence in said(cluster, "p1")
    assert not cluster.reconciler.open  # and nothing is tried again and again


def test_repaired_it_begins() -> None:
    cluster = team(queued("p1", "mine"), flavors=[])
    assert running(cluster) == []
    put(cluster, FLAVOR, flavour("default"))
    assert running(cluster) == ["p1"]


def test_contradictory_labels_are_told() -> None:
    both = queued("p1", "mine", labels={"roost.dev/queue": "vision"})
    cluster = team(both)
    assert running(cluster) == []
    assert "names two queues: Roost's 'vision' and Kueue's 'mine'" in said(cluster, "p1")


def test_a_gang_of_two_queues_is_told() -> None:
    members = gang("g", 2)
    for number, one in enumerate(members):
        one["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": f"q{number}"}
    cluster = team(*members)
    assert running(cluster) == []
    source = next(one for one in cluster.reconciler.sources if isinstance(one, GangSource))
    assert "several LocalQueues" in source.gangs[JobId(f"{SPACE}.group.g")].problem


def test_namespaces_are_selected_by_their_labels() -> None:
    chosen = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["ml"]}]}
    cluster = team(
        queued("p1", "mine"), queues=[cluster_queue("team", ALL, namespaceSelector=chosen)]
    )
    assert running(cluster) == []
    space = {"metadata": {"name": SPACE, "labels": {"team": "ml"}}}
    cluster.objects[NAMESPACES] = {("", SPACE): space}
    cluster.reconciler.observe(NAMESPACES, None, space)
    assert running(cluster) == ["p1"]


def test_the_label_of_the_job_that_made_a_pod_counts() -> None:
    owner = {
        "metadata": {
            "name": "train",
            "namespace": SPACE,
            "labels": {"kueue.x-k8s.io/queue-name": "mine"},
        },
        "spec": {},
    }
    by = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    pods = [pod(f"train-{n}", ownerReferences=[by]) for n in range(3)]
    cluster = team(*pods)
    assert running(cluster) == []  # its Job was not seen yet
    cluster.objects[BATCH_JOBS] = {(SPACE, "train"): owner}
    cluster.reconciler.observe(BATCH_JOBS, None, owner)
    assert running(cluster) == ["train-0", "train-1"]


def test_a_name_is_looked_up_in_kueue_s_words_or_in_roost_s() -> None:
    own = {"metadata": {"name": "mine", "namespace": SPACE}, "spec": {"clusterQueue": "default"}}
    cluster = team(
        queued("p1", "mine"),
        pod("p2", labels={"roost.dev/queue": "mine"}),
        pod("p3"),
    )
    assert running(cluster) == ["p1", "p2", "p3"]
    queues = {str(job.id)[-2:]: job.spec.queue for job in cluster.core.jobs.values()}
    assert queues == {"p1": "kueue:team", "p2": "kueue:team", "p3": "default"}
    cluster.objects[QUEUES] = {(SPACE, "mine"): own}
    cluster.put(pod("p4", labels={"roost.dev/queue": "mine"}), queued("p5", "mine"))
    assert running(cluster) == ["p1", "p2", "p3", "p4"]
    assert cluster.core.jobs[JobId(f"{SPACE}.pod.p4")].spec.queue == "default"


def test_flavours_lead_to_their_nodes_the_first_first() -> None:
    nodes = [
        labelled(node("a", 4), pool="old"),
        labelled(node("b", 4), pool="new"),
        labelled(node("c", 4), pool="none"),
    ]
    two = group(new={GPUS: promise(1)}, old={GPUS: promise(2)})
    flavours = [flavour("new", pool="new"), flavour("old", pool="old")]
    cluster = team(
        *(queued(f"p{n}", "mine") for n in range(9)),
        nodes=nodes,
        queues=[cluster_queue("team", two)],
        flavors=flavours,
    )
    assert len(running(cluster)) == 3
    places = {part.node for run in cluster.core.runs.values() for part in run.allocation.parts}
    assert places <= {"a", "b"}


def test_a_tainted_flavour_is_tolerated_and_one_with_no_labels_is_everywhere() -> None:
    taint = {"key": "pool", "value": "gpu", "effect": "NoSchedule"}
    tolerates = [{"key": "pool", "operator": "Exists"}]
    closed = labelled(node("a", 4, taints=[taint]), pool="gpu")
    cluster = team(queued("p1", "mine"), pod("p2"), nodes=[closed])
    assert running(cluster) == []
    put(cluster, FLAVOR, flavour("default", tolerates, pool="gpu"))
    assert running(cluster) == ["p1"]


def test_a_class_is_what_a_workload_is_worth() -> None:
    low, high = "low", "high"
    cluster = team(
        queued("p1", "mine", 2, labels={"kueue.x-k8s.io/priority-class": low}),
        queued("p2", "mine", 2, labels={"kueue.x-k8s.io/priority-class": high}),
        queued("p3", "mine", 2, labels={"kueue.x-k8s.io/priority-class": "none"}),
        classes=[rank("low", 1), rank("high", 10)],
    )
    assert running(cluster) == ["p2"]
    assert "no WorkloadPriorityClass 'none'" in said(cluster, "p3")


def test_a_queue_that_is_held_lets_what_runs_go_on_and_one_that_drains_does_not() -> None:
    there = queued("p1", "mine", 2, node="a", phase="Running")
    cluster = team(there, queued("p2", "mine", 2))
    assert running(cluster) == ["p1"]
    put(cluster, CLUSTER_QUEUE, cluster_queue("team", ALL, stopPolicy="Hold"))
    assert running(cluster) == ["p1"]
    assert "is stopped (Hold)" in said(cluster, "p2")
    put(cluster, CLUSTER_QUEUE, cluster_queue("team", ALL, stopPolicy="HoldAndDrain"))
    cluster.decide()
    assert cluster.core.jobs[JobId(f"{SPACE}.pod.p1")].cancelling
    put(cluster, CLUSTER_QUEUE, cluster_queue("team", ALL))
    cluster.decide()
    assert JobId(f"{SPACE}.pod.p2") in cluster.core.jobs


def test_a_queue_that_is_deleted_lets_what_runs_go_on_and_is_forgotten_with_it() -> None:
    gone = cluster_queue("team", ALL)
    cluster = team(queued("p1", "mine"), queues=[gone])
    assert running(cluster) == ["p1"]
    remove(cluster, CLUSTER_QUEUE, gone)
    cluster.put(queued("p2", "mine"))
    assert running(cluster) == ["p1"]
    assert "which does not exist" in said(cluster, "p2")


def test_who_borrows_gives_back() -> None:
    half = group(default={GPUS: promise(2)})
    queues = [cluster_queue(name, half, cohort="lab", preemption=ANY) for name in ("one", "two")]
    ways = [local_queue("first", "one"), local_queue("second", "two")]
    cluster = team(
        *(queued(f"p{n}", "first", node="a", phase="Running") for n in range(4)),
        nodes=[node("a", 4)],
        queues=queues,
        locals=ways,
    )
    assert len(running(cluster)) == 4
    cluster.put(queued("q1", "second", 2))
    cluster.decide()
    leaving = [run for run in cluster.core.runs.values() if run.leaves]
    assert len(leaving) == 2


def test_without_preemption_nobody_has_to_go() -> None:
    half = group(default={GPUS: promise(2)})
    queues = [cluster_queue(name, half, cohort="lab") for name in ("one", "two")]
    ways = [local_queue("first", "one"), local_queue("second", "two")]
    cluster = team(
        *(queued(f"p{n}", "first", node="a", phase="Running") for n in range(4)),
        nodes=[node("a", 4)],
        queues=queues,
        locals=ways,
    )
    assert len(running(cluster)) == 4
    cluster.put(queued("q1", "second", 2))
    cluster.decide()
    assert not [run for run in cluster.core.runs.values() if run.leaves]


def kueue_itself(phase: str = "Running", namespace: str = "kueue-system") -> Object:
    """The pod of Kueue's controller."""
    found = pod("kueue-controller-manager-0", scheduler="default-scheduler", phase=phase)
    found["metadata"]["namespace"] = namespace
    return found


def test_while_kueue_s_controller_runs_it_decides() -> None:
    pods = [queued(name, "mine") for name in ("p1", "p2", "p3")]
    cluster = team(*pods, kueue_itself())
    assert [name for name in running(cluster) if name.startswith("p")] == ["p1", "p2", "p3"]


def test_a_pod_of_that_name_elsewhere_is_nobody() -> None:
    pods = [queued(name, "mine") for name in ("p1", "p2", "p3")]
    cluster = team(*pods, kueue_itself(namespace="somebody"))
    assert running(cluster) == ["p1", "p2"]
    assert GRACE_S > 0


def test_a_kueue_that_starts_takes_its_queues_back() -> None:
    cluster = team(*(queued(name, "mine") for name in ("p1", "p2", "p3")))
    assert running(cluster) == ["p1", "p2"]
    cluster.put(kueue_itself())
    launches = [one for one in cluster.decide() if isinstance(one, Launch)]
    assert [str(one.run.job)[-2:] for one in launches] == ["p3"]
    assert LOCAL_QUEUE.plural == "localqueues"
