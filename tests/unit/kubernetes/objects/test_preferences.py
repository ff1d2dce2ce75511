"""Which nodes of a pool a pod prefers, by labels and by taints that only deter."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kubernetes.operator.objects import node

from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.constraints import Pools, constraints_of

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def labelled(name: str, *taints: str, effect: str = "PreferNoSchedule", **labels: str) -> Object:
    made = node(name, taints=[{"key": key, "effect": effect} for key in taints])
    made["metadata"]["labels"] |= labels
    return made


def likes(**weights: int) -> Object:
    """A pod that prefers nodes with labels of these names."""
    terms = [
        {"weight": n, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
        for key, n in weights.items()
    ]
    return {"affinity": {"nodeAffinity": {PREFERRED: terms}}}


def groups(pools: Pools, spec: Object) -> str:
    return "|".join(" ".join(sorted(g)) for g in pools.preferred(pools.add(constraints_of(spec))))


@pytest.fixture
def pools() -> Pools:
    made = Pools()
    for one in (
        labelled("fast", fast=""),
        labelled("near", near=""),
        labelled("both", fast="", near=""),
        labelled("plain"),
    ):
        made.see(one)
    return made


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ""),
        (likes(fast=1), "both fast"),
        (likes(fast=10, near=1), "both|fast|near"),
        (likes(fast=1, near=10), "both|near|fast"),
        (likes(none=5), ""),
        (likes(fast=5) | {"nodeSelector": {"near": ""}}, "both"),
        ({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 5, "preference": {}}]}}}, ""),
    ],
)
def test_weights_of_terms_add_up(pools: Pools, spec: Object, expected: str) -> None:
    assert groups(pools, spec) == expected


@pytest.mark.parametrize(
    "odd",
    [
        {"weight": "x", "preference": {}},
        {"weight": 5, "preference": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
        {"weight": 5, "preference": []},
        "text",
        None,
    ],
)
def test_what_is_not_understood_hinders_nobody(pools: Pools, odd: Any) -> None:
    spec = likes(fast=1)
    spec["affinity"]["nodeAffinity"][PREFERRED].append(odd)
    assert groups(pools, spec) == "both fast"


def test_taints_that_deter(pools: Pools) -> None:
    pools.see(labelled("plain", "noisy"))
    pools.see(labelled("near", "noisy", "slow", near=""))

    assert groups(pools, {}) == "both fast|plain"
    assert groups(pools, {"tolerations": [{"operator": "Exists"}]}) == ""
    bears = {"tolerations": [{"key": "slow", "operator": "Exists"}]}
    assert groups(pools, bears) == "both fast"
    stronger = {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}
    assert groups(pools, stronger) == "both fast|plain"


def test_a_change_is_told_if_it_changes_preferences() -> None:
    pools = Pools()
    pools.see(labelled("a"))
    pools.see(labelled("b"))
    plain, picky = pools.add(constraints_of({})), pools.add(constraints_of(likes(fast=1)))

    assert {name for name, _ in pools.changes()} == {plain, picky}
    pools.see(labelled("a", fast=""))
    assert {name for name, _ in pools.changes()} == {picky}
    pools.see(labelled("a", "noisy", fast=""))
    assert {name for name, _ in pools.changes()} == {plain, picky}
    assert groups(pools, {}) == "b"
    pools.forget(node("a")["metadata"]["name"])
    assert groups(pools, {}) == ""
