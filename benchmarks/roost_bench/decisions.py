"""Timing single decisions: the core and a policy on a crowded cluster, without a simulation.

Jobs come and go only as far as it takes to have something to decide. They are ``RigidJobs``,
whose users declare how long they run, or ``TrainingJobs``, which learn on any number of GPUs of
three kinds and report how fast they go.
"""

from __future__ import annotations

import heapq
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Protocol, assert_never

import numpy as np

from roost.core.actions import Action, Launch, Migrate, Resize, Resume, Stop, Suspend
from roost.core.controller import Core
from roost.core.events import (
    Event,
    Exited,
    Measured,
    NodeJoined,
    Outcome,
    Progressed,
    Resized,
    Started,
    Submitted,
    Suspended,
    Woke,
)
from roost.core.spec import Costs, JobId, JobSpec, NodeSpec, QueueId, Range, RunId, Training
from roost.core.state import Run
from roost.errors import Fatal
from roost.perf.goodput import tune
from roost.perf.kinds import limits
from roost.perf.steps import StepModel
from roost.placement import placer as find_placer
from roost.policies import policy as find_policy
from roost.sim.scenario import uniform_cluster

#: Jobs come in so many batches: a policy that looks at all of them is asked as often only.
_BATCHES = 4
#: A policy that still has wishes after so many answers in one instant never ends.
_PATIENCE = 1000
_QUEUES = 10


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """How long one decision takes, in milliseconds."""

    policy: str
    nodes: int
    jobs: int
    median_ms: float
    worst_ms: float
    cold_ms: float


class JobMix(Protocol):
    """The jobs that are there when decisions are timed.

    Starts and changes take ``starts_s``; before anything is timed, ``warm_up`` rounds are played.
    """

    @property
    def nodes(self) -> int:
        """How many nodes."""

    @property
    def jobs(self) -> int:
        """How many jobs."""

    @property
    def starts_s(self) -> float:
        """How long a start or a change takes."""

    @property
    def warm_up(self) -> int:
        """Rounds before anything is timed."""

    def cluster(self) -> list[NodeSpec]:
        """The nodes."""

    def spec(self, number: int) -> JobSpec:
        """A job that is there from the beginning."""

    def newcomer(self, number: int) -> JobSpec:
        """A job that comes while decisions are timed."""

    def shows(self, run: Run, kind: str, now: float) -> list[Event]:
        """What a run that has just come up there tells of itself."""


def time_decisions(
    policy: str, crowd: JobMix, *, placer: str, rounds: int, every_s: float = 10.0
) -> DecisionTimes:
    """Submit all jobs, some at a time, then time a decision every so often.

    In each round one job ends and another is submitted. The last round is *cold*: everything that
    the core and the policy remember to save time is forgotten first, as after a restart.
    """
    stage = _Stage(Core(find_policy(policy), find_placer(placer)), crowd)
    stage.fill()
    spent_ms = []
    for number in range(-crowd.warm_up, rounds + 1):
        spent = stage.play(number, every_s, cold=number == rounds)
        if number >= 0:
            spent_ms.append(spent)
    *warm, cold = spent_ms
    return DecisionTimes(policy, crowd.nodes, crowd.jobs, statistics.median(warm), max(warm), cold)


