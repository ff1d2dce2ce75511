"""Gavel: fractions of time on each kind of GPU from a linear program, made real in rounds.

After "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads" (Narayanan et
al., OSDI 2020). A program (``fractions``) says which part of its time each job should spend on each
kind of GPU. Each round then runs the pairs of job and kind with the highest priority, which is that
fraction over the fraction of the kind's time that the job has had so far, as long as they fit; what
no job has a claim on goes to waiting jobs. Gangs run whole, on one kind and on as few nodes as can
be. A job that is chosen again on the same kind keeps its place and is not disturbed.

Between rounds nothing changes: newcomers wait for the next; but where nothing runs, a round begins
at once, and lasts until then. No two jobs are packed on one GPU here.
Ties between pairs are frequent, and the source breaks them by kind and arrival, which moves jobs to
no end; with ``sticky``, which it does not have, of equals those that are there stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from roost.core.decisions import Place
from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job, Queue
from roost.errors import InvalidSpec, unknown
from roost.perf.arrays import Reals
from roost.policies.kit.assignment import assign
from roost.policies.kit.moves import Wish, capacity, carry_on, movable, standing
from roost.policies.kit.packing import fits
from roost.policies.kit.rounds import round_begins
from roost.policies.kit.solvers.fractions import (
    TimeSharing,
    finish_fair,
    makespan,
    max_min,
    max_sum,
)
from roost.policies.kit.speeds import (
    Kinds,
    claimants,
    explain_all,
    gpus_of,
    holds_whole_gpus,
    left_of,
    nothing_runs,
    rates_by_kind,
    start_if_idle,
    start_others,
)

_MEMO = "gavel"
#: Fractions below that are none; solvers leave such dust.
_DUST = 1e-5
_WHY = "waits for its share: rounds go to those who are furthest behind theirs"
_LATER = "waits for the next round, which begins in {:.0f} s"


@dataclass(slots=True)
class _Notes:
    """Between rounds: time had by job and kind, by kind in all, and the last answer.

    ``alone`` is, for each job, the time in which it would have done what it has done on a part of
    the cluster that is its own; the work that was left, and its speed there, as of last.
    """

    had: dict[JobId, dict[str, float]] = field(default_factory=dict)
    total: dict[str, float] = field(default_factory=dict)
    asked: object = None
    answer: Reals | None = None
    alone: dict[JobId, tuple[float, float, float]] = field(default_factory=dict)

    def meet(self, jobs: Sequence[Job], kinds: Sequence[str], round_s: float) -> None:
        """A newcomer counts as having had half a round on each kind; ended jobs are forgotten."""
        here = {job.id for job in jobs}
        for name in [name for name in self.had if name not in here]:
            del self.had[name]
            self.alone.pop(name, None)
        for name in [job.id for job in jobs if job.id not in self.had]:
            self.had[name] = {}
        for mine in self.had.values():
            for kind in kinds:
                if kind not in mine:
                    mine[kind] = round_s / 2
                    self.total[kind] = self.total.get(kind, 0.0) + round_s / 2

    def book(self, name: JobId, kind: str, seconds: float) -> None:
        """A job has a kind for so long."""
        if kind in self.had.get(name, {}):
            self.had[name][kind] += seconds
            self.total[kind] += seconds


class _Pair(NamedTuple):
    """A job on a kind; sorted, the next comes first, and of equals the one that is there."""

    behind: float
    elsewhere: bool
    kind: int
    seq: int
    row: int


@dataclass(frozen=True, slots=True)
class Gavel:
    """Gavel: fair or fast shares of each kind of GPU by linear programs, given out in rounds."""

    objective: str = "max_min"
    round_s: float = 360.0
    aware: bool = True
    sticky: bool = False

    def __post_init__(self) -> None:
        """Refuse objectives that there are not, and rounds of next to nothing."""
        if self.objective not in _OBJECTIVES:
            raise unknown("objective of gavel:", self.objective, _OBJECTIVES)
        if not 1 <= self.round_s < math.inf:
            raise InvalidSpec(f"round_s must be at least a second, got {self.round_s}")

    def __call__(self, plan: Plan) -> None:
        """Carry on with what was decided; at the beginning of a round, decide anew."""
        carry_on(plan)
        if not round_begins(plan, self.round_s) and not nothing_runs(plan):
            start_others(plan)
            explain_all(plan, _LATER.format(max(0.0, plan.wake_at - plan.now)))
            return
        jobs = claimants(plan)
        kinds = Kinds.of(plan)
        notes: _Notes = plan.memo.setdefault(_MEMO, _Notes())
        notes.meet(jobs, kinds.names, self.round_s)
        sharing = TimeSharing(
            rates_by_kind(plan, jobs, kinds, aware=self.aware), gpus_of(jobs), kinds.gpus
        )
        fractions = self._fractions(plan, jobs, sharing, notes)
        round_ = _Round(plan, jobs, kinds, sharing)
        pairs = round_.pairs(fractions, notes, sticky=self.sticky)
        assign(plan, round_.choose(pairs))
        if any(job.waiting and not job.spec.preempts for job in jobs):
            assign(plan, round_.choose(pairs, modest=True))
        start_others(plan)
        start_if_idle(plan)
        self._book(plan, notes)
        explain_all(plan, _WHY)

    def _fractions(
        self, plan: Plan, jobs: Sequence[Job], sharing: TimeSharing, notes: _Notes
    ) -> Reals:
        """The program's answer; as long as no job comes or goes, the last one holds."""
        weights = np.array([_weight(job) for job in jobs])
        parts = (sharing.rates, sharing.gpus, sharing.capacity, weights)
        asked = (tuple(job.id for job in jobs), *(part.tobytes() for part in parts))
        if notes.answer is None or notes.asked != asked:
            found = _OBJECTIVES[self.objective](self, plan, jobs, sharing, notes)
            notes.asked, notes.answer = asked, np.where(found < _DUST, 0.0, found)
        return notes.answer

    def _book(self, plan: Plan, notes: _Notes) -> None:
        """Count the round that begins for jobs that have a place in it."""
        lasts_s = min(self.round_s, plan.wake_at - plan.now)
        for name, wish in standing(plan).items():
            notes.book(name, wish.kind, lasts_s)
        nodes = plan.ledger.nodes
        for decision in plan.decisions:
            if isinstance(decision, Place):
                kind = nodes[decision.allocation.parts[0].node].spec.kind
                notes.book(decision.job, kind, lasts_s)

    # -- objectives ----------------------------------------------------------------------------

    def max_sum(
        self, plan: Plan, jobs: Sequence[Job], sharing: TimeSharing, notes: _Notes
    ) -> Reals:
        """The most work in all."""
        del plan, jobs, notes
        return max_sum(sharing)

    def max_min(
        self, plan: Plan, jobs: Sequence[Job], sharing: TimeSharing, notes: _Notes
    ) -> Reals:
        """The fairest shares, by weight."""
        del plan, notes
        return max_min(sharing, np.array([_weight(job) for job in jobs]))

    def makespan(
        self, plan: Plan, jobs: Sequence[Job], sharing: TimeSharing, notes: _Notes
    ) -> Reals:
        """The earliest end of all."""
        del notes
        return makespan(sharing, left_of(plan, jobs, self.round_s))

    def ftf(self, plan: Plan, jobs: Sequence[Job], sharing: TimeSharing, notes: _Notes) -> Reals:
        """The fairest finish times, against an equal part of the cluster of one's own."""
        left = left_of(plan, jobs, self.round_s)
        isolated = sharing.isolated
        alone = np.zeros(len(jobs))
        for row, job in enumerate(jobs):
            past, before, speed = notes.alone.get(job.id, (0.0, _whole(job, left[row]), 0.0))
            speed = speed or isolated[row]
            if speed > 0:
                past += max(0.0, before - left[row]) / speed
            notes.alone[job.id] = (past, left[row], isolated[row])
            alone[row] = past
        age = np.array([plan.now - job.submitted_at for job in jobs])
        return finish_fair(sharing, left, age, alone)


