"""DL2's world: time goes in slots, and in each of them all sizes are decided anew.

A worker takes a GPU and a share of CPUs, or the CPUs alone; a server takes as many CPUs. A node has
``tasks`` such shares of CPUs, and ``gpus`` GPUs, no more than those. So there is a place for all
that is decided if there is enough in all: workers with GPUs go first, then the others wherever
CPUs are left. Nothing is lost when sizes change.

Many traces are played side by side, so that a slot of all of them costs little more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from roost.errors import InvalidSpec
from roost.learn.sorts import MOST, Sort
from roost.perf.arrays import Integers, Reals
from roost.policies.kit.parameter_servers.gains import (
    Demand,
    Gains,
    LeapGains,
    Size,
    Vector,
)

LEAST = Size(1, 1)
_SERVER: Vector = (0, 1, 0)
#: A trace that takes longer is cut off; what jobs have left then counts at their least size.
_LAST = 5000


class Trace(NamedTuple):
    """Jobs in the order in which they come: the slot of each, its sort, and its work."""

    arrives: Integers
    sorts: Integers
    work: Reals


class SlotView(NamedTuple):
    """The jobs there are in one slot, cluster after cluster: an entry for each in every array."""

    now: int
    clusters: Integers
    jobs: Integers
    sorts: Integers
    left: Reals
    work: Reals
    age: Reals

    def each(self) -> Iterator[tuple[int, slice]]:
        """Each cluster that has jobs, with the entries that are of it."""
        starts = np.flatnonzero(np.diff(self.clusters, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(self.clusters)], strict=True):
            yield int(self.clusters[start]), slice(start, end)

    def part(self, rows: slice) -> SlotView:
        """The same of some entries."""
        return SlotView(
            self.now,
            self.clusters[rows],
            self.jobs[rows],
            self.sorts[rows],
            self.left[rows],
            self.work[rows],
            self.age[rows],
        )


#: Servers and workers of every job of a slot, a row for each; 0 and 0: it has to wait.
Decider: TypeAlias = Callable[[SlotView], Integers]


class Played(NamedTuple):
    """What became of a trace, in slots: the time of each of its jobs, and of all of them."""

    times: Reals
    makespan: float

    @property
    def mean(self) -> float:
        """The mean completion time."""
        return float(self.times.mean())


@dataclass(slots=True, eq=False)
class SlotWorld:
    """So many nodes, and the sorts of jobs that come to them."""

    sorts: Sequence[Sort]
    nodes: int
    tasks: int = 4
    gpus: int = 2
    speeds: Reals = field(init=False)
    #: The size that every sort ends at where there is room for all, and its speed there.
    ends: Integers = field(init=False)
    best: Reals = field(init=False)
    gpu: Integers = field(init=False)
    log_gains: list[LeapGains] = field(init=False)
    gains: list[Gains] = field(init=False)

    def __post_init__(self) -> None:
        """Work out what is the same in every slot."""
        if self.nodes < 1 or not 1 <= self.gpus <= self.tasks:
            raise InvalidSpec("a world of slots needs nodes with no more GPUs than tasks")
        if not self.sorts or any(sort.speeds.shape != (MOST, MOST) for sort in self.sorts):
            raise InvalidSpec(f"sorts of jobs have speeds for 1 to {MOST} servers and workers")
        self.speeds = np.array([sort.speeds for sort in self.sorts])
        self.gpu = np.array([int(sort.gpu) for sort in self.sorts])
        self.log_gains = [LeapGains((-np.log(one)).tolist()) for one in self.speeds]
        self.gains = [Gains((1.0 / one).tolist()) for one in self.speeds]
        self.ends = np.array([self._end(sort) for sort in range(len(self.sorts))])
        self.best = self.speeds[np.arange(len(self.sorts)), *(self.ends - 1).T]

    @property
    def capacity(self) -> Vector:
        """GPUs and tasks in all."""
        return self.gpus * self.nodes, self.tasks * self.nodes, 0

    def worker(self, sort: int) -> Vector:
        """What a worker of a sort takes."""
        return int(self.gpu[sort]), 1, 0

    def demand(self, sort: int, gains: Gains, work: float) -> Demand:
        """A job of that sort as it is dealt with."""
        worker = self.worker(sort)
        return Demand(LEAST, Size(MOST, MOST), worker, _SERVER, gains, work)

    def fits(self, sorts: Integers, sizes: Integers) -> bool:
        """Whether there is room for all of that."""
        gpus = int((sizes[:, 1] * self.gpu[sorts]).sum())
        return gpus <= self.gpus * self.nodes and int(sizes.sum()) <= self.tasks * self.nodes

    def _end(self, sort: int) -> Size:
        """Where leaps lead where there is room for all."""
        demand, size = self.demand(sort, self.log_gains[sort], 1.0), LEAST
        while steps := demand.steps(size, self.capacity):
            more = steps[0].size
            size = Size(size.servers + more.servers, size.workers + more.workers)
        return size

    # -- playing ---------------------------------------------------------------------------------

    def draw(self, seed: Sequence[int], jobs: int = 60) -> Trace:
        """A trace: one to three jobs come in every slot, mostly two or three; any sort alike.

        Lengths are those of the sort.
        """
        chance = np.random.Generator(np.random.PCG64([*seed, 18]))
        counts = 1 + chance.binomial(2, 0.65, size=jobs)
        arrives = np.repeat(np.arange(jobs), counts)[:jobs]
        sorts = chance.integers(len(self.sorts), size=jobs)
        work = np.array([self.sorts[sort].length for sort in sorts.tolist()])
        return Trace(arrives, sorts, work)

    def play(self, traces: Sequence[Trace], decide: Decider) -> list[Played]:
        """Play traces of equally many jobs side by side; each has a cluster of its own."""
        arrives, sorts = (np.array([trace[at] for trace in traces]) for at in (0, 1))
        work = np.array([trace.work for trace in traces])
        left, took = work.copy(), np.zeros(work.shape)
        for now in range(_LAST):
            clusters, jobs = np.nonzero((arrives <= now) & (left > 0))
            if not len(jobs):
                if not (left > 0).any():
                    break
                continue
            here = clusters, jobs
            view = SlotView(
                now, clusters, jobs, sorts[here], left[here], work[here], now - arrives[here] + 0.0
            )
            speed = self._speed(view.sorts, decide(view))
            ends = speed >= view.left
            part = np.where(ends, view.left / np.maximum(speed, 1e-12), 1.0)
            took[here] = view.age + part
            left[here] = np.where(ends, 0.0, view.left - speed)
        if (left > 0).any():
            took += np.where(left > 0, left / self.speeds[:, 0, 0][sorts], 0.0)
        ended = (arrives + took).max(axis=1)
        return [Played(own, end) for own, end in zip(took, ended.tolist(), strict=True)]

    def _speed(self, sorts: Integers, sizes: Integers) -> Reals:
        on = (sizes > 0).all(axis=1)
        at = np.maximum(sizes - 1, 0)
        return np.where(on, self.speeds[sorts, at[:, 0], at[:, 1]], 0.0)
