"""Pods as workers: alike are those that need the same."""

from __future__ import annotations

from roost.core import JobSpec, NodeId, Range, Resources
from roost.core.allocation import Allocation, Part, seats
from roost.kubernetes.gangs.seat_plans import GangMember, GangRoles, vacant

BIG, SMALL = Resources(gpus=2), Resources(gpus=0, cpu_milli=1000)


def member(role: str, number: int, need: Resources = BIG) -> GangMember:
    """A pod of a gang."""
    return GangMember(f"{role}{number}", f"job-{role}-{number}", role, number, need)


def test_a_master_that_needs_the_same_is_the_first_worker() -> None:
    crew = GangRoles([member("worker", 1), member("worker", 0), member("master", 0)])
    assert [one.uid for one in crew.roles["worker"]] == ["master0", "worker0", "worker1"]
    assert crew.spec(JobSpec(priority=7)).workers == Range(3, 3)
    assert crew.spec(JobSpec(priority=7)).priority == 7


def test_those_that_need_most_are_the_main_role_whatever_they_are_called() -> None:
    crew = GangRoles([member("worker", 0, SMALL), member("ps", 0), member("ps", 1)])
    assert crew.role_of == {"ps0": "worker", "ps1": "worker", "worker0": "other"}
    spec = crew.spec(JobSpec())
    assert (spec.workers.min, spec.resources) == (2, BIG)
    assert [(role.name, role.workers) for role in spec.roles] == [("other", 1)]


def test_names_do_not_depend_on_how_many_are_left() -> None:
    whole = GangRoles([member("master", 0, SMALL), *(member("worker", n) for n in range(4))])
    left = GangRoles([member("master", 0, SMALL), member("worker", 3)])
    assert left.role_of == {uid: whole.role_of[uid] for uid in left.role_of}


def test_seats_are_taken_in_order_and_given_back_to_whom_they_were() -> None:
    places = list(seats(Allocation((Part(NodeId("n"), (0, 1, 2, 3, 4, 5), workers=3),))))
    crew = GangRoles([member("worker", n) for n in range(3)])
    taken = crew.seat(["worker0", "worker1", "worker2"], places, {})
    assert [taken[f"worker{n}"].index for n in range(3)] == [0, 1, 2]
    last = {("worker", 1): "worker-2"}
    assert crew.seat(["worker1"], places, last)["worker1"].index == 2
    assert crew.seat(["worker1", "worker2"], places[:1], {}) == {"worker1": places[0]}


def test_vacant_are_the_seats_that_nobody_has() -> None:
    allocation = Allocation((Part(NodeId("n"), (0, 1), workers=2),))
    first, second = seats(allocation)
    assert vacant(allocation, [first]) == [second]