_OBJECTIVES: dict[str, Callable[[Gavel, Plan, Sequence[Job], TimeSharing, _Notes], Reals]] = {
    "max_min": Gavel.max_min,
    "max_sum": Gavel.max_sum,
    "ftf": Gavel.ftf,
    "makespan": Gavel.makespan,
}


@dataclass(slots=True)
class _Round:
    """A round: the first pairs that fit beside runs that cannot be disturbed."""

    plan: Plan
    jobs: Sequence[Job]
    kinds: Kinds
    sharing: TimeSharing
    _limits: dict[Queue, float] = field(default_factory=dict)

    def pairs(self, fractions: Reals, notes: _Notes, *, sticky: bool) -> list[_Pair]:
        """All pairs that can be, those furthest behind their fractions first."""
        jobs, names = self.jobs, self.kinds.names
        if not jobs or not names:
            return []
        had = np.array([[notes.had[job.id][kind] for kind in names] for job in jobs])
        total = np.array([notes.total[kind] for kind in names])
        rows, columns = np.nonzero(self.sharing.rates > 0)
        behind = (fractions * total[None, :] / had)[rows, columns]
        held = standing(self.plan) if sticky else {}
        found = []
        for value, kind, row in zip(
            np.round(behind, 9).tolist(), columns.tolist(), rows.tolist(), strict=True
        ):
            mine = held.get(jobs[row].id)
            there = mine is not None and mine.kind == names[kind]
            found.append(_Pair(-value, not there, kind, jobs[row].seq, row))
        return sorted(found)

    def choose(self, pairs: Sequence[_Pair], *, modest: bool = False) -> dict[JobId, Wish | None]:
        """A wish for each job that waits or may be moved; or for those that disturb no run."""
        able = [self._touchable(job, modest=modest) for job in self.jobs]
        names = [job.id for job, may in zip(self.jobs, able, strict=True) if may]
        room = capacity(self.plan, names)
        chosen = self._fill(pairs, able, room, careful=False)
        if not self._all_fit(chosen, room):
            chosen = self._fill(pairs, able, room, careful=True)
        wishes: dict[JobId, Wish | None] = dict.fromkeys(names)
        for row, kind in chosen.items():
            job = self.jobs[row]
            wishes[job.id] = Wish(self.kinds.names[kind], job.spec.workers.min)
        return self._let_stay(wishes)

    def _touchable(self, job: Job, *, modest: bool) -> bool:
        if job.waiting:
            return job.spec.preempts != modest
        run = job.run
        return (
            not modest and run is not None and movable(run, self.plan.now) and holds_whole_gpus(run)
        )

    def _fill(
        self,
        pairs: Sequence[_Pair],
        able: Sequence[bool],
        room: dict[str, list[int]],
        *,
        careful: bool,
    ) -> dict[int, int]:
        """Take pairs in turn while their kind has GPUs left and their queue may hold more."""
        left = [sum(room.get(kind, ())) for kind in self.kinds.names]
        sizes: list[list[int]] = [[] for _ in left]
        chosen: dict[int, int] = {}
        self._begin(able)
        for pair in pairs:
            row, kind = pair.row, pair.kind
            size = math.ceil(self.sharing.gpus[row])
            if row in chosen or not able[row] or left[kind] < size:
                continue
            if not self._within_limit(self.jobs[row]):
                continue
            if careful and size > 1 and not fits([*sizes[kind], size], room[self._name(kind)]):
                continue
            chosen[row] = kind
            left[kind] -= size
            sizes[kind].append(size)
            self._charge(self.jobs[row])
        return chosen

    def _name(self, kind: int) -> str:
        return self.kinds.names[kind]

    def _all_fit(self, chosen: dict[int, int], room: dict[str, list[int]]) -> bool:
        sizes: dict[int, list[int]] = {}
        for row, kind in chosen.items():
            sizes.setdefault(kind, []).append(math.ceil(self.sharing.gpus[row]))
        return all(fits(of, room[self._name(kind)]) for kind, of in sizes.items())

    def _let_stay(self, wishes: dict[JobId, Wish | None]) -> dict[JobId, Wish | None]:
        """No run steps aside for nothing: where no job is let in or moves, runs stay."""
        held = standing(self.plan)
        if any(wish is not None and held.get(name) != wish for name, wish in wishes.items()):
            return wishes
        return {name: wish for name, wish in wishes.items() if wish is not None}

    # -- limits of queues ----------------------------------------------------------------------

    def _begin(self, able: Sequence[bool]) -> None:
        """What queues may still hold, once all runs that can have stepped aside."""
        self._limits = {
            queue: room
            for queue in self.plan.queues.values()
            if (room := queue.room_milli) is not None
        }
        for job, may in zip(self.jobs, able, strict=True):
            if may and not job.waiting and job.run is not None and job.queue in self._limits:
                self._limits[job.queue] += job.run.gpu_milli

    def _within_limit(self, job: Job) -> bool:
        return job.queue not in self._limits or self._limits[job.queue] >= job.gpu_milli

    def _charge(self, job: Job) -> None:
        if job.queue in self._limits:
            self._limits[job.queue] -= job.gpu_milli


def _weight(job: Job) -> float:
    """A job's weight: its queue's, times its priority where that is above 1, as Gavel's are."""
    return job.queue.spec.weight * max(1.0, float(job.spec.priority))


def _whole(job: Job, left: float) -> float:
    """All the work of a job, as far as that is known."""
    return left if job.run_time_s is None else max(left, job.run_time_s)
