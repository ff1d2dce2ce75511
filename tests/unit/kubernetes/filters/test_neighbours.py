"""Pods near others, apart from others, and spread evenly."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kubernetes.operator.objects import SPACE, Cluster, gang, node, pod

from roost.core import JobId, Launch
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import NAMESPACES, NODES, PODS, Object
from roost.kubernetes.filters.neighbours import NeighbourFilter

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE, HOST = "zone", "kubernetes.io/hostname"


def term(app: str = "x", key: str = ZONE, **more: Any) -> Object:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def near(*terms: Object) -> Object:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def apart(*terms: Object) -> Object:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def spread(skew: int = 1, key: str = ZONE, **more: Any) -> Object:
    one = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologySpreadConstraints": [{"labelSelector": {"matchLabels": {"app": "x"}}, **one}]}


def zoned(name: str, zone: str, **labels: str) -> Object:
    made = node(name)
    made["metadata"]["labels"] |= {ZONE: zone, **labels}
    return made


def labelled(name: str, app: str = "x", **given: Any) -> Object:
    return pod(name, labels={"app": app}, **given)


NODES_OF_TWO_ZONES = (zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"))


def refused(
    *residents: Object, asks: Object, nodes: tuple[Object, ...] = NODES_OF_TWO_ZONES
) -> str:
    """The nodes that a pod must not go to."""
    filter_ = NeighbourFilter()
    for one in nodes:
        filter_.object_changed(NODES, None, one)
    for one in residents:
        filter_.object_changed(PODS, None, one)
    return " ".join(sorted(filter_.refusals(asks, NODES_OF_TWO_ZONES)))


@pytest.mark.parametrize(
    ("there", "asks", "nodes"),
    [
        ([], near(term("y")), "a1 a2 b1"),  # nobody to be near
        ([labelled("y", "y", node="a1")], near(term("y")), "b1"),
        ([labelled("y", "y", node="a1")], near(term("y", HOST)), "a2 b1"),
        ([], near(term("x")), ""),  # the first of its kind
        ([labelled("o", node="b1")], near(term("x")), "a1 a2"),
        ([labelled("o", node="b1")], near(term("x"), term("y")), "a1 a2 b1"),
        ([labelled("o", node="b1")], near(term("x", "rack")), "a1 a2 b1"),  # no node has one
        ([labelled("y", "y", node="a1")], apart(term("y")), "a1 a2"),
        ([labelled("y", "y", node="a1")], apart(term("y", "rack")), ""),
        ([labelled("y", "y", node="a1", phase="Failed")], apart(term("y")), ""),
        ([labelled("y", "y", node="a1", spec=apart(term("x")))], {}, "a1 a2"),
        ([labelled("y", "y", node="a1", spec=apart(term("z")))], {}, ""),
        ([labelled("o", node="a1")], spread(), "a1 a2"),
        ([labelled("o", node="a1")], spread(skew=2), ""),
        ([labelled("o", node="a1"), labelled("p", node="b1")], spread(), ""),
        ([labelled("o", node="a1")], spread(key=HOST), "a1"),
        ([], spread(key="rack"), "a1 a2 b1"),
        ([], spread(minDomains=3), ""),
        ([labelled("o", node="a1"), labelled("p", node="b1")], spread(minDomains=3), "a1 a2 b1"),
        # Only nodes that it can go to count as domains, unless it says otherwise.
        ([labelled("o", node="a1")], spread() | {"nodeSelector": {ZONE: "a"}}, ""),
        (
            [labelled("o", node="a1")],
            spread(nodeAffinityPolicy="Ignore") | {"nodeSelector": {ZONE: "a"}},
            "a1 a2",
        ),
        ([labelled("o", node="a1", deletionTimestamp="now")], spread(), ""),
    ],
)
def test_a_pod_is_kept_off_nodes(there: list[Object], asks: Object, nodes: str) -> None:
    assert refused(*there, asks=labelled("new", spec=asks)) == nodes


def test_namespaces_are_named_or_selected() -> None:
    other = labelled("y", "y", node="a1")
    other["metadata"]["namespace"] = "other"
    filter_ = NeighbourFilter()
    for one in NODES_OF_TWO_ZONES:
        filter_.object_changed(NODES, None, one)
    filter_.object_changed(PODS, None, other)
    space = {"metadata": {"name": "other", "labels": {"team": "t"}}}

    def away(**more: Any) -> set[str]:
        asks = labelled("new", spec=apart(term("y", **more)))
        return set(filter_.refusals(asks, NODES_OF_TWO_ZONES))

    by_team = {"namespaceSelector": {"matchLabels": {"team": "t"}}}
    assert not away()
    assert away(namespaces=["other"]) == {"a1", "a2"}
    assert away(namespaceSelector={}) == {"a1", "a2"}
    assert not away(**by_team)
    assert filter_.object_changed(NAMESPACES, None, space)
    assert away(**by_team) == {"a1", "a2"}
    assert filter_.object_changed(NAMESPACES, space, None)
    assert not away(**by_team)


def test_counts_follow_what_changes() -> None:
    filter_ = NeighbourFilter()
    for one in NODES_OF_TWO_ZONES:
        filter_.object_changed(NODES, None, one)
    asks, there = labelled("new", spec=apart(term("x"))), labelled("o", node="a1")

    def away() -> set[str]:
        return set(filter_.refusals(asks, NODES_OF_TWO_ZONES))

    assert not away()
    filter_.reserve(labelled("o"), there["spec"]["nodeName"])
    assert away() == {"a1", "a2"}
    filter_.object_changed(PODS, None, there)
    filter_.release(there)
    assert away() == {"a1", "a2"}
    filter_.object_changed(NODES, NODES_OF_TWO_ZONES[0], zoned("a1", "b"))
    assert away() == {"b1"}
    filter_.object_changed(PODS, there, None)
    assert not away()


@pytest.mark.parametrize(
    "asks", [near({"labelSelector": {}}), apart(term(labelSelector=[])), spread(maxSkew="x")]
)
def test_nonsense_is_told(asks: Object) -> None:
    cluster = Cluster(*NODES_OF_TWO_ZONES, labelled("odd", spec=asks))
    cluster.decide()
    assert cluster.reconciler.workloads[JobId(f"{SPACE}.pod.odd")].problem  # type: ignore[attr-defined]
    with pytest.raises(InvalidSpec):
        refused(asks=labelled("odd", spec=asks))


# -- with the core -----------------------------------------------------------------------------


def places(cluster: Cluster, rounds: int = 12) -> dict[str, str]:
    """The nodes of each gang whose pods would be bound by now; no server answers, time goes on."""
    found: dict[str, str] = {}
    for _ in range(rounds):
        for action in cluster.decide():
            if isinstance(action, Launch):
                run = cluster.core.runs[action.run]
                found[action.run.job] = " ".join(
                    sorted(part.node for part in run.allocation.parts for _ in range(part.workers))
                )
        cluster.time += 1.0
    filters, workloads = cluster.reconciler.filters, cluster.reconciler.workloads
    return {
        job: nodes
        for job, nodes in found.items()
        if all(filters.is_reserved(one) for one in workloads[JobId(job)].pods.values())  # type: ignore[attr-defined]
    }


def test_pods_that_keep_apart_are_bound_apart() -> None:
    pods = [labelled(f"p{n}", spec=apart(term("x"))) for n in range(3)]
    found = places(Cluster(*NODES_OF_TWO_ZONES, *pods))
    zones = [where[0] for where in found.values()]
    assert sorted(zones) == ["a", "b"]


def test_a_plain_pod_stays_off_where_one_keeps_it_away() -> None:
    shy = labelled("shy", "y", node="a1", spec=apart(term("x")))
    found = places(Cluster(*NODES_OF_TWO_ZONES, shy, labelled("plain")))
    assert found[f"{SPACE}.pod.plain"] == "b1"


def test_a_gang_that_wants_to_be_together_goes_to_one_domain() -> None:
    pods = gang("g", 3, gpus=5, labels={"app": "x"}, spec=near(term("x")))
    zones = (zoned("a1", "a"), zoned("a2", "a"), *(zoned(f"b{n}", "b") for n in range(3)))
    found = places(Cluster(*zones, *pods))
    assert list(found.values()) == ["b0 b1 b2"]


def test_a_gang_whose_pods_keep_apart_has_one_on_each_node() -> None:
    pods = gang("g", 3, labels={"app": "x"}, spec=apart(term("x", HOST)))
    found = places(Cluster(*NODES_OF_TWO_ZONES, *pods))
    assert list(found.values()) == ["a1 a2 b1"]


def test_a_gang_too_large_to_keep_apart_waits() -> None:
    pods = gang("g", 4, labels={"app": "x"}, spec=apart(term("x", HOST)))
    assert not places(Cluster(*NODES_OF_TWO_ZONES, *pods))


def test_a_place_is_found_once_it_is_free() -> None:
    shy = labelled("shy", "y", node="b1", spec=apart(term("x")))
    two = (zoned("b1", "b"),)
    cluster = Cluster(*two, shy, labelled("plain"))
    assert not places(cluster)
    cluster.remove(shy)
    assert places(cluster) == {f"{SPACE}.pod.plain": "b1"}


# -- what pods like --------------------------------------------------------------------------------

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def likes(term_: Object, kind: str = "podAffinity", weight: int = 10) -> Object:
    return {"affinity": {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": term_}]}}}


def avoids(term_: Object, weight: int = 10) -> Object:
    return likes(term_, "podAntiAffinity", weight)


def soft(key: str = ZONE, **more: Any) -> Object:
    return spread(key=key, whenUnsatisfiable="ScheduleAnyway", **more)


def both(*parts: Object) -> Object:
    return {"affinity": {kind: one for part in parts for kind, one in part["affinity"].items()}}


def liked(*residents: Object, asks: Object) -> str:
    """The nodes, those with the most points first."""
    filter_ = NeighbourFilter()
    for one in NODES_OF_TWO_ZONES:
        filter_.object_changed(NODES, None, one)
    for one in residents:
        filter_.object_changed(PODS, None, one)
    if not filter_.concerns(asks):
        return "all"
    points = filter_.preferences(asks, NODES_OF_TWO_ZONES)
    ranks = sorted(set(points.values()), reverse=True)
    return "|".join(" ".join(sorted(n for n in points if points[n] == many)) for many in ranks)


@pytest.mark.parametrize(
    ("there", "asks", "nodes"),
    [
        ([], {}, "all"),
        ([], likes(term("y")), ""),
        ([labelled("y", "y", node="a1")], likes(term("y")), "a1 a2|b1"),
        ([labelled("y", "y", node="a1")], likes(term("y", HOST)), "a1|a2 b1"),
        ([labelled("y", "y", node="a1")], avoids(term("y")), "b1|a1 a2"),
        ([labelled("y", "y", node="a1")], avoids(term("y", "rack")), ""),
        (
            [labelled("y", "y", node="a1"), labelled("z", "z", node="b1")],
            both(likes(term("y")), avoids(term("z"))),
            "a1 a2|b1",
        ),
        # Pods that are there like or dislike others, too.
        ([labelled("y", "y", node="a1", spec=likes(term("x")))], {}, "a1 a2|b1"),
        ([labelled("y", "y", node="b1", spec=avoids(term("x")))], {}, "a1 a2|b1"),
        ([labelled("y", "y", node="a1", spec=avoids(term("z")))], {}, "all"),
        ([labelled("o", node="a1")], soft(), "b1|a1 a2"),
        ([labelled("o", node="a1")], soft(key=HOST), "a2 b1|a1"),
        ([labelled("o", node="a1"), labelled("p", node="b1")], soft(), "a1 a2 b1"),
        ([labelled("o", node="a1", deletionTimestamp="now")], soft(), "a1 a2 b1"),
    ],
)
def test_some_nodes_are_better(there: list[Object], asks: Object, nodes: str) -> None:
    assert liked(*there, asks=labelled("new", spec=asks)) == nodes


@pytest.mark.parametrize(
    "odd",
    [
        likes({"labelSelector": {}}),
        likes(term("y"), weight="x"),  # type: ignore[arg-type]
        avoids(term("y", labelSelector={"matchLabels": {"a": 1}})),
        soft(maxSkew="x"),
        {"affinity": {"podAffinity": {PREFERRED: ["text"]}}},
    ],
)
def test_what_is_not_understood_is_not_preferred(odd: Object) -> None:
    found = places(Cluster(*NODES_OF_TWO_ZONES, labelled("new", spec=odd)))
    assert found, odd


def test_pods_are_placed_where_they_would_like_to_be() -> None:
    there = labelled("y", "y", node="b1")
    assert places(Cluster(*NODES_OF_TWO_ZONES, there, labelled("new", spec=likes(term("y"))))) == {
        f"{SPACE}.pod.new": "b1"
    }
    found = places(Cluster(*NODES_OF_TWO_ZONES, there, labelled("new", spec=avoids(term("y")))))
    assert found[f"{SPACE}.pod.new"][0] == "a"


def test_a_preference_is_given_up_where_there_is_no_room() -> None:
    there = labelled("y", "y", node="b1")
    pods = [labelled(f"p{n}", gpus=5, spec=likes(term("y"))) for n in range(3)]
    found = places(Cluster(*NODES_OF_TWO_ZONES, there, *pods))
    assert sorted(found.values()) == ["a1", "a2", "b1"]


def test_pods_that_are_spread_softly_come_one_after_the_other() -> None:
    pods = [labelled(f"p{n}", spec=soft()) for n in range(8)]
    found = places(Cluster(*NODES_OF_TWO_ZONES, *pods), rounds=20)
    assert sorted(where[0] for where in found.values()) == list("aaaabbbb")


def test_pods_of_others_are_liked_by_those_that_are_there() -> None:
    there = labelled("y", "y", node="b1", spec=likes(term("x")))
    assert places(Cluster(*NODES_OF_TWO_ZONES, there, labelled("new"))) == {
        f"{SPACE}.pod.new": "b1"
    }


def test_a_gang_stays_together_whatever_its_pods_prefer() -> None:
    there = labelled("y", "y", node="b1")
    pods = gang("g", 2, labels={"app": "x"}, gpus=4, spec=avoids(term("x", HOST)))
    found = places(Cluster(*NODES_OF_TWO_ZONES, there, *pods))
    assert list(found.values()) in (["a1 a1"], ["a2 a2"])
    pods = gang("g", 2, labels={"app": "x"}, spec=likes(term("y")))
    assert list(places(Cluster(*NODES_OF_TWO_ZONES, there, *pods)).values()) == ["b1 b1"]


def test_nodes_with_a_taint_that_deters_are_taken_last() -> None:
    tainted = zoned("t", "t")
    tainted["spec"]["taints"] = [{"key": "k", "effect": "PreferNoSchedule"}]
    pods = [pod(f"p{n}", gpus=8) for n in range(2)]
    assert places(Cluster(tainted, zoned("u", "u"), pods[0])) == {f"{SPACE}.pod.p0": "u"}
    assert len(places(Cluster(tainted, zoned("u", "u"), *pods))) == 2


# -- gangs that are shared out ---------------------------------------------------------------------


def test_a_gang_is_spread_over_zones() -> None:
    zones = [zoned(f"{zone}{n}", zone) for zone in "abc" for n in range(2)]
    there = labelled("old", node="a0")
    found = places(Cluster(*zones, there, *gang("g", 8, labels={"app": "x"}, spec=spread())))
    (nodes,) = found.values()
    assert sorted(name[0] for name in nodes.split()) == list("aabbbccc")


def test_a_gang_that_keeps_apart_by_zone_is_placed_at_once() -> None:
    zones = [zoned(f"{zone}{n}", zone) for zone in "abc" for n in range(3)]
    pods = gang("g", 3, labels={"app": "x"}, spec=apart(term("x")))
    found = places(Cluster(*zones, *pods), rounds=2)
    (nodes,) = found.values()
    assert sorted(name[0] for name in nodes.split()) == list("abc")


def test_a_gang_for_which_there_is_no_way_says_so_and_waits_for_one() -> None:
    pods = gang("g", 3, labels={"app": "x"}, spec=apart(term("x")))
    cluster = Cluster(*NODES_OF_TWO_ZONES, *pods)
    assert not places(cluster)
    workload = cluster.reconciler.workloads[JobId(f"{SPACE}.group.g")]
    assert "over zone, and there is no way" in workload.problem  # type: ignore[attr-defined]

    cluster.put(zoned("c1", "c"))
    (nodes,) = places(cluster).values()
    assert sorted(name[0] for name in nodes.split()) == list("abc")


def test_a_gang_waits_for_room_in_the_zones_that_it_needs() -> None:
    full = pod("full", gpus=8, node="b1")
    pods = gang("g", 2, gpus=5, labels={"app": "x"}, spec=apart(term("x")))
    cluster = Cluster(*NODES_OF_TWO_ZONES, full, *pods)
    assert not places(cluster)
    assert JobId(f"{SPACE}.group.g") in cluster.core.jobs, "it waits for what others hold"

    cluster.remove(full)
    (nodes,) = places(cluster).values()
    assert sorted(name[0] for name in nodes.split()) == list("ab")
