"""Owners whose pods are rejected by kubelets."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kubernetes.kube_objects import Object, pod

from roost.kubernetes.gangs.rejections import NO_PAUSE, Rejections
from roost.kubernetes.objects.pods import is_rejected

OUT = "OutOfnvidia.com/mig-1g.5gb"


def owned(name: str = "p0", node: str = "n0", owner: str = "web", **status: Any) -> Object:
    found = pod(
        name,
        owner=("apps/v1", "ReplicaSet", owner),
        spec={"nodeName": node} if node else {},
        status={"phase": "Pending", **status},
    )
    found["metadata"]["ownerReferences"][0]["uid"] = owner
    return found


def rejected(name: str = "p0", node: str = "n0", owner: str = "web") -> Object:
    return owned(name, node, owner, phase="Failed", reason=OUT, message="Node has not enough")


def reject(rejections: Rejections, now: float, **given: str) -> bool:
    return rejections.observe(owned(**given), rejected(**given), now)


@pytest.mark.parametrize(
    ("status", "so"),
    [
        ({"phase": "Failed", "reason": OUT}, True),
        ({"phase": "Failed", "reason": "NodePorts"}, True),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, True),
        ({"phase": "Failed", "reason": "NodeAffinity"}, True),
        ({"phase": "Failed", "reason": "Evicted"}, False),
        ({"phase": "Failed", "reason": "OutOfcpu", "containerStatuses": [{}]}, False),
        ({"phase": "Running", "reason": "OutOfcpu"}, False),
        ({"phase": "Failed"}, False),
    ],
)
def test_a_pod_is_rejected_if_its_kubelet_never_began_it(
    status: Object,
    so: bool,  # noqa: FBT001
) -> None:
    assert is_rejected(owned(**status)) is so


def test_pauses_double_with_every_round_up_to_five_minutes() -> None:
    rejections, now, pauses = Rejections(), 100.0, []
    for _ in range(10):
        assert reject(rejections, now)
        found = rejections.pause(owned(node=""), now)
        pauses.append(found.until - now)
        assert found.shunned == ("n0",)
        assert found.changes_at - now == 2 * pauses[-1]
        now = found.until

    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]
    assert "node n0 rejected a pod of ReplicaSet web (Node has not enough)" in found.why
    assert "a pause of 300 s" in found.why


def test_all_that_are_rejected_in_a_pause_are_one_round() -> None:
    rejections = Rejections()
    assert reject(rejections, 100.0, name="a", node="n0")
    assert not reject(rejections, 101.0, name="b", node="n1")

    found = rejections.pause(owned(node=""), 101.0)
    assert (found.until, found.shunned) == (102.0, ("n0", "n1"))


def test_only_pods_of_that_owner_wait() -> None:
    rejections = Rejections()
    reject(rejections, 100.0)

    assert rejections.pause(owned(owner="other", node=""), 100.0) == NO_PAUSE
    assert rejections.pause(pod(), 100.0) == NO_PAUSE


def test_a_pod_that_runs_there_ends_it() -> None:
    rejections = Rejections()
    reject(rejections, 100.0, name="a")
    rejections.observe(owned("b"), owned("b", phase="Running"), 105.0)

    assert len(rejections) == 0
    assert reject(rejections, 106.0, name="c")
    assert rejections.pause(owned(node=""), 106.0).until == 108.0


def test_a_pod_that_runs_elsewhere_ends_the_pause_and_the_node_stays_shunned() -> None:
    rejections = Rejections()
    reject(rejections, 100.0, name="a")
    rejections.observe(owned("b", "n1"), owned("b", "n1", phase="Running"), 101.0)

    found = rejections.pause(owned(node=""), 101.0)
    assert (found.until, found.shunned) == (101.0, ("n0",))


def test_what_is_long_ago_is_forgotten() -> None:
    rejections = Rejections()
    reject(rejections, 100.0)
    reject(rejections, 102.0)
    reject(rejections, 2000.0)

    assert rejections.pause(owned(node=""), 2000.0).until == 2002.0


def test_a_new_leader_counts_only_what_was_rejected_of_late() -> None:
    rejections, found = Rejections(), rejected()
    assert not rejections.observe(None, found, 100.0)
    found["metadata"]["creationTimestamp"] = "2024-05-01T12:00:00Z"
    assert not rejections.observe(None, found, 1_714_564_800.0 + 600)
    assert rejections.observe(None, found, 1_714_564_800.0 + 10)


def test_what_is_remembered_is_bounded() -> None:
    rejections = Rejections()
    for number in range(5000):
        reject(rejections, 100.0, owner=f"o{number}")
    for number in range(100):
        reject(rejections, 100.0, owner="last", node=f"n{number}")

    assert len(rejections) == 4096
    assert len(rejections.pause(owned(owner="last", node=""), 100.0).shunned) == 64
