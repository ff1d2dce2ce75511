"""Since when the job waits that waits longest in a queue, without looking at all that wait."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from roost.store.jobs import OpenJob
from roost.store.rows import OPEN_STATES

_WAITS = OPEN_STATES[0]


class WaitingTimes:
    """The jobs of each queue in the order of their age; those that left are dropped on the way."""

    def __init__(self, is_waiting: Callable[[OpenJob], bool]) -> None:
        self._is_waiting = is_waiting
        self._queues: dict[str, list[tuple[float, str, OpenJob]]] = {}

    def note(self, job: OpenJob) -> None:
        """Take in a job, if it waits; the same one twice does no harm."""
        if job.state == _WAITS:
            heap = self._queues.setdefault(job.queue, [])
            heapq.heappush(heap, (job.submitted_at, job.id, job))

    def since(self, queue: str) -> float | None:
        """When the job was submitted that waits longest; None where none waits."""
        heap = self._queues.get(queue, [])
        while heap:
            submitted_at, _, job = heap[0]
            if self._is_waiting(job):
                return submitted_at
            heapq.heappop(heap)
        self._queues.pop(queue, None)
        return None


def since_of(waiting: Iterable[OpenJob], queue: str) -> float | None:
    """The same of a few jobs that wait."""
    return min((job.submitted_at for job in waiting if job.queue == queue), default=None)
