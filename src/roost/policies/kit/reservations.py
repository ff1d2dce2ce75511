"""Free GPUs of every node over time: what runs hold, and what is reserved.

Conservative backfill plans on it. It counts whole GPUs per node, and each queue's limit; CPUs and
memory are not planned ahead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from roost.core.node import Node
from roost.core.plan import Plan
from roost.core.spec import WHOLE, NodeId, Resources, RunId
from roost.core.state import Job, Queue

#: Nodes, the workers on each, and the GPUs kept free for them.
Spots: TypeAlias = list[tuple[Node, int, int]]

#: More GPUs than a node has.
_ALL = 1 << 20
#: The finest grid of times that a plan is made on.
_GRAIN_S = 2.0**-36


@dataclass(slots=True)
class Reservation:
    """A reservation: from when to when, where, and what of its queue's limit it takes."""

    start: float
    end: float
    spots: Spots
    queue: Queue
    milli: int


@dataclass(slots=True)
class FreeOverTime:
    """How much of something is free from when on: GPUs of a node, milli-GPUs of a limit."""

    free: int
    changes: dict[float, int] = field(default_factory=dict)

    def change(self, at: float, by: int) -> None:
        """From then on there is so much more."""
        total = self.changes.get(at, 0) + by
        if total:
            self.changes[at] = total
        else:
            self.changes.pop(at, None)

    def room(self, start: float, end: float) -> int:
        """The least that is free at any time in between."""
        free = self.free
        least: int | None = None
        for at in sorted(self.changes):
            if at >= end:
                break
            if at > start and least is None:
                least = free
            free += self.changes[at]
            if least is not None:
                least = min(least, free)
        return free if least is None else least

    def first_fit(self, amount: int, after: float, length: float) -> float:
        """The earliest time from which so much stays free that long."""
        start: float | None = after if self.free >= amount else None
        free = self.free
        for at in sorted(self.changes):
            if start is not None and at >= start + length:
                break
            free += self.changes[at]
            if at <= after:
                start = after if free >= amount else None
            elif free < amount:
                start = None
            elif start is None:
                start = at
        return math.inf if start is None else start


