"""First come, first served with EASY backfilling.

Lifka, "The ANL/IBM SP scheduling system" (1995). The first job that does not fit gets a
reservation: the earliest moment, by the estimates, at which it will, and the devices it will use
then. Later jobs may start now if they end before that moment or stay off those devices. So the
reservation never slips when the estimates are true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from roost.core.allocation import Allocation, Part
from roost.core.plan import Plan
from roost.core.spec import WHOLE, Resources
from roost.core.state import Job, Run, needs
from roost.core.waiting import Line
from roost.policies.fifo import arrival

#: A run past its estimate is expected to last this much longer, as a part of the estimate.
_OVERDUE = 0.1


class Reservation(NamedTuple):
    """When a job can start at the latest, and where."""

    start: float
    parts: tuple[tuple[Part, Resources], ...]


@dataclass(frozen=True, slots=True)
class Easy:
    """First come, first served with EASY backfill: one reservation, for the first in line.

    ``depth`` is how many jobs of each shape are looked at for backfilling.
    """

    depth: int = 500

    def __call__(self, plan: Plan) -> None:
        """Start jobs in order; when one does not fit, reserve for it and fill around it."""
        lines = list(plan.lines(arrival))
        while lines:
            line = min(lines, key=lambda line: line.entries[0][:2])
            refused = line.refused_at == plan.ledger.releases
            if not refused and plan.place(line.head):
                if not line.entries:
                    lines.remove(line)
                continue
            plan.hold(line)
            if not plan.over_limit(line.head, line.gpu_milli):
                self._fill_around(plan, line, lines)
                return
            lines.remove(line)

    def _fill_around(self, plan: Plan, blocked: Line, lines: list[Line]) -> None:
        """Reserve for the job at the head, and start what does not delay it."""
        job = blocked.head
        reservation = reserve(plan, job)
        if reservation is not None:
            text = f"first in line; {blocked.gpu_milli / WHOLE:g} GPUs are reserved for it"
            plan.promise(job, text, reservation.start)
        for line in sorted(lines, key=lambda line: line.entries[0][:2]):
            if line.refused_at != plan.ledger.releases:
                self._fill_line(plan, line, job, reservation)

    def _fill_line(
        self, plan: Plan, line: Line, first: Job, reservation: Reservation | None
    ) -> None:
        """Start jobs of one shape: any off the reserved devices, short ones also on them."""
        beside = True
        for _, _, job in line.entries[: self.depth]:
            if job is first:
                continue
            if beside and _leaves_quota(plan, job, first):
                beside = _place_beside(plan, job, reservation)
                if beside:
                    continue
            short = reservation is not None and plan.now + job.remaining_s <= reservation.start
            if short and not plan.place(job):
                plan.hold(line)
                return
        if line.entries and line.head is not first:
            plan.say(line, "it would fit, but delay the first in line")


def _leaves_quota(plan: Plan, job: Job, first: Job) -> bool:
    """Whether a job of the same queue leaves the first in line its part of the queue's limit."""
    return job.queue is not first.queue or not plan.over_limit(job, job.gpu_milli + first.gpu_milli)


def _place_beside(plan: Plan, job: Job, reservation: Reservation | None) -> bool:
    """Start a job where it cannot be in the way of the reservation, however long it runs."""
    if reservation is None:
        return plan.place(job)
    with plan.ledger.hidden(reservation.parts):
        parts = plan.probe(job)
    if parts is None:
        return False
    plan.place_at(job, Allocation(parts))
    return True


def reserve(plan: Plan, job: Job) -> Reservation | None:
    """The earliest moment at which a job will fit, by the estimates; None: nobody knows."""
    ledger, need = plan.ledger, plan.waiting.line_of(job).gpu_milli
    ending = sorted(
        (expected_end(run, plan.now), run.job.seq, run) for run in plan.running if _holds(run)
    )
    gone: list[Run] = []
    found = None
    with ledger.trial():
        for end, _, run in ending:
            if end == float("inf"):
                break
            for part in run.allocation.parts:
                ledger.release(part, needs(run.job, part))
            gone.append(run)
            if ledger.free_milli >= need:
                parts = plan.probe(job)
                if parts is not None:
                    found = Reservation(end, tuple((part, needs(job, part)) for part in parts))
                    break
        for run in reversed(gone):
            for part in run.allocation.parts:
                ledger.take(part, needs(run.job, part))
    return found


def expected_end(run: Run, now: float) -> float:
    """When a run will be over; one that has outstayed its estimate gets a little longer."""
    left = run.remaining_s(now)
    if left <= 0:
        left = max(1.0, _OVERDUE * (run.job.run_time_s or 0.0))
    return now + left


def _holds(run: Run) -> bool:
    """Whether a run's devices are its own: not being left, and not about to change."""
    return run.stopping is None and not run.parked and run.target is None
