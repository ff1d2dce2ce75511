"""What autoscalers are told to leave alone, and what they are about to remove."""

from __future__ import annotations

import pytest
from tests.support.kubernetes.nodes import node

from roost.errors import InvalidSpec
from roost.kubernetes.jobs.pod_overrides import pod_overrides
from roost.kubernetes.objects.nodes import facts_of


@pytest.mark.parametrize(
    ("key", "effect", "usable"),
    [
        ("ToBeDeletedByClusterAutoscaler", "NoSchedule", False),
        ("karpenter.sh/disrupted", "NoSchedule", False),
        ("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule", True),
    ],
)
def test_a_node_that_is_being_removed_takes_nothing(key: str, effect: str, usable: bool) -> None:  # noqa: FBT001 - a row
    assert facts_of(node("a", taints=[{"key": key, "effect": effect}])).usable is usable


def test_users_may_let_autoscalers_move_their_workers_and_no_more() -> None:
    name = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    assert pod_overrides({"annotations": {name: "true"}}).annotations == {name: "true"}
    with pytest.raises(InvalidSpec, match="is not for users to set"):
        pod_overrides({"labels": {name: "true"}})
