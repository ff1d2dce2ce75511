"""When a job will start where too many jobs are ahead to simulate them: an estimate.

Jobs that go before it are put on the GPUs in the order of the policy, each as soon as enough of
them are free; nothing else that a policy does is followed. Of very many, only some are looked at,
and their work is spread over all GPUs. What is needed for that is taken in one go (``Backlog.of``)
and costs next to nothing; the rest may be worked out in another thread, while the core goes on.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from roost.core.controller import Core
from roost.core.reasons import Cause
from roost.core.spec import WHOLE
from roost.core.state import Job, Run
from roost.core.waiting import Entry
from roost.sim.forecast import TypicalRun, WorkGuesses, typical_run

#: More jobs than that, waiting or running, are not simulated to answer a question.
SIMULATED: Final = 200
#: Of more than so many that go first, only about as many are looked at.
_COUNTED = 2000

#: What is said of such answers.
ESTIMATE: Final = (
    "an estimate: too many jobs are here to simulate them; each is taken to start in its turn, "
    "as soon as enough GPUs are free"
)
NOT_TRIED: Final = "changes that would start it now were not looked for"
_NOTHING_NEW = "no new jobs come, and nothing fails"


def too_many(core: Core) -> bool:
    """Whether there are too many jobs to simulate them for one answer."""
    return core.waiting.count + len(core.runs) > SIMULATED


@dataclass(slots=True)
class Backlog:
    """What stands between a job and its start, as of ``now``: runs, and those that go first.

    ``limited`` is how much of its queue's limit is left and the limit itself, if there is one.
    """

    job: Job
    now: float
    free_milli: int
    capacity_milli: int
    runs: Sequence[Run]
    ahead: Sequence[Sequence[Entry]]
    ahead_count: int
    known: Iterable[Job]
    limited: tuple[int, int] | None
    _typical: tuple[TypicalRun | None] | None = field(default=None)

    @classmethod
    def of(cls, core: Core, job: Job, now: float) -> Backlog:
        """That of a job that waits, or would if it were submitted now."""
        try:
            ahead = core.waiting.ahead(job)
        except Exception:  # noqa: BLE001 - a policy's key raises what it likes
            ahead = [list(line.entries) for line in core.waiting.open]
        count = sum(map(len, ahead))
        step = -(-count // _COUNTED) or 1
        # Those that their queue holds back do not go first, except in that queue.
        held = [
            line.cause is Cause.QUOTA and line.queue != job.queue.spec.id
            for line in core.waiting.open
        ]
        free = [entries for entries, back in zip(ahead, held, strict=True) if not back]
        limit = job.queue.spec.limit_milli
        return cls(
            job,
            now,
            core.ledger.free_milli,
            core.ledger.capacity_milli,
            [run for run in core.runs.values() if run.booked],
            [entries[::step] for entries in free],
            sum(map(len, free)),
            list(core.jobs.values()),
            None if limit is None else (limit - job.queue.used_milli, limit),
        )

    @property
    def typical(self) -> TypicalRun | None:
        """How long jobs took that succeeded."""
        if self._typical is None:
            self._typical = (typical_run(self.known),)
        return self._typical[0]

    def starts_at(self, pace: float = 1.0) -> float | None:
        """When the job starts, if what is left of every job is stretched so; None: never."""
        guesses, queue = WorkGuesses(self.typical, pace), self.job.queue
        jobs = [entry[2] for entry in heapq.merge(*self.ahead)]
        times = [self._start(guesses, self.runs, jobs, self.free_milli, self.capacity_milli)]
        if self.limited is not None:
            runs = [run for run in self.runs if run.job.queue is queue]
            own = [job for job in jobs if job.queue is queue]
            times.append(self._start(guesses, runs, own, *self.limited))
        latest = max(times)
        return None if math.isinf(latest) else max(latest, self.job.not_before)

    def lasts_s(self) -> float:
        """How long the job runs from its start on, as far as anyone can guess."""
        return _left_s(self.job, WorkGuesses(self.typical), self.now)

    def ends_at(self, run: Run) -> float:
        """When a run ends, as far as anyone can guess."""
        return self.now + _run_left_s(run, WorkGuesses(self.typical), self.now)

    def assumptions(self) -> list[str]:
        """What the answers rest on, in sentences."""
        return [ESTIMATE, f"jobs {WorkGuesses(self.typical).usual}", NOT_TRIED, _NOTHING_NEW]

    def _start(
        self,
        guesses: WorkGuesses,
        runs: Sequence[Run],
        jobs: Sequence[Job],
        free_milli: int,
        capacity_milli: int,
    ) -> float:
        """When the job has its turn on so many GPUs, after runs and jobs that go first."""
        need, now = self.job.gpu_milli, self.now
        if need > capacity_milli:
            return math.inf
        held = [(now + _run_left_s(run, guesses, now), run.gpu_milli) for run in runs]
        fitting = [job for job in jobs if job.gpu_milli <= capacity_milli]
        lasting = [(_left_s(job, guesses, now), job.gpu_milli) for job in fitting]
        many = self.ahead_count / max(sum(map(len, self.ahead)), 1)
        if many > 1.0:
            # Each stands for several: all work W on C GPUs is done after W / C seconds.
            work = sum((end - now) * milli for end, milli in held)
            work += many * sum(lasts * milli for lasts, milli in lasting)
            return now + work / max(capacity_milli, WHOLE)
        return _in_turn(now, free_milli, held, [*lasting, (0.0, need)])


def _in_turn(
    now: float, free: int, held: list[tuple[float, int]], jobs: Sequence[tuple[float, int]]
) -> float:
    """When the last of some jobs starts that wait for each other: (seconds, milli-GPUs) of each."""
    heapq.heapify(held)
    for lasts_s, milli in jobs:
        while free < milli and held:
            end, given_back = heapq.heappop(held)
            now, free = max(now, end), free + given_back
        if free < milli:
            return math.inf
        free -= milli
        heapq.heappush(held, (now + lasts_s, milli))
    return now


def _left_s(job: Job, guesses: WorkGuesses, now: float) -> float:
    return guesses.work_s(job, now) - job.saved_s


def _run_left_s(run: Run, guesses: WorkGuesses, now: float) -> float:
    left = guesses.work_s(run.job, now) - run.done(now)
    return left / run.rate if run.rate > 0 else left
