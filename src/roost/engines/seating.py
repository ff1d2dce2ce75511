"""The seats of workers when a run changes its size: pure arithmetic.

A worker keeps its id as long as its devices stay its own. Those that stay come first, in their
old order, so that the first of them speaks for the run on both sides of a change.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Protocol

from roost.core.allocation import WORKER, Allocation, Seat, seats
from roost.core.spec import NodeId

_Devices = tuple[NodeId, tuple[int, ...], int]


class Seated(Protocol):
    """Workers at their seats: main ones first and by rank, and their ids."""

    @property
    def seats(self) -> tuple[Seat, ...]:
        """All workers of a run."""
        ...

    @property
    def members(self) -> tuple[str, ...]:
        """The ids of the main workers by rank."""
        ...


class Seating:
    """The main workers that an allocation asks for: which workers stay, and which seats are new."""

    def __init__(self, now: Seated, allocation: Allocation) -> None:
        wanted = [seat for seat in seats(allocation) if seat.role == WORKER]
        free: defaultdict[_Devices, deque[int]] = defaultdict(deque)
        for place, seat in enumerate(wanted):
            free[_devices(seat)].append(place)
        stay: list[tuple[int, str]] = []
        for seat, member in zip(now.seats, now.members, strict=False):
            if places := free[_devices(seat)]:
                stay.append((places.popleft(), member))
        new = sorted(place for places in free.values() for place in places)
        #: By rank: the place among the main seats of the allocation.
        self.ranks = (*(place for place, _ in stay), *new)
        #: By rank: the member that sits there; empty for a new worker.
        self.members = (*(member for _, member in stay), *("" for _ in new))


def _devices(seat: Seat) -> _Devices:
    return seat.node, seat.gpus, seat.share_milli
