"""Themis: finish-time fairness by leases and auctions.

After "Themis: Fair and Efficient GPU Cluster Scheduling" (Mahajan et al., NSDI 2020). A job's ratio
rho is its finish time here over that on an equal part of the cluster of its own: above 1 it would
have been better off alone. GPUs are given out on leases. When these are over, all that is free or
was leased is offered first to the ``1 - fairness`` of all jobs with the worst rho; the rest is then
offered to all others. Among the jobs that are offered GPUs, the winners are those that make the
product of 1/rho largest. A job that wins what it has keeps it. What is free meanwhile is offered to
waiting jobs.

Leases end together, at the multiples of their length; one that is younger than half of it goes on
to the next end: so there is one auction for many leases, as there is time to move.

Simpler than the source: what a job would bid is worked out here, from what is known of it, so there
is nobody to lie, and the hidden payments that keep bids honest are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.perf.arrays import Reals
from roost.policies.kit.assignment import assign
from roost.policies.kit.costs import restart_s
from roost.policies.kit.leftovers import start_leftovers
from roost.policies.kit.moves import Wish, capacity, carry_on, movable, standing
from roost.policies.kit.packing import Reaches, fits
from roost.policies.kit.rounds import round_begins
from roost.policies.kit.solvers.fractions import TimeSharing
from roost.policies.kit.solvers.programs import choose_exactly
from roost.policies.kit.speeds import (
    Kinds,
    claimants,
    explain_all,
    gpus_of,
    holds_whole_gpus,
    left_of,
    rates_by_kind,
)

#: The least that a bid is worth.
_LEAST = 1e-6
#: The part of a bid by which a GPU that is worth most to others is worth less to each.
_THRIFT = 0.01
_WHY = "waits until leases are over: GPUs go to those whose finish time suffers most from sharing"


class _Bid(NamedTuple):
    """What a job would have of so many workers on a kind: the logarithm of its rho's fall."""

    wish: Wish
    gpus: int
    gain: float


@dataclass(slots=True)
class _Standing:
    """Where a job stands: its seconds since it came, work left, finish time alone, rates, place.

    ``others`` is how fast each kind is for all jobs, relative to their fastest.
    """

    job: Job
    age_s: float
    left: float
    alone_s: float
    rates: dict[str, float]
    others: dict[str, float]
    here: Wish | None

    @property
    def best(self) -> float:
        """Its rate on the fastest kind, as large as it can be."""
        low, high = self.job.spec.workers
        return max(self.rates.values()) * self.job.speed_up(high, low)

    def rho(self, rate: float, delay_s: float, for_s: float) -> float:
        """Its ratio if it goes at that rate for so long, but for a delay, and then at its best."""
        done = rate * max(0.0, for_s - delay_s)
        if done >= self.left:
            return (self.age_s + delay_s + self.left / rate) / self.alone_s
        return (self.age_s + for_s + (self.left - done) / self.best) / self.alone_s


