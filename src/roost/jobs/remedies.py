"""The smallest changes that would start a waiting job now, each of them tried.

A change is first put to the placer on the present books, then to the policy on a copy of the core:
room alone does not help a job that has to wait for its turn. What is named would really start
the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from roost.api.jobs import RemedyView
from roost.api.schema import encode
from roost.core.controller import Core, Policy
from roost.core.events import CancelRequested, Exited, Outcome, Resized, ScaleRequested, Woke
from roost.core.plan import Placer
from roost.core.reasons import gpus
from roost.core.spec import WHOLE, JobId, JobSpec, Range, Shape
from roost.core.state import Job, Run, needs
from roost.jobs.amounts import counted, cpus, size, together
from roost.sim.forecast import Present

#: How many remedies are named, how many are put to the policy for that, and how often each.
_NAMED = 3
_TRIED = 8
_WIDER = 4
#: Shares of a GPU and parts of CPUs and memory that are tried.
_SHARES = (750, 500, 250, 100)
_PARTS = (0.75, 0.5, 0.25)
#: Counts up to that are tried one by one.
_ONE_BY_ONE = 32
#: Runs to cancel together: every choice of up to three among the largest ten, then the largest.
_TOGETHER, _LARGEST, _MOST = 3, 10, 16


@dataclass(frozen=True, slots=True)
class _Remedy:
    """What could be otherwise; ``size`` says how much that would ask of the user."""

    size: float
    kind: str
    value: str | int | float | list[str]
    text: str
    spec: JobSpec | None = None
    cancels: tuple[JobId, ...] = ()
    back: tuple[JobId, ...] = ()
    scales: tuple[JobId, int] | None = None


def remedies(
    present: Present,
    job_id: JobId,
    policy: Policy,
    placer: Placer,
    spent: Callable[[], bool] = bool,
) -> list[dict[str, Any]]:
    """Changes that would start a waiting job now, the smallest first, ready for JSON.

    No more are tried once ``spent`` says so.
    """
    core = present.core(policy, placer)
    job = core.jobs[job_id]
    found: list[dict[str, Any]] = []
    if _starts(present.core(policy, placer), job_id, None):
        return found  # it is about to start anyway
    fitting = sorted(_fitting(core, job, placer), key=lambda change: change.size)
    for change in fitting[:_TRIED]:
        if spent():
            break
        helps = _helpful(present, job, change, policy, placer)
        if helps is not None:
            found.append(encode(RemedyView(helps.kind, helps.value, helps.text, "now")))
        if len(found) == _NAMED:
            break
    return found


def _helpful(
    present: Present, job: Job, change: _Remedy, policy: Policy, placer: Placer
) -> _Remedy | None:
    """A change that starts a job now: this one, or one that keeps the user's others back, too."""
    for _ in range(_WIDER):
        copy = present.core(policy, placer)
        running = set(copy.runs)
        if _starts(copy, job.id, change):
            return change
        first = [run.job for name, run in copy.runs.items() if name not in running]
        if not change.cancels or not first or any(job.spec.user != o.spec.user for o in first):
            return None
        change = _wider(change, [other.id for other in first])
    return None


def _wider(change: _Remedy, first: list[JobId]) -> _Remedy:
    """Cancel also those that would take the place; they wait, and so must be gone before."""
    back = (*change.back, *first)
    names = together(back)
    return replace(
        change,
        value=[*back, *change.cancels],
        text=f"{change.text.split('; ')[0]}; and first {names}, which would go before it",
        back=back,
    )


# -- with the policy -------------------------------------------------------------------------------


def _starts(copy: Core, job_id: JobId, change: _Remedy | None) -> bool:
    """Whether a job starts at once in a copy of the core where something is otherwise."""
    job, now = copy.jobs[job_id], copy.now
    if change is not None and change.spec is not None:
        copy.waiting.leave(job, now)
        job.spec, job.line = change.spec, None
        job.queue = copy.queues[change.spec.queue]
        copy.waiting.join(job, now)
    copy.handle(Woke(now))
    cancels = () if change is None else (*change.back, *change.cancels)
    if change is not None and change.scales is not None:
        _scale(copy, *change.scales)
    runs = [copy.jobs[name].run for name in cancels]
    for name in cancels:
        copy.handle(CancelRequested(now, name))
    for run in runs:
        if run is not None:
            copy.handle(Exited(now, run.id, Outcome.STOPPED))
    return job.run is not None and not job.run.parked and not job.run.after


