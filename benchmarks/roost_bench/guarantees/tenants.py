"""The tenants of the benchmark: their jobs, the cells that suit their demand, their own clusters.

The tenants of a trace are its virtual clusters. A job wants its GPUs close together, as in HiveD's
evaluation: up to eight on one node, and more of them as whole nodes or equal parts of such.

A tenant is promised what its jobs ask for on average, divided by a load, in nodes with eight GPUs;
one that needs less, and has no larger job, in sockets or GPUs. Its private cluster has these cells
and nothing else. The shared cluster has those of all tenants, and nothing else either: what
one does not use is all that another can have beyond its promise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roost.core.cells import CellPromise
from roost.core.cells.site import CellSite, InnerLevel
from roost.core.spec import WHOLE, NodeId, NodeSpec, QueueId, QueueSpec, Range, Resources
from roost.errors import InvalidSpec
from roost.traces.generate import Synthetic, generate
from roost.traces.workload import TraceJob, Workload

PER_NODE, PER_SOCKET = 8, 4
_SOCKETS = PER_NODE // PER_SOCKET


@dataclass(frozen=True, slots=True)
class Tenant:
    """A queue: its jobs, and what it is promised."""

    name: QueueId
    jobs: tuple[TraceJob, ...]
    promise: CellPromise

    @property
    def gpus(self) -> int:
        """The GPUs of its cells."""
        return self.promise.count * {"node": PER_NODE, "socket": PER_SOCKET, "gpu": 1}[self.level]

    @property
    def level(self) -> str:
        """What its cells are."""
        return self.promise.level

    def alone(self) -> tuple[NodeSpec, ...]:
        """The nodes of its private cluster: its cells."""
        each = self.gpus // self.promise.count
        sockets = _SOCKETS if self.level == "node" else 1
        # A socket alone is a node that consists of it.
        inner = (InnerLevel("socket", (tuple(range(each)),)),)
        site = CellSite(inner=inner) if self.level == "socket" else None
        return tuple(
            NodeSpec(NodeId(f"{self.name}-{number}"), gpus=each, sockets=sockets, site=site)
            for number in range(self.promise.count)
        )

    def queue(self, *, cells: bool) -> QueueSpec:
        """Its queue in the shared cluster: with cells, or with a quota of as many GPUs."""
        if cells:
            return QueueSpec(self.name, cells=(self.promise,))
        return QueueSpec(self.name, quota_milli=self.gpus * WHOLE)


def shared(tenants: Sequence[Tenant]) -> tuple[NodeSpec, ...]:
    """The nodes of the shared cluster: as many as all cells make up."""
    counts: dict[str, int] = defaultdict(int)
    for tenant in tenants:
        counts[tenant.level] += tenant.promise.count
    sockets = counts["socket"] + math.ceil(counts["gpu"] / PER_SOCKET)
    nodes = counts["node"] + math.ceil(sockets / _SOCKETS)
    return tuple(
        NodeSpec(NodeId(f"node-{number:03d}"), gpus=PER_NODE, sockets=_SOCKETS)
        for number in range(nodes)
    )


def tenants_of(workload: Workload, load: float, most_jobs: int | None = None) -> list[Tenant]:
    """The tenants of a workload; ``load`` is the part of its cells that each one keeps busy."""
    if not 0 < load <= 1:
        raise InvalidSpec(f"the load of a promise is above 0 and at most 1, got {load:g}")
    by_queue: dict[QueueId, list[TraceJob]] = defaultdict(list)
    for job in sorted(workload.jobs, key=lambda job: job.submitted_at)[:most_jobs]:
        by_queue[job.spec.queue].append(close_together(job))
    span = max(job.submitted_at for jobs in by_queue.values() for job in jobs)
    return [
        Tenant(name, tuple(jobs), promise_for(jobs, span, load))
        for name, jobs in sorted(by_queue.items())
    ]


def close_together(job: TraceJob) -> TraceJob:
    """The job with workers that have up to eight GPUs each, as many as divide its GPUs."""
    gpus = int(job.spec.gpus)
    each = max(size for size in range(1, PER_NODE + 1) if gpus % size == 0)
    workers = gpus // each
    spec = replace(job.spec, workers=Range(workers, workers), resources=Resources(gpus=each))
    return replace(job, spec=spec)


def promise_for(jobs: Sequence[TraceJob], span: float, load: float) -> CellPromise:
    """Cells for some jobs that come within a span: enough for their demand, and for each job."""
    demand = sum(job.work_s * job.spec.gpus for job in jobs) / (max(span, 1.0) * load)
    largest = max(job.spec.gpus for job in jobs)
    for level, gpus in (("gpu", 1), ("socket", PER_SOCKET)):
        if max(demand, largest) <= gpus:
            return CellPromise(1, level)
    nodes = max(job.spec.workers.min / (PER_NODE // job.spec.resources.gpus) for job in jobs)
    return CellPromise(max(math.ceil(demand / PER_NODE), math.ceil(nodes)), "node")


def generated(jobs: int, seed: int) -> Workload:
    """A small workload with four tenants of different sizes, whose demand comes in waves."""
    return generate(
        Synthetic(
            jobs=jobs,
            seed=seed,
            queues=4,
            gpus=64,
            load=0.7,
            arrivals="bursty",
            gpu_weights=((1, 0.55), (2, 0.15), (4, 0.12), (8, 0.15), (16, 0.03)),
        )
    )
