"""What it costs a job to be disturbed, and how often that has happened.

Pollux (OSDI 2021) and Sia (SOSP 2023) weigh a change by the part of a job's life that would be left
for work, if the job had always been restarted as often as so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job
from roost.policies.kit.moves import Wish


@dataclass(slots=True)
class RestartCounts:
    """How often each job had to start again, counted from round to round. Lost at a restart."""

    held: dict[JobId, Wish | None] = field(default_factory=dict)
    counts: dict[JobId, int] = field(default_factory=dict)

    def look(self, jobs: Mapping[JobId, Wish]) -> None:
        """Note what jobs hold now; another configuration than before was a restart."""
        for name, wish in jobs.items():
            if name not in self.held:
                self.counts[name] = 0
            elif self.held[name] != wish:
                self.counts[name] += 1
        self.held = {name: jobs.get(name) for name in {**self.held, **jobs}}

    def forget(self, plan: Plan) -> None:
        """Forget jobs that are over."""
        for name in [
            name for name in self.held if name not in plan.jobs or plan.jobs[name].state.over
        ]:
            del self.held[name], self.counts[name]

    def factor(self, job: Job, now: float, once_s: float) -> float:
        """The part of a goodput that remains if a job has to start again for it.

        With the age T of the job, N restarts so far and R = ``once_s`` seconds for each, that is
        (T - N R) / (T + R). A job that is younger than R is not held back.
        """
        age = now - job.submitted_at
        if age < once_s or not age + once_s:
            return 1.0
        return max(age - self.counts.get(job.id, 0) * once_s, 0.0) / (age + once_s)


def restart_s(job: Job) -> float:
    """Seconds that a job loses when it is changed while it runs.

    As measured of its application where there is a measurement: of changes of size, else of
    resumptions, else of starts. One measurement is enough: most users declare nothing. Without any,
    the larger of the declared costs of a restart and of a change of size. What it costs to be
    stopped for others is ``Run.disturbance_s``.
    """
    spent, costs = job.spent, job.spec.costs
    for mean in (spent.resize, spent.resume, spent.start) if spent is not None else ():
        if mean.count:
            return mean.mean
    return max(costs.restart_s, costs.resize_s)


def switch_s(job: Job) -> float:
    """Seconds that it takes to suspend a job and to resume it: as measured, else as declared."""
    costs, spent = job.spec.costs, job.spent
    if spent is None:
        return costs.suspend_s + costs.restart_s
    suspend_s = spent.suspend.mean if spent.suspend.count else costs.suspend_s
    resume_s = spent.resume.mean if spent.resume.count else costs.restart_s
    return suspend_s + resume_s
