"""The sizes that assignment policies offer to jobs: halves of a node, whole nodes, several nodes.

After Sia (SOSP'23): powers of two up to a node, then whole nodes. So few sizes keep an integer
program small, and gangs of such sizes can always be packed if there are GPUs enough for them. A job
that can have none of these sizes is offered its least one, and a run the size that it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId
from roost.core.state import Job
from roost.perf.arrays import Integers, Reals
from roost.policies.kit.moves import Wish
from roost.policies.kit.packing import Reaches

#: The most GPUs that the table offers to one job.
_MOST = 64


class Configuration(NamedTuple):
    """So many GPUs of a kind, on so many nodes."""

    kind: str
    gpus: int
    nodes: int


class NodeSizes(NamedTuple):
    """The GPUs of a usual node of a kind, and those that are offered."""

    per_node: int
    gpus: tuple[int, ...]


def sizes(plan: Plan) -> dict[str, Counter[int]]:
    """Nodes in service by the GPUs they have, for each kind, in the order in which kinds came.

    A node that is lost, or has no GPU that works, is not among them.
    """
    found: dict[str, Counter[int]] = {}
    ledger = plan.ledger
    for node in ledger.select(ledger.up):
        if node.healthy:
            found.setdefault(node.spec.kind, Counter())[node.spec.gpus] += 1
    return found


def gpus_in_service(plan: Plan) -> int:
    """GPUs of all kinds on nodes in service."""
    return sum(map(_total, sizes(plan).values()))


def offered_sizes(plan: Plan) -> dict[str, NodeSizes]:
    """Sia's sizes of each kind in service: powers of two up to a node, then whole nodes."""
    found = {}
    for kind, counts in sizes(plan).items():
        per_node = max(counts, key=lambda gpus: (counts[gpus], gpus))
        whole = range(per_node, _total(counts) + 1, per_node)
        halves = [1 << power for power in range(per_node.bit_length())]
        found[kind] = NodeSizes(per_node, tuple(sorted({*halves, *whole})))
    return found


def _total(counts: Counter[int]) -> int:
    return sum(gpus * count for gpus, count in counts.items())


