"""The present cluster in the simulator: when will jobs start, and what would another policy do.

A snapshot of a core becomes a simulation that begins in the middle: runs go on where they are,
jobs wait in line, held ones stay aside. How much work is left is known at best by estimate: as
declared, as predicted from earlier jobs, or, where it is unknown, by an assumption that is named in
the result. No new jobs come and nothing breaks. The core itself is not touched.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from roost.core.actions import Action, Launch, Resume
from roost.core.allocation import Allocation
from roost.core.controller import Core, Policy
from roost.core.decisions import Decision
from roost.core.events import Event, Started
from roost.core.plan import Placer
from roost.core.snapshot import dump, load
from roost.core.spec import WHOLE, JobId
from roost.core.state import Job, JobState
from roost.errors import InvalidSpec
from roost.placement import placer
from roost.policies import policy
from roost.sim.simulation import Setup, Simulation
from roost.traces.workload import TraceJob, Workload

#: What a job of unknown length takes at least, and how many jobs make a better guess.
UNKNOWN_S = 600.0
_ENOUGH_JOBS = 3
#: What a job that is past its declared time still takes, as a part of what it has done.
_OVERDUE = 0.1
_MONTH = 30 * 86400.0


class ForecastTimes(NamedTuple):
    """When a job starts (or goes on) and ends; None: not within what was simulated."""

    starts_at: float | None
    ends_at: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What will become of each job that is not over, and what was assumed for it.

    ``places`` is where a job starts that does not run yet. A ``truncated`` forecast ended before
    all jobs did: at its horizon or its limit, or because nothing moved any more.
    """

    now: float
    times: Mapping[JobId, ForecastTimes]
    places: Mapping[JobId, Allocation]
    assumptions: tuple[str, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class TypicalRun:
    """How long jobs took that succeeded: the median of so many."""

    run_time_s: float
    jobs: int


@dataclass(frozen=True, slots=True)
class Present:
    """What the simulator is told: the state of all jobs that are not over, and earlier run times.

    Made quickly and once; whatever is asked afterwards leaves the core alone and may be worked out
    in another thread.
    """

    state: Mapping[str, Any]
    typical: TypicalRun | None
    now: float

    @classmethod
    def of(cls, core: Core, now: float | None = None) -> Present:
        """The present of a core, at a time that may be later than its last event."""
        now = core.now if now is None else max(now, core.now)
        return cls(dump(core, over=False), typical_run(core.jobs.values()), now)

    @classmethod
    def read(cls, state: Any) -> Present:
        """The present that a snapshot tells; raises InvalidSpec where it is none."""
        return cls.of(load(state, _nobody, placer("first-fit")))

    def core(self, policy: Policy, placer: Placer) -> Core:
        """A core in that state, to do with as one likes; its policy wants to be asked at once."""
        copy = load(self.state, policy, placer)
        copy.state.now = copy.wake_at = self.now
        return copy


def forecast(  # noqa: PLR0913 - what to ask, and how far to go for it
    core: Core | Present,
    policy: Policy,
    placer: Placer,
    *,
    horizon_s: float = _MONTH,
    limit_events: int = 50_000,
    pace: float = 1.0,
    job: JobId | None = None,
    to_its_end: bool = False,
    spent: Callable[[], bool] = bool,
) -> Forecast:
    """When every job will start and end, as far as can be known now.

    ``pace`` stretches what is left of every job. With a ``job`` it goes only as far as to the start
    of that one, or ``to_its_end``. It ends early once ``spent`` says so.
    """
    present = core if isinstance(core, Present) else Present.of(core)
    copy = present.core(policy, placer)
    if not copy.jobs:
        return Forecast(present.now, {}, {}, (), truncated=False)
    guesses = WorkGuesses(present.typical, pace)
    setup = Setup(_workload("", copy, guesses), (), policy, placer)
    assumptions = guesses.told(copy)
    simulation = Simulation(setup, under_way=copy)
    watch = _Watch(simulation, limit_events, spent)
    if job is not None:
        watch.until(copy.job(job), to_its_end=to_its_end)
    simulation.run(present.now + horizon_s, observer=watch.note, enough=watch.enough)
    return Forecast(
        now=present.now,
        times={name: watch.times(found) for name, found in copy.jobs.items()},
        places=watch.places,
        assumptions=assumptions,
        truncated=not simulation.over,
    )


class PresentRun(NamedTuple):
    """A simulation that begins in the present, and what is assumed in it."""

    simulation: Simulation
    assumptions: tuple[str, ...]


def present_run(
    state: Any, policy_text: str, placer_name: str, *, name: str = "live", timeline: bool = False
) -> PresentRun:
    """A simulation of a snapshot under a policy, ready to run.

    Jobs keep their times of submission, counted from the first of them, so that completion times
    count from there; jobs that are over are no part of it.
    """
    chosen, where = policy(policy_text), placer(placer_name)
    present = Present.read(state)
    jobs: Sequence[Mapping[str, Any]] = present.state["jobs"]
    if not jobs:
        raise InvalidSpec(f"{name}: there are no jobs that are not over")
    first = min(job["submitted_at"] for job in jobs)
    copy = load(_counted_from(first, present.state), chosen, where)
    guesses = WorkGuesses(present.typical)
    setup = Setup(
        workload=_workload(name, copy, guesses),
        nodes=[node.spec for node in copy.ledger.order],
        policy=chosen,
        placer=where,
        policy_name=policy_text,
        placer_name=placer_name,
        timeline=timeline,
    )
    return PresentRun(Simulation(setup, under_way=copy), guesses.told(copy))


def _workload(name: str, copy: Core, guesses: WorkGuesses) -> Workload:
    jobs = [
        TraceJob(job.id, max(0.0, job.submitted_at), job.spec, guesses.work_s(job, copy.now))
        for job in copy.jobs.values()
    ]
    return Workload(name, jobs)


def _nobody(_plan: object) -> None:
    """A policy that leaves everything as it is."""


# -- how much work is left -------------------------------------------------------------------------


def typical_run(jobs: Iterable[Job]) -> TypicalRun | None:
    """The median run time of jobs that succeeded, if there are enough of them."""
    took = [_took_s(job) for job in jobs if job.state is JobState.SUCCEEDED]
    return TypicalRun(statistics.median(took), len(took)) if len(took) >= _ENOUGH_JOBS else None


def _took_s(job: Job) -> float:
    """How long a job ran, as if it had always had its least workers."""
    if job.attained_gpu_s and job.gpu_milli:
        return job.attained_gpu_s * WHOLE / job.gpu_milli
    return (job.finished_at or 0.0) - (job.started_at or job.submitted_at)


@dataclass(slots=True)
class WorkGuesses:
    """How much work jobs have, and what that rests on."""

    typical: TypicalRun | None
    pace: float = 1.0
    used: Counter[str] = field(default_factory=Counter)

    def work_s(self, job: Job, now: float) -> float:
        """All the work of a job, done or not."""
        done = job.saved_s if job.run is None else job.run.done(now)
        return done + max(0.0, self._total_s(job, done) - done) * self.pace

    def _total_s(self, job: Job, done: float) -> float:
        total = job.run_time_s
        if total is None or math.isinf(total):
            self.used["unknown"] += 1
            usual = UNKNOWN_S if self.typical is None else self.typical.run_time_s
            return max(usual, 2 * done)
        if done >= total > 0:
            self.used["overdue"] += 1
            return done * (1 + _OVERDUE)
        if job.spec.run_time_s is None:
            self.used["predicted"] += 1
        return total

    @property
    def usual(self) -> str:
        """What is assumed of jobs of unknown length."""
        usual = f"{UNKNOWN_S / 60:g} minutes"
        if self.typical is not None:
            usual = f"{self.typical.run_time_s:.3g} s, the median of {self.typical.jobs} jobs"
        return f"of unknown length: taken as {usual}, or twice what was done so far"

    def told(self, copy: Core) -> tuple[str, ...]:
        """What was assumed, in sentences."""
        used = self.used
        held = sum(job.held for job in copy.jobs.values())
        down = sum(not node.up for node in copy.ledger.order)
        told = [
            (used["unknown"], self.usual),
            (used["predicted"], "taken to run as long as its user's earlier ones"),
            (used["overdue"], "past its declared run time: taken to need a tenth more"),
            (held, "held by its user: taken to stay so"),
            (down, "out of service: taken to stay so"),
        ]
        kinds = ("job", "job", "job", "job", "node")
        sentences = [
            f"{count} {kind}{'' if count == 1 else 's'} {text}"
            for kind, (count, text) in zip(kinds, told, strict=True)
            if count
        ]
        return (*sentences, "no new jobs come, and nothing fails")


# -- what is seen ----------------------------------------------------------------------------------


class _Watch:
    """Sees when jobs start or go on, and where."""

    def __init__(
        self, simulation: Simulation, limit_events: int, spent: Callable[[], bool]
    ) -> None:
        self._simulation, self._limit, self._spent = simulation, limit_events, spent
        self._seen: Callable[[], bool] = lambda: False
        self._starts: dict[JobId, float] = {}
        self.places: dict[JobId, Allocation] = {}
        for run in simulation.core.runs.values():
            if run.started_at is not None and not run.leaves:
                self._starts[run.id.job] = run.started_at

    def until(self, job: Job, *, to_its_end: bool) -> None:
        """Look no further than to the start of a job, or to its end."""
        self._seen = (lambda: job.state.over) if to_its_end else (lambda: job.id in self._starts)

    def note(
        self, events: Sequence[Event], _decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        """See one batch."""
        for event in events:
            if isinstance(event, Started):
                self._starts.setdefault(event.run.job, event.time)
        for action in actions:
            if isinstance(action, Launch | Resume):
                self.places.setdefault(action.run.job, action.allocation)

    def enough(self) -> bool:
        """Whether all was seen that there is to see."""
        return self._simulation.events >= self._limit or self._seen() or self._spent()

    def times(self, job: Job) -> ForecastTimes:
        """When a job started and ended."""
        return ForecastTimes(self._starts.get(job.id), job.finished_at)


# -- another time zero -----------------------------------------------------------------------------

_TIMES_OF_JOBS = ("submitted_at", "started_at", "queued_at", "not_before")
_TIMES_OF_RUNS = ("placed_at", "started_at", "ends_at", "measured_at", "changed_at")


def _counted_from(first: float, state: Mapping[str, Any]) -> dict[str, Any]:
    """A snapshot with times that count from another moment."""

    def moved(record: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        # Times that never were are left out or 0, endless ones are a word.
        numbers = {name: record[name] for name in names if isinstance(record.get(name), float)}
        return {**record, **{name: max(0.0, at - first) for name, at in numbers.items()}}

    return {
        **moved(state, ("now",)),
        "jobs": [moved(job, _TIMES_OF_JOBS) for job in state["jobs"]],
        "runs": [moved(run, _TIMES_OF_RUNS) for run in state["runs"]],
    }