def to_a_gpu(node: Node, need: Resources) -> int:
    """How many workers a free GPU of a node takes: more than one only of shares."""
    count = WHOLE // need.share_milli
    if need.gpu_memory_mib and node.spec.gpu_memory_mib:
        count = min(count, node.spec.gpu_memory_mib // need.gpu_memory_mib)
    return count


class Reservations:
    """Steps of every node and of every queue that has a limit.

    Times are kept on a grid: the same moment, computed twice, may differ in its last digits, and
    two reservations that follow each other must not seem to overlap for that.
    """

    def __init__(self, plan: Plan, ends: Mapping[RunId, float]) -> None:
        self.grain = max(_GRAIN_S, 2.0 ** math.ceil(math.log2(8 * math.ulp(max(plan.now, 1.0)))))
        self.now = self._on_grid(plan.now)
        self._suits = plan.ledger.suits
        self.nodes = {node: FreeOverTime(node.shown) for node in plan.ledger.order if node.up}
        for window in plan.ledger.windows:  # nothing is free then
            node = plan.ledger.nodes[window.node]
            if node in self.nodes:
                self.nodes[node].change(self._on_grid(max(window.starts_at, plan.now)), -_ALL)
                self.nodes[node].change(self._on_grid(window.ends_at), _ALL)
        self.limits = {
            queue: FreeOverTime(room)
            for queue in plan.queues.values()
            if (room := queue.room_milli) is not None
        }
        self._last: dict[tuple[NodeId, int], float] = {}
        last = self._last
        for run_id, end in ends.items():
            run = plan.runs[run_id]
            held = run.target or run.allocation
            if run.job.queue in self.limits and end < math.inf:
                self.limits[run.job.queue].change(self._on_grid(end), held.gpu_milli)
            for part in held.parts:
                for gpu in part.gpus:  # a shared one comes back when the last has left it
                    last[part.node, gpu] = max(end, last.get((part.node, gpu), 0.0))
        for (name, _), end in last.items():
            node = plan.ledger.nodes[name]
            if node in self.nodes and end < math.inf:
                self.nodes[node].change(self._on_grid(end), 1)

    def due(self, booking: Reservation) -> bool:
        """Whether a reservation's time has come."""
        return booking.start <= self.now + self.grain

    def add(self, booking: Reservation) -> bool:
        """Reserve; False when that would take what is not there."""
        start, end = self._on_grid(max(booking.start, self.now)), self._on_grid(booking.end)
        fits = True
        for node, _, gpus in booking.spots:
            if node not in self.nodes:
                return False
            fits = fits and self.nodes[node].room(start, end) >= gpus
        self._book(booking, 1)
        return fits

    def remove(self, booking: Reservation) -> None:
        """Take a reservation back."""
        self._book(booking, -1)

    def began(self, booking: Reservation, job: Job) -> None:
        """A gang runs: of its last node it only holds what it needs."""
        need = job.spec.resources
        for node, workers, gpus in booking.spots:
            held = -(-need.gpus * workers // to_a_gpu(node, need))
            self._change(self.nodes[node], booking, max(0, gpus - held))

    def outlasted(self, job: Job, node: Node, gpu: int) -> bool:
        """Whether a GPU would be held as long by the runs that share it now, without this job."""
        end = self._on_grid(self.now + job.remaining_s)
        return self._on_grid(self._last.get((node.id, gpu), 0.0)) >= end

    def earliest(self, job: Job) -> Reservation | None:
        """The first time at which a job fits for as long as it is expected to run."""
        need = job.spec.resources
        nodes = [node for node in self.nodes if self._suits(node, need)]
        workers = job.spec.workers.min
        totals: Spots = [
            (node, workers, -(-need.gpus * workers // each))
            for node in nodes
            if (each := to_a_gpu(node, need))
        ]
        on_one = any(node.spec.gpus >= total for node, _, total in totals)
        length = max(self._on_grid(job.remaining_s), self.grain)
        limit = self.limits.get(job.queue)
        after = self.now
        while after < math.inf:
            if on_one:
                start, spots = self._one_node(totals, after, length)
            else:
                start, spots = self._whole_nodes(nodes, job, after, length)
            if limit is None or start == math.inf:
                after = start
                break
            after = limit.first_fit(job.gpu_milli, start, length)
            if after == start:
                break
        if after == math.inf:
            return None
        return Reservation(after, after + length, spots, job.queue, job.gpu_milli)

    def _one_node(self, totals: Spots, after: float, length: float) -> tuple[float, Spots]:
        """The first time at which one node has enough GPUs free, and the first such node."""
        best: tuple[float, Spots] = (math.inf, [])
        for spot in totals:
            start = self.nodes[spot[0]].first_fit(spot[2], after, length)
            if start < best[0]:
                best = (start, [spot])
        return best

    def _whole_nodes(
        self, nodes: list[Node], job: Job, after: float, length: float
    ) -> tuple[float, Spots]:
        """The first time at which enough nodes are wholly free at once."""
        need, workers = job.spec.resources, job.spec.workers.min
        times = {at for node in nodes for at in self.nodes[node].changes if at > after}
        for start in sorted({after, *times}):
            spots: Spots = []
            left = workers
            for node in nodes:
                size = node.spec.gpus
                holds = size // need.gpus * to_a_gpu(node, need)
                if holds and self.nodes[node].room(start, start + length) >= size:
                    take = min(left, holds)
                    spots.append((node, take, size))
                    left -= take
                    if not left:
                        return start, spots
        return math.inf, []

    def _book(self, booking: Reservation, sign: int) -> None:
        for node, _, gpus in booking.spots:
            self._change(self.nodes[node], booking, -sign * gpus)
        if booking.queue in self.limits:
            self._change(self.limits[booking.queue], booking, -sign * booking.milli)

    def _change(self, steps: FreeOverTime, booking: Reservation, by: int) -> None:
        steps.change(self._on_grid(booking.start), by)
        if booking.end < math.inf:
            steps.change(self._on_grid(booking.end), -by)

    def _on_grid(self, time: float) -> float:
        return time if time == math.inf else round(time / self.grain) * self.grain
