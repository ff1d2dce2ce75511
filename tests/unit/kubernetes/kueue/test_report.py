"""What an administrator is told of Kueue's objects."""

from __future__ import annotations

from tests.unit.kubernetes.kueue.kueue_objects import (
    CLUSTER_QUEUE,
    COHORT,
    FLAVOR,
    GPUS,
    LOCAL_QUEUE,
    cluster_queue,
    cohort,
    flavour,
    group,
    local_queue,
    promise,
    queued,
)
from tests.unit.kubernetes.operator.objects import SPACE, node, pod

from roost.kubernetes.client.kinds import BATCH_JOBS, NODES, PODS, Object, ResourceKind
from roost.kubernetes.kueue.report import report

SUSPENDED: Object = {
    "metadata": {
        "name": "old",
        "namespace": SPACE,
        "labels": {"kueue.x-k8s.io/queue-name": "mine"},
    },
    "spec": {"suspend": True},
}


def told(**more: list[Object]) -> str:
    """The report on one team, and more."""
    kinds: dict[str, ResourceKind] = {
        "queues": CLUSTER_QUEUE,
        "cohorts": COHORT,
        "pods": PODS,
        "jobs": BATCH_JOBS,
        "locals": LOCAL_QUEUE,
    }
    promised = group(default={GPUS: promise(4), "cpu": promise("32")})
    found: dict[ResourceKind, list[Object]] = {
        CLUSTER_QUEUE: [cluster_queue("team", promised, cohort="lab")],
        LOCAL_QUEUE: [local_queue("mine", "team")],
        FLAVOR: [flavour("default")],
        NODES: [node("a")],
    }
    return "\n".join(report(found | {kinds[name]: there for name, there in more.items()}))


def test_without_objects_of_kueue_nothing_is_said() -> None:
    assert not list(report({NODES: [node("a")], PODS: [pod("p")]}))


def test_what_was_understood_is_said() -> None:
    assert told() == "ClusterQueue team: is promised 4 GPUs, 32 CPUs, and borrows in cohort lab"


def test_what_was_not_is_said_too() -> None:
    broken = cluster_queue("odd", group(default={GPUS: promise("lots")}))
    text = told(
        queues=[broken, cluster_queue("late", group(new={GPUS: promise(1)}))],
        cohorts=[cohort("x", parentName="y"), cohort("y", parentName="x")],
        locals=[local_queue("mine", "gone")],
    )
    for part in (
        "ClusterQueue odd is not understood: flavor default: nominalQuota of nvidia.com/gpu",
        "ClusterQueue late: there is no ResourceFlavor new",
        "Cohort x: it borrows nothing: its parents are a circle",
        f"LocalQueue {SPACE}/mine: LocalQueue 'mine' leads to ClusterQueue 'gone'",
    ):
        assert part in text, text


def test_what_waits_for_a_controller_that_is_gone_is_said() -> None:
    gated = queued("held", "mine", spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    text = told(pods=[gated], jobs=[SUSPENDED])
    assert f"1 Job ({SPACE}/old); set spec.suspend to false" in text
    assert f"1 pod ({SPACE}/held)" in text


def test_a_controller_that_runs_is_said_first() -> None:
    itself = pod("kueue-controller-manager-0", scheduler="default-scheduler", phase="Running")
    itself["metadata"]["namespace"] = "kueue-system"
    text = told(pods=[itself], jobs=[SUSPENDED])
    assert text.startswith("Kueue's controller runs (kueue-system/kueue-controller-manager-0)")
    assert "suspended" not in text
