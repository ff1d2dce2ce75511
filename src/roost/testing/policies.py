"""Policies for tests: one does as a test says, the other leaves nothing alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from roost.core import Allocation, Core, Job, Plan, Run, Shape, Woke
from roost.core.actions import Action

__all__ = ["Restless", "Scripted"]


@dataclass(slots=True)
class Scripted:
    """Does what a test says, at the next plan, and nothing else.

    core = core_with(script := Scripted(), node("n0"))
    script.at(core, 2.0, lambda plan: plan.place(plan.jobs[job("a")]))
    """

    steps: list[Callable[[Plan], object]] = field(default_factory=list)

    def __call__(self, plan: Plan) -> None:
        """Take the steps that were noted, once."""
        steps, self.steps = self.steps, []
        for step in steps:
            step(plan)

    def at(self, core: Core, time: float, *steps: Callable[[Plan], object]) -> list[Action]:
        """Let the core make a plan at that time, of these steps; return the actions."""
        self.steps = list(steps)
        return core.handle(Woke(time))


@dataclass(slots=True)
class Restless:
    """Starts, stops, suspends, moves and resizes at random, tries things and takes them back.

    Reproducible: the same seed and the same events give the same decisions. When ``calm``, it only
    starts what fits.
    """

    seed: int = 0
    calm: bool = False

    def __call__(self, plan: Plan) -> None:
        """Disturb some runs, then start some jobs."""
        now, jobs = plan.now, len(plan.jobs)
        chance = random.Random(f"{self.seed}/{now}/{jobs}/{plan.ledger.stamp}")  # noqa: S311
        if not self.calm:
            for run in [run for run in plan.running if run.settled]:
                mark = plan.mark()
                chance.choice(_DISTURBANCES)(plan, run, chance)
                if _once_in(5, chance):
                    plan.undo(mark)
            plan.wake(plan.now + 10.0)
        pending = plan.pending
        chance.shuffle(pending)
        for job in pending:
            if self.calm or not _once_in(5, chance):
                self._start(plan, job, chance)
        for line in plan.waiting.open:
            plan.say(line, "the restless policy passed it over")

    def _start(self, plan: Plan, job: Job, chance: random.Random) -> None:
        low, high = job.spec.workers
        mark = plan.mark()
        placed = plan.place(job, low if self.calm else chance.randint(low, high))
        if placed and not self.calm and _once_in(10, chance):
            plan.undo(mark)


def _once_in(times: int, chance: random.Random) -> bool:
    return chance.randrange(times) == 0


def _nothing(plan: Plan, run: Run, chance: random.Random) -> None:
    """Leave it alone."""


def _evict(plan: Plan, run: Run, chance: random.Random) -> None:
    plan.evict(run, f"for once, {chance.random():.2f}")


def _suspend(plan: Plan, run: Run, chance: random.Random) -> None:
    plan.suspend(run, f"for a while, {chance.random():.2f}")


def _resize(plan: Plan, run: Run, chance: random.Random) -> None:
    plan.resize(run, chance.randint(*run.job.spec.workers))


def _move(plan: Plan, run: Run, chance: random.Random) -> None:
    spec = run.job.spec
    parts = plan.placer(plan.ledger, Shape(run.workers, spec.resources, spec.roles, spec.within))
    limit = run.job.queue.spec.limit_milli
    if parts is not None and (limit is None or run.job.queue.used_milli <= limit):
        plan.reshape(run, Allocation(parts))
    elif _once_in(2, chance):
        plan.suspend(run, "nowhere to go")


_DISTURBANCES = (_nothing, _nothing, _evict, _suspend, _resize, _resize, _move)
