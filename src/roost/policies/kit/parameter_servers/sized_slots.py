"""Slots in which sizes follow estimates: what Optimus and the rules beside it have in common.

In every slot all runs and waiting jobs are looked at with the estimates of the ``outlook``, and a
*choice* says which sizes they shall have; ``slots`` makes them real. Runs that changed often enough
lately, or try sizes out, stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job, Run
from roost.policies.kit.parameter_servers.gains import Demand, Size, Vector, dominant
from roost.policies.kit.parameter_servers.outlook import Outlook
from roost.policies.kit.parameter_servers.probes import Probes
from roost.policies.kit.parameter_servers.slots import Slots, capacity_of, held, usual_node


class Cadence(NamedTuple):
    """How long a slot is, how often a job may change in an hour, how long a size is tried out."""

    slot_s: float
    per_hour: int
    probe_s: float


@dataclass(frozen=True, slots=True)
class Sized:
    """What a choice is made from: runs first, then waiting jobs, each with its demand.

    ``grow`` is false if a job found no place lately: then room is wanted more than speed.
    """

    plan: Plan
    runs: list[Run]
    waiting: list[Job]
    demands: list[Demand]
    capacity: Vector
    grow: bool

    @property
    def jobs(self) -> list[Job]:
        """The job of each demand."""
        return [run.job for run in self.runs] + self.waiting

    def given_up(self, at: int, size: Size) -> float:
        """The part of the dominant resource that a run would give up for another size."""
        demand = self.demands[at]
        old, new = demand.takes(held(self.runs[at])), demand.takes(size)
        return dominant(old, self.capacity) - dominant(new, self.capacity)


#: A size for each demand, in their order.
Choice: TypeAlias = Callable[[Sized], Sequence[Size | None]]


@dataclass(slots=True)
class SizedSlots:
    """What is remembered between decisions. It may vanish: all can be worked out again."""

    outlook: Outlook = field(default_factory=Outlook)
    slots: Slots = field(default_factory=Slots)
    probing: Probes = field(default_factory=Probes)

    def decide(self, plan: Plan, cadence: Cadence, choice: Choice) -> None:
        """Decide at the beginning of a slot; in between, do what could not be done yet."""
        slots, fits = self.slots, self.outlook.fits

        def sizes(runs: list[Run], waiting: list[Job]) -> Mapping[JobId, Size | None]:
            found = self._look(plan, cadence, runs, waiting)
            return {job.id: size for job, size in zip(found.jobs, choice(found), strict=True)}

        slots.decide(plan, cadence.slot_s, sizes)
        if cadence.probe_s:
            self.probing.go_on(
                plan, fits, cadence.probe_s, lambda run, size: slots.reshape(plan, run, size)
            )

    def _look(self, plan: Plan, cadence: Cadence, runs: list[Run], waiting: list[Job]) -> Sized:
        outlook, now = self.outlook, plan.now
        outlook.forget(plan.jobs)
        outlook.node = usual_node(plan) if outlook.fits.placed else None
        if cadence.probe_s:
            self.probing.pick(plan, outlook.fits, runs)

        def kept(run: Run) -> Size | None:
            able = self.slots.may_change(run, now, cadence.per_hour)
            return None if able and not self.probing.probes_now(run.job) else held(run)

        demands = [outlook.demand(run.job, now, kept(run)) for run in runs]
        demands += [outlook.demand(job, now) for job in waiting]
        grow = not any(job.id in self.slots.stuck for job in waiting)
        return Sized(plan, runs, waiting, demands, capacity_of(plan), grow)
