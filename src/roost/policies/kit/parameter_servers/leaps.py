"""Leaps: what larger sizes bring in log speed, how much jobs count, and which changes pay.

The rule of the policy ``lookahead``; ``dl2`` learns a correction to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from roost.perf.arrays import Reals
from roost.policies.kit.costs import restart_s
from roost.policies.kit.parameter_servers.gains import Demand, Gains, LeapGains, Size
from roost.policies.kit.parameter_servers.sized_slots import Sized
from roost.policies.kit.parameter_servers.slots import held

#: A change has to pay within that time.
_HORIZON_S = 1800.0
#: What leaps are worth is remembered for so many sorts of jobs.
_MANY = 1000


class LogSpeed(NamedTuple):
    """Times of a sort of job, what leaps between its sizes are worth, and its best time.

    ``more`` is what its best size has beyond the least.
    """

    of: Gains
    gains: LeapGains
    best: float
    more: Size


@dataclass(slots=True)
class LogSpeeds:
    """What leaps are worth, worked out once for each sort of job. It may vanish."""

    known: dict[int, LogSpeed] = field(default_factory=dict)

    def of(self, times: Gains) -> LogSpeed:
        """Gains in log speed; they are told of costs, so speeds are less than nothing."""
        found = self.known.get(id(times))
        if found is None or found.of is not times:
            if len(self.known) >= _MANY:
                self.known.clear()
            grid = np.array(times.times, dtype=float)
            more = Size(*divmod(int(grid.argmin()), grid.shape[1]))
            found = LogSpeed(times, LeapGains(np.log(grid).tolist()), float(grid.min()), more)
            self.known[id(times)] = found
        return found


def ranks(left: Sequence[float] | Reals) -> Reals:
    """The rank of each by what is left, as a part of their number: the longest is first."""
    count = len(left)
    found = np.empty(count)
    found[np.argsort(-np.asarray(left), kind="stable")] = np.arange(1, count + 1)
    return found / max(count, 1)


def bids(sized: Sized, speeds: LogSpeeds, power: float) -> list[Demand]:
    """Demands whose gains are those in log speed, and whose work is how much the job counts."""
    known = [speeds.of(demand.gains) for demand in sized.demands]
    left = [demand.work * one.best for demand, one in zip(sized.demands, known, strict=True)]
    return weighed(sized, known, ranks(left) ** power)


def weighed(sized: Sized, known: Sequence[LogSpeed], counts: Reals) -> list[Demand]:
    """The same for counts that are known."""
    return [
        replace(demand, gains=one.gains, work=weight)
        for demand, one, weight in zip(sized.demands, known, counts.tolist(), strict=True)
    ]


def in_turn(sized: Sized, counts: Sequence[float]) -> list[int]:
    """Who has its least first: runs, then waiting jobs by how much they count."""
    first = len(sized.runs)
    waiting = range(first, first + len(sized.waiting))
    return [*range(first), *sorted(waiting, key=lambda at: -counts[at])]


def pays_in_speed(sized: Sized, bid: Demand, at: int, size: Size, price: float) -> bool:
    """Whether a change of a run brings more than its restart costs, to the job and to others.

    ``price`` is what others would make of a part of the dominant resource, as gains are told.
    """
    run, time = sized.runs[at], sized.demands[at]
    given_up = sized.given_up(at, size)
    if math.isinf(price):
        return given_up > 0
    left_s = time.left_s(held(run))
    work = float(bid.work)  # an array's number compares to an array's truth value
    gained = work * math.log(left_s / time.left_s(size)) + float(price) * given_up
    return gained * min(_HORIZON_S, left_s) > work * restart_s(run.job)
