"""Gavel's linear programs: which fraction of its time each job should spend on each kind of GPU.

After "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads" (Narayanan et
al., OSDI 2020), sections 3 and 4. An answer is a matrix of jobs by kinds: no job is given more than
all of its time, and no kind more GPUs than it has. Jobs that are the same to a program are one job
to the solver, and share what it gives them evenly: so equals are treated as such, and a thousand
jobs of twenty sorts are a small program.

All here is arrays. What the rates are, and what becomes of the fractions, is ``gavel``'s business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roost.perf.arrays import Reals
from roost.policies.kit.solvers.simplex import ChangingProgram, Entries

#: Below that, relative to the largest, a price is none.
_SLIGHT = 1e-7
#: How many levels are told apart before the rest is shared in one go.
_LEVELS = 64
#: How near to the least worst ratio a search comes, and in how many steps at most.
_NEAR = 1e-3
_STEPS = 40


@dataclass(frozen=True, slots=True)
class TimeSharing:
    """What is to be shared.

    ``rates`` (jobs by kinds) is the work per second that a job does on a kind, 0 where it cannot
    run; ``gpus`` what each job takes there, ``capacity`` the GPUs of each kind.
    """

    rates: Reals
    gpus: Reals
    capacity: Reals

    def throughputs(self, fractions: Reals) -> Reals:
        """Work per second of each job under an answer."""
        found: Reals = (self.rates * fractions).sum(axis=1)
        return found

    @property
    def equal(self) -> Reals:
        """Work per second of each job that spends its time on all GPUs alike."""
        share = self.capacity / max(self.capacity.sum(), 1.0)
        found: Reals = self.rates @ share
        return found

    @property
    def isolated(self) -> Reals:
        """Work per second of each job on an equal part of the cluster that is its own."""
        count = max(1, len(self.gpus))
        shares = self.capacity[None, :] / (count * np.maximum(self.gpus, _SLIGHT)[:, None])
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
        found: Reals = (self.rates * shares).sum(axis=1)
        return found


def max_sum(sharing: TimeSharing) -> Reals:
    """Maximise the sum of all throughputs, without regard to fairness."""
    program = _Program.of(sharing, sharing.rates)
    return program.spread(program.best(program.gains))


def max_min(sharing: TimeSharing, weights: Reals) -> Reals:
    """Maximise the least throughput by weight, then the second least, and so on.

    A throughput counts relative to that of an equal time on all GPUs, and times the GPUs of the
    job: so one that takes more GPUs gets less time on them.
    """
    worth = sharing.gpus / weights / np.maximum(sharing.equal, 1e-300)
    program = _Program.of(sharing, sharing.rates * worth[:, None])
    return program.spread(_by_levels(program))


def makespan(sharing: TimeSharing, left: Reals) -> Reals:
    """Let the job that ends last end as early as can be, then the one before it, and so on."""
    pace = sharing.rates / np.maximum(left, 1e-9)[:, None]
    program = _Program.of(sharing, pace / max(float(pace.max(initial=0.0)), 1e-300))
    return program.spread(_by_levels(program))


def finish_fair(sharing: TimeSharing, left: Reals, age: Reals, alone: Reals) -> Reals:
    """Minimise the worst ratio of finish times: shared over alone on an equal part.

    ``left`` is work, ``age`` the seconds since a job came, ``alone`` those in which it would have
    done on its own part what it has done. What the worst leave goes where it does most.
    """
    able = sharing.rates.max(axis=1, initial=0.0) > 0
    isolated = np.where(able, sharing.isolated, 1.0)
    due = np.maximum(alone + left / isolated, 1e-9)
    program = _Program.of(sharing, sharing.rates / isolated[:, None], left / isolated, age, due)
    normal = program.gather(left / isolated)
    age, due, able = program.gather(age), program.gather(due), program.gather(able)

    def ratio(fractions: Reals) -> float:
        pace = np.maximum((program.gains * fractions).sum(axis=1), 1e-12)
        return float(np.max(((age + normal / pace) / due)[able], initial=0.0))

    def asked(worst: float) -> Reals:
        """The pace that each job needs for its ratio to be no more than the worst."""
        return np.where(able, normal / np.maximum(worst * due - age, 1e-12), 0.0)

    solver = program.rising(able.astype(float))
    first = solver.solve()
    if first is None:
        return np.zeros_like(sharing.rates)
    best = program.matrix(first.values)
    low, high = float(np.max((age / due)[able], initial=0.0)), ratio(best)
    for _ in range(_STEPS):
        if high - low <= _NEAR * high:
            break
        middle = (low + high) / 2
        for sort, slope in enumerate(asked(middle).tolist()):
            solver.change_entry(program.base + sort, program.level_at, slope)
        found = solver.solve()
        if found is not None and found.values[program.level_at] >= 1.0:
            best = program.matrix(found.values)
            high = min(middle, ratio(best))
        else:
            low = middle
    return program.spread(program.best(program.gains, asked(high * (1 + _NEAR)), best))


class _Sorted(NamedTuple):
    """The first job of each sort, and the sort of each job."""

    first: npt.NDArray[np.intp]
    sort: npt.NDArray[np.intp]


class _Program:
    """The constraints that all programs share, for sorts of equal jobs.

    ``gains`` (sorts by kinds) is what a job gets of a kind per unit of its time.
    """

    def __init__(self, sharing: TimeSharing, gains: Reals, many: Reals, sorted_: _Sorted) -> None:
        self.gains = gains
        self._sorted = sorted_
        self._sort, self._kind = np.nonzero(gains > 0)
        self._gain = gains[self._sort, self._kind]
        self._many = many
        sorts = len(gains)
        held = (many * sharing.gpus)[self._sort]
        pairs = np.arange(len(self._sort))
        self._entries = Entries(
            np.concatenate((self._sort, sorts + self._kind)),
            np.concatenate((pairs, pairs)),
            np.concatenate((np.ones(len(pairs)), held)),
        )
        self._most = np.concatenate((np.ones(sorts), sharing.capacity))
        self.base = len(self._most)
        self.level_at = len(pairs)

    @classmethod
    def of(cls, sharing: TimeSharing, gains: Reals, *also: Reals) -> _Program:
        """Jobs that gain alike, take as many GPUs and are alike in all else are of one sort."""
        features = np.column_stack((gains, sharing.gpus, *also))
        _, first, which, many = np.unique(
            features, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        ranks = np.argsort(first, kind="stable")  # sorts in the order of their first jobs
        places = np.empty_like(ranks)
        places[ranks] = np.arange(len(ranks))
        first = first[ranks]
        few = TimeSharing(sharing.rates[first], sharing.gpus[first], sharing.capacity)
        sorted_ = _Sorted(first, places[which.ravel()])
        return cls(few, gains[first], many[ranks].astype(float), sorted_)

    def gather(self, values: Reals) -> Reals:
        """Figures of jobs as those of their sorts."""
        return values[self._sorted.first]

    def spread(self, fractions: Reals) -> Reals:
        """An answer for sorts as one for jobs."""
        return fractions[self._sorted.sort]

    def best(
        self, gains: Reals, least: Reals | None = None, otherwise: Reals | None = None
    ) -> Reals:
        """Maximise the sum of gains over all jobs where each has its least."""
        cost = -(gains * self._many[:, None])[self._sort, self._kind]
        entries, most = self._entries, self._most
        if least is not None:
            entries = Entries(
                np.concatenate((entries.row, len(most) + self._sort)),
                np.concatenate((entries.column, np.arange(len(self._sort)))),
                np.concatenate((entries.value, -self._gain)),
            )
            most = np.concatenate((most, -least))
        found = ChangingProgram(cost, entries, most).solve() if len(cost) else None
        if found is None:
            return np.zeros_like(self.gains) if otherwise is None else otherwise
        return self.matrix(found.values)

    def rising(self, slopes: Reals) -> ChangingProgram:
        """The program of the highest level where each sort gains its slope times the level.

        Its last column is the level; the rows from ``self.base`` on are the demands of the sorts.
        """
        pairs, demands = len(self._sort), self.base + np.arange(len(slopes))
        entries = Entries(
            np.concatenate((self._entries.row, self.base + self._sort, demands)),
            np.concatenate((self._entries.column, np.arange(pairs), np.full(len(slopes), pairs))),
            np.concatenate((self._entries.value, -self._gain, slopes)),
        )
        cost = np.zeros(pairs + 1)
        cost[-1] = -1.0
        return ChangingProgram(cost, entries, np.concatenate((self._most, np.zeros(len(slopes)))))

    def matrix(self, values: Reals) -> Reals:
        """The values of pairs as a matrix."""
        found = np.zeros(self.gains.shape)
        found[self._sort, self._kind] = np.clip(values[: len(self._sort)], 0.0, 1.0)
        return found


def _by_levels(program: _Program) -> Reals:
    """Raise all sorts together; those that can rise no further stay, the others go on.

    A sort with a price on its demand cannot rise without lowering another: it has its final level.
    """
    rising = program.gains.max(axis=1, initial=0.0) > 0
    fractions = np.zeros(program.gains.shape)
    solver = program.rising(rising.astype(float))
    level_at = program.level_at
    for _ in range(_LEVELS):
        found = solver.solve() if rising.any() else None
        if found is None:
            break
        fractions, level = program.matrix(found.values), found.values[level_at]
        prices = found.prices[program.base :]
        stuck = rising & (prices > _SLIGHT * float(prices.max(initial=0.0)))
        if not stuck.any():
            break
        for sort in np.flatnonzero(stuck).tolist():
            solver.change_entry(program.base + sort, level_at, 0.0)
            # A hair lower, so that there is room for what was rounded away.
            solver.change_most(program.base + sort, -level * (1 - 1e-9))
        rising &= ~stuck
    return fractions
