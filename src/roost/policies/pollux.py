"""Pollux: goodput shared fairly, by a genetic search over the places of all jobs.

After Pollux (Qiao et al., OSDI 2021), as the authors of Sia ran it on several kinds of GPU. In each
round all jobs are placed anew so that the harmonic mean of their speedups is best: how many times
faster a job learns than with its fair share of the cluster. To move a job costs a restart, counted
by the share of its life that it has spent on them. At most one job that spans nodes is on a node.

Pollux does not tell kinds of GPU from each other: what was measured on all of them goes into one
model of a job, and large nodes look like several small ones. A job that was given GPUs of several
kinds keeps those of the kind of which it has most, of equals the faster.

The search is in ``genetic``; a job without measurements gets one GPU, and one that does not train
is taken to gain from each worker what was seen of its application, else in proportion. Who needs
more than one kind, or more of a node than GPUs, starts where there is room if it was left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roost.core.observed import Observed
from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId, NodeId
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.perf.arrays import Booleans, Integers, Reals
from roost.perf.goodput import tune
from roost.perf.kinds import Estimates, limits, samples, shape_of
from roost.perf.steps import StepSample
from roost.policies.kit.assignment import arrange
from roost.policies.kit.costs import RestartCounts
from roost.policies.kit.leftovers import on_one_kind, start_leftovers
from roost.policies.kit.moves import carry_on, movable, rooms, standing
from roost.policies.kit.rounds import round_begins
from roost.policies.kit.sizes import gpu_caps
from roost.policies.kit.solvers.genetic import GeneticSearch, SeatingProblem
from roost.policies.kit.speeds import explain_all

_MEMO = "pollux"


@dataclass(slots=True)
class _Notes:
    """What is kept from round to round: restarts, the last places, and the last population."""

    restarts: RestartCounts = field(default_factory=RestartCounts)
    #: Jobs by row and pieces of nodes by column, of each individual.
    population: NDArray[np.int16] | None = None
    jobs: list[JobId] = field(default_factory=list)
    pieces: list[NodeId] = field(default_factory=list)
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Pollux:
    """Pollux's genetic search: places of all jobs for the best mean goodput, in every round.

    Nodes are shown in pieces of ``piece`` GPUs, and no job gets more than ``most`` workers.
    ``restart_s`` is what a restart is taken to cost. The search ends early when the best has not
    changed for ``patience`` generations.
    """

    resizes: ClassVar[bool] = True

    round_s: float = 60.0
    population: int = 100
    generations: int = 100
    patience: int = 20
    most: int = 16
    piece: int = 4
    restart_s: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse rounds of no time and empty populations."""
        if not 0 < self.round_s < math.inf:
            raise InvalidSpec(f"round_s must be positive, got {self.round_s}")
        for name in ("population", "generations", "patience", "most", "piece"):
            if getattr(self, name) < 1:
                raise InvalidSpec(f"{name} must be at least 1, got {getattr(self, name)}")

    def __call__(self, plan: Plan) -> None:
        """Decide about all jobs at the beginning of a round; in between only finish that."""
        carry_on(plan)
        for job in plan.pending:
            if not self.takes_part(job):
                plan.place(job)
        if round_begins(plan, self.round_s):
            self._decide(plan)
            start_leftovers(plan)
            explain_all(plan, "in this round others make more of the GPUs")
        else:
            explain_all(plan, f"waits for the next round: they begin every {self.round_s:g} s")

    def takes_part(self, job: Job) -> bool:
        """Whether a job takes part in the search; others start where there is room."""
        return (
            job.spec.uniform and job.spec.resources.gpus <= self.piece and job.spec.within is None
        )

    def _decide(self, plan: Plan) -> None:
        notes: _Notes = plan.memo.setdefault(_MEMO, _Notes())
        held = standing(plan)
        notes.restarts.look(held)
        notes.restarts.forget(plan)
        jobs = [run.job for run in plan.running if movable(run, plan.now)]
        jobs = [job for job in jobs if on_one_kind(held, job)]
        jobs = [job for job in (*jobs, *plan.waiting) if self.takes_part(job)]
        jobs.sort(key=lambda job: job.seq)
        if jobs:
            _Round(self, plan, notes, jobs).settle()


