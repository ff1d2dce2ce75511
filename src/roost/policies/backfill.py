"""First come, first served with EASY backfilling.

Lifka, "The ANL/IBM SP scheduling system" (1995). The first job that does not fit gets a
reservation: the earliest moment, by the estimates, at which it will, and the devices it will use
then. Later jobs may start now if they end before that moment or stay off those devices. So the
reservation never slips when the estimates are true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from roost.core.allocation import Allocation, Part
from roost.core.decisions import Place
from roost.core.plan import Plan
from roost.core.reasons import Cause, are, gpus
from roost.core.spec import Resources
from roost.core.state import Job, Run, needs
from roost.core.waiting import Line
from roost.errors import InvalidSpec
from roost.policies.fifo import arrival

#: A run past its estimate is expected to last this much longer, as a part of the estimate.
_OVERDUE = 0.1
#: Not to be taken for that: the same moment, computed twice.
_ROUNDING_S = 1e-6


class HeadReservation(NamedTuple):
    """When a job can start at the latest, and what must be kept free for it until then."""

    start: float
    parts: tuple[tuple[Part, Resources], ...]


@dataclass(frozen=True, slots=True)
class Easy:
    """First come, first served with EASY backfill: one reservation, for the first in line.

    ``depth`` is how many jobs of each shape are looked at for backfilling.
    """

    depth: int = 500

    def __post_init__(self) -> None:
        """No backfilling is fine, less is not."""
        if self.depth < 0:
            raise InvalidSpec(f"depth must not be negative, got {self.depth}")

    def __call__(self, plan: Plan) -> None:
        """Start jobs in order; when one does not fit, reserve for it and fill around it."""
        lines = list(plan.lines(arrival))
        passed_over = False
        while lines:
            line = min(lines, key=lambda line: line.entries[0][:2])
            refused = line.refused_at == plan.ledger.releases
            if not refused and plan.place(line.head):
                if not line.entries:
                    lines.remove(line)
                continue
            plan.hold(line)
            if not plan.over_limit(line.head, line.gpu_milli):
                self._fill_around(plan, line, lines, promise=not passed_over)
                return
            passed_over = True
            lines.remove(line)

    def _fill_around(self, plan: Plan, blocked: Line, lines: list[Line], *, promise: bool) -> None:
        """Reserve for the job at the head, and start what does not delay it.

        It is no promise if others were passed over for their queue's limit: they may yet go first.
        """
        job = blocked.head
        reservation = reserve(plan, job)
        if reservation is not None and promise:
            need = blocked.gpu_milli
            text = f"first in line; {gpus(need)} {are(need)} reserved for it"
            plan.latest_start(job, text, reservation.start)
        for line in sorted(lines, key=lambda line: line.entries[0][:2]):
            if line.refused_at != plan.ledger.releases:
                self._fill_line(plan, line, job, reservation)
        for line in lines if self.depth else ():
            # Only now is known what is left, and which jobs could start if the line were empty.
            if line.entries and line.head is not job and plan.lack(line) is Cause.TURN:
                plan.say(line, "it would fit, but delay the first in line", Cause.TURN)

    def _fill_line(
        self, plan: Plan, line: Line, first: Job, reservation: HeadReservation | None
    ) -> None:
        """Start jobs of one shape: any off the reserved devices, short ones also on them."""
        beside = True
        for _, _, job in line.entries[: self.depth]:
            if job is first:
                continue
            if not _leaves_quota(plan, job, first):
                continue
            beside = beside and _place_beside(plan, job, reservation)
            if beside:
                continue
            short = reservation is not None and plan.now + job.remaining_s <= reservation.start
            if short and not plan.place(job):
                plan.hold(line)
                return


def _leaves_quota(plan: Plan, job: Job, first: Job) -> bool:
    """Whether a job of the same queue leaves the first in line its part of the queue's limit."""
    return job.queue is not first.queue or not plan.over_limit(job, job.gpu_milli + first.gpu_milli)


def _place_beside(plan: Plan, job: Job, reservation: HeadReservation | None) -> bool:
    """Start a job where it cannot be in the way of the reservation, however long it runs."""
    if reservation is None:
        return plan.place(job)
    with plan.ledger.hidden(reservation.parts):
        parts = plan.probe(job)
    if parts is None:
        return False
    plan.place_at(job, Allocation(parts))
    return True


class Hold(NamedTuple):
    """Devices that a job has, and until when by the estimates."""

    end: float
    seq: int
    job: Job
    parts: tuple[Part, ...]


def holds(plan: Plan) -> list[Hold]:
    """All jobs that hold devices, also those placed in this plan; not those that are leaving."""
    found = [
        Hold(
            expected_end(run, plan.now), run.job.seq, run.job, (run.target or run.allocation).parts
        )
        for run in plan.running
        if run.booked
    ]
    for decision in plan.decisions:
        if isinstance(decision, Place):
            job = plan.jobs[decision.job]
            end = plan.now + job.remaining_s + (job.spec.costs.restart_s if job.attempts else 0.0)
            found.append(Hold(end, job.seq, job, decision.allocation.parts))
    return found


def reserve(plan: Plan, job: Job) -> HeadReservation | None:
    """The earliest moment at which a job will fit, by the estimates; None: unknown."""
    ledger, need = plan.ledger, plan.waiting.line_of(job).gpu_milli
    ending = sorted((hold for hold in holds(plan) if hold.end < math.inf), key=_by_end)
    gone: list[Hold] = []
    found = None
    with ledger.trial():
        for moment, ended in groupby(ending, key=attrgetter("end")):
            for hold in ended:
                for part in hold.parts:
                    ledger.release(part, needs(hold.job, part))
                gone.append(hold)
            parts = plan.probe(job) if ledger.free_milli >= need else None
            if parts is not None:
                found = HeadReservation(moment, _kept_free(plan, job, parts))
                break
        for hold in reversed(gone):
            for part in hold.parts:
                ledger.take(part, needs(hold.job, part))
    return found


def _kept_free(plan: Plan, job: Job, parts: tuple[Part, ...]) -> tuple[tuple[Part, Resources], ...]:
    """What others must keep off: the devices, or whole nodes where the placer wants them empty."""
    kept = [(part, needs(job, part)) for part in parts]
    if plan.consolidates and len({part.node for part in parts}) > 1:
        for index, (part, need) in enumerate(kept):
            every = tuple(range(plan.ledger.nodes[part.node].spec.gpus))
            kept[index] = (part._replace(gpus=every), need)
    return tuple(kept)


def _by_end(hold: Hold) -> tuple[float, int]:
    return hold.end, hold.seq


def expected_end(run: Run, now: float) -> float:
    """When a run will be over; one that has outstayed its estimate gets a little longer."""
    end = run.ends_at
    if end > now:
        return end if run.started_at is not None else now + run.remaining_s(now)
    if end > now - _ROUNDING_S:
        return now
    return now + max(1.0, _OVERDUE * (run.job.run_time_s or 0.0))
