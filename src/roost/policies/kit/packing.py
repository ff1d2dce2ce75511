"""Packing: seats for the jobs of a whole assignment, whole nodes and one remainder on one node.

A job of eight workers on nodes of four takes two whole ones; one of six takes a whole one and half
of another; one of three never straddles two nodes. The largest are seated first, each remainder
where it leaves the least behind (best fit, decreasing), which is without loss for sizes that halve.

Seats are tried on the ledger itself, so that what is broken, in use by others, or short of CPUs
counts as it does everywhere; in the end the ledger is as it was, and ``assign`` makes them real.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from roost.core.allocation import Part
from roost.core.ledger import Ledger
from roost.core.node import Node, empty_room, lowest, mask_of
from roost.core.spec import WHOLE, JobId, Level, NodeId, Resources
from roost.core.state import Job, Run, needs


def fits(sizes: Iterable[int], node_gpus: Sequence[int]) -> bool:
    """Whether gangs of so many GPUs can be packed on such nodes, as ``Packing`` packs them."""
    free, most = list(node_gpus), max(node_gpus, default=0)
    return all(_fit(size, free, node_gpus, most) for size in sorted(sizes, reverse=True))


class Room:
    """Nodes of one size, some of them partly in use: counted by what is free of them.

    It answers as ``fits`` does, for thousands of nodes in as little time as for a few.
    """

    def __init__(self, node_gpus: Iterable[int], per_node: int) -> None:
        self._per_node = per_node
        self._free = [0] * (per_node + 1)
        for gpus in node_gpus:
            self._free[min(gpus, per_node)] += 1

    def fits(self, sizes: Iterable[int]) -> bool:
        """Whether gangs of so many GPUs can be packed there."""
        free = self._free.copy()
        counts = sorted(Counter(sizes).items(), reverse=True)
        return all(self._take(free, size, count) for size, count in counts)

    def _take(self, free: list[int], size: int, count: int) -> bool:
        """Take as many gangs of one size: whole nodes, and a remainder where it fits best."""
        whole, left = divmod(size, self._per_node)
        free[-1] -= whole * count
        if free[-1] < 0:
            return False
        while left and count:
            best = next((gpus for gpus in range(left, len(free)) if free[gpus]), None)
            if best is None:
                return False
            taken = 1 if best - left >= left else min(count, free[best])
            free[best] -= taken
            free[best - left] += taken
            count -= taken
        return True


def _fit(size: int, free: list[int], whole: Sequence[int], most: int) -> bool:
    """Take from what is free what a gang of that size needs."""
    left = size
    while left:
        room = [(had, at) for at, had in enumerate(free) if had >= left]
        if room:
            free[min(room)[1]] -= left
            return True
        empty = [(-had, at) for at, had in enumerate(free) if had == whole[at] > 0]
        if size <= most or not empty:
            return False
        had, at = min(empty)
        left += had
        free[at] = 0
    return True


class Reach(NamedTuple):
    """How many workers of a job can be seated on nodes, were these empty.

    Up to ``alone`` are on one node, and more than ``beyond`` but at most ``together`` on several.
    """

    alone: int
    beyond: int
    together: int

    @classmethod
    def of(cls, nodes: Iterable[Node], job: Job) -> Reach:
        """What ``Packing`` would make of these nodes for a job of uniform workers."""
        need, few = job.spec.resources, list(nodes)
        rooms = [empty_room(node.spec, need) for node in few]
        alone, together = max(rooms, default=0), sum(rooms)
        if job.spec.within is Level.NODE:
            return cls(alone, alone, alone)
        if job.spec.elastic:
            return cls(alone, max((_full(node) // need.gpus for node in few), default=0), together)
        return cls(alone, alone, together)

    def holds(self, workers: int) -> bool:
        """Whether so many can be seated."""
        return workers <= self.alone or self.beyond < workers <= self.together


@dataclass(slots=True)
class Reaches:
    """What jobs could have of each kind, were the cluster empty."""

    ledger: Ledger
    _found: dict[tuple[str, Resources, Level | None, bool], Reach] = field(default_factory=dict)

    def holds(self, job: Job, kind: str, workers: int) -> bool:
        """Whether so many workers of a uniform job can be seated on a kind."""
        spec, ledger = job.spec, self.ledger
        key = (kind, spec.resources, spec.within, spec.elastic)
        if key not in self._found:
            mask = ledger.eligible(spec.resources) & ledger.kinds.get(kind, 0)
            self._found[key] = Reach.of(ledger.select(mask), job)
        return self._found[key].holds(workers)


@dataclass(slots=True)
class Trial:
    """Changes to the ledger that are taken back in the end."""

    ledger: Ledger
    log: list[tuple[bool, Part, Resources]] = field(default_factory=list)

    def take(self, part: Part, need: Resources) -> None:
        """Book a part."""
        self.ledger.take(part, need)
        self.log.append((True, part, need))

    def drop(self, part: Part, need: Resources) -> None:
        """Give a part back."""
        self.ledger.release(part, need)
        self.log.append((False, part, need))

    def release(self, run: Run) -> None:
        """Give back what a run holds."""
        for part in run.allocation.parts:
            self.drop(part, needs(run.job, part))

    def back_to(self, mark: int) -> None:
        """Undo everything since there were so many changes."""
        while len(self.log) > mark:
            taken, part, need = self.log.pop()
            if taken:
                self.ledger.release(part, need)
            else:
                self.ledger.take(part, need)


@contextmanager
def trial(ledger: Ledger) -> Iterator[Trial]:
    """Change the ledger at will; in the end all is as it was."""
    moment = ledger.moment()
    changes = Trial(ledger)
    try:
        yield changes
    finally:
        changes.back_to(0)
        ledger.back_to(moment)


@dataclass(slots=True)
class Packing:
    """Seats for jobs on the nodes of one kind.

    ``keepers`` are runs that stay where they are if they can; they are moved when ``clears`` and a
    job would not fit otherwise. ``sticky``: a run that changes its size stays on its nodes if it
    can, though another place might leave less behind.
    """

    changes: Trial
    kind: str
    keepers: dict[Run, None]
    sticky: bool = True
    clears: bool = True
    found: dict[JobId, tuple[Part, ...]] = field(default_factory=dict)
    failed: list[JobId] = field(default_factory=list)
    _sizes: dict[NodeId, int] = field(default_factory=dict)
    #: The most GPUs of one node.
    _widest: int = 0
    _largest: dict[Resources, int] = field(default_factory=dict)
    _whole_nodes: dict[Resources, tuple[int, int]] = field(default_factory=dict)
    _queue: list[tuple[int, int, Job, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Note how much of each node there is to give out."""
        ledger = self.changes.ledger
        for node in ledger.select(ledger.kinds.get(self.kind, 0) & ledger.up):
            self._sizes[node.id] = node.free.bit_count()
        for run in self.keepers:
            for part in run.allocation.parts:
                if part.node in self._sizes:
                    self._sizes[part.node] += len(part.gpus)
        self._widest = max(self._sizes.values(), default=0)

    def pack(self, wants: Iterable[tuple[Job, int]]) -> bool:
        """Find seats for all, largest first; returns whether each has one."""
        for job, workers in wants:
            self._want(job, workers)
        while self._queue:
            _, _, job, workers = heapq.heappop(self._queue)
            parts = self._seat(job, workers)
            if parts is None:
                self.failed.append(job.id)
            else:
                self.found[job.id] = parts
        return not self.failed

    def displace(self, run: Run) -> None:
        """Let a keeper look for a place like the others."""
        del self.keepers[run]
        self.changes.release(run)
        self._want(run.job, run.workers)

    def _want(self, job: Job, workers: int) -> None:
        gpus = workers * job.spec.resources.gpus
        heapq.heappush(self._queue, (-gpus, job.seq, job, workers))

    # -- one job -------------------------------------------------------------------------------

    def _seat(self, job: Job, workers: int) -> tuple[Part, ...] | None:
        """Take nodes for a job: whole ones while it needs more than one, then the best fit."""
        ledger, need = self.changes.ledger, job.spec.resources
        mask = ledger.eligible(need) & ledger.kinds.get(self.kind, 0)
        own = devices_of(job.run)
        whole, most = mask, self._largest.get(need)
        if most is None:
            most = max((self._most(node, need) for node in ledger.select(mask)), default=0)
            self._largest[need] = most
        if job.spec.elastic:  # it had better have another size than be spread over leftovers
            whole, most = self._untouched(need, mask)
        if workers > most and job.spec.within is Level.NODE:
            return None
        left, parts = workers, list[Part]()
        while left:
            node = self._best(need, left, mask, own) if left <= most else None
            if node is None and workers > most:
                node = self._whole(need, whole, own)
            if node is None or not ledger.room(node, need):  # its CPUs may be others' already
                for part in parts:
                    self.changes.drop(part, need)
                return None
            count = min(left, ledger.room(node, need))
            parts.append(take(self.changes, node, need, count, own))
            left -= count
        return tuple(parts)

    def _untouched(self, need: Resources, mask: int) -> tuple[int, int]:
        """Nodes of which all may be given out; and how many workers the largest node has."""
        if need not in self._whole_nodes:
            nodes = list(self.changes.ledger.select(mask))
            whole = sum(node.bit for node in nodes if self._sizes[node.id] == _full(node))
            most = max((_full(node) // need.gpus for node in nodes), default=0)
            self._whole_nodes[need] = whole, most
        return self._whole_nodes[need]

    def _most(self, node: Node, need: Resources) -> int:
        """How many workers a node holds of which all is given out that may be."""
        count = self._sizes[node.id] // need.gpus
        if need.needs_more_than_gpus or node.spec.workers:
            count = min(count, empty_room(node.spec, need))
        return count

    def _best(
        self, need: Resources, workers: int, mask: int, own: Mapping[NodeId, int]
    ) -> Node | None:
        """The node with room for so many workers that has the least beyond."""
        ledger = self.changes.ledger
        mine = [ledger.nodes[name] for name in own if ledger.nodes[name].bit & mask]
        if self.sticky:
            for node in mine:
                if ledger.room(node, need) >= workers:
                    return node
        levels = [*ledger.at_least, 0]
        for level in range(workers * need.gpus, len(levels) - 1):
            exact = levels[level] & ~levels[level + 1] & mask
            for node in (*(node for node in mine if node.bit & exact), *ledger.select(exact)):
                if ledger.room(node, need) >= workers:
                    return node
        return self._cleared(need, workers, mask) if self.clears else None

    def _whole(self, need: Resources, mask: int, own: Mapping[NodeId, int]) -> Node | None:
        """The largest node of which all that may be given out is free, or held by keepers."""
        best: tuple[tuple[int, int, bool, int], Node] | None = None
        ledger = self.changes.ledger
        if not need.needs_more_than_gpus and 0 < self._widest < len(ledger.at_least):
            # None is larger, and no run is in the way: often there is one, and it is quickly found.
            empty = ledger.at_least[self._widest] & mask
            mine = sum(ledger.nodes[name].bit for name in own) & empty
            node = next(ledger.select(mine or empty), None)
            if node is not None and ledger.room(node, need) == self._widest // need.gpus:
                return node
        for node in ledger.select(mask):
            runs = self._in_the_way(node)
            held = sum(_gpus_on(run, node) for run in runs)
            # Others may have taken its CPUs or memory, though none of its GPUs.
            most = self._most(node, need) if runs else ledger.room(node, need)
            if not most or node.free.bit_count() + held < self._sizes[node.id]:
                continue
            if held and not self.clears:
                continue
            key = (-most, sum(run.gpu_milli for run in runs), node.id not in own, node.index)
            if best is None or key < best[0]:
                best = key, node
        if best is None:
            return None
        for run in self._in_the_way(best[1]):
            self.displace(run)
        return best[1]

    # -- making room ---------------------------------------------------------------------------

    def _cleared(self, need: Resources, workers: int, mask: int) -> Node | None:
        """A node on which keepers were displaced to make room: where the least has to move."""
        best: tuple[tuple[int, int], Node, list[Run]] | None = None
        for node in self.changes.ledger.select(mask):
            runs = self._fewest(node, workers * need.gpus)
            if runs and self._most(node, need) >= workers:
                key = (sum(run.gpu_milli for run in runs), node.index)
                if best is None or key < best[0]:
                    best = key, node, runs
        if best is None:
            return None
        _, node, runs = best
        for run in runs:
            self.displace(run)
        return node if self.changes.ledger.room(node, need) >= workers else None

    def _fewest(self, node: Node, gpus: int) -> list[Run]:
        """The smallest keepers of a node without which it has so many free; none: it never has."""
        lack = gpus - node.free.bit_count()
        chosen: list[Run] = []
        for run in self._in_the_way(node):
            if lack > 0:
                chosen.append(run)
                lack -= _gpus_on(run, node)
        if lack > 0:
            return []
        for run in reversed(chosen[:]):
            held = _gpus_on(run, node)
            if lack + held <= 0:
                chosen.remove(run)
                lack += held
        return chosen

    def _in_the_way(self, node: Node) -> list[Run]:
        """Keepers on a node, the smallest first."""
        runs = [run for run in node.runs if run in self.keepers]
        return sorted(runs, key=lambda run: (run.gpu_milli, run.job.seq))


def take(
    changes: Trial, node: Node, need: Resources, workers: int, own: Mapping[NodeId, int]
) -> Part:
    """Book devices of a node, those first that the job holds already."""
    mine = own.get(node.id, 0) & node.free
    if mine:
        count = workers * need.gpus
        gpus = lowest(mine, count)
        rest = node.free & ~mine
        calm = rest & ~node.leaving
        gpus += lowest(calm, count - len(gpus))
        gpus += lowest(rest & ~calm, count - len(gpus))
        part = Part(node.id, tuple(sorted(gpus)), WHOLE, workers)
    else:
        (part,) = changes.ledger.pick(node, need, workers)
    changes.take(part, need)
    return part


def _full(node: Node) -> int:
    """GPUs of a node that work."""
    return node.healthy.bit_count()


def devices_of(run: Run | None) -> dict[NodeId, int]:
    """The devices that a run holds, by node."""
    found: dict[NodeId, int] = {}
    for part in run.allocation.parts if run is not None and not run.parked else ():
        found[part.node] = found.get(part.node, 0) | mask_of(part.gpus)
    return found


def _gpus_on(run: Run, node: Node) -> int:
    return sum(len(part.gpus) for part in run.allocation.parts if part.node == node.id)
