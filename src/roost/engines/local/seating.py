"""Who sits where when a run changes its size: pure arithmetic on seats.

A worker stays who it is as long as its devices stay its own. Those who stay come first, in their
old order, so that the first of them speaks for the run on both sides of a change.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

from roost.core.allocation import WORKER, Allocation, Part, Seat, keeping, seats
from roost.core.spec import NodeId
from roost.engines.local.state import State

_Devices = tuple[NodeId, tuple[int, ...], int]


class Seating:
    """The main workers that an allocation asks for: who stays, and which seats are new."""

    def __init__(self, state: State, allocation: Allocation) -> None:
        wanted = [seat for seat in seats(allocation) if seat.role == WORKER]
        free: defaultdict[_Devices, deque[int]] = defaultdict(deque)
        for place, seat in enumerate(wanted):
            free[_devices(seat)].append(place)
        stay: list[tuple[int, str]] = []
        for seat, member in zip(state.seats, state.members, strict=False):
            if places := free[_devices(seat)]:
                stay.append((places.popleft(), member))
        new = sorted(place for places in free.values() for place in places)
        #: By rank: the place among the main seats of the allocation.
        self.ranks = (*(place for place, _ in stay), *new)
        #: By rank: who sits there; empty for a new worker.
        self.members = (*(member for _, member in stay), *("" for _ in new))


def can_change(state: State, allocation: Allocation) -> bool:
    """Whether only the main workers differ, and the records have space for all who come and go."""
    main = sum(part.workers for part in allocation.parts if part.role == WORKER)
    fits = len(state.seats) + main <= state.room
    same = _others(state.parts) == _others(allocation.parts)
    return bool(state.members) and main > 0 and fits and same


class Left(NamedTuple):
    """What a run holds without the members it lost."""

    parts: tuple[Part, ...]
    ranks: tuple[int, ...]


def without_lost(state: State, members: tuple[str, ...]) -> Left:
    """What is left of a run when only these of its members are."""
    ranks = state.ranks or tuple(range(len(state.members)))
    place_of = dict(zip(state.members, ranks, strict=False))
    kept = sorted(place_of[one] for one in members)
    parts = keeping(Allocation(state.parts), kept).parts
    return Left(parts, tuple(kept.index(place_of[one]) for one in members))


def _devices(seat: Seat) -> _Devices:
    return seat.node, seat.gpus, seat.share_milli


def _others(parts: tuple[Part, ...]) -> list[Part]:
    return sorted(part for part in parts if part.role != WORKER)
