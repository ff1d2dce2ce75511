"""First come, first served with conservative backfilling: every waiting job has a reservation.

Feitelson and Weil, "Utilization and predictability in scheduling the IBM SP2 with backfilling"
(1998). A job may start early only in a hole that delays no reservation; when a run ends
early, reservations move forward in order of arrival, never back. With true run times none slips,
as long as only GPUs count: CPUs and memory are not planned ahead, and a job that needs them is not
promised anything.

The plan is made in whole GPUs per node: a gang that fits on one node stays on one node, a larger
one takes whole nodes. This policy places jobs where it reserved, so the placer has no say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import attrgetter

from roost.core.allocation import Allocation, Part
from roost.core.ledger import Ledger
from roost.core.node import Node
from roost.core.plan import Plan
from roost.core.reasons import are, gpus
from roost.core.spec import WHOLE, RunId
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.policies.fifo import arrival
from roost.policies.kit.head import expected_end
from roost.policies.kit.reservations import Reservation, Reservations, to_a_gpu


@dataclass(slots=True)
class _Memory:
    """What the last decision left: reservations, when runs were to end, and how much there was."""

    bookings: dict[Job, Reservation]
    ends: dict[RunId, float]
    capacity_milli: int
    regrouped: int = 0

    def follows(self, before: _Memory, now: float) -> bool:
        """Whether all went as planned: no run ended early or late, and no node came or went."""
        same = (before.capacity_milli, before.regrouped) == (self.capacity_milli, self.regrouped)
        return same and all(
            end <= now if run not in self.ends else math.isclose(self.ends[run], end)
            for run, end in before.ends.items()
        )


@dataclass(frozen=True, slots=True)
class Conservative:
    """First come, first served with conservative backfill: a reservation for every waiting job.

    ``depth`` is how many waiting jobs have one.
    """

    depth: int = 200

    def __post_init__(self) -> None:
        """Without any reservation no job could ever start."""
        if self.depth < 1:
            raise InvalidSpec(f"depth must be at least 1, got {self.depth}")

    def __call__(self, plan: Plan) -> None:
        """Bring all reservations up to date and start jobs at the time of theirs."""
        plan.lines(arrival)
        jobs = list(islice(plan.waiting, self.depth))
        before = plan.memo.get("conservative", _Memory({}, {}, 0))
        ledger = plan.ledger
        memory = _Memory({}, _expected_ends(plan), ledger.capacity_milli, ledger.regrouped)
        old = before.bookings
        if before.regrouped != ledger.regrouped:
            old = {job: booking for job, booking in old.items() if _suits(ledger, job, booking)}
        as_planned = memory.follows(before, plan.now)
        profile = Reservations(plan, memory.ends)
        kept = [profile.add(old[job]) for job in jobs if job in old]
        if not all(kept) and not as_planned:
            profile, old = Reservations(plan, memory.ends), {}  # a run outstayed the estimate
        for job in jobs:
            booking = old.get(job)
            if booking is None or not as_planned:
                booking = self._book(job, profile, booking)
            if booking is None:
                if job is jobs[0]:
                    plan.place(job)
                continue
            if profile.due(booking) and (
                self._start(plan, profile, job, booking)
                or (job is jobs[0] and _short_of_others(plan, job, booking) and plan.place(job))
            ):
                profile.began(booking, job)
            else:
                memory.bookings[job] = booking
                if _only_gpus_count(job):
                    need = job.gpu_milli
                    text = f"{gpus(need)} {are(need)} reserved for it"
                    plan.latest_start(job, text, max(plan.now, booking.start))
        plan.memo["conservative"] = memory
        later = [b.start for b in memory.bookings.values() if not profile.due(b)]
        plan.wake(min(later, default=math.inf))

    @staticmethod
    def _book(job: Job, profile: Reservations, old: Reservation | None) -> Reservation | None:
        """Reserve for a job as early as can be, and never later than before."""
        if old is not None:
            profile.remove(old)
        booking = profile.earliest(job)
        if old is not None and (booking is None or old.start < booking.start):
            booking = old
        if booking is not None:
            profile.add(booking)
        return booking

    @staticmethod
    def _start(plan: Plan, profile: Reservations, job: Job, booking: Reservation) -> bool:
        """Start a job where it was reserved; False when that is not free after all."""
        if plan.over_limit(job, job.gpu_milli):
            return False
        if job.spec.roles or job.spec.within is not None:
            return plan.place(job)
        need = job.spec.resources
        parts: list[Part] = []
        for node, workers, booked in booking.spots:
            if plan.ledger.room(node, need) < workers:
                return False
            chosen = plan.ledger.pick(node, need, workers)
            if need.share_milli < WHOLE and len({part.gpus for part in chosen}) > booked:
                chosen = _gathered(plan, profile, job, (node, workers, booked))
            if not chosen:
                return False
            parts += chosen
        return plan.place_at(job, Allocation(tuple(parts)))


def _suits(ledger: Ledger, job: Job, booking: Reservation) -> bool:
    """Whether a job may still go where it was reserved: nodes may have left its pool."""
    return all(ledger.suits(node, job.spec.resources) for node, _, _ in booking.spots)


def _short_of_others(plan: Plan, job: Job, booking: Reservation) -> bool:
    """Whether CPUs or memory are short where a job was reserved: the first may look elsewhere."""
    if job.spec.roles or job.spec.within is not None or plan.over_limit(job, job.gpu_milli):
        return False
    return all(node.shown >= booked for node, _, booked in booking.spots)


def _gathered(
    plan: Plan, profile: Reservations, job: Job, spot: tuple[Node, int, int]
) -> list[Part]:
    """Devices for a gang of shares that hold up no more GPUs than were booked; none: no room.

    Left to themselves, shares fill what others left of their GPUs. A gang that stays longer than
    those others would hold all of these GPUs, which may be reserved for another job by then. GPUs
    that others hold as long anyway cost nothing.
    """
    node, workers, booked = spot
    need = replace(job.spec.resources, cpu_milli=0, memory_mib=0, extras=())
    room = plan.ledger.pick(node, need, plan.ledger.room(node, need))
    chosen: list[Part] = []
    for (gpu,), same in groupby(room, key=attrgetter("gpus")):
        parts = list(same)[: workers - len(chosen)]
        left = workers - len(chosen) - len(parts)
        if not profile.outlasted(job, node, gpu):
            if left > (booked - 1) * to_a_gpu(node, need):
                continue  # the others would not fit on the rest of what was booked
            booked -= 1
        chosen += parts
        if not left:
            return chosen
    return []


def _only_gpus_count(job: Job) -> bool:
    """Whether a reservation is a promise: what else a job needs is not planned ahead."""
    need = job.spec.resources
    return not (need.needs_host_resources or job.spec.roles or job.spec.within)


def _expected_ends(plan: Plan) -> dict[RunId, float]:
    return {run.id: expected_end(run, plan.now) for run in plan.running if run.booked}
