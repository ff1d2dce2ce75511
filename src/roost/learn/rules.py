"""What a learnt policy is compared with in the world of slots: DRF, Optimus, the floor.

DRF and Optimus are those of DL2's simulator: a task goes on the node with the least in use, and if
it does not fit there the slot is over. With ``best_fit`` a task goes wherever there is room for it,
and a job that finds none stops alone.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from roost.learn.slots import SlotView, SlotWorld
from roost.learn.sorts import MOST
from roost.perf.arrays import Integers


@dataclass(slots=True)
class Room:
    """What is free of one cluster within a slot."""

    world: SlotWorld
    best_fit: bool
    tasks: int = 0
    gpus: int = 0
    nodes: list[tuple[int, int]] = field(default_factory=list)
    used: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with nothing in use."""
        self.gpus, self.tasks, _ = self.world.capacity
        if not self.best_fit:
            self.nodes = [(0, at) for at in range(self.world.nodes)]
            self.used = [[0, 0] for _ in self.nodes]

    def take(self, gpus: int, tasks: int) -> bool:
        """Take so many GPUs and tasks, on one node, if there is room."""
        if self.best_fit:
            if gpus > self.gpus or tasks > self.tasks:
                return False
            self.gpus -= gpus
            self.tasks -= tasks
            return True
        _, node = self.nodes[0]
        mine = self.used[node]
        if mine[0] + gpus > self.world.gpus or mine[1] + tasks > self.world.tasks:
            return False
        mine[0] += gpus
        mine[1] += tasks
        # A GPU counts as many slots as its node has tasks and GPUs.
        weighed = mine[0] * self.world.tasks // self.world.gpus + mine[1]
        heapq.heapreplace(self.nodes, (weighed, node))
        return True


@dataclass(frozen=True, slots=True)
class Drf:
    """Another server and worker for the job with the least dominant share, as long as they fit."""

    world: SlotWorld
    best_fit: bool = False

    def __call__(self, view: SlotView) -> Integers:
        """Sizes of a slot."""
        sizes = np.zeros((len(view.jobs), 2), dtype=np.int64)
        for _, rows in view.each():
            sizes[rows] = self._deal(view.sorts[rows].tolist())
        return sizes

    def _deal(self, sorts: list[int]) -> list[list[int]]:
        world, room = self.world, Room(self.world, self.best_fit)
        gpus, tasks, _ = world.capacity
        counts = [0] * len(sorts)
        heap = [(0.0, at) for at in range(len(sorts))]
        while heap:
            _, at = heapq.heappop(heap)
            gpu = int(world.gpu[sorts[at]])
            if not room.take(gpu, 2):
                if self.best_fit:
                    continue
                break
            counts[at] += 1
            if counts[at] < MOST:
                share = counts[at] * max(gpu / gpus, 2 / tasks)
                heapq.heappush(heap, (share, at))
        return [[count, count] for count in counts]


@dataclass(frozen=True, slots=True)
class OptimusRule:
    """The worker or server that shortens its job's time most, until none does."""

    world: SlotWorld
    best_fit: bool = False

    def __call__(self, view: SlotView) -> Integers:
        """Sizes of a slot."""
        sizes = np.zeros((len(view.jobs), 2), dtype=np.int64)
        for _, rows in view.each():
            sizes[rows] = self._deal(view.sorts[rows].tolist(), view.left[rows].tolist())
        return sizes

    def _deal(self, sorts: list[int], left: list[float]) -> list[list[int]]:
        room = Room(self.world, self.best_fit)
        sizes = [[0, 0] for _ in sorts]
        heap = [(-np.inf, at, 1) for at in range(len(sorts))]
        while heap:
            _, at, role = heapq.heappop(heap)
            gpu = int(self.world.gpu[sorts[at]]) if role else 0
            if not room.take(gpu, 1):
                if self.best_fit:
                    continue
                break
            sizes[at][role] += 1
            gain, more = self._next(sorts[at], sizes[at], left[at])
            if gain > 0:
                heapq.heappush(heap, (-gain, at, more))
        return sizes

    def _next(self, sort: int, size: list[int], left: float) -> tuple[float, int]:
        """The better of a worker and a server more, and the slots it saves."""
        servers, workers = size
        if not servers:
            return np.inf, 0
        speeds = self.world.speeds[sort]
        now = left / speeds[servers - 1, workers - 1]
        worker = now - left / speeds[servers - 1, workers] if workers < MOST else -np.inf
        server = now - left / speeds[servers, workers - 1] if servers < MOST else -np.inf
        return (float(server), 0) if server >= worker else (float(worker), 1)


@dataclass(frozen=True, slots=True)
class Floor:
    """Every job alone at its best size, as if there were room for all: nothing can be below it."""

    world: SlotWorld

    def __call__(self, view: SlotView) -> Integers:
        """Sizes of a slot."""
        flat = self.world.speeds.reshape(len(self.world.sorts), -1).argmax(axis=1)
        best = np.stack(np.divmod(flat, MOST), axis=-1) + 1
        found: Integers = best[view.sorts]
        return found
