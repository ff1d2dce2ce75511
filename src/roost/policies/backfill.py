"""First come, first served with EASY backfilling.

Lifka, "The ANL/IBM SP scheduling system" (1995). The first job that does not fit gets a
reservation: the earliest moment, by the estimates, at which it will, and the devices it will use
then. Later jobs may start now if they end before that moment or stay off those devices. So the
reservation never slips when the estimates are true.
"""

from __future__ import annotations

from dataclasses import dataclass

from roost.core.allocation import Allocation
from roost.core.plan import Plan
from roost.core.reasons import Cause, are, gpus
from roost.core.state import Job
from roost.core.waiting import Line
from roost.errors import InvalidSpec
from roost.policies.fifo import arrival
from roost.policies.kit.head import HeadReservation, reserve


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

    def ignores(self, plan: Plan, job: Job) -> bool:
        """Whether a newcomer changes nothing: it is behind others that find no room either."""
        line = plan.waiting.line_of(job)
        return line.head is not job and plan.is_full(line)

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
    return parts is not None and plan.place_at(job, Allocation(parts))
