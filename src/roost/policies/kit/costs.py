"""How often jobs had to start again, and what that says of letting them do it once more.

Pollux (OSDI 2021) and Sia (SOSP 2023) weigh a change by the share of a job's life that would be
left for work, had it always been restarted as often as so far.
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
    """How often each job had to start again, as seen from round to round. Lost at a restart."""

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
        """What is left of a goodput that is had by starting again, going by the past.

        A restart costs ``once_s``. Who is younger than that is not held back, and the older a job
        is, the less one more restart matters.
        """
        age = now - job.submitted_at
        if age < once_s or not age + once_s:
            return 1.0
        return max(age - self.counts.get(job.id, 0) * once_s, 0.0) / (age + once_s)


def restart_s(job: Job) -> float:
    """What it costs a job to start again: as declared, else as measured."""
    declared, spent = job.spec.costs.restart_s, job.spent
    if declared or spent is None:
        return declared
    return spent.resume.mean if spent.resume.count else spent.start.mean
