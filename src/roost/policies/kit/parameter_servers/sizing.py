"""Sizes of jobs with parameter servers under ``roost``: the servers and workers that pay most.

It differs from Optimus (Peng et al., EuroSys 2018) in three ways, each of which is measured by
``roost bench optimus``:

- Optimus adds to the job for which that saves most time, which is the one with most work left. The
  mean of completion times asks for the opposite. Here a job counts by its rank,
  ((2 rank - 1) / J) ** ``_RANK_POWER`` for J jobs, the one with most work left first, as in heSRPT
  (Berg, Vesilo and Harchol-Balter, 2020). Twice the speed counts less than twice: a size is worth
  rate ** c / c with c = ``_SPEED_POWER``, so that no job gets all.
- Optimus decides in slots. Here a job that comes or goes is answered at once, and new measurements
  within ``every_s``: a job starts as soon as there is room for its least.
- The models of Optimus do not know where tasks stand. Here they know how many nodes a size needs.

A change is an investment: what it brings within ``_HORIZON_S``, or until the job is done if that is
sooner, to the job and to those that get its room, has to exceed what the restart costs. The first
job of an application tries sizes out, ``probe_s`` each. No job is stopped for another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job, Run
from roost.perf.arrays import Reals
from roost.policies.fifo import arrival
from roost.policies.kit.costs import restart_s
from roost.policies.kit.parameter_servers.gains import (
    LEAPS,
    Apportioned,
    Demand,
    Gains,
    Size,
    Vector,
    add,
    apportion,
    dominant,
    minus,
)
from roost.policies.kit.parameter_servers.losses import without_losses
from roost.policies.kit.parameter_servers.outlook import Outlook, bounds, vector
from roost.policies.kit.parameter_servers.probes import Probes
from roost.policies.kit.parameter_servers.slots import Slots, capacity_of, counts, held, usual_node

_MEMO = "roost.parameter_servers"
#: What sizes are worth is remembered for so many sorts of jobs.
_MANY = 1000
#: A change has to pay within that time.
_HORIZON_S = 900.0
#: Exponents of the weight by rank, and of speed.
_RANK_POWER, _SPEED_POWER = 0.5, 0.5
#: The most changes of one job in an hour.
_PER_HOUR = 20


class _Worth(NamedTuple):
    """What was expected of a sort of job, its speeds, and what each size is worth for that."""

    of: Gains
    rates: Reals
    gains: Gains


class _Bid(NamedTuple):
    """A job that wants room: its time by size, what that is worth, and how much it counts.

    ``usual_s`` is how long a unit of work takes it with an equal share of all there is.
    """

    time: Demand
    worth: Demand
    usual_s: float
    weight: float

    @property
    def left_s(self) -> float:
        """Seconds until it is done with an equal share."""
        return float(self.time.work * self.usual_s)

    def pace(self, size: Size) -> float:
        """How many times faster than with an equal share it is."""
        return self.usual_s * self.time.work / self.time.left_s(size)


@dataclass(slots=True)
class _Notes:
    """What is remembered between decisions. It may vanish: then all is worked out anew."""

    outlook: Outlook = field(default_factory=Outlook)
    slots: Slots = field(default_factory=Slots)
    probing: Probes = field(default_factory=Probes)
    names: frozenset[JobId] = frozenset()
    next_s: float = -math.inf
    worths: dict[int, _Worth] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParameterServerSizing:
    """Servers and workers by what they bring; jobs near their end count more, changes must pay.

    Sizes are decided anew when a job came or went, and every ``every_s``. The first job of an
    application tries out each size for ``probe_s``; 0: none does.
    """

    every_s: float = 60.0
    probe_s: float = 60.0

    def __call__(self, plan: Plan) -> None:
        """Decide for all jobs there are, as a policy of its own."""
        self.decide(plan, [job for job in plan.jobs.values() if not job.state.over])

    def decide(self, plan: Plan, jobs: Sequence[Job]) -> None:
        """Size these jobs anew if one came or went or it is time; else do what had to wait."""
        notes = _notes(plan)
        runs = [job.run for job in jobs if job.run is not None and counts(job.run)]
        waiting = sorted((job for job in jobs if job.waiting), key=arrival)
        names, slots = frozenset(job.id for job in jobs), notes.slots
        if not runs and not waiting:
            return
        if plan.now >= notes.next_s or names != notes.names or not runs:
            notes.next_s, notes.names = plan.now + self.every_s, names
            slots.forget(plan)
            slots.apply(plan, runs, waiting, self._sizes(plan, notes, runs, waiting))
        elif plan.ledger.releases != slots.releases:
            slots.carry_on(plan)
        slots.releases = plan.ledger.releases
        if runs or plan.decisions:
            plan.wake(notes.next_s)
        if self.probe_s:
            notes.probing.go_on(
                plan,
                notes.outlook.fits,
                self.probe_s,
                lambda run, size: slots.reshape(plan, run, size),
            )
        _explain(plan, waiting)

    def _sizes(
        self, plan: Plan, notes: _Notes, runs: list[Run], waiting: list[Job]
    ) -> Mapping[JobId, Size | None]:
        """A size for each job: first as if changes were free, then without those that lose."""
        notes.outlook.forget(plan.jobs)
        notes.outlook.node = usual_node(plan)
        if self.probe_s:
            notes.probing.pick(plan, notes.outlook.fits, runs)
        jobs = [run.job for run in runs] + waiting
        capacity = _room(plan, jobs)
        bids = self._bids(plan, notes, runs, waiting, capacity)
        grow = not any(job.id in notes.slots.stuck for job in waiting)

        def deal(demands: Sequence[Demand]) -> Apportioned:
            return apportion(demands, capacity, grow=grow)

        def pay(at: int, size: Size, price: float) -> bool:
            return self._pays(runs[at], bids[at], size, price, capacity)

        sizes = without_losses(runs, [bid.worth for bid in bids], deal, pay)
        return {job.id: size for job, size in zip(jobs, sizes, strict=True)}

    def _bids(
        self,
        plan: Plan,
        notes: _Notes,
        runs: list[Run],
        waiting: list[Job],
        capacity: Vector,
    ) -> list[_Bid]:
        """What each job makes of every size, and how much that counts."""
        outlook, now = notes.outlook, plan.now
        times = [
            outlook.demand(run.job, now, None if self._may_change(plan, notes, run) else held(run))
            for run in runs
        ]
        times += [outlook.demand(job, now) for job in waiting]
        worths = [self._worth(notes, time.gains) for time in times]
        usual_s = [
            _usual_s(time, worth.rates, capacity, len(times))
            for time, worth in zip(times, worths, strict=True)
        ]
        left_s = np.array([time.work * each for time, each in zip(times, usual_s, strict=True)])
        ranks = np.empty(len(times))
        ranks[np.argsort(-left_s, kind="stable")] = np.arange(1, len(times) + 1)
        weights = ((2 * ranks - 1) / len(times)) ** _RANK_POWER
        return [
            _Bid(
                time,
                replace(time, gains=worth.gains, work=weight * each**_SPEED_POWER),
                each,
                weight,
            )
            for time, worth, each, weight in zip(
                times, worths, usual_s, weights.tolist(), strict=True
            )
        ]

    def _worth(self, notes: _Notes, times: Gains) -> _Worth:
        """What sizes are worth to a sort of job: its speed, of which twice counts less than twice.

        Gains are told of costs, so it is less than nothing.
        """
        found = notes.worths.get(id(times))
        if found is None or found.of is not times:
            if len(notes.worths) > _MANY:
                notes.worths.clear()
            rates = 1.0 / np.array(times.times)
            grid = (-(rates**_SPEED_POWER) / _SPEED_POWER).tolist()
            found = notes.worths[id(times)] = _Worth(times, rates, Gains(grid, LEAPS))
        return found

    def _may_change(self, plan: Plan, notes: _Notes, run: Run) -> bool:
        if notes.probing.probes_now(run.job):
            return False
        return notes.slots.may_change(run, plan.now, _PER_HOUR)

    def _pays(self, run: Run, bid: _Bid, size: Size, price: float, capacity: Vector) -> bool:
        """Whether a change brings more than its restart costs, to the job and to all others."""
        old, worth = held(run), bid.worth
        given_up = dominant(worth.takes(old), capacity) - dominant(worth.takes(size), capacity)
        if math.isinf(price):
            return given_up > 0
        gained = worth.left_s(old) - worth.left_s(size) + price * given_up
        lost = float(bid.weight * bid.pace(old) ** _SPEED_POWER * restart_s(run.job))
        return gained * min(_HORIZON_S, bid.left_s) > lost


def servers_vary(job: Job) -> bool:
    """Whether the number of a job's parameter servers is open."""
    low, high = bounds(job)
    return low.servers < high.servers


