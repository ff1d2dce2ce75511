"""Plays every tenant alone, and all together under quotas and under cells."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roost.core.spec import NodeSpec, QueueSpec
from roost.placement import placer
from roost.policies import policy
from roost.sim.simulation import Progress, Setup, Simulation
from roost.traces.workload import TraceJob, Workload
from roost_bench.guarantees.anomalies import Played, anomalies, beyond_gpu_s, played
from roost_bench.guarantees.tenants import Tenant, shared

QUOTAS, CELLS = "quotas", "cells"
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class GuaranteesRow:
    """How a tenant fares in one of the shared clusters, beside its private one."""

    sharing: str
    queue: str
    jobs: int
    cells: str
    gpus: int
    alone_jct_h: float
    jct_h: float
    anomalies: int
    anomalous_wait_h: float
    longest_anomaly_h: float
    opportunistic_pct: float


class Play(NamedTuple):
    """A run: what became of each job, how many were stopped for others, and how long it took."""

    jobs: Mapping[str, Played]
    preemptions: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class GuaranteesBench:
    """A policy and a placer, for any tenants."""

    policy: str
    placer: str

    def alone(self, tenant: Tenant, progress: Progress | None = None) -> Play:
        """A tenant on its cells and nothing else, which are its queue's."""
        queues = (tenant.queue(cells=True),)
        return self._play(tenant.name, tenant.jobs, tenant.alone(), queues, progress)

    def together(
        self, tenants: Sequence[Tenant], sharing: str, progress: Progress | None = None
    ) -> Play:
        """All tenants on the shared cluster."""
        jobs = sorted(
            (job for tenant in tenants for job in tenant.jobs), key=lambda job: job.submitted_at
        )
        queues = [tenant.queue(cells=sharing == CELLS) for tenant in tenants]
        return self._play(sharing, jobs, shared(tenants), queues, progress)

    def _play(
        self,
        name: str,
        jobs: Sequence[TraceJob],
        nodes: Sequence[NodeSpec],
        queues: Sequence[QueueSpec],
        progress: Progress | None,
    ) -> Play:
        setup = Setup(
            Workload(name, list(jobs)),
            nodes,
            policy(self.policy),
            placer(self.placer),
            queues=queues,
            timeline=True,
        )
        began = time.process_time()
        results = Simulation(setup).run(progress=progress)
        return Play(played(results), results.preemptions, time.process_time() - began)


def row(tenant: Tenant, sharing: str, alone: Play, together: Play) -> GuaranteesRow:
    """A tenant's figures in a shared cluster."""
    mine = {job.id: together.jobs[job.id] for job in tenant.jobs}
    found = anomalies(alone.jobs, mine)
    held = sum(one.gpus * (end - start) for one in mine.values() for start, end in one.spans)
    beyond = beyond_gpu_s(mine.values(), tenant.gpus)
    return GuaranteesRow(
        sharing=sharing,
        queue=tenant.name,
        jobs=len(mine),
        cells=str(tenant.promise),
        gpus=tenant.gpus,
        alone_jct_h=statistics.fmean(one.jct_s for one in alone.jobs.values()) / _HOUR_S,
        jct_h=statistics.fmean(one.jct_s for one in mine.values()) / _HOUR_S,
        anomalies=len(found),
        anomalous_wait_h=sum(found.values()) / _HOUR_S,
        longest_anomaly_h=max(found.values(), default=0.0) / _HOUR_S,
        opportunistic_pct=100 * beyond / held if held else 0.0,
    )
