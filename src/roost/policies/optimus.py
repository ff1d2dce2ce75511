"""Optimus: as many workers and parameter servers as pay, decided anew in every slot.

Peng et al., "Optimus: an efficient dynamic resource scheduler for deep learning clusters" (EuroSys
2018). Every ``slot_s`` each job gets its least, usually one server and one worker; then the worker
or server that shortens its job's remaining time most per dominant resource is added, again and
again (``marginal``). Speeds and the work left are estimates from what was observed (``outlook``).
The first job of an application tries out a few sizes, ``probe_s`` each (``probing``; 0: none does).
A job stands evenly on the fewest nodes that hold it (``placement.even``).

A change costs a restart, so it has to pay: what it saves the job, plus what others would make of
the room it gives up, must exceed what restarts of such jobs take; and no job changes more than
``per_hour`` times in an hour. No job is stopped for another: jobs shrink to their least at most.

Two things are ours. With ``leaps`` a job may take several more at once, where one more gains
nothing and many more do. With ``placed`` models of speed also know how many nodes a job is on, and
leaps are taken, too: one more may need another node, and many more make up for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from roost.core.plan import Plan
from roost.core.state import Run
from roost.errors import InvalidSpec
from roost.perf.convergence import Rule
from roost.policies.kit.costs import restart_s
from roost.policies.kit.parameter_servers.gains import (
    Apportioned,
    Demand,
    Size,
    Vector,
    apportion,
    dominant,
)
from roost.policies.kit.parameter_servers.losses import without_losses
from roost.policies.kit.parameter_servers.outlook import Outlook
from roost.policies.kit.parameter_servers.sized_slots import Cadence, Sized, SizedSlots
from roost.policies.kit.parameter_servers.slots import held


@dataclass(frozen=True, slots=True)
class Optimus:
    """Workers and servers by marginal gain in remaining time, decided anew in every slot."""

    resizes: ClassVar[bool] = True

    slot_s: float = 600.0
    per_hour: int = 3
    probe_s: float = 180.0
    threshold: float = 0.05
    window: float = 10.0
    placed: bool = False
    leaps: bool = False
    speed_error: float = 0.0
    epochs_error: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse slots without length and errors that turn things round."""
        if not self.slot_s >= 1 or self.per_hour < 0 or not self.threshold > 0:
            raise InvalidSpec(f"slots last a second at least and thresholds are positive: {self}")
        if not 0 <= self.speed_error <= 1 or not 0 <= self.epochs_error <= 1:
            raise InvalidSpec(f"errors are parts of 1, got {self}")

    def __call__(self, plan: Plan) -> None:
        """Decide at the beginning of a slot; in between, do what could not be done yet."""
        cadence = Cadence(self.slot_s, self.per_hour, self.probe_s)
        self._notes(plan).decide(plan, cadence, choose)

    def _notes(self, plan: Plan) -> SizedSlots:
        notes = plan.memo.get("optimus")
        if not isinstance(notes, SizedSlots):
            rule = Rule(self.threshold, self.window)
            outlook = Outlook(rule, self.speed_error, self.epochs_error, self.seed, self.leaps)
            outlook.fits.placed = self.placed
            notes = plan.memo["optimus"] = SizedSlots(outlook)
        return notes


def choose(sized: Sized) -> list[Size | None]:
    """A size for each job: first as if changes were free, then without those that lose."""

    def deal(demands: Sequence[Demand]) -> Apportioned:
        return apportion(demands, sized.capacity, grow=sized.grow)

    def pay(at: int, size: Size, price: float) -> bool:
        return pays(sized.runs[at], sized.demands[at], size, price, sized.capacity)

    return without_losses(sized.runs, sized.demands, deal, pay)


def pays(run: Run, demand: Demand, size: Size, price: float, capacity: Vector) -> bool:
    """Whether a change is worth a restart: to the job, and to those that would have its room."""
    old = held(run)
    given_up = dominant(demand.takes(old), capacity) - dominant(demand.takes(size), capacity)
    if math.isinf(price):
        return given_up > 0
    saved_s = demand.left_s(old) - demand.left_s(size)
    return saved_s + price * given_up > restart_s(run.job)
