"""Time slicing: more jobs than fit share the GPUs by turns, suspended and resumed.

After Gandiva (Xiao et al., OSDI 2018), which switches jobs about once a minute so that all of them
make progress early. A turn lasts ``quantum_s`` and 20 times what a switch of the job costs, as
measured or declared: so switching takes about a twentieth of the time at most. When a turn is over
the run steps aside for the waiting job with the least time on its GPUs, if that has had no more
than itself; while no job waits, no run is disturbed.

A newcomer does not have all to itself until it has caught up with jobs that came hours ago: it
counts as having had as much as the job that was let in last.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

from roost.core.decisions import SetAside
from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId, Resources, Way
from roost.core.state import Job, Run
from roost.core.waiting import Key, Line
from roost.errors import InvalidSpec
from roost.policies.kit.costs import switch_s
from roost.policies.kit.order import displace

#: How many times the cost of a switch a turn is longer: a twentieth of the time goes into it.
_WORTH = 20.0
#: After how many quanta no job passes a gang that waits for several turns to end at once.
_PATIENCE = 4.0
#: How many jobs may be remembered before those that are over are forgotten.
_FEW = 1000
_Entry: TypeAlias = tuple[tuple[Key, int], Line]
_WHY = "its turn is over: makes room"


@dataclass(slots=True, eq=False)
class _Turns:
    """How much each job had, between decisions. It is lost at a restart: then all start level.

    ``credit`` is what a job is counted as having had beyond its own time; ``level`` what the job
    had that was let in last. ``blocked`` is the job that waits for turns to end, and since when.
    """

    credit: dict[JobId, float] = field(default_factory=dict)
    level: float = 0.0
    blocked: tuple[JobId, float] | None = None
    most: int = _FEW

    def waiting(self, job: Job) -> float:
        """Seconds that a waiting job has had its GPUs for."""
        had = _seconds(job, job.attained_gpu_s)
        credit = self.credit.get(job.id)
        if credit is None:
            credit = self.credit[job.id] = max(0.0, self.level - had)
        return had + credit

    def running(self, run: Run, now: float) -> float:
        """Seconds that a run's job has had its GPUs for."""
        return _seconds(run.job, run.attained_gpu_s(now)) + self.credit.get(run.job.id, 0.0)

    def count_others(self, plan: Plan) -> None:
        """Count the turns of jobs without GPUs: their time is counted nowhere else."""
        for decision in plan.decisions:
            job = plan.jobs[decision.job]
            since = job.run.started_at if job.run is not None else None
            if isinstance(decision, SetAside) and not job.gpu_milli and since is not None:
                self.credit[job.id] = self.credit.get(job.id, 0.0) + plan.now - since

    def forget_the_past(self, plan: Plan) -> None:
        """Forget jobs that are over, when there are many of them."""
        if len(self.credit) > self.most:
            jobs = plan.jobs
            self.credit = {
                name: credit
                for name, credit in self.credit.items()
                if name in jobs and not jobs[name].state.over
            }
            self.most = 2 * len(self.credit) + _FEW


