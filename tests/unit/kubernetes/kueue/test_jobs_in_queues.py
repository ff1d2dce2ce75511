"""Jobs of Roost's own in Kueue's queues."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kubernetes.kueue.kueue_objects import (
    CLASS,
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
    rank,
)
from tests.unit.kubernetes.operator.objects import SPACE, Cluster, node

from roost.core import JobId
from roost.kubernetes.autoscaling.placeholders import placeholders
from roost.kubernetes.client.kinds import JOBS, Object
from roost.kubernetes.jobs.blueprint import Site
from roost.kubernetes.jobs.controller import JobController
from roost.kubernetes.jobs.workload import JobWorkload
from roost.kubernetes.operator.workload import SourceFactory

WITH_JOBS = SourceFactory(JobController.kinds, JobController)
IN_QUEUE = {"kueue.x-k8s.io/queue-name": "mine"}
TWO = group(new={GPUS: promise(2)})


def job(name: str, labels: Object | None = None, **spec: Any) -> Object:
    """A Job of one GPU."""
    meta = {"name": name, "namespace": SPACE, "uid": f"uid-{name}", "generation": 1}
    wanted = {"image": "busybox", "command": ["train"], "gpus": 1, **spec}
    return {"metadata": meta | ({"labels": labels} if labels else {}), "spec": wanted}


def team(*jobs: Object) -> Cluster:
    """Two GPUs of one flavour, on one of two nodes."""
    return Cluster(
        node("a", 8),
        labelled(node("b", 8), pool="new"),
        sources=[WITH_JOBS],
        objects={
            JOBS: {(SPACE, one["metadata"]["name"]): one for one in jobs},
            CLUSTER_QUEUE: {("", "team"): cluster_queue("team", TWO)},
            LOCAL_QUEUE: {(SPACE, "mine"): local_queue("mine", "team")},
            FLAVOR: {("", "new"): flavour("new", pool="new")},
            CLASS: {("", "high"): rank("high", 9)},
        },
    )


def workload(cluster: Cluster, name: str) -> JobWorkload:
    """The workload of a Job."""
    found = cluster.reconciler.workloads[JobId(f"{SPACE}.{name}")]
    assert isinstance(found, JobWorkload)
    return found


@pytest.mark.parametrize(
    "how", [{"queue": "mine"}, {"labels": IN_QUEUE}, {"queue": "mine", "labels": IN_QUEUE}]
)
def test_a_job_is_in_the_queue_that_it_names_and_on_its_nodes(how: dict[str, Any]) -> None:
    cluster = team(*(job(f"j{n}", **how) for n in range(3)))
    cluster.decide()
    runs = [one.run for one in cluster.core.jobs.values() if one.run is not None]
    assert [part.node for run in runs for part in run.allocation.parts] == ["b", "b"]
    assert {one.spec.queue for one in cluster.core.jobs.values()} == {"kueue:team"}


def test_placeholders_are_for_the_nodes_of_the_flavour() -> None:
    cluster = team(job("j", queue="mine"))
    cluster.decide()
    asked = workload(cluster, "j").asked
    assert asked is not None
    (pod,) = placeholders(asked, 1, Site())
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "pool", "operator": "In", "values": ["new"]}]


def test_a_class_and_a_name_that_contradicts_are_heard() -> None:
    high = {**IN_QUEUE, "kueue.x-k8s.io/priority-class": "high"}
    cluster = team(job("j", high), job("odd", IN_QUEUE, queue="other"))
    cluster.decide()
    assert cluster.core.jobs[JobId(f"{SPACE}.j")].spec.priority == 9
    trouble = workload(cluster, "odd").trouble
    assert trouble is not None
    assert not trouble.final
    assert "names two queues: Roost's 'other' and Kueue's 'mine'" in trouble.sentence

    changed = job("odd", {"kueue.x-k8s.io/queue-name": "other"}, queue="other")
    put(cluster, LOCAL_QUEUE, local_queue("other", "team"))
    cluster.objects[JOBS][SPACE, "odd"] = changed
    cluster.reconciler.observe(JOBS, None, changed)
    cluster.decide()
    assert workload(cluster, "odd").trouble is None


def test_a_queue_that_drains_takes_its_jobs_off_and_gives_them_back() -> None:
    cluster = team(job("j", queue="mine"))
    cluster.decide()
    known = cluster.core.jobs[JobId(f"{SPACE}.j")]
    put(cluster, CLUSTER_QUEUE, cluster_queue("team", TWO, stopPolicy="HoldAndDrain"))
    cluster.decide()
    assert known.held
    put(cluster, CLUSTER_QUEUE, cluster_queue("team", TWO))
    cluster.decide()
    assert not cluster.core.jobs[JobId(f"{SPACE}.j")].held


def test_one_that_waits_is_told_when_its_queue_is_held() -> None:
    cluster = team(job("j", queue="mine"), job("k", queue="mine", workers=2))
    cluster.decide()
    assert cluster.core.jobs[JobId(f"{SPACE}.k")].waiting
    put(cluster, CLUSTER_QUEUE, cluster_queue("team", TWO, stopPolicy="Hold"))
    cluster.decide()
    trouble = workload(cluster, "k").trouble
    assert trouble is not None
    assert "is stopped (Hold)" in trouble.sentence
