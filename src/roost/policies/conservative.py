"""First come, first served with conservative backfilling: every waiting job has a reservation.

Feitelson and Weil, "Utilization and predictability in scheduling the IBM SP2 with backfilling"
(1998). A job may start early only in a hole that delays nobody's reservation; when a run ends
early, reservations move forward in order of arrival, never back. With true run times none slips.

The plan is made in whole GPUs per node: a gang that fits on one node stays on one node, a larger
one takes whole nodes. This policy places jobs where it reserved, so the placer has no say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from roost.core.allocation import Allocation, Part
from roost.core.ledger import Node
from roost.core.plan import Plan
from roost.core.spec import WHOLE, NodeId, RunId
from roost.core.state import Job
from roost.policies.backfill import expected_end
from roost.policies.fifo import arrival

#: The finest grid of times that a plan is made on.
_GRAIN_S = 2.0**-36

#: Nodes, the workers on each, and the GPUs kept free for them.
Spots: TypeAlias = list[tuple[Node, int, int]]


@dataclass(slots=True)
class Booking:
    """A reservation: from when to when, and where."""

    start: float
    end: float
    spots: Spots


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

    def __call__(self, plan: Plan) -> None:
        """Bring all reservations up to date and start those whose time has come."""
        plan.lines(arrival)
        jobs = list(islice(plan.waiting, self.depth))
        before = plan.memo.get("conservative", _Memory({}, {}, 0))
        memory = _Memory({}, _expected_ends(plan), plan.ledger.capacity_milli)
        old = before.bookings
        as_planned = memory.follows(before, plan.now)
        profile = _Profile(plan, memory.ends)
        kept = [profile.add(old[job]) for job in jobs if job in old]
        if not all(kept) and not as_planned:
            profile, old = _Profile(plan, memory.ends), {}  # someone outstayed the estimate
        for job in jobs:
            booking = old.get(job)
            if booking is None or not as_planned:
                booking = self._book(plan, job, profile, booking)
            if booking is None:
                if job is jobs[0]:
                    plan.place(job)
                continue
            first = job is jobs[0]
            if profile.due(booking) and self._start(plan, job, booking, first=first):
                profile.began(booking, job.spec.resources.gpus)
            else:
                memory.bookings[job] = booking
                text = f"{job.gpu_milli / WHOLE:g} GPUs are reserved for it"
                plan.promise(job, text, max(plan.now, booking.start))
        plan.memo["conservative"] = memory
        later = [b.start for b in memory.bookings.values() if not profile.due(b)]
        plan.wake(min(later, default=math.inf))

    @staticmethod
    def _book(plan: Plan, job: Job, profile: _Profile, old: Booking | None) -> Booking | None:
        """Reserve for a job as early as can be, and never later than before."""
        if old is not None:
            profile.remove(old)
        if plan.over_limit(job, job.gpu_milli):
            return None
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


def _expected_ends(plan: Plan) -> dict[RunId, float]:
    return {
        run.id: expected_end(run, plan.now)
        for run in plan.running
        if run.stopping is None and not run.parked
    }


@dataclass(slots=True)
class _Node:
    """How many GPUs of a node are free from when on: changes by time."""

    node: Node
    free: int
    changes: dict[float, int] = field(default_factory=dict)

    def change(self, at: float, by: int) -> None:
        total = self.changes.get(at, 0) + by
        if total:
            self.changes[at] = total
        else:
            self.changes.pop(at, None)

    def room(self, start: float, end: float) -> int:
        """The fewest free GPUs at any time in between."""
        level = least = None
        free = self.free
        for at in sorted(self.changes):
            if at >= end:
                break
            if at > start and level is None:
                level = least = free
            free += self.changes[at]
            if at > start:
                least = free if least is None else min(least, free)
        return free if least is None else least

    def first_fit(self, gpus: int, now: float, length: float) -> float:
        """The earliest time from which so many GPUs stay free that long."""
        start: float | None = now if self.free >= gpus else None
        free = self.free
        for at in sorted(self.changes):
            if start is not None and at >= start + length:
                break
            free += self.changes[at]
            if at <= now:
                start = now if free >= gpus else None
            elif free < gpus:
                start = None
            elif start is None:
                start = at
        return math.inf if start is None else start


class _Profile:
    """Free GPUs of every node over time: what runs hold, and what is reserved.

    Times are kept on a grid: the same moment, computed twice, may differ in its last digits, and
    two reservations that follow each other must not seem to overlap for that.
    """

    def __init__(self, plan: Plan, ends: Mapping[RunId, float]) -> None:
        self.now = plan.now
        self.grain = max(_GRAIN_S, 2.0 ** math.ceil(math.log2(8 * math.ulp(max(self.now, 1.0)))))
        self.nodes = {node: _Node(node, node.shown) for node in plan.ledger.order if node.up}
        self.largest = max((node.spec.gpus for node in self.nodes), default=0)
        last: dict[tuple[NodeId, int], float] = {}
        for run_id, end in ends.items():
            run = plan.runs[run_id]
            for part in (run.target or run.allocation).parts:
                for gpu in part.gpus:  # a shared one comes back when the last has left it
                    last[part.node, gpu] = max(end, last.get((part.node, gpu), 0.0))
        for (name, _), end in last.items():
            node = plan.ledger.nodes[name]
            if node in self.nodes and end < math.inf:
                self.nodes[node].change(self._on_grid(end), 1)

    def _on_grid(self, time: float) -> float:
        return time if time == math.inf else round(time / self.grain) * self.grain

    def due(self, booking: Booking) -> bool:
        """Whether a reservation's time has come."""
        return booking.start <= self.now + self.grain

    def add(self, booking: Booking) -> bool:
        """Reserve; False when that would take what is not there."""
        fits = True
        for node, _, gpus in booking.spots:
            if node not in self.nodes:
                return False
            entry = self.nodes[node]
            start = self._on_grid(max(booking.start, self.now))
            fits = fits and entry.room(start, self._on_grid(booking.end)) >= gpus
            self._book(entry, booking, gpus)
        return fits

    def remove(self, booking: Booking) -> None:
        """Take a reservation back."""
        for node, _, gpus in booking.spots:
            self._book(self.nodes[node], booking, -gpus)

    def began(self, booking: Booking, gpus_each: int) -> None:
        """A gang runs: of its last node it only holds what it needs."""
        for node, workers, gpus in booking.spots:
            self._book(self.nodes[node], booking, -max(0, gpus - workers * gpus_each))

    def _book(self, entry: _Node, booking: Booking, gpus: int) -> None:
        entry.change(self._on_grid(booking.start), -gpus)
        if booking.end < math.inf:
            entry.change(self._on_grid(booking.end), gpus)

    def earliest(self, job: Job) -> Booking | None:
        """The first time at which a job fits for as long as it is expected to run."""
        length = max(self._on_grid(job.remaining_s), self.grain)
        need, workers = job.spec.resources, job.spec.workers.min
        each = need.gpus
        if need.share_milli < WHOLE:  # as many to a device as it holds
            workers = -(-workers // (WHOLE // need.share_milli))
        kinds = need.kinds
        nodes = [n for n in self.nodes.values() if not kinds or n.node.spec.kind in kinds]
        total = each * workers
        now = self._on_grid(self.now)
        if total <= self.largest:
            best = min(
                ((n.first_fit(total, now, length), n.node.index, n) for n in nodes),
                key=lambda item: item[:2],
                default=(math.inf, 0, None),
            )
            if best[2] is None or best[0] == math.inf:
                return None
            return Booking(best[0], best[0] + length, [(best[2].node, job.spec.workers.min, total)])
        return self._earliest_wide(nodes, workers, each, length)

    def _earliest_wide(
        self, nodes: list[_Node], workers: int, each: int, length: float
    ) -> Booking | None:
        """The first time at which enough whole nodes are free at once."""
        now = self._on_grid(self.now)
        times = {now}
        for entry in nodes:
            times.update(at for at in entry.changes if at > now)
        for start in sorted(times):
            spots: Spots = []
            left = workers
            for entry in nodes:
                size = entry.node.spec.gpus
                if size >= each and entry.room(start, start + length) >= size:
                    take = min(left, size // each)
                    spots.append((entry.node, take, size))
                    left -= take
                    if not left:
                        return Booking(start, start + length, spots)
        return None