@dataclass(frozen=True, slots=True)
class Themis:
    """Themis: GPUs on leases to the jobs that finish later than others because of sharing."""

    resizes: ClassVar[bool] = True

    fairness: float = 0.8
    lease_s: float = 600.0

    def __post_init__(self) -> None:
        """Refuse fractions that are none, and leases of next to nothing."""
        if not 0 <= self.fairness <= 1:
            raise InvalidSpec(f"fairness must be from 0 to 1, got {self.fairness}")
        if not 1 <= self.lease_s < math.inf:
            raise InvalidSpec(f"lease_s must be at least a second, got {self.lease_s}")

    def __call__(self, plan: Plan) -> None:
        """Carry on with what was decided; offer what is free, and at times what is leased."""
        carry_on(plan)
        over = round_begins(plan, self.lease_s)
        if over or (plan.waiting.count and plan.ledger.free_milli):
            jobs = self._jobs(plan, Kinds.of(plan))
            self._auction(plan, jobs, [one for one in jobs if self._asks(plan, one, over=over)])
            modest = [one for one in jobs if one.job.waiting and not one.job.spec.preempts]
            assign(plan, dict(self._winners(modest, _Room(plan, modest))))
        start_leftovers(plan)
        explain_all(plan, _WHY)

    def _asks(self, plan: Plan, one: _Standing, *, over: bool) -> bool:
        """Whether a job takes part in an auction: it waits, or its lease is over."""
        run = one.job.run
        if one.job.waiting or run is None or run.started_at is None:
            return one.job.waiting and one.job.spec.preempts
        lasted = run.started_at + self.lease_s / 2 <= plan.now
        return over and lasted and movable(run, plan.now) and holds_whole_gpus(run)

    # -- the auction ---------------------------------------------------------------------------

    def _auction(self, plan: Plan, jobs: Sequence[_Standing], asking: Sequence[_Standing]) -> None:
        """Offer GPUs to the jobs that are worst off, then what is left to the others that ask."""
        if not asking:
            return
        room = _Room(plan, asking)
        ranked = sorted(asking, key=lambda one: (-self._present(one), one.job.seq))
        first = max(1, math.ceil((1 - self.fairness) * len(jobs)))
        won = self._winners(ranked[:first], room)
        won |= self._winners(ranked[first:], room)
        held = standing(plan)
        wishes: dict[JobId, Wish | None] = dict(won)
        if any(held.get(name) != wish for name, wish in won.items()):
            wishes = {one.job.id: won.get(one.job.id) for one in asking}
        assign(plan, wishes)  # no run steps aside for nothing

    def _present(self, one: _Standing) -> float:
        """A job's rho as things stand, for a lease at least."""
        rate = 0.0
        if one.here is not None and one.here.kind in one.rates:
            speed = one.job.speed_up(one.here.workers, one.job.spec.workers.min)
            rate = one.rates[one.here.kind] * speed
        return one.rho(rate, 0.0, self.lease_s)

    def _winners(self, asking: Sequence[_Standing], room: _Room) -> dict[JobId, Wish]:
        """Shares of the room that is left: the largest product of gains that fits in it."""
        bids = [self._bids(one, room) for one in asking]
        columns = sorted({(bid.wish.kind, bid.gpus) for own in bids for bid in own})
        places = {column: at for at, column in enumerate(columns)}
        cost = np.full((len(bids), len(columns)), np.inf)
        wishes: dict[tuple[int, int], Wish] = {}
        for row, own in enumerate(bids):
            for bid in own:
                at = places[bid.wish.kind, bid.gpus]
                cost[row, at], wishes[row, at] = -bid.gain, bid.wish
        won = choose_exactly(cost, *room.limits(columns)) if columns else np.full(len(bids), -1)
        found = [(row, at) for row, at in enumerate(won.tolist()) if at >= 0]
        found.sort(key=lambda pair: (cost[pair], asking[pair[0]].job.seq))
        wanted = [(asking[pair[0]].job, wishes[pair]) for pair in found]
        if room.holds(wanted):
            return {job.id: wish for job, wish in wanted if room.take(job, wish, sure=True)}
        return {job.id: wish for job, wish in wanted if room.take(job, wish)}

    def _bids(self, one: _Standing, room: _Room) -> list[_Bid]:
        """What a lease of each size on each kind would be worth to a job, against none."""
        job, found = one.job, []
        without = one.rho(0.0, 0.0, self.lease_s)
        for kind, rate in one.rates.items():
            for workers in _sizes(job):
                wish = Wish(kind, workers)
                if not room.allows(job, wish):
                    continue
                speed = rate * job.speed_up(workers, job.spec.workers.min)
                starts_again = job.attempts > 0 and one.here != wish
                delay_s = restart_s(job) if starts_again else 0.0
                gain = math.log(without / one.rho(speed, delay_s, self.lease_s))
                gain *= 1 - _THRIFT * one.others[kind]
                found.append(_Bid(wish, _gpus(job, workers), max(gain, _LEAST)))
        return found

    # -- what is known -------------------------------------------------------------------------

    def _jobs(self, plan: Plan, kinds: Kinds) -> list[_Standing]:
        """The standing of each job that can run on some kind."""
        jobs = claimants(plan)
        rates = rates_by_kind(plan, jobs, kinds)
        sharing = TimeSharing(rates, gpus_of(jobs), kinds.gpus)
        left, isolated = left_of(plan, jobs, self.lease_s), sharing.isolated
        best = np.maximum(rates.max(axis=1, initial=0.0, keepdims=True), 1e-300)
        worth = (rates / best).mean(axis=0).tolist() if jobs else [0.0] * len(kinds.names)
        others = dict(zip(kinds.names, worth, strict=True))
        held, found = standing(plan), []
        for row, job in enumerate(jobs):
            if isolated[row] <= 0:
                continue
            done = job.run.done(plan.now) if job.run is not None else job.saved_s
            alone_s = max((done + left[row]) / isolated[row], 1.0)
            known = {
                kind: float(rate)
                for kind, rate in zip(kinds.names, rates[row], strict=True)
                if rate > 0
            }
            found.append(
                _Standing(
                    job,
                    plan.now - job.submitted_at,
                    max(float(left[row]), 1.0),
                    float(alone_s),
                    known,
                    others,
                    None if job.waiting else held.get(job.id),
                )
            )
        return found


