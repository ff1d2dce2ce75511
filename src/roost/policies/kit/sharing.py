"""Jobs that may share a GPU: where they are, and where there is room for one more.

A job may share if it has one worker that asks for a share of the quality *equal* or *best-effort*:
a part that grows while its neighbours are idle. Alone on a GPU it has all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from roost.core.allocation import WORKER, Allocation, Part
from roost.core.node import taken
from roost.core.plan import Plan
from roost.core.spec import WHOLE, NodeId, Qos
from roost.core.state import Job, Run


class Gpu(NamedTuple):
    """A device of a node."""

    node: NodeId
    number: int


#: The runs that share each GPU, or will when the changes under way are done.
Crowds = dict[Gpu, list[Run]]


def packable(job: Job) -> bool:
    """Whether a job may share its GPU with others at no loss while they are idle."""
    need, spec = job.spec.resources, job.spec
    if need.share_milli == WHOLE or need.qos is Qos.FIXED or spec.roles:
        return False
    return spec.workers.max == 1 and need.gpus == 1


def gpu_of(run: Run) -> Gpu:
    """Where a run that may share is, or is to be."""
    part = (run.target or run.allocation).parts[0]
    return Gpu(part.node, part.gpus[0])


def crowds(plan: Plan) -> Crowds:
    """The runs on each GPU on which none is that may not share; the newest is the last."""
    found: Crowds = {}
    closed: set[Gpu] = set()
    for run in plan.running:
        if not run.booked:
            continue
        if packable(run.job):
            found.setdefault(gpu_of(run), []).append(run)
        else:
            parts = (run.target or run.allocation).parts
            closed.update(
                Gpu(part.node, gpu)
                for part in parts
                if part.share_milli < WHOLE
                for gpu in part.gpus
            )
    for gpu in closed:
        found.pop(gpu, None)
    for runs in found.values():
        runs.sort(key=lambda run: (not run.settled, max(run.changed_at, run.placed_at)))
    return found


def rooms(plan: Plan, job: Job, lasts_s: float | None = None) -> Iterator[tuple[Gpu, bool]]:
    """GPUs with room for a job that may share, and whether each is empty; the fullest first."""
    ledger, need = plan.ledger, job.spec.resources
    nodes = ledger.candidates(need)
    if ledger.windows:
        nodes &= ~ledger.closing(plan.now + taken(job.remaining_s if lasts_s is None else lasts_s))
    for node in ledger.select(nodes):
        if ledger.room(node, need):
            for number, _ in ledger.shares(node, need):
                yield Gpu(node.id, number), bool(node.free >> number & 1)


def seat(job: Job, gpu: Gpu) -> Allocation:
    """The allocation of a job that may share on a GPU."""
    share = job.spec.resources.share_milli
    return Allocation((Part(gpu.node, (gpu.number,), share, 1, WORKER),))


def sit(plan: Plan, job: Job, gpu: Gpu) -> bool:
    """Start a waiting job there, if its queue may have more."""
    if plan.over_limit(job, job.gpu_milli):
        return False
    return plan.place_at(job, seat(job, gpu))
