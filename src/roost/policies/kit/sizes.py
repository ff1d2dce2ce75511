"""The sizes that assignment policies offer to jobs: halves of a node, whole nodes, several nodes.

After Sia (SOSP'23): powers of two up to a node, then whole nodes. So few sizes keep an integer
program small, and gangs of such sizes can always be packed if there are GPUs enough for them. A job
that can have none of these sizes is offered its least one, and a run the size that it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId
from roost.core.state import Job
from roost.perf.arrays import Reals
from roost.policies.kit.moves import Wish
from roost.policies.kit.packing import Reaches


class Configuration(NamedTuple):
    """So many GPUs of a kind, on so many nodes."""

    kind: str
    gpus: int
    nodes: int


class NodeSizes(NamedTuple):
    """The GPUs of a usual node of a kind, and those that are offered."""

    per_node: int
    gpus: tuple[int, ...]


def offered_sizes(plan: Plan) -> dict[str, NodeSizes]:
    """What is offered of each kind in service, in the order in which kinds came."""
    nodes: dict[str, Counter[int]] = {}
    ledger = plan.ledger
    for node in ledger.select(ledger.up):
        if node.healthy:
            nodes.setdefault(node.spec.kind, Counter())[node.spec.gpus] += 1
    found = {}
    for kind, counts in nodes.items():
        per_node = max(counts, key=lambda gpus: (counts[gpus], gpus))
        whole = range(per_node, sum(gpus * count for gpus, count in counts.items()) + 1, per_node)
        halves = [1 << power for power in range(per_node.bit_length())]
        found[kind] = NodeSizes(per_node, tuple(sorted({*halves, *whole})))
    return found


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
    limited = [job for job in jobs if job.queue.spec.limit_milli is not None]
    left: dict[str, int] = {}
    for job in limited:
        used = left.setdefault(
            job.queue.spec.id, (job.queue.spec.limit_milli or 0) - job.queue.used_milli
        )
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
        found[job.id] = (job.gpu_milli + left[job.queue.spec.id]) // WHOLE
    return found
