"""Plays every tenant alone, and all together under quotas and under cells."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roost.core.spec import JobId, NodeSpec, QueueSpec
from roost.placement import placer
from roost.policies import policy
from roost.sim.simulation import Progress, Setup, Simulation
from roost.traces.workload import Workload
from roost_bench.guarantees.histories import Played, beyond_gpu_s, overtaken, played
from roost_bench.guarantees.moments import MomentaryAnomalies
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
    overtaken: int
    overtaken_h: float
    opportunistic_pct: float


class Play(NamedTuple):
    """A run: what became of each job, how many were stopped for others, and how long it took."""

    jobs: Mapping[JobId, Played]
    #: Jobs that waited though their private cluster had room at that moment, and how long.
    anomalies: Mapping[JobId, float]
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
        return self._play([tenant], tenant.alone(), queues, progress)

    def together(
        self, tenants: Sequence[Tenant], sharing: str, progress: Progress | None = None
    ) -> Play:
        """All tenants on the shared cluster."""
        queues = [tenant.queue(cells=sharing == CELLS) for tenant in tenants]
        return self._play(tenants, shared(tenants), queues, progress)

    def _play(
        self,
        tenants: Sequence[Tenant],
        nodes: Sequence[NodeSpec],
        queues: Sequence[QueueSpec],
        progress: Progress | None,
    ) -> Play:
        jobs = [job for tenant in tenants for job in tenant.jobs]
        setup = Setup(
            Workload("guarantees", sorted(jobs, key=lambda job: job.submitted_at)),
            nodes,
            policy(self.policy),
            placer(self.placer),
            queues=queues,
            timeline=True,
        )
        simulation = Simulation(setup)
        watch = MomentaryAnomalies(simulation.core, tenants)
        results = simulation.run(observer=watch, progress=progress)
        return Play(played(results), dict(watch.waits_s), results.preemptions, results.cpu_s)


def row(tenant: Tenant, sharing: str, alone: Play, together: Play) -> GuaranteesRow:
    """A tenant's figures in a shared cluster."""
    mine = {job.id: together.jobs[job.id] for job in tenant.jobs}
    found = [together.anomalies[name] for name in mine if name in together.anomalies]
    late = overtaken(alone.jobs, mine)
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
        anomalous_wait_h=sum(found) / _HOUR_S,
        longest_anomaly_h=max(found, default=0.0) / _HOUR_S,
        overtaken=len(late),
        overtaken_h=sum(late.values()) / _HOUR_S,
        opportunistic_pct=100 * beyond / held if held else 0.0,
    )
