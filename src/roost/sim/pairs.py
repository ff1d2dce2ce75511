"""Jobs and nodes for a world in which a table says what jobs do to each other on a GPU.

A job that may share its GPU asks for a share of the quality *equal* or *best-effort*: a part that
grows while its neighbours are idle. Two that do not fit into the memory of a GPU together must
never be there together, and the ledger sees to that, for every policy alike: here each job is told
the memory that it holds, so that what the table says of pairs follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from roost.core.spec import WHOLE, JobSpec, NodeSpec, Qos
from roost.perf.pairs import Pairs
from roost.policies.kit.solvers.programs import INFINITE, solve
from roost.traces.workload import TraceJob, Workload

#: The memory of a GPU where the nodes do not tell: that of the V100 of the table of pairs.
_USUAL_MIB = 16384
#: By how much two exceed a GPU that do not fit, as a part of it.
_OVER = 0.02
_HALF = WHOLE // 2


def packable(workload: Workload) -> Workload:
    """The same jobs; those of one whole GPU ask for half of one, and more where it is idle."""
    jobs = [replace(job, spec=_halved(job.spec)) for job in workload.jobs]
    return replace(workload, jobs=jobs)


def _halved(spec: JobSpec) -> JobSpec:
    need = spec.resources
    if spec.gpu_milli(spec.workers.max) != WHOLE or need.gpus != 1 or spec.roles:
        return spec
    return replace(spec, resources=replace(need, share_milli=_HALF, qos=Qos.BEST_EFFORT))


def with_memory(nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
    """The same nodes, with the memory of their GPUs where they do not tell it."""
    return [
        node if node.gpu_memory_mib or not node.gpus else replace(node, gpu_memory_mib=_USUAL_MIB)
        for node in nodes
    ]


def holding_memory(workload: Workload, nodes: Iterable[NodeSpec], pairs: Pairs) -> Workload:
    """The same jobs; those with shares hold what the table lets them hold, or what they say."""
    most: dict[str, int] = {}
    for kind, mib in sorted({(node.kind, node.gpu_memory_mib) for node in nodes if node.gpus}):
        for application, part in memory_parts(pairs, kind).items():
            most[application] = max(most.get(application, 1), int(part * mib))
    jobs = [
        replace(job, spec=_with_memory(job.spec, most[job.spec.application]))
        if _shares(job) and job.spec.application in most
        else job
        for job in workload.jobs
    ]
    return replace(workload, jobs=jobs)


def _shares(job: TraceJob) -> bool:
    return job.spec.resources.share_milli < WHOLE


def _with_memory(spec: JobSpec, mib: int) -> JobSpec:
    need = spec.resources
    return replace(spec, resources=replace(need, gpu_memory_mib=max(need.gpu_memory_mib, mib)))


def memory_parts(pairs: Pairs, kind: str) -> dict[str, float]:
    """The part of a GPU's memory that each application holds, by which pairs fit.

    Two that do not fit hold more than a GPU has; of the others as few as can be do so too. It is a
    linear program: the least sum of what pairs that fit are beyond a GPU.
    """
    names = sorted(pairs.table(kind))
    place = {name: number for number, name in enumerate(names)}
    unfit: set[tuple[int, int]] = set()
    fit: set[tuple[int, int]] = set()
    for one, other, speed in pairs.of(kind):
        if other in place:
            low, high = sorted((place[one], place[other]))
            (fit if speed else unfit).add((low, high))
    if not unfit:
        return dict.fromkeys(names, 0.0)
    fit -= unfit
    rows, beyond = [*sorted(unfit), *sorted(fit)], len(unfit)
    matrix = np.zeros((len(rows), len(names) + len(fit)))
    for number, (low, high) in enumerate(rows):
        matrix[number, low] += 1.0
        matrix[number, high] += 1.0
        if number >= beyond:
            matrix[number, len(names) + number - beyond] = -1.0
    found = solve(
        [*np.zeros(len(names)), *np.ones(len(fit))],
        matrix,
        [*np.full(beyond, INFINITE), *np.ones(len(fit))],
        least=[*np.full(beyond, 1.0 + _OVER), *np.full(len(fit), -INFINITE)],
        upper=[*np.ones(len(names)), *np.full(len(fit), INFINITE)],
    )
    return {name: float(found.x[number]) for name, number in place.items()}
