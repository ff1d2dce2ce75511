"""What queues say of themselves, and what a Job's PriorityClass is worth."""

from __future__ import annotations

from typing import Any

from tests.unit.kubernetes.operator.objects import Cluster, node, pod

from roost.core import JobId, QueueId
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    Object,
)
from roost.kubernetes.jobs import queue_status
from roost.kubernetes.jobs.controller import JobController
from roost.kubernetes.operator.workload import SourceFactory

SPACE = "lab"
WITH_JOBS = SourceFactory(JobController.kinds, JobController)


def job(name: str, **spec: Any) -> Object:
    """A Job object of one GPU."""
    meta = {"name": name, "namespace": SPACE, "uid": f"uid-{name}", "generation": 1}
    wanted = {"image": "busybox", "command": ["train"], "gpus": 1, **spec}
    return {"metadata": meta, "spec": wanted}


def queue(name: str, target: str) -> Object:
    """A Queue that leads to a ClusterQueue."""
    meta = {"name": name, "namespace": SPACE, "uid": f"uid-{name}", "generation": 1}
    return {"metadata": meta, "spec": {"clusterQueue": target}}


def cluster_queue(name: str) -> Object:
    """A ClusterQueue without promises."""
    return {"metadata": {"name": name, "uid": f"uid-{name}", "generation": 1}, "spec": {}}


def with_jobs(*jobs: Object, pods: tuple[Object, ...] = (), **more: list[Object]) -> Cluster:
    """A cluster of one node, with these Jobs, a queue and classes."""
    classes = {("", one["metadata"]["name"]): one for one in more.get("classes", [])}
    return Cluster(
        node("a", 2),
        *pods,
        sources=[WITH_JOBS],
        objects={
            JOBS: {(SPACE, one["metadata"]["name"]): one for one in jobs},
            QUEUES: {(SPACE, "mine"): queue("mine", "vision")},
            CLUSTER_QUEUES: {("", "vision"): cluster_queue("vision")},
            PRIORITY_CLASSES: classes,
        },
    )


