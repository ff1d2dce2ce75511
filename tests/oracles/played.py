"""Plays a small workload in the simulator and tells who ran when, in words a test can compare.

played = play(fifo, job("a", 0, 10, gpus=2), job("b", 1, 5), nodes=cluster(2))
assert played.times == {"a": (0, 10), "b": (10, 15)}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from roost.core import (
    Action,
    Core,
    Decision,
    Event,
    Exited,
    JobId,
    NodeJoined,
    NodeLost,
    NodeSpec,
    Outcome,
    Placer,
    Plan,
    Policy,
    QueueSpec,
    Started,
    Suspended,
)
from roost.perf.speed import Speed, SpeedModel
from roost.placement import placer
from roost.sim.failures import Failures
from roost.sim.results import JobResult, Results
from roost.sim.simulation import Setup, Simulation
from roost.testing.builders import SpecFields, node, spec
from roost.traces.workload import TraceJob, Workload


class TraceFields(SpecFields, total=False):
    """What else a recorded job may have; see ``TraceJob``. ``declared`` is its estimate."""

    declared: float | None
    outcome: Outcome
    fails_at_s: tuple[float, ...]


class SetupFields(TypedDict, total=False):
    """What else a run depends on; see ``Setup``."""

    placer: Placer
    queues: Sequence[QueueSpec]
    speed: SpeedModel
    failures: Failures
    seed: int
    skip_impossible: bool
    timeline: bool


def cluster(gpus: int, nodes: int = 1) -> list[NodeSpec]:
    """Equal nodes with so many GPUs each."""
    return [node(f"n{index}", gpus) for index in range(nodes)]


def job(
    name: str, at: float, work_s: float, gpus: float = 1, **more: Unpack[TraceFields]
) -> TraceJob:
    """A recorded job; the declared run time is the true one unless told otherwise."""
    declared = more.pop("declared", work_s)
    outcome = more.pop("outcome", Outcome.SUCCEEDED)
    fails_at_s = more.pop("fails_at_s", ())
    # What is left in ``more`` are fields of a spec; no type checker follows the pops.
    wanted = spec(gpus, declared, **more)  # type: ignore[misc]
    return TraceJob(JobId(name), at, wanted, work_s, outcome, fails_at_s)


#: More batches at one instant than any toy needs: the policy keeps waking itself.
_STUCK = 1000


@dataclass(slots=True)
class Diary:
    """An observer that notes when every run of a job began to work and when it left.

    It ends a simulation in which time stands still.
    """

    now: float = -1.0
    batches: int = 0
    began: dict[str, list[float]] = field(default_factory=dict)
    left: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)

    def __call__(
        self, events: Sequence[Event], _decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        self.actions += actions
        now = events[0].time if events else self.now
        self.batches = self.batches + 1 if now == self.now else 0
        self.now = now
        assert self.batches < _STUCK, f"time stands still at {self.now}"
        for event in events:
            match event:
                case Started():
                    self.began.setdefault(event.run.job, []).append(event.time)
                case Exited():
                    entry = (event.time, event.outcome.value)
                    self.left.setdefault(event.run.job, []).append(entry)
                case Suspended():
                    self.left.setdefault(event.run.job, []).append((event.time, "suspended"))
                case _:
                    pass


@dataclass(slots=True)
class Played:
    """What became of a workload."""

    simulation: Simulation
    results: Results
    diary: Diary

    @property
    def core(self) -> Core:
        return self.simulation.core

    @property
    def rows(self) -> dict[str, JobResult]:
        return {row.id: row for row in self.results.jobs}

    @property
    def times(self) -> dict[str, tuple[float | None, float | None]]:
        """First start and end of every job."""
        return {row.id: (row.started_at, row.finished_at) for row in self.results.jobs}

    @property
    def began(self) -> dict[str, list[float]]:
        """When each run of every job began to work."""
        return self.diary.began


def simulation(
    policy: Policy,
    jobs: Iterable[TraceJob],
    nodes: Sequence[NodeSpec],
    **more: Unpack[SetupFields],
) -> Simulation:
    """A simulation that has not begun."""
    return Simulation(
        Setup(
            Workload("toy", list(jobs)),
            nodes,
            policy,
            more.get("placer", placer("first-fit")),
            queues=more.get("queues", ()),
            speed=more.get("speed", Speed()),
            failures=more.get("failures", Failures()),
            seed=more.get("seed", 0),
            skip_impossible=more.get("skip_impossible", False),
            timeline=more.get("timeline", False),
        )
    )


def finish(sim: Simulation) -> Played:
    """Let a simulation run to its end."""
    diary = Diary()
    return Played(sim, sim.run(observer=diary), diary)


def play(
    policy: Policy, *jobs: TraceJob, nodes: Sequence[NodeSpec], **more: Unpack[SetupFields]
) -> Played:
    """Run a workload to its end."""
    return finish(simulation(policy, jobs, nodes, **more))


def rebooted(at: float, spec: NodeSpec) -> tuple[Event, Event]:
    """A node is lost with everything on it, and is back at once."""
    return NodeLost(at, spec.id), NodeJoined(at, spec)


@dataclass(slots=True)
class Script:
    """A policy that does as it is told: first come, first served, and this at those times.

    ``sizes`` maps (time, job) to a number of workers: to start with, or to change to. Suspended are
    the runs in ``aside``, by time and job; such a job is resumed at its time in ``back``.
    """

    sizes: dict[tuple[float, str], int] = field(default_factory=dict)
    aside: frozenset[tuple[float, str]] = frozenset()
    back: dict[str, float] = field(default_factory=dict)

    def __call__(self, plan: Plan) -> None:
        for run in list(plan.running):
            at = (plan.now, run.job.id)
            if at in self.aside:
                plan.suspend(run, "as told")
            elif at in self.sizes:
                plan.resize(run, self.sizes[at])
        for waiting in plan.pending:
            if not waiting.attempts or self.back.get(waiting.id, 0.0) <= plan.now:
                plan.place(waiting, self.sizes.get((plan.now, waiting.id)))
        times = [at for at, _ in (*self.sizes, *self.aside)] + list(self.back.values())
        plan.wake(min((at for at in times if at > plan.now), default=math.inf))
