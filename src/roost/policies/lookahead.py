"""Lookahead: each job leaps to the size that pays best, and short jobs count a little more.

Optimus adds one worker or server at a time and stops where the next one gains nothing. On measured
tables of speed that is often far from the best size, and what it adds goes to the job with most
work left. This rule, our own, mends both with as little as that takes:

- A job may leap from its size to any larger one. A leap is worth its gain in log speed for each
  part of the dominant resource that it takes, so that twice the speed is worth the same to any job.
- A job counts by (rank / J) ** ``power`` among J jobs, by the time each has left at its best size:
  the longest has rank 1, the shortest J.

Every job first has its least, runs before waiting jobs, and those by what they count. Then the leap
that is worth most times what its job counts is made, again and again. A change must pay: what it
brings within half an hour, or until the job is done, to the job and to those that get its room,
has to exceed what a restart costs. Estimates, slots and probes are those of Optimus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from roost.core.plan import Plan
from roost.errors import InvalidSpec
from roost.policies.kit.parameter_servers.gains import Apportioned, Demand, Size, apportion_in
from roost.policies.kit.parameter_servers.leaps import LogSpeeds, bids, in_turn, pays_in_speed
from roost.policies.kit.parameter_servers.losses import without_losses
from roost.policies.kit.parameter_servers.outlook import Outlook
from roost.policies.kit.parameter_servers.sized_slots import Cadence, Sized, SizedSlots


@dataclass(slots=True)
class _Notes:
    """What is remembered between decisions."""

    sized: SizedSlots
    speeds: LogSpeeds = field(default_factory=LogSpeeds)


@dataclass(frozen=True, slots=True)
class Lookahead:
    """The size of best gain in log speed, however far, short jobs first; decided in every slot."""

    resizes: ClassVar[bool] = True

    slot_s: float = 600.0
    per_hour: int = 3
    probe_s: float = 180.0
    power: float = 0.6
    placed: bool = True
    speed_error: float = 0.0
    epochs_error: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse slots without length and what is no power or error."""
        if not self.slot_s >= 1 or self.per_hour < 0 or not 0 <= self.power <= 10:  # noqa: PLR2004
            raise InvalidSpec(f"slots last a second at least, power is from 0 to 10: {self}")
        if not 0 <= self.speed_error <= 1 or not 0 <= self.epochs_error <= 1:
            raise InvalidSpec(f"errors are parts of 1, got {self}")

    def __call__(self, plan: Plan) -> None:
        """Decide at the beginning of a slot; in between, do what could not be done yet."""
        notes = plan.memo.get("lookahead")
        if not isinstance(notes, _Notes):
            outlook = Outlook(
                speed_error=self.speed_error, epochs_error=self.epochs_error, seed=self.seed
            )
            outlook.fits.placed = self.placed
            notes = plan.memo["lookahead"] = _Notes(SizedSlots(outlook))
        speeds = notes.speeds
        notes.sized.decide(
            plan,
            Cadence(self.slot_s, self.per_hour, self.probe_s),
            lambda sized: choose(sized, bids(sized, speeds, self.power)),
        )


def choose(sized: Sized, bid: list[Demand]) -> list[Size | None]:
    """A size for each job: first as if changes were free, then without those that lose."""
    order = in_turn(sized, [one.work for one in bid])

    def deal(demands: Sequence[Demand]) -> Apportioned:
        return apportion_in(order, demands, sized.capacity, grow=sized.grow)

    def pay(at: int, size: Size, price: float) -> bool:
        return pays_in_speed(sized, bid[at], at, size, price)

    return without_losses(sized.runs, bid, deal, pay)
