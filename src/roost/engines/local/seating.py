"""What the seats of a local run allow: whether they can change, and what a loss leaves of them."""

from __future__ import annotations

from typing import NamedTuple

from roost.core.allocation import WORKER, Allocation, Part, keeping
from roost.engines.local.run_record import RunRecord


def can_change(record: RunRecord, allocation: Allocation) -> bool:
    """Whether only the main workers differ, and the records have space for all that come and go."""
    main = sum(part.workers for part in allocation.parts if part.role == WORKER)
    fits = len(record.seats) + main <= record.room
    same = _others(record.parts) == _others(allocation.parts)
    return bool(record.members) and main > 0 and fits and same


class RemainingSeats(NamedTuple):
    """What a run holds without the members it lost."""

    parts: tuple[Part, ...]
    ranks: tuple[int, ...]


def without_lost(record: RunRecord, members: tuple[str, ...]) -> RemainingSeats:
    """What is left of a run when only these of its members are."""
    ranks = record.ranks or tuple(range(len(record.members)))
    place_of = dict(zip(record.members, ranks, strict=False))
    kept = sorted(place_of[one] for one in members)
    parts = keeping(Allocation(record.parts), kept).parts
    return RemainingSeats(parts, tuple(kept.index(place_of[one]) for one in members))


def _others(parts: tuple[Part, ...]) -> list[Part]:
    return sorted(part for part in parts if part.role != WORKER)
