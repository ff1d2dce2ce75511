"""What the operator knows of what usually comes, and what the placer ``usable`` makes of it."""

from __future__ import annotations

from typing import Any

from tests.unit.kubernetes.operator.objects import Cluster, node, pod

from roost.core import JobId
from roost.core.demand import Need
from roost.kubernetes.client.kinds import Object


def half(name: str, **given: Any) -> Object:
    return pod(name, 0, annotations={"roost.dev/gpu-share": "0.5"}, **given)


def bound(one: Object, where: str, gpus: str = "") -> Object:
    one["spec"]["nodeName"] = where
    one["metadata"].setdefault("annotations", {})
    if gpus:
        one["metadata"]["annotations"]["roost.dev/gpus"] = gpus
    return one


def needs(cluster: Cluster) -> dict[Need, float]:
    return dict(cluster.core.ledger.demand.typical().needs)


def test_shares_and_pods_without_gpus_count_among_what_usually_comes() -> None:
    pods = [half("h0"), half("h1"), pod("cpus", 0), pod("whole", 2)]
    found = needs(Cluster(node("a"), node("b"), *pods))

    assert found == {
        Need(1000, 500, 1, ()): 0.5,
        Need(1000, 1000, 2, ()): 0.25,
        Need(1000, 1000, 0, ()): 0.25,
    }


def test_a_new_leader_counts_what_runs_and_not_the_pods_of_others() -> None:
    running = [bound(half("h0"), "a", "0"), bound(half("h1"), "a", "0"), bound(pod("c", 0), "b")]
    others = [pod(f"daemon-{n}", 0, scheduler="default-scheduler", node=n) for n in ("a", "b")]
    cluster = Cluster(node("a"), node("b"), *running, *others)
    cluster.decide()

    assert cluster.core.jobs[JobId("lab.pod.h0")].run is not None
    assert needs(cluster) == {Need(1000, 500, 1, ()): 2 / 3, Need(1000, 1000, 0, ()): 1 / 3}


def test_usable_puts_a_share_beside_another_and_cpus_where_they_spoil_no_gpu() -> None:
    nodes = [node("a", 4), node("b", 4), node("c", 0)]
    cluster = Cluster(*nodes, bound(half("first"), "b", "3"), placer="usable")
    many = [{"resources": {"requests": {"cpu": "60"}}}]
    cluster.put(half("second"), pod("hungry", 0, spec={"containers": many}))
    actions = {str(one.run.job): one for one in cluster.decide()}

    (part,) = actions["lab.pod.second"].allocation.parts  # type: ignore[union-attr]
    assert (part.node, part.gpus) == ("b", (3,))
    (part,) = actions["lab.pod.hungry"].allocation.parts  # type: ignore[union-attr]
    assert part.node == "c"
