"""How many workers and servers each job gets, by the gain of one more.

Optimus (Peng et al., EuroSys 2018, section 4.1): every job first gets its least; then, again and
again, the one worker or server that shortens its job's remaining time most for each unit of the
dominant resource it takes, until nothing is gained or nothing fits. A heap holds the best next step
of every job, so that a step costs the logarithm of their number.

Where tasks stand is not looked at here: only how much there is in all.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np

#: What takes nothing takes at least so much, lest it be worth everything.
_LEAST = 1e-9

#: GPUs, CPUs and memory, in the units of the ledger.
Vector: TypeAlias = tuple[int, int, int]


class Size(NamedTuple):
    """So many servers and so many workers."""

    servers: int
    workers: int


class Increment(NamedTuple):
    """Some more: what it brings per part of the dominant resource, how many, what that takes."""

    gain: float
    size: Size
    takes: Vector


#: What may be added at once: one worker or server, or several.
STEPS: Final = (Size(0, 1), Size(1, 0))
LEAPS: Final = tuple(
    Size(p, w) for w in (0, 1, 2, 3, 4, 6, 8, 12) for p in (0, 1, 2, 4, 8) if p or w
)


@dataclass(slots=True, eq=False)
class Gains:
    """Seconds per unit of work by servers and workers beyond the least, and the best next step.

    Jobs of one application share it, so that the best step from every size is sought but once. With
    ``LEAPS``, several more may be taken at once: where one more needs another node, only many more
    may make up for that.
    """

    times: Sequence[Sequence[float]]
    leaps: Sequence[Size] = STEPS
    _best: dict[Size, list[Increment]] = field(default_factory=dict)
    _takes: tuple[Vector, Vector, Vector] | None = None

    def steps(
        self, more: Size, worker: Vector, server: Vector, capacity: Vector
    ) -> list[Increment]:
        """Steps from which something is gained, the best first; ``more`` is beyond the least."""
        if self._takes != (worker, server, capacity):
            self._takes = worker, server, capacity
            self._best.clear()
        found = self._best.get(more)
        if found is None:
            found = self._best[more] = self._seek(more, worker, server, capacity)
        return found

    def _seek(
        self, more: Size, worker: Vector, server: Vector, capacity: Vector
    ) -> list[Increment]:
        grid, (p, w) = self.times, more
        now_s, found = grid[p][w], []
        for servers, workers in self.leaps:
            if p + servers < len(grid) and w + workers < len(grid[0]):
                takes = add(times(worker, workers), times(server, servers))
                saved_s = now_s - grid[p + servers][w + workers]
                if saved_s > 0:
                    gain = float(saved_s / max(dominant(takes, capacity), _LEAST))
                    found.append(Increment(gain, Size(servers, workers), takes))
        return sorted(found, reverse=True)


class LeapGains(Gains):
    """The same with every larger size within reach of one leap."""

    __slots__ = ()

    def _seek(
        self, more: Size, worker: Vector, server: Vector, capacity: Vector
    ) -> list[Increment]:
        grid = np.array(self.times)[more.servers :, more.workers :]
        servers, workers = np.indices(grid.shape)
        part = np.zeros(grid.shape)
        for w, p, there_is in zip(worker, server, capacity, strict=True):
            if there_is:
                part = np.maximum(part, (w * workers + p * servers) / there_is)
        gains = (grid[0, 0] - grid) / np.maximum(part, _LEAST)
        found: list[Increment] = []
        # The fewest workers of a better leap, by servers.
        narrowest = [grid.shape[1]] * grid.shape[0]
        for at in np.argsort(-gains, axis=None, kind="stable").tolist():
            p, w = divmod(at, grid.shape[1])
            gain = float(gains[p, w])
            if gain <= 0:
                break
            if w < min(narrowest[: p + 1]):  # else a better one takes no more of anything
                narrowest[p] = w
                found.append(Increment(gain, Size(p, w), add(times(worker, w), times(server, p))))
        return found


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job can have and what it makes of it.

    ``work`` is what is left of it; ``gains`` is how long each unit of that takes with so much, and
    what more would bring. ``fixed`` jobs keep what they have.
    """

    least: Size
    most: Size
    worker: Vector
    server: Vector
    gains: Gains
    work: float
    fixed: Size | None = None

    def left_s(self, size: Size) -> float:
        """Seconds until it is done with so much."""
        low = self.least
        grid = self.gains.times  # an array, perhaps: compiled callers want plain numbers
        return float(self.work * grid[size.servers - low.servers][size.workers - low.workers])

    def steps(self, size: Size, capacity: Vector) -> list[Increment]:
        """What more would bring something, the best first."""
        low = self.least
        more = Size(size.servers - low.servers, size.workers - low.workers)
        return self.gains.steps(more, self.worker, self.server, capacity)

    def takes(self, size: Size) -> Vector:
        """What so much of it takes in all."""
        return add(times(self.worker, size.workers), times(self.server, size.servers))


