"""Dominant resource fairness between queues.

Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types" (NSDI
2011): the queue with the smallest dominant share, divided by its weight, goes next.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass

from roost.core.plan import Plan
from roost.core.state import Queue
from roost.core.waiting import Line
from roost.policies.fifo import arrival


@dataclass(frozen=True, slots=True)
class Drf:
    """Dominant resource fairness between queues, with weights; first come first within one."""

    def __call__(self, plan: Plan) -> None:
        """Start the next job of the queue with the smallest dominant share, again and again."""
        lines: dict[Queue, list[Line]] = defaultdict(list)
        for line in plan.lines(arrival, by_queue=True):
            if line.refused_at != plan.ledger.releases:
                lines[line.head.queue].append(line)
        total = capacity(plan)
        heap = [(share(queue, total), queue.spec.id, queue) for queue in lines]
        heapq.heapify(heap)
        while heap:
            _, name, queue = heap[0]
            if self._start_next(plan, lines[queue]):
                heapq.heapreplace(heap, (share(queue, total), name, queue))
            else:
                heapq.heappop(heap)

    @staticmethod
    def _start_next(plan: Plan, lines: list[Line]) -> bool:
        """Start the first job of a queue that fits; lines that do not are put aside."""
        while lines:
            line = min(lines, key=lambda line: line.entries[0][:2])
            started = plan.place(line.head)
            if not started:
                plan.hold(line)
            if not started or not line.entries:
                lines.remove(line)
            if started:
                return True
        return False


def capacity(plan: Plan) -> tuple[int, int, int]:
    """All GPUs, CPUs and memory in service."""
    up = [node.spec for node in plan.ledger.order if node.up]
    return (
        plan.ledger.capacity_milli,
        sum(node.cpu_milli for node in up),
        sum(node.memory_mib for node in up),
    )


def share(queue: Queue, total: tuple[int, int, int]) -> float:
    """A queue's dominant share, divided by its weight."""
    used = (queue.used_milli, queue.used_cpu_milli, queue.used_memory_mib)
    shares = [part / whole for part, whole in zip(used, total, strict=True) if whole]
    return max(shares, default=0.0) / queue.spec.weight
