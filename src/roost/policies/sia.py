"""Sia: every job its best kind and number of GPUs, by an integer program in every round.

After Sia (Jayaram Subramanya et al., SOSP 2023). Each round chooses at most one configuration (a
kind of GPU and a number of them) for each job, so that the sum of goodputs to the power ``p``,
relative to the job's least, is best for ``p`` below 0: close to the harmonic mean, which cares more
for those that get little. To change a configuration costs a restart; what that is worth is told by
the share of its life that a job has spent on restarts. The details are those of the authors' own
simulation, also where they look odd: costs are rounded to two decimals, and a job may have at most
twice the GPUs of the largest size that it was seen at.

A job of which nothing was measured gets one GPU of any kind. Jobs that do not train, or cannot
change their size, take part with what is known of their speed, else as if all GPUs were equal. A
job that might never be chosen, or never find what was chosen for it, starts in the end where there
is room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from roost.core.plan import Plan
from roost.core.spec import JobId, Training
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.perf.arrays import Reals
from roost.perf.goodput import tune
from roost.perf.kinds import Estimates, limits, models
from roost.policies.kit.assignment import assign
from roost.policies.kit.costs import RestartCounts, restart_s
from roost.policies.kit.leftovers import on_one_kind, start_leftovers
from roost.policies.kit.moves import Wish, capacity, carry_on, movable, standing
from roost.policies.kit.rounds import round_begins
from roost.policies.kit.sizes import Configuration, Configurations, gpu_caps, offered_sizes
from roost.policies.kit.solvers.programs import choose_exactly
from roost.policies.kit.speeds import MeasuredRates, explain_all, measured_rates

_MEMO = "sia"
#: The largest cost, and the least goodput that is told from none.
_DEAREST, _NOTHING = 3000.0, 1e-12
#: Below what costs are rounded to: jobs without a model stay where they are, and then go by age.
_STAYS, _OLDER = 0.004, 0.003


@dataclass(frozen=True, slots=True)
class Sia:
    """Sia's integer program: a kind and number of GPUs for each job in every round."""

    resizes: ClassVar[bool] = True

    round_s: float = 60.0
    p: float = -0.5
    no_alloc: float = 1.1
    most_gpus: int = 64

    def __post_init__(self) -> None:
        """Refuse rounds of no time, and exponents for which nothing is best."""
        if not 0 < self.round_s < math.inf:
            raise InvalidSpec(f"round_s must be positive, got {self.round_s}")
        if not self.p < 0:
            raise InvalidSpec(f"p must be negative, got {self.p}")

    def __call__(self, plan: Plan) -> None:
        """Decide about all jobs at the beginning of a round; in between only finish that."""
        carry_on(plan)
        for job in plan.pending:
            if not job.spec.uniform:
                plan.place(job)
        if round_begins(plan, self.round_s):
            self._decide(plan)
            start_leftovers(plan)
            explain_all(plan, "in this round others make more of the GPUs")
        else:
            explain_all(plan, f"waits for the next round: they begin every {self.round_s:g} s")

    def _decide(self, plan: Plan) -> None:
        held = standing(plan)
        notes: RestartCounts = plan.memo.setdefault(_MEMO, RestartCounts())
        notes.look(held)
        notes.forget(plan)
        runs = [run.job for run in plan.running if movable(run, plan.now) and run.job.spec.uniform]
        runs = [job for job in runs if on_one_kind(held, job)]
        jobs = sorted((*runs, *plan.waiting), key=lambda job: job.seq)
        if jobs:
            problem = _Problem(self, plan, held, jobs, notes)
            assign(plan, problem.solve(capacity(plan, [job.id for job in runs])))