class Apportioned(NamedTuple):
    """A size for each demand, or None where not even its least fits.

    ``price`` is what a little more room would bring: the largest gain, in seconds per part of the
    dominant resource, that was turned down for want of it; 0: there was room for all; infinite: the
    least of some job has no room.
    """

    sizes: list[Size | None]
    price: float


def apportion(demands: Sequence[Demand], capacity: Vector, *, grow: bool = True) -> Apportioned:
    """Give each demand its least in order, then the best next step while there is room and gain.

    Without ``grow`` all is kept for jobs that have nothing: none gets more than its least.
    """
    left = capacity
    sizes: list[Size | None] = []
    for demand in demands:
        size = demand.fixed or demand.least
        takes = demand.takes(size)
        fits = within(takes, left)
        if demand.fixed is not None or fits:
            left = minus(left, takes)
            sizes.append(size)
        else:
            sizes.append(None)
    if not grow or None in sizes:
        return Apportioned(sizes, math.inf)
    return _grow(demands, sizes, left, capacity)


def apportion_in(
    order: Sequence[int], demands: Sequence[Demand], capacity: Vector, *, grow: bool = True
) -> Apportioned:
    """The same where leasts are given in another order; sizes are in that of the demands."""
    dealt = apportion([demands[at] for at in order], capacity, grow=grow)
    sizes: list[Size | None] = [None] * len(order)
    for at, size in zip(order, dealt.sizes, strict=True):
        sizes[at] = size
    return Apportioned(sizes, dealt.price)


def _grow(
    demands: Sequence[Demand], sizes: list[Size | None], left: Vector, capacity: Vector
) -> Apportioned:
    heap: list[tuple[float, int, Increment]] = []
    missed: dict[int, float] = {}

    def push(at: int, demand: Demand, size: Size) -> None:
        step, gain = _best(demand.steps(size, capacity), left)
        missed[at] = gain * demand.work
        if step is not None:
            heapq.heappush(heap, (-step.gain * demand.work, at, step))

    for at, demand in enumerate(demands):
        first = sizes[at]
        if first is not None and demand.fixed is None:
            push(at, demand, first)
    while heap:
        _, at, step = heapq.heappop(heap)
        demand, size = demands[at], sizes[at]
        assert size is not None  # noqa: S101 - narrows the type: only such are in the heap
        if within(step.takes, left):
            left = minus(left, step.takes)
            size = Size(size.servers + step.size.servers, size.workers + step.size.workers)
            sizes[at] = size
        push(at, demand, size)
    return Apportioned(sizes, max(missed.values(), default=0.0))


def _best(steps: Sequence[Increment], left: Vector) -> tuple[Increment | None, float]:
    """The best step that fits, and the gain of a better one that does not."""
    for step in steps:
        if within(step.takes, left):
            return step, 0.0 if step is steps[0] else steps[0].gain
    return None, steps[0].gain if steps else 0.0


def dominant(takes: Vector, capacity: Vector) -> float:
    """The largest part of any resource."""
    return max((t / c for t, c in zip(takes, capacity, strict=True) if c), default=0.0)


def add(a: Vector, b: Vector) -> Vector:
    """Both together."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def minus(a: Vector, b: Vector) -> Vector:
    """The one without the other."""
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def times(a: Vector, count: int) -> Vector:
    """So many of it."""
    return a[0] * count, a[1] * count, a[2] * count


def within(a: Vector, b: Vector) -> bool:
    """Whether there is enough of everything; what is not asked for may be short."""
    return (a[0] <= b[0] or not a[0]) and (a[1] <= b[1] or not a[1]) and (a[2] <= b[2] or not a[2])
