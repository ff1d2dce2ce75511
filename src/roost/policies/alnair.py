"""Alnair's elastic allocator: jobs grow into idle GPUs and shrink when others come.

After the elastic-training scheduler of Alnair (CentaurusInfra): a new job gets its maximum if that
is free, else all that is free if that is at least its minimum; else other jobs are shrunk towards
their minimum until enough is free. GPUs that no job waits for are given back out to running jobs. A
job whose size just changed is left alone for ``calm_s`` or, where it was measured what a change
costs such jobs, for 20 times as long as their training stood still: a job that is resized in no
time grows the moment another ends, one that has to start again for it is left in peace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from roost.core.plan import Plan
from roost.core.state import Job, Run
from roost.core.waiting import Line
from roost.policies.fifo import arrival

#: How many times longer than the pause of a change a job then works: a twentieth is lost at most.
_WORTH = 20.0
_LEAST_S = 1.0
_WHY = "waits for jobs that can shrink: they are left alone for a while after their size changed"


@dataclass(frozen=True, slots=True)
class Alnair:
    """Alnair's elastic allocator: grow into what is idle, shrink to let others in."""

    resizes: ClassVar[bool] = True

    calm_s: float = 60.0

    def __call__(self, plan: Plan) -> None:
        """Let jobs in by arrival, then give out what no job waits for."""
        lines = list(plan.lines(arrival))
        while lines:
            line = min(lines, key=lambda line: line.entries[0][:2])
            started = self._let_in(plan, line)
            if not started:
                plan.hold(line)
                self._explain(plan, line)
            if not started or not line.entries:
                lines.remove(line)
        if not plan.waiting.count:
            self.give_out(plan)

    def _let_in(self, plan: Plan, line: Line) -> bool:
        job = line.head
        return self._place_largest(plan, job) or self.make_room(plan, line)

    @staticmethod
    def _place_largest(plan: Plan, job: Job) -> bool:
        """Start a job as large as what is free allows."""
        low, high = job.spec.workers
        each = job.spec.resources.gpu_milli
        if each:
            fixed = job.gpu_milli - low * each
            high = min(high, (plan.ledger.free_milli - fixed) // each)
        return any(plan.place(job, workers) for workers in _downwards(high, low))

    def make_room(self, plan: Plan, line: Line) -> bool:
        """Shrink others, those with most to spare first, until the job's minimum fits."""
        job = line.head
        if not line.preempts or plan.over_limit(job, line.gpu_milli):
            return False
        mark = plan.mark()
        for run in sorted(self._resizable(plan), key=_spare_milli, reverse=True):
            if not _spare_milli(run):
                break
            plan.resize(run, run.job.spec.workers.min)
            if plan.ledger.free_milli >= line.gpu_milli and self._place_largest(plan, job):
                return True
        plan.undo(mark)
        return False

    def _explain(self, plan: Plan, line: Line) -> None:
        """Say so if there will be room once those that just changed may change again."""
        able = self._resizable(plan)
        spare = {run.id: _spare_milli(run) for run in plan.running if run.job.spec.elastic}
        soon = any(spare[name] for name in spare.keys() - {run.id for run in able})
        if soon and plan.ledger.free_milli + sum(spare.values()) >= line.gpu_milli:
            plan.say(line, _WHY)

    def give_out(self, plan: Plan) -> None:
        """Let running jobs grow into idle GPUs, the smallest for their size first."""
        runs = sorted(self._resizable(plan), key=lambda run: run.workers / run.job.spec.workers.max)
        for run in runs:
            each = run.job.spec.resources.gpu_milli
            if not each or plan.ledger.free_milli < each:
                continue
            most = min(run.job.spec.workers.max, run.workers + plan.ledger.free_milli // each)
            any(plan.resize(run, workers) for workers in _downwards(most, run.workers + 1))

    def _resizable(self, plan: Plan) -> list[Run]:
        """Elastic runs that may change size now; asks to be woken for those that soon may."""
        found = []
        for run in plan.running:
            if run.job.spec.elastic and run.settled:
                calm_at = run.changed_at + self._calm_s(run.job)
                if calm_at <= plan.now:
                    found.append(run)
                else:
                    plan.wake(calm_at)
        return found

    def _calm_s(self, job: Job) -> float:
        """How long a job is left alone after a change of size."""
        spent = job.spent
        if spent is None or not spent.resize.count:
            return self.calm_s
        pause = spent.pause if spent.pause.count else spent.resize
        return max(_WORTH * pause.mean, spent.resize.mean, _LEAST_S)


def _spare_milli(run: Run) -> int:
    return (run.workers - run.job.spec.workers.min) * run.job.spec.resources.gpu_milli


def _downwards(high: int, low: int) -> list[int]:
    """Sizes to try: the largest, then ever smaller ones, and the least."""
    sizes = []
    while high > low:
        sizes.append(high)
        high = low + (high - low) // 2
    return [*sizes, low] if high >= low else sizes
