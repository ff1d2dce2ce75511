"""Who sits where when a run changes its size."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from roost.core.allocation import Allocation, Part, seats
from roost.core.spec import JobId, NodeId, RunId
from roost.engines.local.run_record import MemberWish, RunRecord
from roost.engines.local.seating import can_change, without_lost
from roost.engines.seating import Seating

NODE = NodeId("here")
PS = Part(NODE, (), 1000, 1, "ps")


def state(*parts: Part, members: tuple[str, ...] = (), ranks: tuple[int, ...] = ()) -> RunRecord:
    made = RunRecord(RunId(JobId("job"), 1), "ab", parts=parts, ranks=ranks)
    main = sum(part.workers for part in parts if part.role == "worker")
    made.room = 64
    made.members = members or tuple(map(str, range(main)))
    return made


def on(*gpus: int, each: int = 1) -> Part:
    return Part(NODE, gpus, 1000, len(gpus) // each)


def test_who_keeps_its_devices_stays_and_comes_first() -> None:
    now = state(on(1, 3))
    then = Seating(now, Allocation((on(0, 1, 2, 3),)))

    assert then.members == ("0", "1", "", "")
    assert then.ranks == (1, 3, 0, 2)
    wished = replace(now, parts=(on(0, 1, 2, 3),), ranks=then.ranks)
    assert [seat.gpus for seat in wished.seats] == [(1,), (3,), (0,), (2,)]
    assert [seat.name for seat in wished.seats] == [f"worker-{rank}" for rank in range(4)]


def test_who_loses_its_devices_leaves() -> None:
    then = Seating(state(on(0, 1, 2)), Allocation((on(2, 5),)))

    assert (then.members, then.ranks) == (("2", ""), (0, 1))


def test_a_worker_is_all_of_its_devices() -> None:
    then = Seating(state(on(0, 1, 2, 3, each=2)), Allocation((on(0, 1, 2, 4, each=2),)))

    assert then.members == ("0", "")


def test_workers_without_devices_are_as_good_as_each_other() -> None:
    then = Seating(state(Part(NODE, (), 1000, 2)), Allocation((Part(NODE, (), 1000, 3),)))

    assert then.members == ("0", "1", "")


def test_a_share_of_another_size_is_another_seat() -> None:
    then = Seating(state(Part(NODE, (0,), 500)), Allocation((Part(NODE, (0,), 250),)))

    assert then.members == ("",)


def test_only_main_workers_can_change() -> None:
    now = state(on(0), PS)

    assert can_change(now, Allocation((PS, on(0, 1))))
    assert not can_change(now, Allocation((on(0, 1),)))
    assert not can_change(now, Allocation((PS,)))
    assert not can_change(replace(now, members=()), Allocation((PS, on(0, 1))))
    assert not can_change(replace(now, room=3), Allocation((PS, on(0, 1))))


def test_the_lost_give_back_their_devices() -> None:
    now = state(on(0, 1), PS, on(4, 5), members=("0", "3", "1", "2"), ranks=(0, 3, 1, 2))
    left = without_lost(now, ("3", "2"))

    assert left.parts == (PS, on(4, 5))
    assert left.ranks == (1, 0)


@given(st.sets(st.integers(0, 7), min_size=1), st.sets(st.integers(0, 7), min_size=1), st.data())
def test_every_seat_is_taken_once(old: set[int], new: set[int], data: st.DataObject) -> None:
    now = state(on(*sorted(old)))
    allocation = Allocation((on(*sorted(new)),))
    then = Seating(now, allocation)
    places = list(seats(allocation))

    assert sorted(then.ranks) == list(range(len(places)))
    held = {seat.gpus: member for seat, member in zip(now.seats, now.members, strict=True)}
    for place, member in zip(then.ranks, then.members, strict=True):
        assert held.get(places[place].gpus, "") == member
    members = tuple(member or f"new{rank}" for rank, member in enumerate(then.members))
    moved = replace(now, parts=allocation.parts, ranks=then.ranks, members=members)
    some = data.draw(st.sets(st.sampled_from(members), min_size=1))
    kept = tuple(one for one in members if one in some)
    left = without_lost(moved, kept)
    seats_of = dict(zip(moved.members, moved.seats, strict=True))
    then_held = replace(moved, parts=left.parts, ranks=left.ranks, members=kept).seats
    assert [seat.gpus for seat in then_held] == [seats_of[one].gpus for one in kept]


def test_a_state_survives_its_record() -> None:
    now = state(on(0, 1), PS, ranks=(1, 0))
    now.wish = MemberWish(3, (on(0),), (0,), ("1",), 12.5)
    now.shrank, now.least, now.parked, now.checkpoints = "why", 1, True, "/c"

    assert RunRecord.decode(now.encode()) == now


def test_a_record_of_the_first_version_is_read() -> None:
    old = state(on(0)).encode()
    for name in ("least", "most", "members", "ranks", "changes", "wish", "shrank"):
        del old[name]
    del old["checkpoints"], old["parked"], old["room"]
    read = RunRecord.decode({**old, "version": 1})

    assert (read.members, read.wish) == ((), None)
    assert not can_change(read, Allocation((on(0, 1),)))