@dataclass(slots=True)
class _Stage:
    """A core, and what is about to happen because of what it asked for."""

    core: Core
    crowd: JobMix
    now: float = 0.0
    _due: list[tuple[float, int, Started | Resized]] = field(default_factory=list)
    _order: count[int] = field(default_factory=count)

    def fill(self) -> None:
        """Let all nodes join and all jobs come."""
        self.core.handle(*(NodeJoined(0.0, node) for node in self.crowd.cluster()))
        most = -(-self.crowd.jobs // _BATCHES)
        for first in range(0, self.crowd.jobs, most):
            numbers = range(first, min(first + most, self.crowd.jobs))
            self.now += len(numbers)
            self._wait(self.now)
            self._handle(
                *(
                    Submitted(self.now, JobId(f"job-{number}"), self.crowd.spec(number))
                    for number in numbers
                )
            )
            self._wait(self.now)

    def play(self, number: int, every_s: float, *, cold: bool) -> float:
        """One round; gives the milliseconds of its decision."""
        # At a multiple of it: there the rounds of policies begin, also after a restart.
        self.now = (self.now // every_s + 1) * every_s
        self._wait(self.now)
        core, now = self.core, self.now
        if cold:
            core.waiting.forget_refusals()
            core.ledger.forget_changes()
            core.memo.clear()
        newcomer = self.crowd.newcomer(self.crowd.warm_up + number)
        events: list[Event] = [Submitted(now, JobId(f"new-{number}"), newcomer)]
        working = [run for run in core.runs.values() if run.settled]
        if working:
            oldest = min(working, key=lambda run: run.placed_at)
            events.insert(0, Exited(now, oldest.id, Outcome.SUCCEEDED, oldest.done(now)))
        if core.wake_at <= now:
            events.append(Woke(now))
        spent_ms = self._handle(*events)
        self._wait(now)
        return spent_ms

    def _wait(self, until: float) -> None:
        """Let happen what is due by then."""
        for _ in range(_PATIENCE):
            if not self._due or self._due[0][0] > until:
                return
            at = self._due[0][0]
            events: list[Event] = []
            while self._due and self._due[0][0] == at:
                event = heapq.heappop(self._due)[2]
                events += (event, *self._shown(event.run, at))
            self._handle(*events)
        raise Fatal(f"{self.core.policy} asks for ever more at one time, {self.now:g} s")

    def _shown(self, run_id: RunId, now: float) -> list[Event]:
        run = self.core.runs[run_id]
        allocation = run.allocation if run.target is None else run.target
        kind = self.core.ledger.nodes[allocation.nodes[0]].spec.kind
        return self.crowd.shows(run, kind, now)

    def _handle(self, *events: Event) -> float:
        begin = time.perf_counter()
        actions = self.core.handle(*events)
        spent_ms = 1000 * (time.perf_counter() - begin)
        while actions:
            actions = self._perform(actions)
        return spent_ms

    def _perform(self, actions: Sequence[Action]) -> list[Action]:
        """Do what the core asks for: at once where something ends, else soon."""
        now, ended = _leaving(self.core, actions)
        soon = now + self.crowd.starts_s
        for action in actions:
            match action:
                case Launch() | Resume():
                    self._expect(Started(soon, action.run, took_s=self.crowd.starts_s))
                case Resize() | Migrate():
                    self._expect(Resized(soon, action.run, took_s=self.crowd.starts_s))
                case Suspend() | Stop():
                    pass
                case _:
                    assert_never(action)
        return self.core.handle(*ended) if ended else []

    def _expect(self, event: Started | Resized) -> None:
        heapq.heappush(self._due, (event.time, next(self._order), event))


def _leaving(core: Core, actions: Sequence[Action]) -> tuple[float, list[Event]]:
    """The time, and how runs that are asked to leave do so at once, with their work saved."""
    now, events = core.now, list[Event]()
    for action in actions:
        if isinstance(action, Suspend):
            events.append(Suspended(now, action.run, core.runs[action.run].done(now)))
        elif isinstance(action, Stop):
            done_s = core.runs[action.run].done(now)
            events.append(Exited(now, action.run, Outcome.STOPPED, done_s))
    return now, events


# -- crowds ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RigidJobs:
    """Half of the jobs fill the cluster, the others wait; starts take no time."""

    nodes: int
    jobs: int
    starts_s: float = 0.0
    warm_up: int = 0

    def cluster(self) -> list[NodeSpec]:
        """Nodes of 8 GPUs, 16 to a switch."""
        return uniform_cluster(self.nodes, 8, nodes_per_switch=16)

    def spec(self, number: int) -> JobSpec:
        """A wide job, or one of many sizes that come too late."""
        half = self.jobs // 2
        wide = max(1, self.nodes * 8 // half)
        size = wide if number < half else (1, 2, 4, 8, 16, 32, wide)[number % 7]
        return _rigid(number, size, 10_000.0 + number)

    def newcomer(self, number: int) -> JobSpec:
        """A short job of one node."""
        return _rigid(number, 8, 500.0)

    def shows(self, run: Run, kind: str, now: float) -> list[Event]:  # noqa: ARG002
        """Nothing is measured."""
        return []


def _rigid(number: int, gpus: int, run_s: float) -> JobSpec:
    return JobSpec(workers=Range(gpus, gpus), run_time_s=run_s, queue=_queue(number))


def _queue(number: int) -> QueueId:
    return QueueId(f"queue-{number % _QUEUES}")


#: How much faster than the first a kind of GPU is.
_KINDS = {"T4": 1.0, "V100": 2.5, "A100": 5.0}
_APPLICATIONS = 8
_MOST_WORKERS = 64
_BATCH, _LARGER, _LOCAL = 128, 32, 128
_NOISE = 4.0 * _BATCH
_EPOCH_STEPS = 500.0


@dataclass(frozen=True, slots=True)
class TrainingJobs:
    """Adaptive jobs of eight applications on GPUs of three kinds, a third of the nodes each.

    Those that have run somewhere have told how long steps took there; those that wait are known by
    their applications only.
    """

    nodes: int
    jobs: int
    starts_s: float = 30.0
    warm_up: int = 5

    def cluster(self) -> list[NodeSpec]:
        """Nodes of 8 GPUs, those of a kind one after the other."""
        found: list[NodeSpec] = []
        for number, kind in enumerate(_KINDS, 1):
            many = self.nodes * number // len(_KINDS) - len(found)
            if many:
                found += uniform_cluster(many, 8, kind=kind, first=len(found))
        return found

    def spec(self, number: int) -> JobSpec:
        """A job of an application."""
        which = number % _APPLICATIONS
        alone = tuple(
            (kind, _LOCAL / model.compute_s(_LOCAL)) for kind, model in _models(which).items()
        )
        return JobSpec(
            workers=Range(1, _MOST_WORKERS),
            application=f"application-{which}",
            queue=_queue(number),
            costs=Costs(restart_s=self.starts_s, resize_s=self.starts_s),
            training=Training(
                batch=_BATCH,
                batch_max=_LARGER * _BATCH,
                epochs=20.0 + 10.0 * which,
                local_max=(("", _LOCAL),),
                alone=alone,
            ),
        )

    def newcomer(self, number: int) -> JobSpec:
        """One more of them."""
        return self.spec(number)

    def shows(self, run: Run, kind: str, now: float) -> list[Event]:
        """How long its steps take, how noisy its gradients are, and how far it is."""
        training = run.job.spec.training
        if training is None:
            raise Fatal(f"{run.id} does not train")
        allocation = run.allocation if run.target is None else run.target
        model = _models(int(run.job.spec.application.rpartition("-")[2]))[kind]
        nodes, workers = len(allocation.nodes), allocation.workers
        size = np.array([nodes]), np.array([workers])
        tuned = tune(model, _NOISE, limits(training, kind), *size)
        local, done_s = int(tuned.local[0]), run.done(now)
        seen = Measured(
            now,
            run.id,
            workers,
            float(model.step_s(nodes, workers, local)),
            noise=_NOISE,
            kind=kind,
            nodes=nodes,
            local_batch=local,
            sync_s=float(model.step_s(nodes, workers, local) - model.compute_s(local)),
            epochs=done_s / _EPOCH_STEPS,
        )
        return [seen, Progressed(now, run.id, done_s, float(tuned.rate[0]))]


@lru_cache(maxsize=_APPLICATIONS)
def _models(which: int) -> dict[str, StepModel]:
    """The truth about an application: some compute more, some have more to agree upon."""
    slow = StepModel(
        ac=0.02 + 0.01 * which,
        bc=0.002 * (1 + which % 3),
        an=0.05 + 0.02 * (which % 4),
        bn=0.002,
        ar=0.01 + 0.005 * (which % 4),
        br=0.0005,
        gamma=1.5,
    )
    return {kind: slow.scaled(1 / faster) for kind, faster in _KINDS.items()}
