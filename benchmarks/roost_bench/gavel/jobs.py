"""Gavel's jobs and speeds (OSDI'20), by its table of throughputs.

``TableSpeed`` is how fast jobs really go, ``profiled`` what a profiler would tell of them, and
``Mix`` makes jobs as Gavel's own generator does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roost.core.allocation import WORKER, Allocation
from roost.core.spec import JobId, JobSpec, NodeId, NodeSpec, Range
from roost.errors import InvalidSpec
from roost.traces.throughputs import Throughputs
from roost.traces.workload import TraceJob, Workload

#: Types that were made for several workers.
_DISTRIBUTED = ("ResNet-18", "ResNet-50", "Transformer", "LM")
#: Workers of generated jobs, and how many of a hundred jobs have at most so many.
_WORKERS = ((1, 70), (2, 80), (4, 95), (8, 100))


@dataclass(frozen=True, slots=True)
class TableSpeed:
    """Speed by the table: steps per second, relative to the reference kind on one node.

    A gang on several kinds goes at the pace of the slowest.
    """

    table: Throughputs
    reference: str = "v100"

    @property
    def interferes(self) -> bool:
        """No job shares a GPU here."""
        return False

    def rate(
        self,
        spec: JobSpec,
        allocation: Allocation,
        nodes: Mapping[NodeId, NodeSpec],
        neighbours: Sequence[str],  # noqa: ARG002 - part of the protocol
    ) -> float:
        """Seconds of work per second."""
        held = {part.node for part in allocation.parts if part.role == WORKER}
        return min(
            self.relative(spec.application, kind, allocation.workers, len(held))
            for kind in sorted({nodes[node].kind for node in held})
        )

    def relative(self, job_type: str, kind: str, workers: int, nodes: int = 1) -> float:
        """How much faster it goes there than as many workers on a node of the reference kind."""
        base = self.table.rate(self.reference, job_type, workers)
        if not base:
            msg = f"{job_type!r} with {workers} workers does not run on {self.reference}"
            raise InvalidSpec(msg)
        return self.table.rate(kind, job_type, workers, nodes=nodes) / base


def profiled(workload: Workload, speed: TableSpeed, nodes: Iterable[NodeSpec]) -> Workload:
    """The same jobs with what a profiler would tell of them beforehand, on such a cluster.

    Each gets its rates by kind, on one node where it fits on one, and asks for the kinds on which
    it can run at all.
    """
    sizes: dict[str, list[int]] = {}
    for node in nodes:
        sizes.setdefault(node.kind, []).append(node.gpus)
    jobs = [_with_rates(job, speed, sizes) for job in workload.jobs]
    return Workload(workload.name, jobs, workload.nodes, workload.skipped)


def _with_rates(job: TraceJob, speed: TableSpeed, sizes: Mapping[str, Sequence[int]]) -> TraceJob:
    spec, workers = job.spec, job.spec.workers.min
    rates = []
    for kind, gpus in sizes.items():
        over = 1 if workers <= max(gpus) else math.ceil(workers / max(gpus))
        rate = speed.relative(spec.application, kind, workers, over)
        if rate > 0 and workers <= sum(gpus):
            rates.append((kind, rate))
    need = replace(spec.resources, kinds=tuple(kind for kind, _ in rates))
    return replace(job, spec=replace(spec, resources=need, rates=tuple(rates)))


@dataclass(frozen=True, slots=True)
class Mix:
    """Jobs out of a hat, as Gavel's own generator makes them.

    Types are equally likely. Four of five jobs run for 10^1.5 to 10^3 minutes on the reference
    kind, the fifth for 10^3 to 10^4. With ``several``, 30 % have more than one worker: 10 % two,
    15 % four, 5 % eight, as in Philly, and are of a type made for it. Arrivals are Poisson;
    ``jobs_per_hour`` 0 lets all come at once.
    """

    jobs: int = 300
    jobs_per_hour: float = 4.0
    several: bool = False
    seed: int = 0
    name: str = "continuous"

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        if self.jobs < 1 or not 0 <= self.jobs_per_hour < math.inf:
            msg = f"{self.jobs} jobs at {self.jobs_per_hour} per hour cannot be generated"
            raise InvalidSpec(msg)

    def generate(self, table: Throughputs, reference: str = "v100") -> Workload:
        """The jobs; the same mix gives the same ones, and another rate only moves them apart."""
        table.check_kind(reference)
        types = table.types(reference)
        wide = [name for name in types if name.startswith(_DISTRIBUTED)]
        chance = random.Random(f"gavel/{self.seed}")  # noqa: S311 - not for secrets
        jobs, now = [], 0.0
        for number in range(1, self.jobs + 1):
            draws = [chance.random() for _ in range(5)]
            workers = _workers(draws[0]) if self.several else 1
            choices = wide if workers > 1 and wide else types
            work_s = _run_time_s(draws[2], draws[3])
            spec = JobSpec(
                workers=Range(workers, workers),
                application=choices[int(draws[1] * len(choices))],
                run_time_s=work_s,
            )
            jobs.append(TraceJob(JobId(f"gavel-{number}"), now, spec, work_s))
            if self.jobs_per_hour:
                now = round(now - math.log(1.0 - draws[4]) * 3600 / self.jobs_per_hour, 3)
        return Workload(self.name, jobs)


def _workers(draw: float) -> int:
    return next(workers for workers, most in _WORKERS if 100 * draw < most)


def _run_time_s(which: float, draw: float) -> float:
    low, high = (3.0, 4.0) if which >= 0.8 else (1.5, 3.0)  # noqa: PLR2004 - see Mix
    return float(round(60 * 10 ** (low + (high - low) * draw), 3))
