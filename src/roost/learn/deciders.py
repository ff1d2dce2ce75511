"""How the rule of ``lookahead``, and networks that correct or replace it, decide in a slot.

Sizes are dealt out by the very code that policies use in a cluster (``apportion``). A decider can
hold several networks, each for as many clusters in turn: so candidates are compared side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roost.learn.slots import LEAST, SlotView, SlotWorld
from roost.learn.sorts import MOST
from roost.perf.arrays import Integers, Reals
from roost.policies.kit.networks import Network
from roost.policies.kit.parameter_servers.gains import Demand, Gains, apportion_in
from roost.policies.kit.parameter_servers.leaps import ranks
from roost.policies.kit.parameter_servers.learned import (
    Outlooks,
    Walked,
    Walkers,
    Walks,
    places,
    walk,
    weights,
)

#: How much more a short job counts under the rule.
POWER = 0.6


@dataclass(frozen=True, slots=True, eq=False)
class Leaper:
    """The rule, or networks that say how much each job counts beside it."""

    world: SlotWorld
    networks: Sequence[Network] = ()
    clusters: int = 1

    def __call__(self, view: SlotView) -> Integers:
        """Sizes of a slot: those that leaps end at if all fit, else as far as there is room."""
        world = self.world
        sizes = world.ends[view.sorts].copy()
        for cluster, rows in view.each():
            if not world.fits(view.sorts[rows], sizes[rows]):
                own = view.part(rows)
                counts = self.weights(own, cluster)
                gains = [world.log_gains[sort] for sort in own.sorts.tolist()]
                demands = [
                    world.demand(sort, gain, count)
                    for sort, gain, count in zip(
                        own.sorts.tolist(), gains, counts.tolist(), strict=True
                    )
                ]
                sizes[rows] = dealt(world, demands, counts)
        return sizes

    def weights(self, view: SlotView, cluster: int) -> Reals:
        """How much each job of one cluster counts."""
        jobs = outlooks(self.world, view)
        if not self.networks:
            return np.asarray(ranks(jobs.left) ** POWER)
        return weights(self.networks[cluster // self.clusters], jobs, POWER)


def outlooks(world: SlotWorld, view: SlotView) -> Outlooks:
    """The jobs of one cluster as models of speed see them."""
    best, sorts = world.best[view.sorts], view.sorts
    ends = world.ends[sorts]
    gpus, tasks, _ = world.capacity
    part = np.maximum(ends[:, 1] * world.gpu[sorts] / gpus, ends.sum(axis=1) / tasks)
    return Outlooks(view.left / best, view.age, best / world.speeds[sorts, 0, 0], part)


def dealt(
    world: SlotWorld, demands: Sequence[Demand], counts: Reals, *, grow: bool = True
) -> Integers:
    """Sizes for the jobs of one cluster; who counts most has its least first."""
    order = np.argsort(-counts, kind="stable").tolist()
    found = apportion_in(order, demands, world.capacity, grow=grow).sizes
    return np.array([size or (0, 0) for size in found], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Walker:
    """Networks that see what DL2 sees, and walk from size to size."""

    world: SlotWorld
    networks: Sequence[Network]
    clusters: int = 1

    def __call__(self, view: SlotView) -> Integers:
        """Sizes of a slot: where each job walks if all fit, else the best steps first."""
        sizes = np.ones((len(view.jobs), 2), dtype=np.int64)
        owner = view.clusters // self.clusters
        for at, network in enumerate(self.networks):
            begin, end = np.searchsorted(owner, (at, at + 1))
            if begin < end:
                rows = slice(int(begin), int(end))
                sizes[rows] = self._sizes(network, view.part(rows))
        return sizes

    def _sizes(self, network: Network, view: SlotView) -> Integers:
        world, count = self.world, len(view.jobs)
        least = np.ones((count, 2), dtype=np.int64)
        jobs = self.walkers(network, view)
        # No job walks further than there is room beside the least of all in its cluster.
        fewest = int(np.unique(view.clusters, return_counts=True)[1].min())
        room = max(1, world.capacity[1] - sum(LEAST) * fewest)
        walks = walk(network, jobs, least, least * MOST, min(2 * MOST, room))
        sizes = least
        if len(walks.scores):
            sizes = np.stack((walks.servers[-1], walks.workers[-1]), axis=-1)
        for _, rows in view.each():
            if not world.fits(view.sorts[rows], sizes[rows]):
                sizes[rows] = self._squeezed(view, walks, rows)
        return sizes

    def _squeezed(self, view: SlotView, walks: Walks, rows: slice) -> Integers:
        """Sizes where there is no room for all: the steps with the best scores first."""
        world, sorts = self.world, view.sorts[rows]
        first = walks.scores[0][rows] if len(walks.scores) else np.zeros(len(sorts))
        full = not world.fits(sorts, np.ones((len(sorts), 2), dtype=np.int64))
        demands = []
        for at, sort in enumerate(sorts.tolist(), rows.start):
            steps: Gains = world.gains[sort]
            if not full:  # else none gets more than its least
                steps = Walked((), walks=walks, job=at, least=LEAST)
            demands.append(world.demand(sort, steps, 1.0))
        return dealt(world, demands, first, grow=not full)

    def walkers(self, network: Network, view: SlotView) -> Walkers:
        """Jobs of one or more clusters as DL2 sees them."""
        world = self.world
        known = places([sort.name for sort in world.sorts], network)
        gpus, tasks, _ = world.capacity
        gpu = world.gpu[view.sorts]
        worker = np.maximum(gpu / gpus, 1.0 / tasks)
        server = np.full(len(view.jobs), 1.0 / tasks)
        many = np.bincount(view.clusters)[view.clusters]
        crowd: Reals = np.asarray(many * np.maximum(gpu / gpus, 2.0 / tasks), dtype=np.float64)
        return Walkers(known[view.sorts], view.age, view.left / view.work, worker, server, crowd)
