"""First come, first served with conservative backfilling: every waiting job has a reservation.

Feitelson and Weil, "Utilization and predictability in scheduling the IBM SP2 with backfilling"
(1998). A job may start early only in a hole that delays nobody's reservation; when a run ends
early, reservations move forward in order of arrival, never back. With true run times none slips,
as long as only GPUs count: CPUs and memory are not planned ahead, and a job that needs them is not
promised anything.

The plan is made in whole GPUs per node: a gang that fits on one node stays on one node, a larger
one takes whole nodes. This policy places jobs where it reserved, so the placer has no say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

from roost.core.allocation import Allocation, Part
from roost.core.plan import Plan
from roost.core.reasons import are, gpus
from roost.core.spec import RunId
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.policies.backfill import expected_end
from roost.policies.fifo import arrival
from roost.policies.profile import Booking, Profile


@dataclass(slots=True)
class _Memory:
    """What the last decision left: reservations, when runs were to end, and how much there was."""

    bookings: dict[Job, Booking]
    ends: dict[RunId, float]
    capacity_milli: int

    def follows(self, before: _Memory, now: float) -> bool:
        """Whether all went as planned: nobody ended early or late, and no node came or went."""
        return self.capacity_milli == before.capacity_milli and all(
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
        """Nobody could ever start with no reservation at all."""
        if self.depth < 1:
            raise InvalidSpec(f"depth must be at least 1, got {self.depth}")

    def __call__(self, plan: Plan) -> None:
        """Bring all reservations up to date and start those whose time has come."""
        plan.lines(arrival)
        jobs = list(islice(plan.waiting, self.depth))
        before = plan.memo.get("conservative", _Memory({}, {}, 0))
        memory = _Memory({}, _expected_ends(plan), plan.ledger.capacity_milli)
        old = before.bookings
        as_planned = memory.follows(before, plan.now)
        profile = Profile(plan, memory.ends)
        kept = [profile.add(old[job]) for job in jobs if job in old]
        if not all(kept) and not as_planned:
            profile, old = Profile(plan, memory.ends), {}  # someone outstayed the estimate
        for job in jobs:
            booking = old.get(job)
            if booking is None or not as_planned:
                booking = self._book(job, profile, booking)
            if booking is None:
                if job is jobs[0]:
                    plan.place(job)
                continue
            first = job is jobs[0]
            if profile.due(booking) and self._start(plan, job, booking, first=first):
                profile.began(booking, job)
            else:
                memory.bookings[job] = booking
                if _only_gpus_count(job):
                    need = job.gpu_milli
                    text = f"{gpus(need)} {are(need)} reserved for it"
                    plan.promise(job, text, max(plan.now, booking.start))
        plan.memo["conservative"] = memory
        later = [b.start for b in memory.bookings.values() if not profile.due(b)]
        plan.wake(min(later, default=math.inf))

    @staticmethod
    def _book(job: Job, profile: Profile, old: Booking | None) -> Booking | None:
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
    def _start(plan: Plan, job: Job, booking: Booking, *, first: bool) -> bool:
        """Start a job where it was reserved; False when that is not free after all."""
        if plan.over_limit(job, job.gpu_milli):
            return False
        if job.spec.roles or job.spec.within is not None:
            return plan.place(job)
        need = job.spec.resources
        parts: list[Part] = []
        for node, workers, _ in booking.spots:
            if plan.ledger.room(node, need) < workers:
                # If CPUs or memory are short there, the first in line may look elsewhere.
                enough = all(node.shown >= gpus for node, _, gpus in booking.spots)
                return first and enough and plan.place(job)
            parts += plan.ledger.pick(node, need, workers)
        plan.place_at(job, Allocation(tuple(parts)))
        return True


def _only_gpus_count(job: Job) -> bool:
    """Whether a reservation is a promise: what else a job needs is not planned ahead."""
    need = job.spec.resources
    return not (need.cpu_milli or need.memory_mib or job.spec.roles or job.spec.within)


def _expected_ends(plan: Plan) -> dict[RunId, float]:
    return {
        run.id: expected_end(run, plan.now)
        for run in plan.running
        if run.stopping is None and not run.parked
    }