def told(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What each queue should say, of those that do not."""
    source = cluster.reconciler.sources[0]
    assert isinstance(source, JobController)
    due = queue_status.stale_queues(cluster.reconciler, source.records)
    return {f"{one.kind.kind} {one.queue['metadata']['name']}": one.status for one in due}


def figures(cluster: Cluster) -> dict[str, tuple[float, ...]]:
    """The same as what is used, how many wait, and how many run."""
    return {
        name: (said["used"], said["waiting"], said["running"])
        for name, said in told(cluster).items()
    }


def test_a_queue_counts_jobs_and_the_gpus_that_they_hold() -> None:
    cluster = with_jobs(*(job(name, queue="mine") for name in ("one", "two", "three")))
    cluster.decide()
    assert figures(cluster) == {"Queue mine": (2, 1, 2), "ClusterQueue vision": (2, 1, 2)}


def test_pods_of_others_count_in_the_queue_that_they_name() -> None:
    cluster = with_jobs(
        job("one", queue="mine"),
        pods=(
            pod("two", labels={"roost.dev/queue": "mine"}),
            pod("three", labels={"roost.dev/queue": "mine"}),
        ),
    )
    cluster.decide()
    assert figures(cluster) == {"Queue mine": (2, 1, 2), "ClusterQueue vision": (2, 1, 2)}


def test_what_a_queue_says_already_is_not_said_again() -> None:
    cluster = with_jobs()
    assert figures(cluster) == {"Queue mine": (0, 0, 0), "ClusterQueue vision": (0, 0, 0)}
    write(cluster)
    cluster.time += 60.0
    assert told(cluster) == {}


def write(cluster: Cluster) -> None:
    """Let queues say what they should."""
    for kind in (QUEUES, CLUSTER_QUEUES):
        for found in cluster.objects[kind].values():
            name = f"{kind.kind} {found['metadata']['name']}"
            found["status"] = told(cluster).get(name) or found["status"]


def test_a_queue_that_leads_nowhere_says_so() -> None:
    cluster = with_jobs()
    write(cluster)
    gone = cluster.objects[CLUSTER_QUEUES].pop(("", "vision"))
    (ready,) = told(cluster)["Queue mine"]["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "UnknownQueue")
    assert "'vision', which does not exist" in ready["message"]
    write(cluster)
    cluster.time += 60.0
    cluster.objects[CLUSTER_QUEUES]["", "vision"] = gone
    (again,) = told(cluster)["Queue mine"]["conditions"]
    assert again["status"] == "True"
    assert again["lastTransitionTime"] > ready["lastTransitionTime"]


def test_a_promise_that_cannot_be_is_said_to_be_none() -> None:
    cluster = with_jobs()
    cluster.objects[CLUSTER_QUEUES]["", "vision"]["spec"] = {"weight": "much"}
    (ready,) = told(cluster)["ClusterQueue vision"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "InvalidQueue")


def test_a_tree_tells_who_borrowed_what_and_a_circle_is_refused() -> None:
    cluster = with_jobs(job("one", queue="mine"), job("two", queue="mine"), job("x", queue="mine"))
    queues = {
        "org": {},
        "vision": {"quota": 1, "parent": "org", "quotas": [{"resource": "cpu", "nominal": "64"}]},
        "nlp": {"quota": 1, "parent": "org"},
    }
    for name, spec in queues.items():
        made = {**cluster_queue(name), "spec": spec}
        old = cluster.objects[CLUSTER_QUEUES].get(("", name))
        cluster.objects[CLUSTER_QUEUES]["", name] = made
        cluster.reconciler.observe(CLUSTER_QUEUES, old, made)
    for _ in range(2):
        cluster.decide()
    said = told(cluster)
    assert (said["ClusterQueue vision"]["used"], said["ClusterQueue vision"]["borrowed"]) == (2, 1)
    assert said["ClusterQueue nlp"]["lent"] == 1
    assert [one["resource"] for one in said["ClusterQueue vision"]["resources"]][:1] == ["gpu"]

    turned = {**cluster_queue("org"), "spec": {"parent": "vision"}}
    cluster.objects[CLUSTER_QUEUES]["", "org"] = turned
    cluster.reconciler.observe(CLUSTER_QUEUES, None, turned)
    cluster.decide()
    (ready,) = told(cluster)["ClusterQueue vision"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "InvalidParent")
    assert "circle" in ready["message"]


def test_the_priority_class_of_a_job_is_its_priority() -> None:
    gentle = {"metadata": {"name": "gentle"}, "value": 1000, "preemptionPolicy": "Never"}
    cluster = with_jobs(
        job("plain", priority=7),
        job("ranked", priority=7, pod={"priorityClassName": "gentle"}),
        classes=[gentle],
    )
    cluster.decide()
    specs = {name: found.spec for name, found in cluster.core.jobs.items()}
    assert {name: (one.priority, one.preempts) for name, one in specs.items()} == {
        "lab.plain": (7, True),
        "lab.ranked": (1000, False),
    }


def test_a_job_whose_priority_class_is_not_there_waits_for_it() -> None:
    cluster = with_jobs(job("ranked", pod={"priorityClassName": "gold"}))
    assert not cluster.core.jobs
    gold = {"metadata": {"name": "gold"}, "value": 5}
    cluster.objects[PRIORITY_CLASSES] = {("", "gold"): gold}
    cluster.reconciler.observe(PRIORITY_CLASSES, None, gold)
    for _ in range(2):
        cluster.decide()
    assert cluster.core.jobs[JobId("lab.ranked")].spec.priority == 5


def test_a_guest_stays_one_whatever_class_its_pods_have() -> None:
    classes = [{"metadata": {"name": "gold"}, "value": 1000}]
    classes.append({"metadata": {"name": "lead"}, "value": -7})
    cluster = with_jobs(
        job("plain", guest=True),
        job("dear", guest=True, pod={"priorityClassName": "gold"}),
        job("poor", guest=True, pod={"priorityClassName": "lead"}),
        classes=classes,
    )
    cluster.decide()
    assert {name: one.spec.priority for name, one in cluster.core.jobs.items()} == {
        "lab.plain": -1,
        "lab.dear": -1,
        "lab.poor": -7,
    }


def promised(cluster: Cluster, name: str, *cells: Object) -> None:
    """Promise a ClusterQueue these cells, as if its object had changed."""
    found = cluster.objects[CLUSTER_QUEUES].get(("", name)) or cluster_queue(name)
    made = {**found, "spec": {"cells": list(cells), "quota": 1}}
    cluster.objects[CLUSTER_QUEUES]["", name] = made
    cluster.reconciler.observe(CLUSTER_QUEUES, found, made)
    cluster.decide()


def look_again(cluster: Cluster) -> None:
    """What follows a decision after which there may be more room."""
    for event in queue_status.unpromised(cluster.reconciler):
        cluster.reconciler.report(event)
    cluster.decide()


def of_cells(cluster: Cluster, name: str = "vision") -> tuple[str, str, str, list[object]]:
    """Status, reason and message of the condition about cells, and how each stands."""
    status = told(cluster)[f"ClusterQueue {name}"]
    (one,) = (one for one in status["conditions"] if one["type"] == "CellsPromised")
    return one["status"], one["reason"], one["message"], status["cells"]


def test_cells_are_promised_and_the_status_tells_how_they_stand() -> None:
    cluster = with_jobs(job("one", queue="mine"))
    promised(cluster, "vision", {"level": "node"})
    assert [*map(str, cluster.core.queues[QueueId("vision")].spec.cells)] == ["1xnode"]
    held = [{"promise": "1xnode", "used": 1, "broken": 0}]
    assert of_cells(cluster) == ("True", "Promised", "", held)


def test_cells_that_are_not_there_wait_for_their_nodes() -> None:
    cluster = with_jobs()
    promised(cluster, "vision", {"level": "node", "count": 2})
    spec = cluster.core.queues[QueueId("vision")].spec
    assert (spec.cells, spec.quota_milli) == ((), 1000), "the rest counts"
    status, reason, why, cells = of_cells(cluster)
    assert (status, reason, cells) == ("False", "NotThere", [])
    assert why.startswith("queue vision cannot be promised 2 ")

    cluster.put(node("b", 2))
    cluster.decide()
    look_again(cluster)
    assert of_cells(cluster)[:2] == ("True", "Promised")
    assert cluster.core.queues[QueueId("vision")].spec.cells[0].count == 2


def test_cells_that_others_have_are_promised_once_they_have_less() -> None:
    cluster = with_jobs()
    promised(cluster, "vision", {"name": "a"})
    promised(cluster, "nlp", {"level": "node"})
    status, _, why, _ = of_cells(cluster, "nlp")
    assert status == "False"
    assert "beside what others are promised" in why
    promised(cluster, "vision")
    look_again(cluster)
    assert of_cells(cluster, "nlp")[0] == "True"
    vision = told(cluster)["ClusterQueue vision"]
    assert [one["type"] for one in vision["conditions"]] == ["Ready"]


def test_cells_that_broke_are_told() -> None:
    cluster = with_jobs()
    promised(cluster, "vision", {"name": "a"})
    cluster.remove(node("a", 2))
    cluster.decide()
    status, reason, why, cells = of_cells(cluster)
    assert (status, reason) == ("False", "Broken")
    assert "too little healthy hardware is left for 1 of cell a" in why
    assert cells == [{"promise": "pin:a", "used": 0, "broken": 1}]


def test_a_job_waits_for_the_promise_of_the_cell_that_it_names() -> None:
    cluster = with_jobs(job("own", queue="mine", cell="a"), job("stray", cell="a"))
    cluster.decide()
    assert not cluster.core.jobs
    source = cluster.reconciler.sources[0]
    assert isinstance(source, JobController)
    assert trouble(source, "own") == (
        "job 'lab.own': queue vision has no cell 'a': it was promised none by name"
    )
    assert "queue default has no cell 'a'" in trouble(source, "stray")
    promised(cluster, "vision", {"name": "a"})
    cluster.decide()
    assert set(cluster.core.jobs) == {"lab.own"}
    assert cluster.core.jobs[JobId("lab.own")].spec.cell == "a"


def trouble(source: JobController, name: str) -> str:
    """Why a Job is not in the core."""
    found = source._workloads[JobId(f"{SPACE}.{name}")].trouble
    return "" if found is None else found.sentence