class _Room:
    """What is offered of each kind, and what queues may hold, less what winners took."""

    def __init__(self, plan: Plan, asking: Sequence[_Standing]) -> None:
        self._reaches = Reaches(plan.ledger)
        self._nodes = capacity(plan, [one.job.id for one in asking])
        self._sizes: dict[str, list[int]] = {kind: [] for kind in self._nodes}
        self._limits = {
            queue: room for queue in plan.queues.values() if (room := queue.room_milli) is not None
        }
        for one in asking:  # all of them will have stepped aside
            run = one.job.run
            if not one.job.waiting and run is not None and one.job.queue in self._limits:
                self._limits[one.job.queue] += run.gpu_milli

    def limits(self, columns: Sequence[tuple[str, int]]) -> tuple[Reals, Reals]:
        """What each choice of a kind and a number of GPUs uses, and what there is."""
        kinds = list(self._nodes)
        uses = np.zeros((len(columns), len(kinds)))
        for at, (kind, gpus) in enumerate(columns):
            uses[at, kinds.index(kind)] = gpus
        left = [sum(self._nodes[kind]) - sum(self._sizes[kind]) for kind in kinds]
        return uses, np.array(left, dtype=float)

    def allows(self, job: Job, wish: Wish) -> bool:
        """Whether a job may have that at all; else it would win it again and again, and wait."""
        milli = job.spec.gpu_milli(wish.workers)
        if self._limits.get(job.queue, milli) < milli:
            return False
        if wish.workers == job.spec.workers.min or not job.spec.uniform:
            return True  # as far as is known
        return self._reaches.holds(job, wish.kind, wish.workers)

    def holds(self, wanted: Sequence[tuple[Job, Wish]]) -> bool:
        """Whether all of these wishes fit together; limits of queues are not looked at."""
        more: dict[str, list[int]] = {}
        for job, wish in wanted:
            more.setdefault(wish.kind, []).append(_gpus(job, wish.workers))
        return all(
            fits([*self._sizes[kind], *sizes], self._nodes[kind]) for kind, sizes in more.items()
        )

    def take(self, job: Job, wish: Wish, *, sure: bool = False) -> bool:
        """Take what a job wishes for; or nothing, if it does not fit or is over a limit.

        ``sure``: it is known to fit.
        """
        milli = job.spec.gpu_milli(wish.workers)
        sizes = [*self._sizes[wish.kind], _gpus(job, wish.workers)]
        if self._limits.get(job.queue, milli) < milli:
            return False
        if not sure and not fits(sizes, self._nodes[wish.kind]):
            return False
        if job.queue in self._limits:
            self._limits[job.queue] -= milli
        self._sizes[wish.kind] = sizes
        return True


def _gpus(job: Job, workers: int) -> int:
    return math.ceil(job.spec.gpu_milli(workers) / WHOLE)


def _sizes(job: Job) -> list[int]:
    """Numbers of workers to bid for: the least, then twice as many and so on, and the most."""
    low, high = job.spec.workers
    sizes = []
    while low < high:
        sizes.append(low)
        low *= 2
    return [*sizes, high]
