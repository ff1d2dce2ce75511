"""A world in which jobs learn: the physics of Sia's benchmark (SOSP'23), event by event.

How fast a job learns changes with its GPUs, with its batch size, and from epoch to epoch. Work is
counted in steps at the batch size for which its application was tuned; a job with a fixed batch
counts in its own steps. An adaptive job chooses its batch itself, with a model fitted to what it
has seen of its own speed, whenever it (re)starts, at the end of every epoch, and at the next tick
of a clock once it has seen something new. It tells what it sees: step times, free of noise, of a
setting in which it has not been before, and its gradient noise in every epoch.

Every start and every change of the GPU kind or of the GPUs per node stops a job for the time that
its application needs; a move to other nodes of the same kind in the same numbers is free, also if
the run steps aside for it and comes back in the same instant.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from roost.core.allocation import Allocation
from roost.core.events import Event, Exited, Measured, Progressed, Resized, Started, Suspended
from roost.core.observed import Observed, Setting
from roost.core.spec import JobId
from roost.errors import Fatal
from roost.perf.goodput import BatchLimits, tune
from roost.perf.kinds import Estimates
from roost.perf.speed import SpeedModel
from roost.perf.steps import StepModel
from roost.sim.worlds.rates import TrueJob, TrueRun, World
from roost.traces.profiles import Application, Choice, Counts, Tables

#: Jobs that have seen something new choose their batch again at multiples of this.
_TICK_S = 60.0
#: How long a job has to train in a setting before it can tell how long a step takes.
_LOOK_S = 1.0
#: Before anything was chosen.
_SMALLEST = Choice(1, 0)
_NOWHERE = Setting("", 0, 0, 0)
#: What rounding up forgives of a number that is whole but for its last digits.
_SLACK = 1e-8


class GpuLayout(NamedTuple):
    """Where a job runs, as far as its speed is concerned: a GPU kind, and GPUs on each node."""

    kind: str
    counts: Counts


@dataclass(slots=True, eq=False)
class Learner:
    """What is true of how a job learns, and what the job itself has seen of it.

    ``bounds`` is the work at the end of each epoch, ``total`` a batch size that stays (0: it
    follows). ``own`` is what this job has seen, ``known`` that on which it bases its choices.
    ``noise`` is that of its gradients in this epoch and ``setting``. ``restarts`` counts starts
    after the first. It is up at ``ready_at``, was last on its devices at ``left_at``, ends its
    epoch at ``bound_at``, looks at its speed at ``look_at``, and chooses its batch again at
    ``tune_at``.
    """

    application: Application
    bounds: list[float]
    total: int
    known: Observed
    own: Observed = field(default_factory=Observed)
    epoch: int = 0
    spread: GpuLayout | None = None
    choice: Choice = _SMALLEST
    setting: Setting = _NOWHERE
    noise: float = 0.0
    restarts: int = -1
    ready_at: float = 0.0
    left_at: float = -1.0
    bound_at: float = math.inf
    look_at: float = math.inf
    tune_at: float = math.inf

    @property
    def here(self) -> GpuLayout:
        """Where it runs."""
        if self.spread is None:
            raise Fatal("a job that never ran is nowhere")
        return self.spread


class LearningWorld(World):
    """Jobs that learn, as the tables have it.

    ``totals`` gives the batch size of jobs with a fixed batch. With a ``library``, jobs base their
    choices on what all jobs of their application have seen, else on what they saw themselves.
    ``restart_s`` replaces what a restart costs; ``error`` gives a factor by which step times are
    measured wrongly.
    """

    def __init__(  # noqa: PLR0913 - a world is what it is
        self,
        jobs: Mapping[JobId, TrueJob],
        speed: SpeedModel,
        *,
        tables: Tables,
        totals: Mapping[JobId, int],
        library: bool = False,
        restart_s: float | None = None,
        error: Callable[[JobId, Setting], float] | None = None,
    ) -> None:
        super().__init__(jobs, speed)
        self.tables = tables
        self.totals = totals
        self.restart_s = restart_s
        self.error = error
        self.library: dict[str, Observed] | None = {} if library else None
        self.learners: dict[JobId, Learner] = {}
        self._order: dict[str, int] = {}
        self._tuner = Tuner()
        self._limits_of: dict[tuple[str, str], BatchLimits] = {}

    # -- coming and going ----------------------------------------------------------------------

    def _started(self, run: TrueRun, now: float, *, restart: bool) -> Started:  # noqa: ARG002
        learner = self._learner(run.job)
        learner.epoch = min(bisect_right(learner.bounds, run.done_s), len(learner.bounds) - 1)
        took_s = self._charge(learner, run.allocation, now, stayed=learner.left_at == now)
        return Started(learner.ready_at, run.id, took_s=took_s)

    def _resized(self, run: TrueRun, now: float) -> Resized:
        learner = self._learner(run.job)
        took_s = self._charge(learner, run.allocation, now, stayed=True)
        return Resized(learner.ready_at, run.id, took_s=took_s, pause_s=took_s)

    def _charge(
        self, learner: Learner, allocation: Allocation, now: float, *, stayed: bool
    ) -> float | None:
        """Let a job stand still for a restart, if it is one; None: it is not."""
        spread = self._spread(allocation)
        if stayed and spread == learner.spread:
            learner.ready_at = max(now, learner.ready_at)
            return None
        learner.spread = spread
        learner.restarts += 1
        own_s = learner.application.penalty_s
        penalty_s = own_s if self.restart_s is None else self.restart_s
        learner.ready_at = now + penalty_s
        return penalty_s

    def _leave(self, run: TrueRun, event: Exited | Suspended) -> None:
        self._learner(run.job).left_at = event.time
        super()._leave(run, event)

    def _start(self, run: TrueRun, event: Started | Resized, events: list[Event]) -> None:
        learner = self._learner(run.job)
        learner.setting = _NOWHERE
        self._choose(learner, event.time)
        super()._start(run, event, events)
        self._sense(run, learner, events)

    # -- learning ------------------------------------------------------------------------------

    def _rate(self, run: TrueRun) -> float:
        learner = self._learner(run.job)
        application, (kind, counts) = learner.application, learner.here
        rate = application.rate(kind, counts, learner.choice, learner.epoch)
        if learner.total:
            rate /= application.gain(learner.total, learner.epoch)
        return rate

    def _expect(self, run: TrueRun, now: float) -> None:
        """Plan the next thing that happens to a working run; an older plan no longer holds."""
        learner = self._learner(run.job)
        goal = min(learner.bounds[learner.epoch], run.job.goal_s)
        learner.bound_at = now + max(0.0, goal - run.done_s) / run.rate
        at = min(learner.bound_at, learner.look_at, learner.tune_at)
        run.version += 1
        self._count += 1
        heapq.heappush(self._heap, (max(at, now), self._count, run, run.version))

    def _reach_goal(self, run: TrueRun, now: float, events: list[Event]) -> None:
        """An epoch ends, or the whole job; or it is time to look or to choose again."""
        learner = self._learner(run.job)
        if now >= learner.bound_at and learner.bounds[learner.epoch] >= run.job.goal_s:
            super()._reach_goal(run, now, events)
            return
        self._advance(run, now)
        if now >= learner.look_at:
            self._look(run, learner, events)
        if now >= learner.bound_at:
            run.done_s = learner.bounds[learner.epoch]
            learner.epoch += 1
            self._choose(learner, now)
        elif now >= learner.tune_at:
            self._choose(learner, now)
        before, run.rate = run.rate, self._rate(run)
        if run.rate != before:
            events.append(Progressed(now, run.id, run.done_s, run.rate))
        self._sense(run, learner, events)
        self._expect(run, now)

    # -- seeing --------------------------------------------------------------------------------

    def _look(self, run: TrueRun, learner: Learner, events: list[Event]) -> None:
        """See how long a step takes."""
        learner.look_at = math.inf
        kind, counts = learner.here
        time = learner.application.steps[kind].time(counts, learner.choice.local)
        off = 1.0 if self.error is None else self.error(run.id.job, learner.setting)
        self._tell(run, learner, off * time.step_s, off * time.sync_s, events)

    def _sense(self, run: TrueRun, learner: Learner, events: list[Event]) -> None:
        """See the noise of the gradients, once the job has trained at all."""
        if learner.own.noise is not None and learner.own.noise != learner.noise:
            self._tell(run, learner, 0.0, None, events)

    def _tell(
        self,
        run: TrueRun,
        learner: Learner,
        step_s: float,
        sync_s: float | None,
        events: list[Event],
    ) -> None:
        setting = learner.setting
        first = learner.bounds[learner.epoch - 1] if learner.epoch else 0.0
        part = (run.done_s - first) / (learner.bounds[learner.epoch] - first)
        seen = Measured(
            run.since,
            run.id,
            setting.workers,
            step_s,
            noise=learner.noise,
            kind=setting.kind,
            nodes=setting.nodes,
            local_batch=setting.local_batch,
            sync_s=sync_s,
            epochs=learner.epoch + part,
        )
        learner.own.add(seen)
        if learner.known is not learner.own:
            learner.known.add(seen)
        if math.isinf(learner.tune_at) and not learner.total:
            learner.tune_at = _TICK_S * (run.since // _TICK_S + 1)
        events.append(seen)

    # -- choosing ------------------------------------------------------------------------------

    def _choose(self, learner: Learner, now: float) -> None:
        """Choose the batch: the fastest by the job's own model, if it has one."""
        learner.tune_at = math.inf
        application, (kind, counts) = learner.application, learner.here
        steps, workers = application.steps[kind], sum(counts)
        local, accumulation = self._best(learner, kind, counts)
        most = application.batch_max // (workers * (accumulation + 1))
        local = max(min(local, most, steps.most_local(counts)), 1)
        choice = learner.choice = Choice(local, accumulation)
        learner.noise = application.noise(choice.total(workers), learner.epoch)
        setting = Setting(kind, len(counts), workers, local)
        if setting != learner.setting:
            learner.setting = setting
            learner.look_at = math.inf if setting in learner.own.timings else now + _LOOK_S

    def _best(self, learner: Learner, kind: str, counts: Counts) -> Choice:
        """The batch that a job finds best; before it knows anything, the one it was tuned for."""
        limits = self._limits(learner.application, kind)
        if learner.total:
            return split(learner.total, sum(counts), limits)
        noise = learner.own.noise
        if noise is None:
            noise = learner.known.noises.get(learner.epoch, learner.known.noise)
        if noise is not None:
            choice = self._tuner.best(learner.known, kind, noise, limits, counts)
            if choice is not None:
                return choice
        return split(max(limits.batch, limits.local_min * sum(counts)), sum(counts), limits)

    def _limits(self, application: Application, kind: str) -> BatchLimits:
        key = (application.name, kind)
        found = self._limits_of.get(key)
        if found is None:
            found = self._limits_of[key] = limits_of(application, kind)
        return found

    # -- learners, places ----------------------------------------------------------------------

    def _learner(self, job: TrueJob) -> Learner:
        name = job.trace.id
        found = self.learners.get(name)
        if found is None:
            found = self.learners[name] = self._begin(job)
        return found

    def _begin(self, job: TrueJob) -> Learner:
        application = self.tables[job.trace.spec.application]
        total = self.totals.get(job.trace.id, 0)
        bounds = steps_at(application, total) if total else application.progress
        work = job.trace.work_s
        if work and work != bounds[-1]:  # a job of another length: as many epochs, of other sizes
            bounds = [bound * work / bounds[-1] for bound in bounds[:-1]] + [work]
        own = Observed()
        known = own
        if self.library is not None:
            known = self.library.setdefault(application.name, Observed())
        return Learner(application, bounds, total, known, own)

    def _spread(self, allocation: Allocation) -> GpuLayout:
        """Where an allocation is; nodes in the order in which they joined."""
        nodes, order = self.nodes, self._order
        if len(order) != len(nodes):
            order.clear()
            order.update((name, at) for at, name in enumerate(nodes))
        counts: Counter[str] = Counter()
        for part in allocation.parts:
            counts[part.node] += len(part.gpus)
        kinds = {self.nodes[part.node].kind for part in allocation.parts}
        if len(kinds) != 1:
            raise Fatal(
                f"a job was given GPUs of the kinds {', '.join(sorted(kinds))} at once: the "
                "tables know of one kind at a time"
            )
        return GpuLayout(
            kinds.pop(), tuple(counts[name] for name in sorted(counts, key=order.__getitem__))
        )