@dataclass(slots=True)
class _Problem:
    """One round: costs of jobs (rows) by configurations (columns)."""

    sia: Sia
    plan: Plan
    held: Mapping[JobId, Wish]
    jobs: Sequence[Job]
    notes: RestartCounts
    menu: Configurations = field(init=False)
    seen: MeasuredRates = field(init=False)
    estimates: Estimates = field(init=False)

    def __post_init__(self) -> None:
        self.menu = Configurations(self.plan, offered_sizes(self.plan))
        self.seen = measured_rates(self.plan)
        self.estimates = self.plan.memo.setdefault("estimates", Estimates())

    def solve(self, free: Mapping[str, Sequence[int]]) -> dict[JobId, Wish | None]:
        """The best configuration of each job within what is free; None: it stands aside."""
        kinds = list(self.menu.offered)
        most = gpu_caps(self.jobs, self.held)
        rows = [self._costs(rank, job, most[job.id]) for rank, job in enumerate(self.jobs)]
        columns = list(self.menu.columns)
        if not columns:
            return {}
        cost = np.full((len(rows), len(columns)), np.inf)
        for row, costs in enumerate(rows):
            for one, value in costs.items():
                cost[row, self.menu.columns[one]] = value - self.sia.no_alloc
        chosen = choose_exactly(
            cost, self.menu.uses(kinds), [sum(free.get(kind, ())) for kind in kinds]
        )
        return {
            job.id: self._wish(job, columns[column]) if column >= 0 else None
            for job, column in zip(self.jobs, chosen.tolist(), strict=True)
        }

    @staticmethod
    def _wish(job: Job, one: Configuration) -> Wish:
        gpus = job.spec.resources.gpus
        return Wish(one.kind, one.gpus // gpus if job.spec.uniform else job.spec.workers.min)

    def _costs(self, rank: int, job: Job, most: float) -> dict[Configuration, float]:
        """What each configuration that a job may have costs."""
        held, training = self.held.get(job.id), job.spec.training
        learns = training is not None and job.spec.uniform
        if learns:
            most = min(most, self.sia.most_gpus, self._doubled(job))
        offered = self.menu.of(job, held, most)
        if training is not None and learns:
            goodput = self._learning(job, training, offered)
        else:
            goodput = self._plain(job, offered)
        possible = goodput > 0
        if not possible.any():
            return {}
        goodput = goodput / goodput[possible].min()
        stays = np.array([held is not None and self._wish(job, one) == held for one in offered])
        if held is not None:
            # As in the authors' simulation, what was declared counts before what was measured.
            once_s = job.spec.costs.restart_s or restart_s(job)
            goodput[~stays] *= self.notes.factor(job, self.plan.now, once_s)
        costs = np.minimum(np.maximum(goodput, _NOTHING) ** self.sia.p, _DEAREST).round(2)
        if not learns:
            costs = costs - _STAYS * stays - _OLDER / (1 + rank)
        # What no empty cluster could give would be chosen again and again, and never be had.
        seats = [
            stay or self.menu.seats(job, one)
            for one, stay in zip(offered, stays.tolist(), strict=True)
        ]
        able = zip(offered, costs.tolist(), possible & np.array(seats), strict=True)
        return {one: value for one, value, can in able if can}

    def _doubled(self, job: Job) -> int:
        """The GPUs that a job may have after those at which it was seen."""
        timings = job.observed.timings if job.observed is not None else ()
        most = 2 * max((setting.workers for setting in timings), default=0)
        return max(most, job.spec.workers.min) * job.spec.resources.gpus

    def _learning(self, job: Job, training: Training, offered: Sequence[Configuration]) -> Reals:
        """How fast a job learns in each configuration, by its own measurements alone."""
        observed = job.observed
        if observed is None or not observed.timings:
            return np.ones(len(offered))
        each, kinds = job.spec.resources.gpus, list(self.menu.offered)
        fitted = models(observed, training, kinds, self.estimates, each)
        goodput = np.zeros(len(offered))
        table = np.array([(one.nodes, one.gpus) for one in offered])
        workers = table[:, 1] // each
        for kind, model in fitted.items():
            here = np.array([one.kind == kind for one in offered])
            if here.any():
                nodes, size, bounds = table[here, 0], workers[here], limits(training, kind)
                goodput[here] = tune(model, observed.noise or 0.0, bounds, nodes, size).rate
        return goodput

    def _plain(self, job: Job, offered: Sequence[Configuration]) -> Reals:
        """How fast a job goes that does not train, as far as that is known."""
        known = self.seen.of(job)
        other = sum(known.values()) / len(known) if known else 1.0
        low = job.spec.workers.min
        return np.array(
            [
                known.get(one.kind, other) * job.speed_up(self._wish(job, one).workers, low)
                for one in offered
            ]
        )
