"""A genetic search over places: how many workers of each job on each node, all at once.

An individual is a table of jobs by nodes; the whole population is one array, and every step of the
search is done to all of it. Pairs of parents that won against others exchange rows; some jobs of
the children are taken up and put down elsewhere, and single entries change. What the children then
have too much of is taken away again: of a job's workers, of a node's GPUs, and of jobs that span
nodes, of which a node takes one. The best of parents and children live on.

After the search of Pollux (OSDI 2021), which is an NSGA-II. Its second aim, to use few nodes, is
for clusters that are rented by the node; here the nodes are given.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from roost.perf.arrays import Booleans, Integers, Reals

States = NDArray[np.int16]
Work = NDArray[np.int32]

#: What a job without a place is taken to gain, so that one of them is not the end of all means.
_NOTHING = 1e-3
#: How many single entries of a child change.
_CHANGES = 2


@dataclass(frozen=True, slots=True)
class SeatingProblem:
    """What to place where.

    ``speedups`` are those of each job on one node and on several, by workers. A job has from
    ``least`` to ``most`` workers or none, each with so many ``gpus``; ``room`` are the GPUs of the
    nodes and ``usable`` says which of them each job may have. A job that leaves its place in
    ``current`` keeps that ``factor`` of its speedup. ``groups`` numbers the nodes by what must not
    be mixed: a job has its least workers in one group, or it has none.
    """

    speedups: Reals
    least: Integers
    most: Integers
    gpus: Integers
    room: Integers
    usable: Booleans
    groups: Integers
    factor: Reals
    current: States

    def fitness(self, states: States) -> Reals:
        """The harmonic mean of speedups, of each individual."""
        workers = states.sum(axis=2)
        spans = (states > 0).sum(axis=2) > 1
        rows = np.arange(len(self.most))
        found = self.speedups[rows, spans.astype(np.intp), workers]
        moved = (states != self.current).any(axis=2) & self.current.any(axis=1)
        found = np.where(moved, found * self.factor, found)
        means: Reals = 1.0 / (1.0 / np.maximum(found, _NOTHING)).mean(axis=1)
        return means


@dataclass(slots=True)
class GeneticSearch:
    """A population on its way to better places."""

    problem: SeatingProblem
    chance: Generator
    size: int
    states: States = field(init=False)
    fitness: Reals = field(init=False)

    def begin(self, last: States) -> None:
        """Begin with the present places, variants of them, and an earlier population."""
        current = self.problem.current[None]
        fresh = np.repeat(current, max(1, self.size - len(last)), axis=0)
        fresh[1:] = self._varied(fresh[1:])
        self.states = self._repaired(np.concatenate([current, last, fresh[1:]])[: self.size])
        self.fitness = self.problem.fitness(self.states)

    def run(self, generations: int, patience: int) -> States:
        """Go on until nothing has become better for a while; the best individual."""
        best, since = self.fitness.max(), 0
        for _ in range(generations):
            self._step()
            if self.fitness[0] > best * (1 + 1e-9):
                best, since = self.fitness[0], 0
            else:
                since += 1
                if since >= patience:
                    break
        chosen: States = self.states[int(self.fitness.argmax())]
        return chosen

    def _step(self) -> None:
        children = self._repaired(self._varied(self._children()))
        states = np.concatenate([self.states, children])
        fitness = np.concatenate([self.fitness, self.problem.fitness(children)])
        order = np.argsort(-fitness, kind="stable")[: self.size]
        self.states, self.fitness = states[order], fitness[order]

    # -- children ------------------------------------------------------------------------------

    def _children(self) -> States:
        """Rows of two parents, each of which won against another."""
        count, jobs, _ = self.states.shape
        rivals = self.chance.integers(count, size=(2, 2, count))
        won = self.fitness[rivals[0]] >= self.fitness[rivals[1]]
        mother, father = np.where(won, rivals[0], rivals[1])
        from_mother = self.chance.random((count, jobs)) < 0.5  # noqa: PLR2004 - a coin
        rows = from_mother[:, :, None]
        children: States = np.where(rows, self.states[mother], self.states[father])
        return children

    def _varied(self, states: States) -> States:
        """Take one job of each up and put it down elsewhere, and change a few entries."""
        count, jobs, nodes = states.shape
        which = np.arange(count)
        self._put_down(states, which, self.chance.integers(np.full(count, jobs)))
        for _ in range(_CHANGES):
            half = which[self.chance.random(count) < 0.5]  # noqa: PLR2004 - a coin
            row = self.chance.integers(jobs, size=len(half))
            column = self.chance.integers(nodes, size=len(half))
            top = self.problem.room[column] // self.problem.gpus[row]
            states[half, row, column] = self.chance.integers(top + 1)
        return states

    def _put_down(self, states: States, which: Integers, row: Integers) -> None:
        """Give a job of each another number of workers, on as few nodes as have room for them."""
        problem, count = self.problem, len(states)
        states[which, row] = 0
        used = np.einsum("ijk,j->ik", states, problem.gpus, dtype=np.int64)
        free = (problem.room - used) // problem.gpus[row][:, None] * problem.usable[row]
        wanted = self.chance.integers(problem.most[row] + 1)
        # The node that leaves least behind comes first, if one is enough; else the emptiest. Of
        # equals, neighbours are taken from somewhere on.
        best = np.where(free >= wanted[:, None], -free, free - (1 << 12)) * free.shape[1]
        start = self.chance.integers(free.shape[1], size=(count, 1))
        turn = (np.arange(free.shape[1]) - start) % free.shape[1]
        order = np.argsort(turn - best, axis=1)
        left = np.take_along_axis(np.maximum(free, 0), order, axis=1)
        before = np.cumsum(left, axis=1) - left
        taken = np.clip(wanted[:, None] - before, 0, left)
        placed = np.zeros((count, free.shape[1]), dtype=np.int16)
        np.put_along_axis(placed, order, taken.astype(np.int16), axis=1)
        states[which, row] = placed

    # -- what is possible ----------------------------------------------------------------------

    def _repaired(self, states: States) -> States:
        """Take away what is too much, in an order that is another every time."""
        problem = self.problem
        _, jobs, nodes = states.shape
        rows, columns = self.chance.permutation(jobs), self.chance.permutation(nodes)
        work = states[:, rows[:, None], columns].astype(np.int32)
        work *= problem.usable[rows[:, None], columns]
        most, least = problem.most[rows].astype(np.int32), problem.least[rows]
        room, each = problem.room[columns].astype(np.int32), problem.gpus[rows].astype(np.int32)
        before = work.cumsum(axis=2, dtype=np.int32) - work
        work = np.clip(most[:, None] - before, 0, work)
        work = self._one_spans(work)
        used = work * each[:, None]
        left = room - (used.cumsum(axis=1, dtype=np.int32) - used)
        if each.max() > 1:
            left //= each[:, None]
        work = np.clip(left, 0, work)
        work[self._together(work, columns) < least] = 0
        result = np.empty_like(states)
        result[:, rows[:, None], columns] = work
        return result

    def _together(self, work: Work, columns: Integers) -> Integers:
        """Workers of each job, or only those in the group with most where it needs several."""
        if self.problem.least.max() == 1 or not self.problem.groups.any():
            return np.asarray(work.sum(axis=2))
        groups = self.problem.groups[columns]
        each = [work[:, :, groups == group].sum(axis=2) for group in range(groups.max() + 1)]
        found: Integers = np.maximum.reduce(each)
        return found

    @staticmethod
    def _one_spans(work: Work) -> Work:
        """Leave on each node one of the jobs that span nodes."""
        there = work > 0
        spanning = there & (there.sum(axis=2, keepdims=True) > 1)
        others = spanning & (spanning.cumsum(axis=1, dtype=np.int16) > 1)
        return np.where(others, 0, work)
