"""What an elastic run keeps for the next leader: the seats of its members, in its status."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from roost.core import WORKER, Allocation, NodeId
from roost.core.allocation import Part, Seat, seats
from roost.kubernetes.jobs.blueprint import RunSeats

_KNOWN = {"attempt", "generation", "number", "changing", "seats", "members"}


def recalled(
    kept: str, attempt: int, generation: int, allocation: Allocation
) -> tuple[Allocation, RunSeats] | None:
    """What a run holds, and its seats, as the last leader kept them; None if it is another run.

    In the midst of a change all that come or leave are among them: they have pods.
    """
    found = read(kept, attempt, generation)
    if found is None:
        return None
    held, there = seats_in(found), RunSeats(tuple(seats(allocation)), ())
    return held_by(held.values(), allocation), crew(list(held), held, there)


def read(kept: str, attempt: int, generation: int) -> dict[str, Any] | None:
    """What was kept of exactly that start of a run; None if it is of another, or senseless."""
    try:
        found: dict[str, Any] = json.loads(kept)
        fits = found.keys() >= _KNOWN
    except (ValueError, AttributeError):
        return None
    this = (attempt, generation)
    return found if fits and (found["attempt"], found["generation"]) == this else None


def seats_in(found: Mapping[str, Any]) -> dict[str, Seat]:
    """The seat of each member."""
    return {member: seat_of(what) for member, what in found["seats"].items()}


def written(seat: Seat) -> list[Any]:
    """A seat as JSON has it."""
    return [seat.node, list(seat.gpus), seat.share_milli]


def seat_of(what: list[Any], index: int = 0) -> Seat:
    """A seat that was written down."""
    node, gpus, share_milli = what
    return Seat(WORKER, index, tuple(gpus), share_milli, NodeId(node))


def crew(members: list[str], held: Mapping[str, Seat], others: RunSeats) -> RunSeats:
    """These members by rank, at their seats, and those of other roles beside them."""
    main = [replace(held[member], index=index) for index, member in enumerate(members)]
    rest = [seat for seat in others.seats if seat.role != WORKER]
    return RunSeats((*main, *rest), tuple(members))


def held_by(main: Iterable[Seat], allocation: Allocation) -> Allocation:
    """What these workers hold, and those of other roles beside them."""
    parts = [Part(seat.node, seat.gpus, seat.share_milli) for seat in main]
    return Allocation((*parts, *beside(allocation)))


def beside(allocation: Allocation) -> tuple[Part, ...]:
    """What workers of other roles hold."""
    return tuple(sorted(part for part in allocation.parts if part.role != WORKER))
