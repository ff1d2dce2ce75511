"""Probes: jobs that try sizes out, so that there is something to fit a model of speed to.

Optimus runs a new sort of job at a few sampled numbers of servers and workers, some minutes each,
before it decides anything, and reuses what it saw for later jobs of the same sort. Here the first
job of an application does that while it trains: it is moved on to the next size of ``DESIGN`` that
was not measured yet, as far as there is room, until its model is trusted. What it learns meanwhile
counts; a change costs it a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job, Run
from roost.perf.servers import Fits, Mode, mode_of, observed_of
from roost.policies.kit.parameter_servers.gains import Size
from roost.policies.kit.parameter_servers.outlook import bounds

#: Sizes that tell the terms of the models apart: few and many of either, and of both.
DESIGN = (Size(2, 4), Size(4, 4), Size(1, 2), Size(4, 8), Size(1, 4), Size(8, 8), Size(2, 2))

#: Gives a run another size, and says whether that could be done.
Reshape: TypeAlias = Callable[[Run, Size], bool]


@dataclass(slots=True)
class Probes:
    """Which job tries sizes out for each application."""

    probes: dict[Hashable, JobId] = field(default_factory=dict)

    def pick(self, plan: Plan, fits: Fits, runs: list[Run]) -> None:
        """Choose one run for each application with a speed that is not known well enough."""
        for owner, name in list(self.probes.items()):
            job = plan.jobs.get(name)
            if job is None or job.run is None or job.state.over or fits.of(job).trusted:
                del self.probes[owner]
        for run in sorted(runs, key=lambda run: run.job.seq):
            job = run.job
            if job.spec.training is not None and owner_of(job) not in self.probes:
                low, high = bounds(job)
                if low != high and not fits.of(job).trusted:
                    self.probes[owner_of(job)] = job.id

    def probes_now(self, job: Job) -> bool:
        """Whether a job is trying sizes out."""
        return self.probes.get(owner_of(job)) == job.id

    def go_on(self, plan: Plan, fits: Fits, probe_s: float, reshape: Reshape) -> None:
        """Move probes on once their size was measured for long enough."""
        for owner, name in list(self.probes.items()):
            run = plan.jobs[name].run if name in plan.jobs else None
            if run is None or not run.settled or run.started_at is None:
                continue
            ends_at = max(run.started_at, run.changed_at) + probe_s
            if plan.now < ends_at:
                plan.wake(ends_at)
            elif fits.of(run.job).trusted:
                del self.probes[owner]
            else:
                any(reshape(run, size) for size in untried(run.job))


def untried(job: Job) -> list[Size]:
    """Sizes of the design within a job's bounds that were not measured yet."""
    low, high = bounds(job)
    observed, alone = observed_of(job), mode_of(job) is Mode.ALL_REDUCE
    seen = set() if observed is None else {(s.servers, s.workers) for s in observed.timings}
    found: dict[Size, None] = {}
    for servers, workers in DESIGN:
        size = Size(
            0 if alone else min(max(servers, low.servers), high.servers),
            min(max(workers, low.workers), high.workers),
        )
        if size not in seen:
            found[size] = None
    return list(found)


def owner_of(job: Job) -> Hashable:
    """What a job's measurements are kept under: its user's application, or itself."""
    spec = job.spec
    return (spec.user, spec.application) if spec.application else job.id