class Tuner:
    """The batches that jobs find best by their models; each is sought once."""

    def __init__(self) -> None:
        self._estimates = Estimates()
        self._best: dict[tuple[StepModel, float, BatchLimits, int, int], Choice] = {}

    def best(
        self, known: Observed, kind: str, noise: float, limits: BatchLimits, counts: Counts
    ) -> Choice | None:
        """The best batch by the model of a GPU kind; None before there is one."""
        model = self._estimates.fitted(known).get(kind)
        if model is None:
            return None
        key = (model, noise, limits, len(counts), sum(counts))
        found = self._best.get(key)
        if found is None:
            nodes, workers = np.array([len(counts)]), np.array([sum(counts)])
            tuned = tune(model, noise, limits, nodes, workers)
            found = Choice(int(tuned.local[0]), int(tuned.accumulation[0]))
            self._best[key] = found
        return found


def steps_at(application: Application, total: int) -> list[float]:
    """Steps of a batch size that stays which lead to the end of each epoch."""
    done, steps, bounds = 0.0, 0.0, []
    for epoch, progress in enumerate(application.progress):
        steps += (progress - done) / application.gain(total, epoch)
        done = progress
        bounds.append(steps)
    return bounds


def limits_of(application: Application, kind: str) -> BatchLimits:
    """The batches that a job of an application can use on GPUs of a kind."""
    steps = application.steps[kind]
    return BatchLimits(application.batch, application.batch_max, steps.local_min, steps.local_max)


def split(total: int, workers: int, limits: BatchLimits) -> Choice:
    """A total batch over workers, in as few rounds as their memory allows."""
    share = total / workers
    accumulation = math.ceil(share / limits.local_max - _SLACK) - 1
    if workers == 1 and total > limits.batch:
        # The noise of a gradient cannot be told from one micro-batch alone.
        accumulation = max(accumulation, 1)
    return Choice(math.ceil(share / (accumulation + 1) - _SLACK), accumulation)
