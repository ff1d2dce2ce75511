"""Why no node will do: each node is counted once, by the first thing that keeps it out."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kubernetes.kube_objects import Object, node, pod

from roost.core.reasons import NO_MATCH
from roost.kubernetes.objects.constraints import Constraints, constraints_of, matcher
from roost.kubernetes.objects.mismatches import mismatch
from roost.kubernetes.objects.nodes import facts_of

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def tainted(name: str) -> Object:
    found = node(name)
    found["spec"] = {"taints": [TAINT]}
    return found


def closed(name: str) -> Object:
    found = node(name)
    found["spec"] = {"unschedulable": True}
    return found


def asked(**spec: Any) -> Constraints:
    found = pod()
    found["spec"].update(spec)
    return constraints_of(found["spec"])


def why(constraints: Constraints, *nodes: Object) -> str:
    facts = [facts_of(one) for one in nodes]
    assert not any(map(matcher(constraints), facts))
    return mismatch(constraints, facts).removeprefix(f"{NO_MATCH}: ")


def test_taints_are_named_and_nodes_counted() -> None:
    told = why(asked(), tainted("a"), tainted("b"), closed("c"))
    assert told == (
        "taint nvidia.com/gpu=present:NoSchedule not tolerated (2 nodes), "
        "not ready or closed (1 node)"
    )


def test_a_label_that_no_node_has_is_named() -> None:
    assert why(asked(nodeSelector={"zone": "moon"}), node("a")) == (
        "label zone=moon missing (1 node)"
    )


def test_affinity_amounts_and_devices() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["moon"]}]}]
    affine = asked(affinity={"nodeAffinity": {required: {"nodeSelectorTerms": terms}}})
    assert why(affine, node("a")) == "node affinity not met (1 node)"
    assert why(Constraints(offers=(("vendor/nic", 1),)), node("a")) == "no vendor/nic (1 node)"
    assert why(Constraints(offers=(("vendor/nic", 3),)), node("a")) == (
        "fewer than 3 vendor/nic (1 node)"
    )
    shares = node("a")
    shares["metadata"].setdefault("labels", {})["roost.dev/gpus-as"] = "shares"
    assert why(Constraints(devices="whole"), shares) == "GPUs given out in shares only (1 node)"


def test_what_is_rare_is_summed_up() -> None:
    nodes = [node(f"n{number}") for number in range(6)]
    for number, one in enumerate(nodes):
        one["spec"] = {"taints": [{"key": f"k{number}", "effect": "NoSchedule"}]}
    assert why(asked(), *nodes).endswith(", other obstacles (3 nodes)")


@pytest.mark.parametrize("name", ["x" * 5000])
def test_names_that_go_on_for_ever_are_cut(name: str) -> None:
    assert len(why(Constraints(offers=((name, 1),)), node("a"))) < 200


def test_without_nodes_that_is_said() -> None:
    assert mismatch(Constraints(), []) == "the cluster has no nodes"


def test_a_node_that_would_do_and_is_kept_out_is_closed() -> None:
    assert mismatch(asked(), [facts_of(node("a"))]).endswith("not ready or closed (1 node)")