@dataclass(frozen=True, slots=True)
class Timeslice:
    """Turns: more jobs than fit share the GPUs, suspended and resumed after a quantum."""

    quantum_s: float = 60.0

    def __post_init__(self) -> None:
        """A quantum of next to nothing would be all switching."""
        if not 1 <= self.quantum_s < math.inf:
            raise InvalidSpec(f"quantum_s must be at least a second, got {self.quantum_s}")

    def __call__(self, plan: Plan) -> None:
        """Start jobs that fit, least served first; the first that does not may end turns."""
        self.serve(plan, lambda _: True)

    def serve(self, plan: Plan, may: Callable[[Job], bool]) -> None:
        """The same for some of the jobs, told by any one of a shape."""
        turns: _Turns = plan.memo.setdefault("timeslice", _Turns())
        turns.forget_the_past(plan)
        lines = plan.lines(turns.waiting)
        heap = [(line.entries[0][:2], line) for line in lines if may(line.head)]
        heap.sort(key=itemgetter(0))
        self._serve(plan, heap, turns)
        turns.count_others(plan)

    def _serve(self, plan: Plan, heap: list[_Entry], turns: _Turns) -> None:
        first = True
        while heap:
            line = heap[0][1]
            key = turns.waiting(line.head)
            refused = line.refused_at == plan.ledger.releases
            if (not refused and plan.place(line.head)) or (
                first and line.preempts and self._switch(plan, line, turns)
            ):
                turns.level = max(turns.level, key)
                if line.entries:
                    heapq.heapreplace(heap, (line.entries[0][:2], line))
                else:
                    heapq.heappop(heap)
                continue
            plan.hold(line)
            heapq.heappop(heap)
            if first and line.preempts and self._may_come(plan, line, turns):
                first = False
                if self._waits_long(plan, turns):
                    return
        if first:
            turns.blocked = None

    def _switch(self, plan: Plan, line: Line, turns: _Turns) -> bool:
        """Let runs at the end of their turn step aside for the head of a line."""
        now, key = plan.now, turns.waiting(line.head)
        over: list[tuple[float, int, Run]] = []
        plan.await_starts()  # the turns of runs that are starting, or were just placed, begin then
        for run in plan.running:
            if not (run.settled and _takes_turns(run)):
                continue
            ends_at = self._turn_ends(run)
            if now < ends_at:
                plan.wake(ends_at)
            elif (had := turns.running(run, now)) < key:
                plan.wake(now + max(1.0, key - had))
            else:
                over.append((had, run.job.seq, run))
        over.sort(reverse=True)
        return _make_room(plan, line.head, [run for _, _, run in over])

    def _may_come(self, plan: Plan, line: Line, turns: _Turns) -> bool:
        """Whether the head of a line only has to wait for turns to end, and so is to be let by."""
        job, now = line.head, plan.now
        blocked, since = turns.blocked or (None, now)
        since = since if blocked == job.id else now
        if since == now or now > since + _PATIENCE * self.quantum_s:
            mark = plan.mark()
            others = [run for run in plan.running if _takes_turns(run)]
            comes = _make_room(plan, job, others)
            plan.undo(mark)
            if not comes:
                return False
        turns.blocked = (job.id, since)
        plan.say(line, f"waits for its turn: jobs take turns of {self.quantum_s:g} s or more here")
        return True

    def _waits_long(self, plan: Plan, turns: _Turns) -> bool:
        """Whether the first in line has waited so long for turns to end that no job passes it."""
        since = turns.blocked[1] if turns.blocked is not None else plan.now
        return plan.now > since + _PATIENCE * self.quantum_s

    def _turn_ends(self, run: Run) -> float:
        """When a run may be asked to step aside."""
        started_at = run.started_at if run.started_at is not None else math.inf
        turn_s = self.quantum_s + _WORTH * switch_s(run.job)
        return started_at + max(turn_s, run.job.spec.min_run_s)


def _takes_turns(run: Run) -> bool:
    """Whether a run can be suspended for others; what shares a GPU the spatial way cannot."""
    spec = run.job.spec
    if not run.job.preemptible or not run.booked or run.frozen:
        return False
    if _beside_others(spec.resources):
        return False
    return not (spec.roles and any(_beside_others(role.resources) for role in spec.roles))


def _beside_others(need: Resources) -> bool:
    return need.share_milli < WHOLE and need.way is Way.SPATIAL


def _make_room(plan: Plan, job: Job, runs: list[Run]) -> bool:
    """Suspend runs until a job fits, and place it; or change nothing."""
    if not plan.over_limit(job, job.gpu_milli):
        return displace(plan, job, runs, Plan.suspend, _WHY)
    mark = plan.mark()
    for run in runs:  # its queue is at its limit: only those of the same queue can help
        own = run.job.queue is job.queue
        if own and plan.suspend(run, f"{_WHY} for {job.id}") and plan.place(job):
            return True
    plan.undo(mark)
    return False


def _seconds(job: Job, attained_gpu_s: float) -> float:
    """The time for which a job would have held its least GPUs."""
    milli = job.gpu_milli
    return attained_gpu_s * WHOLE / milli if milli else 0.0
