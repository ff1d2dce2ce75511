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

``placed`` is ours: models of speed then also know how many nodes a job is on, and a job may take
several more at once, since one more may need another node and many more make up for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job, Run
from roost.errors import InvalidSpec
from roost.perf.convergence import Rule
from roost.policies.kit.costs import restart_s
from roost.policies.kit.parameter_servers.gains import Demand, Size, Vector, apportion, dominant
from roost.policies.kit.parameter_servers.outlook import Outlook
from roost.policies.kit.parameter_servers.probes import Probes
from roost.policies.kit.parameter_servers.slots import Slots, capacity_of, held, usual_node


@dataclass(slots=True)
class _Notes:
    """What is remembered between decisions."""

    outlook: Outlook
    slots: Slots = field(default_factory=Slots)
    probing: Probes = field(default_factory=Probes)


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
        notes = self._notes(plan)
        slots, fits = notes.slots, notes.outlook.fits
        slots.decide(plan, self.slot_s, lambda runs, jobs: self._sizes(plan, notes, runs, jobs))
        if self.probe_s:
            notes.probing.go_on(
                plan, fits, self.probe_s, lambda run, size: slots.reshape(plan, run, size)
            )

    def _notes(self, plan: Plan) -> _Notes:
        notes = plan.memo.get("optimus")
        if not isinstance(notes, _Notes):
            rule = Rule(self.threshold, self.window)
            outlook = Outlook(rule, self.speed_error, self.epochs_error, self.seed)
            outlook.fits.placed = self.placed
            notes = plan.memo["optimus"] = _Notes(outlook)
        return notes

    def _sizes(
        self, plan: Plan, notes: _Notes, runs: list[Run], waiting: list[Job]
    ) -> Mapping[JobId, Size | None]:
        """A size for each job: first as if changes were free, then without those that lose."""
        notes.outlook.forget(plan.jobs)
        notes.outlook.node = usual_node(plan) if self.placed else None
        if self.probe_s:
            notes.probing.pick(plan, notes.outlook.fits, runs)
        now, outlook, capacity = plan.now, notes.outlook, capacity_of(plan)
        demands = [
            outlook.demand(run.job, now, None if self._may_change(plan, notes, run) else held(run))
            for run in runs
        ]
        demands += [outlook.demand(job, now) for job in waiting]
        grow = not any(job.id in notes.slots.stuck for job in waiting)
        first = apportion(demands, capacity, grow=grow)
        price = first.price if grow else math.inf
        kept = list(demands)
        for at, run in enumerate(runs):
            size = first.sizes[at]
            if demands[at].fixed is not None or size is None or size == held(run):
                continue
            if not pays(run, demands[at], size, price, capacity):
                kept[at] = replace(demands[at], fixed=held(run))
        second = apportion(kept, capacity, grow=grow)
        if None in second.sizes and None not in first.sizes:
            second = first  # a job would be left out for the sake of runs that stay as they are
        ids = [run.job.id for run in runs] + [job.id for job in waiting]
        return dict(zip(ids, second.sizes, strict=True))

    def _may_change(self, plan: Plan, notes: _Notes, run: Run) -> bool:
        if notes.probing.probes_now(run.job):
            return False
        return notes.slots.may_change(run, plan.now, self.per_hour)


def pays(run: Run, demand: Demand, size: Size, price: float, capacity: Vector) -> bool:
    """Whether a change is worth a restart: to the job, and to those that would have its room."""
    old = held(run)
    given_up = dominant(demand.takes(old), capacity) - dominant(demand.takes(size), capacity)
    if math.isinf(price):
        return given_up > 0
    saved_s = demand.left_s(old) - demand.left_s(size)
    return saved_s + price * given_up > restart_s(run.job)
