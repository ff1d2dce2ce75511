"""Try, measure, keep or undo: whether jobs that were put together go well together.

After Gandiva (Xiao et al., OSDI 2018), which judges each of its changes by the time of a mini-batch
before and after, and takes back what did worse. A trial begins when all runs on a GPU are up. What
they measured is judged after ``trial_s``; the first measurements, from when a neighbour was still
starting, do not count in the first place. Runs stay together if the sum of their speeds is at least
that of one alone; they part if it is less by more than two standard errors, or if the one that was
there first lost more than ``most_loss``. For what was not measured in that time stands what is
expected of it, and the runs are looked at again later.

Applications that failed together are not tried again for an hour, and a job that failed twice is
left alone for as long. On one node one trial at a time is under way: two would disturb each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from roost.core.observed import Company, Mean, Timing
from roost.core.plan import Plan
from roost.core.spec import ApplicationKey, JobId, NodeId, RunId
from roost.core.state import Job, Run
from roost.perf.interference import PairSpeed
from roost.policies.kit.sharing import Crowds, Gpu

#: The relative error of one measurement of a step, and how many of them the errors count.
_NOISE, _STEADY = 0.03, 16
#: So many standard errors are no chance.
_SURE = 2.0
#: How long what failed is remembered, and how many failures make a job be left alone.
_HOUR_S, _TWICE = 3600.0, 2
_MANY = 5000


#: What is expected of a run in a company, where it was not measured; None: nothing.
Expectation: TypeAlias = Callable[[Run, Sequence[Run]], PairSpeed | None]


class TrialTerms(NamedTuple):
    """How long a trial lasts, and how much the one that was there first may lose."""

    trial_s: float = 60.0
    most_loss: float = 0.2


@dataclass(slots=True)
class PairTrial:
    """Runs on a GPU, and when they were all up and are judged."""

    runs: frozenset[RunId]
    begins_at: float = math.inf
    ends_at: float = math.inf
    #: Whether it is over but for what was not measured yet.
    lasts: bool = False


class TrialOutcome(NamedTuple):
    """A trial that is over: the newest run, whether it stays, and the measured sum of speeds."""

    run: Run
    stays: bool
    together: PairSpeed | None


@dataclass(slots=True)
class Introspection:
    """Trials under way, and what is remembered of those that failed."""

    trials: dict[Gpu, PairTrial] = field(default_factory=dict)
    kept: dict[Gpu, frozenset[RunId]] = field(default_factory=dict)
    failed: dict[frozenset[ApplicationKey], float] = field(default_factory=dict)
    undone: dict[JobId, list[float]] = field(default_factory=dict)

    def judge(
        self, plan: Plan, crowds: Crowds, expect: Expectation, terms: TrialTerms
    ) -> list[TrialOutcome]:
        """Begin trials of runs that are together, and judge those that are over."""
        found = []
        self._forget(plan.now)
        for gpu, trial in list(self.trials.items()):
            if {run.id for run in crowds.get(gpu, ())} != trial.runs:
                del self.trials[gpu]
        for gpu, runs in crowds.items():
            ids = frozenset(run.id for run in runs)
            if len(runs) < 2 or self.kept.get(gpu) == ids:  # noqa: PLR2004 - two are a company
                continue
            trial = self.trials.setdefault(gpu, PairTrial(ids))
            judged = _look(plan, runs, trial, expect, terms)
            if judged is not None:
                found.append(judged)
        return found

    def busy_nodes(self) -> set[NodeId]:
        """Nodes on which a trial is under way."""
        return {gpu.node for gpu, trial in self.trials.items() if not trial.lasts}

    def may_try(self, job: Job, others: Sequence[Job]) -> bool:
        """Whether a job may be put beside these: not if it failed there, or twice anywhere."""
        if len(self.undone.get(job.id, ())) >= _TWICE:
            return False
        return not any(_couple(job, other) in self.failed for other in others)

    def settle(self, gpu: Gpu, runs: Sequence[Run]) -> None:
        """Runs stay together, whatever was measured."""
        self.trials.pop(gpu, None)
        self.kept[gpu] = frozenset(run.id for run in runs)

    def undo(self, plan: Plan, gpu: Gpu, run: Run, others: Sequence[Run]) -> None:
        """Remember that a run failed beside others."""
        self.trials.pop(gpu, None)
        for other in others:
            self.failed[_couple(run.job, other.job)] = plan.now
        self.undone.setdefault(run.job.id, []).append(plan.now)

    def _forget(self, now: float) -> None:
        """Forget what is an hour ago."""
        self.failed = {pair: at for pair, at in self.failed.items() if now - at < _HOUR_S}
        self.undone = {
            job: left
            for job, times in self.undone.items()
            if (left := [at for at in times if now - at < _HOUR_S])
        }
        while len(self.kept) > _MANY:
            del self.kept[next(iter(self.kept))]


def _look(
    plan: Plan, runs: list[Run], trial: PairTrial, expect: Expectation, terms: TrialTerms
) -> TrialOutcome | None:
    """Whether a trial is over, and how it ended."""
    if not all(run.settled for run in runs):
        plan.await_starts()
        plan.wake(plan.now + terms.trial_s)  # while no job waits, nobody tells that a run is up
        return None
    if math.isinf(trial.begins_at):
        trial.begins_at = max(max(run.changed_at, run.started_at or 0.0) for run in runs)
        trial.ends_at = trial.begins_at + terms.trial_s
    if plan.now < trial.ends_at:
        plan.wake(trial.ends_at)
        return None
    measured = [measured_beside(run, runs) for run in runs]
    speeds = [one or expect(run, runs) for one, run in zip(measured, runs, strict=True)]
    together = _sum(speeds)
    if together is None:
        stays = True
    elif None in measured and together.speed < 1.0:  # an expectation has no noise to be told from
        stays = False
    else:
        stays = _stays(speeds[0], together, terms)
    if None in measured and stays:
        trial.lasts, trial.ends_at = True, 2.0 * plan.now - trial.begins_at
        plan.wake(trial.ends_at)
        return None
    return TrialOutcome(runs[-1], stays, together)


def _sum(speeds: Sequence[PairSpeed | None]) -> PairSpeed | None:
    """The speed of all, if something is known of each."""
    known = [one for one in speeds if one is not None]
    if len(known) < len(speeds):
        return None
    return PairSpeed(sum(one.speed for one in known), math.hypot(*(one.error for one in known)))


def _stays(first: PairSpeed | None, together: PairSpeed, terms: TrialTerms) -> bool:
    """Whether runs that do so much stay together, and the one that was there first bears it."""
    if together.speed + _SURE * together.error < 1.0:
        return False
    return first is None or first.speed + _SURE * first.error >= 1.0 - terms.most_loss


def measured_beside(run: Run, crowd: Sequence[Run]) -> PairSpeed | None:
    """The part of its speed alone that a run was measured to keep in this company."""
    observed = run.job.observed
    if observed is None:
        return None
    beside = tuple(sorted(other.job.application_key for other in crowd if other is not run))
    for company in reversed(observed.shared):
        if company.beside == beside:
            alone = _alone(run, company)
            if alone is None:
                return None
            return _speed(alone, observed.shared[company])
    return None


def _alone(run: Run, company: Company) -> Mean | None:
    """How long its steps take alone: of the job itself, else of its application."""
    profile = run.job.profile
    for observed in (run.job.observed, None if profile is None else profile.observed):
        timing: Timing | None = None if observed is None else observed.timings.get(company.setting)
        if timing is not None and timing.step.count:
            return timing.step
    return None


def _speed(alone: Mean, beside: Mean) -> PairSpeed:
    speed = min(alone.mean / beside.mean, 1.0)
    parts = 1.0 / min(alone.count, _STEADY) + 1.0 / min(beside.count, _STEADY)
    return PairSpeed(speed, speed * _NOISE * math.sqrt(parts))


def _couple(one: Job, other: Job) -> frozenset[ApplicationKey]:
    return frozenset((one.application_key, other.application_key))


def introspection(plan: Plan) -> Introspection:
    """The trials of earlier plans; they may vanish, and then begin anew."""
    notes: Introspection = plan.memo.setdefault("introspection", Introspection())
    return notes