def _scale(copy: Core, name: JobId, workers: int) -> None:
    """Let a run have so many workers, at once."""
    copy.handle(ScaleRequested(copy.now, name, Range(workers, workers)))
    run = copy.jobs[name].run
    if run is not None and run.target is not None:
        copy.handle(Resized(copy.now, run.id))


# -- with the placer -------------------------------------------------------------------------------


def _fitting(core: Core, job: Job, placer: Placer) -> Iterator[_Remedy]:
    """Changes with which there is room for a job; of each kind, the smallest one."""
    if job.run is None:  # one that is suspended must go on as it is
        for series in _otherwise(core, job.spec):
            fits = (change for change in series if _room(core, change.spec or job.spec, placer))
            if (change := next(fits, None)) is not None:
                yield change
    yield from _smaller(core, job)
    yield from _cancelled(core, job, placer)


def _room(core: Core, spec: JobSpec, placer: Placer) -> bool:
    queue = core.queues[spec.queue]
    milli, limit = spec.gpu_milli(spec.workers.min), queue.spec.limit_milli
    if limit is not None and queue.used_milli + milli > limit:
        return False
    shape = Shape(spec.workers.min, spec.resources, spec.roles, spec.within)
    return placer(core.ledger, shape) is not None


def _smaller(core: Core, job: Job) -> Iterator[_Remedy]:
    """An elastic run of the same user that could do with fewer workers, and how many."""
    lacks = job.gpu_milli - core.ledger.free_milli
    for run in _own(core, job):
        each, low = run.job.spec.resources.gpu_milli, run.job.spec.workers.min
        workers = run.workers - max(-(-lacks // each) if each else 1, 1)
        if low <= workers < run.workers:
            name, names = run.id.job, counted(run.workers, "worker")
            text = f"after: roost scale {name} {workers} (it runs with {names})"
            # It asks less of a user than to cancel anything.
            less = (run.workers - workers) / run.workers
            yield _Remedy(less, "scale", [name, str(workers)], text, scales=(name, workers))
            return


def _own(core: Core, job: Job) -> list[Run]:
    """Runs of the same user, the smallest first."""
    user = job.spec.user
    runs = [run for run in core.runs.values() if user and run.job.spec.user == user]
    held = [run for run in runs if run.booked and run.target is None]
    return sorted(held, key=lambda run: (run.gpu_milli, run.job.seq))


def _cancelled(core: Core, job: Job, placer: Placer) -> Iterator[_Remedy]:
    """The fewest runs of the same user that are in the way, the smallest of them."""
    for group in _groups(_own(core, job)):
        if _room_without(core, group, job.spec, placer):
            milli, names = sum(run.gpu_milli for run in group), [run.id.job for run in group]
            one = len(group) == 1
            text = f"after cancelling your job{'' if one else 's'} {together(names)}, which "
            text += f"holds {gpus(milli)}" if one else f"hold {gpus(milli)} together"
            value: str | list[str] = names[0] if one else [*names]
            yield _Remedy(len(group) + milli / WHOLE, "cancel", value, text, cancels=tuple(names))
            return


def _groups(held: list[Run]) -> Iterator[tuple[Run, ...]]:
    """Runs to do without, fewest first: each alone, some together, then more and more."""
    yield from ((run,) for run in held)
    for count in range(2, _TOGETHER + 1):
        several = combinations(held[-_LARGEST:], count)
        yield from sorted(several, key=lambda group: sum(run.gpu_milli for run in group))
    yield from (tuple(held[-count:]) for count in range(_TOGETHER + 1, min(len(held), _MOST) + 1))


def _room_without(core: Core, runs: tuple[Run, ...], spec: JobSpec, placer: Placer) -> bool:
    parts = [(part, needs(run.job, part)) for run in runs for part in run.allocation.parts]
    with core.ledger.trial():
        for part, need in parts:
            core.ledger.release(part, need)
        for run in runs:
            run.job.queue.charge(run.job, run.allocation, -1)
        found = _room(core, spec, placer)
        for run in runs:
            run.job.queue.charge(run.job, run.allocation)
        for part, need in reversed(parts):
            core.ledger.take(part, need)
    return found


# -- what could be otherwise -----------------------------------------------------------------------


def _otherwise(core: Core, spec: JobSpec) -> Iterator[Iterator[_Remedy]]:
    """Series of changes to what a job asks for, in each the smallest first."""
    yield _anywhere(spec)
    yield _kinds(core, spec)
    yield _workers(spec)
    yield _gpus(spec)
    yield _shares(spec)
    yield _cpus(spec)
    yield _memory(spec)
    yield _queues(core, spec)


def _anywhere(spec: JobSpec) -> Iterator[_Remedy]:
    if spec.within is not None:
        level = spec.within.name.lower()
        text = f"without asking for all workers within one {level}"
        yield _Remedy(0.1, "within", level, text, replace(spec, within=None))
    if spec.cell:
        text = f"without asking for cell {spec.cell}"
        yield _Remedy(0.1, "cell", spec.cell, text, replace(spec, cell=""))


def _kinds(core: Core, spec: JobSpec) -> Iterator[_Remedy]:
    wanted = spec.resources.kinds
    others = sorted({node.spec.kind for node in core.ledger.order if node.up} - set(wanted))
    for kind in others if wanted else ():
        changed = replace(spec, resources=replace(spec.resources, kinds=(kind,)))
        text = f"on GPUs of kind {kind} instead of {'|'.join(wanted)}"
        yield _Remedy(0.2, "kind", kind, text, changed)


def _workers(spec: JobSpec) -> Iterator[_Remedy]:
    low, high = spec.workers
    for count in _fewer(low):
        changed = replace(spec, workers=Range(count, high if spec.elastic else count))
        text = f"with {count} instead of {counted(low, 'worker')}"
        yield _Remedy((low - count) / low, "workers", count, text, changed)


def _gpus(spec: JobSpec) -> Iterator[_Remedy]:
    need = spec.resources
    for count in _fewer(need.gpus):
        changed = replace(spec, resources=replace(need, gpus=count))
        text = f"with {count} instead of {gpus(need.gpus * WHOLE)} per worker"
        yield _Remedy((need.gpus - count) / need.gpus, "gpus", count, text, changed)


def _shares(spec: JobSpec) -> Iterator[_Remedy]:
    need = spec.resources
    for share in _SHARES if need.gpus == 1 else ():
        if share < need.share_milli:
            changed = replace(spec, resources=replace(need, share_milli=share))
            text = f"with {share / WHOLE:g} instead of {gpus(need.share_milli)} per worker"
            part = (need.share_milli - share) / need.share_milli
            yield _Remedy(part, "share", share / WHOLE, text, changed)


def _cpus(spec: JobSpec) -> Iterator[_Remedy]:
    need = spec.resources
    for part in _PARTS:
        if amount := int(need.cpu_milli * part):
            changed = replace(spec, resources=replace(need, cpu_milli=amount))
            text = f"with {amount / 1000:g} instead of {cpus(need.cpu_milli)} per worker"
            yield _Remedy((1 - part) / 2, "cpus", amount / 1000, text, changed)


def _memory(spec: JobSpec) -> Iterator[_Remedy]:
    need = spec.resources
    for part in _PARTS:
        if amount := int(need.memory_mib * part):
            changed = replace(spec, resources=replace(need, memory_mib=amount))
            less, more = size(amount), size(need.memory_mib)
            text = f"with {less} instead of {more} of memory per worker"
            yield _Remedy((1 - part) / 2, "memory_mib", amount, text, changed)


def _queues(core: Core, spec: JobSpec) -> Iterator[_Remedy]:
    for queue in core.queues.values():
        if queue.spec.id != spec.queue:
            text = f"in queue {queue.spec.id} instead of {spec.queue}"
            changed = replace(spec, queue=queue.spec.id)
            yield _Remedy(0.5, "queue", queue.spec.id, text, changed)


def _fewer(count: int) -> list[int]:
    """Smaller counts, largest first: all of them, or halves where there are many."""
    if count <= _ONE_BY_ONE:
        return list(range(count - 1, 0, -1))
    halves = [count * eighths // 8 for eighths in (7, 6, 5)]
    while count > 1:
        count //= 2
        halves.append(count)
    return halves