@dataclass(slots=True)
class Configurations:
    """Configurations as columns of a table, and which of them each job may have."""

    plan: Plan
    offered: dict[str, NodeSizes]
    columns: dict[Configuration, int] = field(default_factory=dict)
    _reaches: Reaches = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is known of reaches yet."""
        self._reaches = Reaches(self.plan.ledger)

    def of(self, job: Job, held: Wish | None, most: float) -> list[Configuration]:
        """What a job may have: up to so many GPUs, on kinds that will do; also what it holds."""
        need, (low, high) = job.spec.resources, job.spec.workers
        ledger, found = self.plan.ledger, dict[Configuration, None]()
        each = need.gpus if job.spec.uniform else 0
        for kind, (per_node, gpus) in self.offered.items():
            if not ledger.eligible(need) & ledger.kinds[kind]:
                continue
            least = low * each if each else -(-job.gpu_milli // WHOLE)
            fit = [size for size in gpus if each and size % each == 0 and least <= size]
            fit = [size for size in fit if size <= min(high * each, most)]
            if held is not None and held.kind == kind:
                fit.append(held.workers * each)
            for size in fit or ([least] if least <= most else []):
                found[Configuration(kind, size, -(-size // per_node))] = None
        for one in found:
            self.columns.setdefault(one, len(self.columns))
        return list(found)

    def seats(self, job: Job, one: Configuration) -> bool:
        """Whether a job could have that of an empty cluster; of other shapes the placer knows."""
        each = job.spec.resources.gpus
        return not job.spec.uniform or self._reaches.holds(job, one.kind, one.gpus // each)

    def uses(self, kinds: Sequence[str]) -> Reals:
        """GPUs of each kind (columns) that each configuration (rows) takes."""
        table = np.zeros((len(self.columns), len(kinds)))
        for one, row in self.columns.items():
            table[row, kinds.index(one.kind)] = one.gpus
        return table


def gpu_caps(jobs: Sequence[Job], held: Mapping[JobId, Wish]) -> dict[JobId, float]:
    """How many GPUs each job may have at most without taking its queue over its limit.

    Every job counts with its least size, those that run first and then by arrival; what is left of
    the limit any of them may have. A job for which nothing is left gets none.
    """
    found = {job.id: float("inf") for job in jobs}
    rooms = {queue: queue.room_milli for queue in dict.fromkeys(job.queue for job in jobs)}
    limited = [job for job in jobs if rooms[job.queue] is not None]
    left: dict[str, int] = {}
    for job in limited:
        used = left.setdefault(job.queue.spec.id, rooms[job.queue] or 0)
        if job.id in held and job.run is not None:
            left[job.queue.spec.id] = used + job.run.gpu_milli
    counted: list[Job] = []
    for job in sorted(limited, key=lambda job: (job.id not in held, job.seq)):
        if job.gpu_milli <= left[job.queue.spec.id]:
            left[job.queue.spec.id] -= job.gpu_milli
            counted.append(job)
        else:
            found[job.id] = 0.0
    for job in counted:
        most = (job.gpu_milli + left[job.queue.spec.id]) // WHOLE
        # A share is within it, though the GPU that is opened for it may not be.
        found[job.id] = max(most, 1) if job.gpu_milli < WHOLE else most
    return found


# -- a finer table, for ``roost`` ------------------------------------------------------------------


class KindColumns(NamedTuple):
    """A kind of GPU: those of one node, and of all; its columns in tables, their nodes, GPUs."""

    name: str
    per_node: int
    total: int
    columns: Integers
    nodes: Integers
    gpus: Integers


@dataclass(frozen=True, slots=True, eq=False)
class SizeTable:
    """Every size on every kind as a column; the last column is nothing at all."""

    kinds: tuple[KindColumns, ...]
    kind: Integers
    gpus: Integers

    @property
    def none(self) -> int:
        """The column of having nothing."""
        return len(self.kind) - 1

    def column(self, kind: str, gpus: int) -> int | None:
        """The column of a size on a kind, if it is offered."""
        for one in self.kinds:
            if one.name == kind:
                found = np.flatnonzero(one.gpus == gpus)
                return int(one.columns[found[0]]) if len(found) else None
        return None


def size_table(plan: Plan, jobs: Iterable[Job]) -> SizeTable:
    """Every size that nodes in service offer; the least size of each job is among them."""
    kinds = tuple((kind, max(counts), _total(counts)) for kind, counts in sizes(plan).items())
    own = {_least(job) for job in jobs}
    return _table(kinds, frozenset(own - _common(kinds)))


def _least(job: Job) -> int:
    return job.spec.workers.min * max(job.spec.resources.gpus, 1)


@lru_cache(maxsize=64)
def _common(kinds: tuple[tuple[str, int, int], ...]) -> frozenset[int]:
    """Sizes that are offered anyway, on every kind that has as many GPUs."""
    common = [({*offered(node, min(total, _MOST))}, total) for _, node, total in kinds]
    every = {0}.union(*(offers for offers, _ in common))
    return frozenset(
        size for size in every if all(size in offers or size > total for offers, total in common)
    )


@lru_cache(maxsize=64)
def _table(kinds: tuple[tuple[str, int, int], ...], own: frozenset[int]) -> SizeTable:
    groups, first = [], 0
    for name, per_node, total in kinds:
        common = offered(per_node, min(total, _MOST))
        gpus = np.array(sorted({*common, *(size for size in own if 0 < size <= total)}))
        columns = np.arange(first, first + len(gpus))
        groups.append(KindColumns(name, per_node, total, columns, -(-gpus // per_node), gpus))
        first += len(gpus)
    kind = [np.full(len(group.gpus), index) for index, group in enumerate(groups)]
    nothing = np.zeros(1, dtype=np.int64)
    return SizeTable(
        tuple(groups),
        np.concatenate([*kind, nothing]),
        np.concatenate([*(group.gpus for group in groups), nothing]),
    )


def offered(per_node: int, most: int) -> list[int]:
    """All sizes up to a node, then by half a node, then ever coarser by whole ones."""
    found = list(range(1, min(per_node, most) + 1))
    size = per_node
    while True:
        half = max(per_node // 2, 1)
        size += half if size < 2 * per_node else per_node * max(1, size // (4 * per_node))
        if size > most:
            return found
        found.append(size)