def _notes(plan: Plan) -> _Notes:
    notes = plan.memo.get(_MEMO)
    if not isinstance(notes, _Notes):
        notes = plan.memo[_MEMO] = _Notes()
        notes.outlook.fits.placed = True
    return notes


def _room(plan: Plan, jobs: Sequence[Job]) -> Vector:
    """What these jobs can have: all but what others hold, and a fair part of it if others wait."""
    room, own = capacity_of(plan), {job.id for job in jobs}
    for run in plan.running:
        if run.job.id not in own and counts(run):
            spec = run.job.spec
            takes = _scaled(vector(spec.resources), (run.target or run.allocation).workers)
            for role in spec.roles:
                count = (run.target or run.allocation).count(role.name)
                takes = add(takes, _scaled(vector(role.resources), count))
            room = minus(room, takes)
    others = sum(job.id not in own for job in plan.waiting)
    part = len(own) / (len(own) + others)
    return max(0, int(room[0] * part)), max(0, int(room[1] * part)), max(0, int(room[2] * part))


def _scaled(need: Vector, count: int) -> Vector:
    return need[0] * count, need[1] * count, need[2] * count


def _usual_s(time: Demand, rates: Reals, capacity: Vector, count: int) -> float:
    """Seconds per unit of work with an equal share, or the part of it that is best used."""
    each = dominant(add(time.worker, time.server), capacity)
    share = int(1.0 / (each * count)) if each else max(time.most)
    rows = min(max(share - time.least.servers, 0), rates.shape[0] - 1)
    columns = min(max(share - time.least.workers, 0), rates.shape[1] - 1)
    return float(1.0 / rates[: rows + 1, : columns + 1].max())


def _explain(plan: Plan, waiting: Sequence[Job]) -> None:
    """Say what jobs that found no place wait for."""
    for job in waiting:
        if job.waiting and job.line is not None:
            low, _ = bounds(job)
            plan.say(
                job.line,
                f"no room yet for {low.servers} servers and {low.workers} workers: "
                "others shrink where that pays, or end",
            )