@dataclass(slots=True)
class _Round:
    """One round: jobs as rows, pieces of nodes as columns."""

    pollux: Pollux
    plan: Plan
    notes: _Notes
    jobs: Sequence[Job]
    pieces: list[NodeId] = field(default_factory=list)
    room: list[int] = field(default_factory=list)

    def settle(self) -> None:
        """Search, and let the jobs go where the best has them."""
        pollux, notes = self.pollux, self.notes
        self._cut()
        if not self.pieces:
            return
        problem = self._problem()
        notes.rounds += 1
        chance = np.random.default_rng((pollux.seed, notes.rounds))
        search = GeneticSearch(problem, chance, pollux.population)
        search.begin(self._last())
        best = search.run(pollux.generations, pollux.patience)
        notes.population, notes.jobs = search.states, [job.id for job in self.jobs]
        notes.pieces = self.pieces
        arrange(self.plan, self._seats(best))

    def _cut(self) -> None:
        """Cut what may be given out of each node into pieces, less what others wait for."""
        plan, most = self.plan, self.pollux.piece
        free = rooms(plan, [job.id for job in self.jobs])
        others = [job for job in plan.waiting if not self.pollux.takes_part(job)]
        wanted = -(-others[0].gpu_milli // WHOLE) if others else 0
        for name in sorted(free, key=lambda name: -free[name]):
            if wanted and plan.ledger.suits(plan.ledger.nodes[name], others[0].spec.resources):
                kept = min(wanted, free[name])
                free[name] -= kept
                wanted -= kept
        for name, gpus in free.items():
            for start in range(0, gpus, most):
                self.pieces.append(name)
                self.room.append(min(most, gpus - start))

    def _problem(self) -> SeatingProblem:
        jobs, pollux = self.jobs, self.pollux
        held = standing(self.plan)
        most = gpu_caps(jobs, held)
        gpus = np.array([job.spec.resources.gpus for job in jobs])
        least = np.array([job.spec.workers.min for job in jobs])
        sizes = [self._most(job, most[job.id]) for job in jobs]
        table = np.zeros((len(jobs), 2, max(sizes) + 1))
        fair = -(-sum(self.room) // len(jobs))
        for row, (job, size) in enumerate(zip(jobs, sizes, strict=True)):
            table[row, :, : size + 1] = self._speedups(job, size, fair)
        now = self.plan.now
        factors = [
            self.notes.restarts.factor(job, now, pollux.restart_s) if job.id in held else 1.0
            for job in jobs
        ]
        return SeatingProblem(
            table,
            least,
            np.array(sizes),
            gpus,
            np.array(self.room),
            self._usable(),
            self._groups(),
            np.array(factors),
            self._current(gpus),
        )

    def _usable(self) -> Booleans:
        """Which pieces are of kinds and pools that will do for each job."""
        ledger = self.plan.ledger
        nodes = [ledger.nodes[name] for name in self.pieces]
        table = [[ledger.suits(node, job.spec.resources) for node in nodes] for job in self.jobs]
        return np.array(table, dtype=bool)

    def _groups(self) -> Integers:
        """A number for the kind of each piece."""
        nodes = self.plan.ledger.nodes
        kinds = [nodes[name].spec.kind for name in self.pieces]
        return np.array([list(dict.fromkeys(kinds)).index(kind) for kind in kinds])

    def _most(self, job: Job, cap: float) -> int:
        """The most workers that a job may get: twice those at which it was seen."""
        low, high = job.spec.workers
        most = min(float(high), max(self.pollux.most, low), cap // job.spec.resources.gpus)
        if job.spec.training is not None:
            timings = job.observed.timings if job.observed is not None else ()
            most = min(most, max(low, 2 * max((s.workers for s in timings), default=0)))
        return int(most) if most >= low else 0

    # -- speedups ------------------------------------------------------------------------------

    def _speedups(self, job: Job, most: int, fair: int) -> Reals:
        """How many times faster than with a fair share, on one node and on several, by workers."""
        fair = max(1, min(fair // job.spec.resources.gpus, self.pollux.most))
        rates = self._rates(job, max(most, fair))
        share = rates[int(fair * job.spec.resources.gpus > self.pollux.piece), fair]
        if not share > 0:
            share = rates.max() or 1.0
        found: Reals = rates[:, : most + 1] / share
        return found

    def _rates(self, job: Job, most: int) -> Reals:
        """Goodput on one node (first row) and on several, by workers from none."""
        observed, training = job.observed, job.spec.training
        workers = np.arange(most + 1)
        rates = np.zeros((2, most + 1))
        if training is None:
            low = job.spec.workers.min
            rates[:] = [0.0, *(job.speed_up(size, low) for size in range(1, most + 1))]
        elif observed is None or not observed.timings:
            rates[:] = workers
        else:
            estimates: Estimates = self.plan.memo.setdefault("estimates", Estimates())
            first = next(iter(self.plan.ledger.kinds))
            split = shape_of(training, job.spec.resources.gpus)
            tuned = tune(
                estimates.fit(_mixed(observed), split).pace,
                observed.noise or 0.0,
                limits(training, first),
                np.repeat([1, 2], most),
                np.tile(workers[1:], 2),
            )
            rates[:, 1:] = tuned.rate.reshape(2, most)
        return rates

    # -- places --------------------------------------------------------------------------------

    def _current(self, gpus: Integers) -> NDArray[np.int16]:
        """Where the jobs are now, by pieces: as found last time, where that is still so."""
        states = np.zeros((len(self.jobs), len(self.pieces)), dtype=np.int16)
        left = np.array(self.room)
        for row, job in enumerate(self.jobs):
            if job.waiting or job.run is None:
                continue
            for part in job.run.allocation.parts:
                workers = part.workers
                for column, name in enumerate(self.pieces):
                    if name == part.node and workers:
                        taken = min(workers, left[column] // gpus[row])
                        states[row, column] += taken
                        left[column] -= taken * gpus[row]
                        workers -= taken
        return states

    def _last(self) -> NDArray[np.int16]:
        """The last population, with rows for the jobs of now; empty, if the nodes have changed."""
        notes = self.notes
        if notes.population is None or notes.pieces != self.pieces:
            return np.zeros((0, len(self.jobs), len(self.pieces)), dtype=np.int16)
        rows = {name: row for row, name in enumerate(notes.jobs)}
        shape = (len(notes.population), len(self.jobs), len(self.pieces))
        found = np.zeros(shape, dtype=np.int16)
        for row, job in enumerate(self.jobs):
            if job.id in rows:
                found[:, row] = notes.population[:, rows[job.id]]
        return found

    def _seats(self, best: NDArray[np.int16]) -> dict[JobId, Mapping[NodeId, int] | None]:
        """Workers of each job on each node, of the kind only of which it has most."""
        nodes, found = self.plan.ledger.nodes, dict[JobId, Mapping[NodeId, int] | None]()
        for row, job in enumerate(self.jobs):
            counts: dict[str, dict[NodeId, int]] = {}
            for column in np.flatnonzero(best[row]).tolist():
                name = self.pieces[column]
                places = counts.setdefault(nodes[name].spec.kind, {})
                places[name] = places.get(name, 0) + int(best[row, column])
            alone = dict(job.spec.training.alone) if job.spec.training is not None else {}
            kind = max(counts, key=lambda k: (sum(counts[k].values()), alone.get(k, 0)), default="")
            chosen = counts.get(kind, {})
            enough = sum(chosen.values()) >= job.spec.workers.min
            found[job.id] = chosen if chosen and enough else None
        return found


def _mixed(observed: Observed) -> list[StepSample]:
    """Measurements of all kinds as if of one: the first of each setting counts."""
    first: dict[tuple[int, int, int], str] = {}
    for setting in observed.timings:
        first.setdefault((setting.nodes, setting.workers, setting.local_batch), setting.kind)
    return [
        sample
        for kind, seen in samples(observed).items()
        for sample in seen
        if first[sample.nodes, sample.workers, sample.local_batch] == kind
    ]
