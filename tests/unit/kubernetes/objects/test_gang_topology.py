"""The domain that a gang has to stay inside, in the words of everybody."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kubernetes.kube_objects import Object, pod

from roost.core import Level
from roost.errors import InvalidSpec
from roost.kubernetes.objects.gang_topology import within_of

KUEUE = "kueue.x-k8s.io/podset-required-topology"
KAI = "kai.scheduler/topology-required-placement"


def group(**spec: Any) -> Object:
    return {"metadata": {"name": "g"}, "spec": spec}


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({}, None),
        ({"labels": {"roost.dev/within": "switch"}}, Level.SWITCH),
        ({"annotations": {"roost.dev/within": "zone"}}, Level.ZONE),
        ({"annotations": {KUEUE: "kubernetes.io/hostname"}}, Level.NODE),
        ({"annotations": {KUEUE: "cloud.provider.com/topology-block"}}, Level.BLOCK),
        ({"annotations": {KAI: "topology.kubernetes.io/zone"}}, Level.ZONE),
        ({"annotations": {KAI: "roost.dev/zone", "roost.dev/within": "block"}}, Level.BLOCK),
        ({"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "anything"}}, None),
    ],
)
def test_pods_say_it(given: Object, level: Level | None) -> None:
    assert within_of([pod("p0"), pod("p1", **given)], None) is level


@pytest.mark.parametrize(
    ("owner", "level"),
    [
        (group(minMember=4), None),
        (group(topologyConstraint={"requiredTopologyLevel": "roost.dev/switch"}), Level.SWITCH),
        (group(topologyConstraint={"preferredTopologyLevel": "roost.dev/switch"}), None),
        (group(schedulingConstraints={"topology": [{"key": "roost.dev/block"}]}), Level.BLOCK),
        (group(networkTopology={"mode": "hard", "highestTierAllowed": 1}), Level.SWITCH),
        (group(networkTopology={"highestTierAllowed": 3}), Level.ZONE),
        (group(networkTopology={"mode": "soft"}), None),
        ({"metadata": {"annotations": {"roost.dev/within": "node"}}}, Level.NODE),
    ],
)
def test_their_owner_says_it(owner: Object, level: Level | None) -> None:
    assert within_of([pod("p0")], owner) is level


def test_the_smallest_of_several_holds() -> None:
    pods = [pod("a", labels={"roost.dev/within": name}) for name in ("zone", "switch", "block")]

    assert within_of(pods, group(networkTopology={"highestTierAllowed": 2})) is Level.SWITCH


@pytest.mark.parametrize(
    ("pods", "owner", "words"),
    [
        ([pod("a", labels={"roost.dev/within": "rack"})], None, "zone, not 'rack'"),
        ([pod("a", annotations={KUEUE: "my/rack"})], None, "do not say by 'my/rack' where they"),
        ([pod("a")], group(networkTopology={"highestTierAllowed": 7}), "3 for a zone, not 7"),
        ([pod("a")], group(networkTopology={"mode": "hard"}), "not 0"),
        ([pod("a")], group(schedulingConstraints={"topology": ["x"]}), "a list of objects"),
    ],
)
def test_what_makes_no_sense_is_said(pods: list[Object], owner: Object | None, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        within_of(pods, owner)
