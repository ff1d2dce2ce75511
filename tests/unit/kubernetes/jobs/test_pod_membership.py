"""Pods that train together: lines and ends of pods in, effects out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from roost.kubernetes.jobs.pod_membership import (
    ChangeDone,
    CreatePod,
    DeletePod,
    JobFacts,
    MemberEffect,
    MemberNote,
    PodLeft,
    PodMembership,
    PublishView,
    RanksAssigned,
    StopPods,
    WentOnWithout,
)

PLACES = {str(number): f"10.0.0.{number}:4000" for number in range(9)}


def stay(*members: str) -> list[dict[str, Any]]:
    """Seats by rank; an empty name is a new one."""
    return [{"member": member} for member in members]


def view(
    version: int, members: Sequence[str], *, lost: Sequence[str] = (), **more: int
) -> PublishView:
    wishes = {"save": 0, "offload": 0} | more
    who = {"members": list(members), "lost": list(lost)}
    return PublishView({"version": version, "address": PLACES[members[0]], **who, **wishes})


def begun(count: int, least: int = 1, **more: Any) -> PodMembership:
    """A run that trains and can change."""
    found = PodMembership([str(number) for number in range(count)], least, **more)
    found.where(0.0, PLACES)
    for member in found.members:
        found.hear(0.0, {"elastic": True, "member": member})
    found.hear(0.0, {"joined": 1, "member": "0", "pause_s": 0.0})
    assert found.elastic
    return found


def again(membership: PodMembership, present: Sequence[str] | None = None) -> PodMembership:
    """What the next operator makes of it."""
    there = membership.people if present is None else present
    found = PodMembership.restored(membership.saved(), there)
    assert found.saved() == membership.saved() or present is not None
    return found


def test_the_first_view_waits_for_the_address_of_the_first() -> None:
    run = PodMembership(["0", "1"], 1)
    assert run.where(0.0, {"1": PLACES["1"]}) == []
    assert run.version == 0
    assert run.where(1.0, PLACES) == [view(1, ["0", "1"])]
    assert run.where(2.0, PLACES) == []
    assert run.version == 1


def test_it_says_when_all_can_change() -> None:
    run = PodMembership(["0", "1"], 1)
    run.where(0.0, PLACES)
    assert run.hear(0.0, {"elastic": True, "member": "0"}) == []
    assert not run.elastic
    assert run.hear(0.0, {"elastic": True, "member": "1"}) == [JobFacts({"elastic": True})]


def test_growing() -> None:
    run = begun(1)
    assert run.want(10.0, 1, [{"member": "0"}, {"member": "", "node": "n1"}, {"member": ""}]) == [
        CreatePod("1", 1, {"member": "", "node": "n1"}),
        CreatePod("2", 2, {"member": ""}),
    ]
    assert run.people == ("0", "1", "2")
    assert run.members == ("0",)
    assert run.due == 10.0 + 600.0
    assert run.hear(11.0, {"ready": "1"}) == []
    assert run.hear(12.0, {"ready": "2"}) == [view(2, ["0", "1", "2"])]
    assert run.due == 12.0 + 120.0
    assert run.hear(13.0, {"joined": 2, "member": "0", "pause_s": 0.25}) == [
        RanksAssigned(("0", "1", "2")),
        ChangeDone(1, ("0", "1", "2"), 3.0, 0.25),
        JobFacts({"world": 3}),
    ]
    assert run.due == float("inf")


def test_a_known_wish_is_not_begun_again_and_one_that_came_true_is_said_again() -> None:
    run = begun(1)
    wanted = stay("0", "")
    run.want(1.0, 1, wanted)
    assert run.want(2.0, 1, wanted) == []
    run.hear(3.0, {"ready": "1"})
    run.hear(4.0, {"joined": 2, "member": "0"})
    assert run.want(9.0, 1, wanted) == [ChangeDone(1, ("0", "1"), 3.0, 0.0)]


def test_shrinking_is_done_when_those_who_leave_have_left() -> None:
    run = begun(3)
    assert run.want(0.0, 1, stay("0")) == [view(2, ["0"])]
    assert run.hear(1.0, {"joined": 2, "member": "0", "pause_s": 0.5}) == []
    assert run.ended(2.0, "1", 0, "worker-1 exited with 0") == [PodLeft("1")]
    assert run.ended(3.0, "2", 0, "worker-2 exited with 0") == [
        PodLeft("2"),
        RanksAssigned(("0",)),
        ChangeDone(1, ("0",), 3.0, 0.5),
        JobFacts({"world": 1}),
    ]
    assert run.people == ("0",)


def test_who_does_not_leave_in_time_is_killed() -> None:
    run = begun(2, grace_s=5.0)
    run.want(0.0, 1, stay("0"))
    run.hear(1.0, {"joined": 2, "member": "0"})
    assert run.due == 6.0
    assert run.tick(5.9) == []
    assert run.tick(6.0) == [DeletePod("1", kill=True)]
    changed = run.ended(6.5, "1", -9, "worker-1 was killed by signal 9")
    assert ChangeDone(1, ("0",), 6.5, 0.0) in changed


def test_moving_meets_with_both_first() -> None:
    run = begun(1)
    assert run.want(0.0, 1, stay("")) == [CreatePod("1", 0, {"member": ""})]
    assert run.hear(1.0, {"ready": "1"}) == [view(2, ["0", "1"])]
    assert run.hear(2.0, {"joined": 2, "member": "0", "pause_s": 0.25}) == [view(3, ["1"])]
    assert run.hear(3.0, {"joined": 3, "member": "1", "pause_s": 0.5}) == []
    done = run.ended(4.0, "0", 0, "worker-0 exited with 0")
    assert ChangeDone(1, ("1",), 4.0, 0.75) in done


def test_nobody_is_published_first_whose_place_is_unknown() -> None:
    run = PodMembership(["0"], 1)
    run.where(0.0, {"0": PLACES["0"]})
    run.hear(0.0, {"elastic": True, "member": "0"})
    run.want(0.0, 1, stay(""))
    assert run.hear(1.0, {"ready": "1"}) == [view(2, ["0", "1"])]
    assert run.hear(2.0, {"joined": 2, "member": "0"}) == []
    assert run.where(3.0, PLACES) == [view(3, ["1"])]


def test_a_lost_member_is_left_out() -> None:
    run = begun(3)
    assert run.ended(1.0, "0", -9, "worker-0 was killed by signal 9") == [
        view(2, ["1", "2"], lost=["0"]),
        PodLeft("0"),
    ]
    assert run.hear(2.0, {"joined": 2, "member": "1", "pause_s": 0.1}) == [
        RanksAssigned(("1", "2")),
        WentOnWithout(("1", "2"), "worker-0 was killed by signal 9"),
        JobFacts({"world": 2}),
    ]


def test_too_few_are_left() -> None:
    run = begun(2, least=2)
    assert run.ended(1.0, "1", 1, "worker-1 exited with 1") == [
        StopPods("exit", "worker-1 exited with 1")
    ]
    assert run.due == float("inf")
    assert run.ended(2.0, "0", 143, "worker-0 exited with 143") == []


def test_others_who_do_not_go_on_end_the_run_with_the_loss_as_its_cause() -> None:
    run = begun(2)
    run.ended(1.0, "1", -9, "worker-1 was killed by signal 9")
    assert run.due == 121.0
    (stop,) = run.tick(121.0)
    assert stop == StopPods(
        "exit", "worker-1 was killed by signal 9, and the others did not go on without it"
    )


def test_a_job_that_cannot_change_is_stopped_to_start_again() -> None:
    run = PodMembership(["0"], 1)
    run.where(0.0, PLACES)
    assert run.want(1.0, 1, stay("0", "")) == [StopPods("stopped", "")]


def test_a_newcomer_that_fails_ends_the_attempt() -> None:
    run = begun(1)
    run.want(0.0, 1, stay("0", ""))
    why = "the new worker-1 exited with 3 before it was ready"
    noted, stop = run.ended(1.0, "1", 3, "worker-1 exited with 3")
    assert stop == StopPods("stopped", why)
    assert isinstance(noted, MemberNote)
    assert why in noted.text


def test_pods_that_are_never_ready_end_the_attempt() -> None:
    run = begun(1, patience={"ready_s": 50.0, "join_s": 20.0})
    run.want(0.0, 1, stay("0", ""))
    assert run.tick(49.0) == []
    assert run.tick(50.0)[-1] == StopPods("stopped", "the new workers were not ready in time")


def test_all_done_is_the_end() -> None:
    run = begun(2)
    assert run.ended(1.0, "1", 0, "worker-1 exited with 0") == [view(2, ["0"], lost=["1"])]
    assert run.ended(1.1, "0", 0, "worker-0 exited with 0")[-1] == StopPods("exit", "")


def test_a_training_that_is_over_is_not_disturbed() -> None:
    run = begun(1)
    run.want(0.0, 1, stay("0", ""))
    assert run.hear(1.0, {"over": True, "member": "0"})[0] == DeletePod("1", kill=False)
    assert run.people == ("0",)


def test_the_next_operator_publishes_again_and_goes_on() -> None:
    run = begun(1)
    run.want(0.0, 1, stay("0", ""))
    run = again(run)
    assert run.tick(1.0) == [view(1, ["0"])]
    run.where(1.0, PLACES)
    assert run.hear(2.0, {"ready": "1"}) == [view(2, ["0", "1"])]
    run = again(run)
    assert run.tick(3.0) == [view(2, ["0", "1"])]
    done = run.hear(4.0, {"joined": 2, "member": "0", "pause_s": 0.5})
    assert ChangeDone(1, ("0", "1"), 4.0, 0.5) in done
    run = again(run)
    run.tick(5.0)
    assert run.want(6.0, 1, stay("0", "")) == [ChangeDone(1, ("0", "1"), 4.0, 0.5)]
    assert run.elastic


def test_the_next_operator_asks_again_for_pods_that_nobody_made() -> None:
    run = begun(1)
    run.want(0.0, 1, [{"member": "0"}, {"member": "", "node": "n1"}])
    run = again(run, ["0"])
    assert run.tick(1.0) == [CreatePod("1", 1, {"member": "", "node": "n1"}), view(1, ["0"])]
    assert run.people == ("0", "1")


def test_the_next_operator_is_told_of_pods_that_died_meanwhile() -> None:
    run = again(begun(2), ["0"])
    assert run.people == ("0", "1")
    run.where(1.0, PLACES)
    assert run.ended(1.0, "1", -9, "its pod is gone") == [view(2, ["0"], lost=["1"]), PodLeft("1")]


def test_what_was_lost_before_the_restart_is_still_told() -> None:
    run = begun(3)
    run.ended(1.0, "2", -9, "worker-2 was killed")
    run = again(run, ["0", "1"])
    run.tick(2.0)
    assert WentOnWithout(("0", "1"), "worker-2 was killed") in run.hear(
        3.0, {"joined": 2, "member": "0"}
    )


def test_what_is_kept_is_strict_enough_for_json() -> None:
    run = begun(2)
    run.ended(1.0, "1", -9, "gone")
    assert json.loads(run.saved())["people"] == {"0": True}


def test_a_version_that_only_pods_know_of_is_passed() -> None:
    run = begun(2)
    assert run.saw(1.0, 1) == []
    assert run.saw(2.0, 4) == [view(5, ["0", "1"])]
    assert run.saw(3.0, 4) == []
    assert run.saw(4.0, 1 << 50) == []


STRANGE: list[dict[str, Any]] = [
    {},
    {"joined": 2, "member": "7"},
    {"joined": "2", "member": "0"},
    {"ready": "99"},
    {"ready": ["1"]},
    {"elastic": True, "member": {}},
    {"saved_for": 10**400},
]


@pytest.mark.parametrize("line", STRANGE)
def test_strange_lines_change_nothing(line: dict[str, Any]) -> None:
    run = begun(1)
    run.want(0.0, 1, stay("0", ""))
    before = run.saved()
    assert run.hear(1.0, line) == []
    assert run.saved() == before


def test_ends_of_strangers_are_nothing() -> None:
    run = begun(1)
    none: list[MemberEffect] = []
    assert run.ended(1.0, "5", 1, "who?") == none
    run.ended(2.0, "0", 0, "done")
    assert run.ended(3.0, "0", 0, "done") == none
