"""Promises of cells kept: before a policy is asked, each queue gets what is due to it.

Waiting jobs that fit into what their queue was promised begin there, whatever others do. What is in
the way leaves: runs of others that hold no claim there, and runs of the same queue with a lower
priority, which lose their claim first and keep running where they are if that is enough. Elastic
runs give back only the workers that are in the way, where they stand.

Runs that came to be without a claim are given one as soon as their queue may have it, so that
nobody is stopped who could have stayed. These are decisions like those of a policy, which finds
them made and can break none of them: see ``CellBooks.admits``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from roost.core.allocation import WORKER, Allocation, Part
from roost.core.cells.books import CellBooks
from roost.core.cells.covering import masks_of
from roost.core.cells.dues import Due
from roost.core.cells.forest import Cell
from roost.core.cells.places import view as view_of
from roost.core.cells.telling import why as because
from roost.core.lifecycle import goes_on
from roost.core.node import Node, devices, refusal
from roost.core.plan import Plan
from roost.core.spec import QueueId
from roost.core.state import Job, Run, needs
from roost.core.transitions import RESHAPING, RunPhase
from roost.core.waiting import Line


def keep_promises(plan: Plan) -> None:
    """Give runs the claims that their queues may have, then waiting jobs their due."""
    books = plan.ledger.cells
    if books is None:
        return
    _look_again(plan, books)
    by_queue: dict[QueueId, list[Line]] = {}
    for line in plan.waiting.open:
        queue = line.head.queue.spec
        if queue.cells and line.head.spec.priority >= 0:
            by_queue.setdefault(queue.id, []).append(line)
    for lines in by_queue.values():
        while lines:
            line = min(lines, key=_rank)
            if not _serve(plan, books, line) or not line.entries:
                lines.remove(line)


def _rank(line: Line) -> tuple[object, ...]:
    """A higher priority first, then as the policy would have it."""
    return (-line.head.spec.priority, *line.entries[0][:2])


def _look_again(plan: Plan, books: CellBooks) -> None:
    """Give runs claims that they could not have when they began."""
    if books.looked_at == books.version:
        return
    lacking = {
        queue
        for queue, dues in books.dues.by_queue.items()
        if any(due.open > 0 or due.promise.pinned for due in dues)
    }
    runs = [
        run
        for run in plan.running
        if run.job.queue.spec.id in lacking
        and run.booked
        and any(due.open > 0 or due.promise.pinned for due in books.dues.owed(run.job))
    ]
    for run in sorted(runs, key=lambda run: (-run.job.spec.priority, run.job.seq)):
        booked = run.target or run.allocation
        had = books.claims_of(run.job)
        if _bare(books, run, masks_of(plan.ledger, booked.parts)):
            found = books.fitted(run.job, booked)
            if len(found) > len(had):
                plan.reclaim(run, found)
    books.looked_at = books.version


def _bare(books: CellBooks, run: Run, masks: Mapping[Node, int]) -> dict[Node, int]:
    """Devices among these that a run has without a claim."""
    covered = books.places.covered(run.job) if books.claims_of(run.job) else {}
    found = {node: mask & ~covered.get(node, 0) for node, mask in masks.items()}
    return {node: mask for node, mask in found.items() if mask}


# -- a waiting job ---------------------------------------------------------------------------------


def _serve(plan: Plan, books: CellBooks, line: Line) -> bool:
    """Start the head of a line within its queue's promise, if that has room for it."""
    job = line.head
    version, refused = books.version_for(job.queue.spec.id), books.refused
    if refused.still(line, job, version) or plan.over_limit(job, line.gpu_milli):
        return False
    moment = plan.ledger.moment()
    others_wait, plan.awaits_starts = plan.awaits_starts, False
    served = _place(plan, books, job) or _supersede(plan, books, job)
    waits, plan.awaits_starts = plan.awaits_starts, plan.awaits_starts or others_wait
    if served:
        return True
    plan.ledger.back_to(moment)
    books.back_to(version, job.queue.spec.id)
    if not waits:  # one that waits for starts is to be looked at in every plan until then
        refused.note(line, job, version, len(plan.waiting.open))
    return False


def _place(plan: Plan, books: CellBooks, job: Job) -> bool:
    """Place a job in the cells of its queue, others in it or not."""
    own = books.places.own(job)
    bound = books.places.bind(job)
    ways = [own] if own else []
    named = books.places.named(job)
    if bound:
        ways.append([*own, *(cell for _, cell in bound)])
    if named:
        ways.append([*own, *(cell for _, cell in bound), *named])
    if any(_begin(plan, books, job, cells, bound, {}) for cells in ways):
        return True
    cells = [*own, *(cell for _, cell in bound), *named]
    if not cells:
        return False
    view = view_of(cells)
    guests = _guests(plan, books, view)
    able = {run: masks for run, masks in guests.items() if _can_go(run)}
    if able and _begin(plan, books, job, cells, bound, able):
        return True
    later = {run: masks for run, masks in guests.items() if run.job.preemptible}
    if len(later) > len(able):
        with _without(plan, later):
            fits = _find(plan, job, view) is not None
        if fits:  # it waits for runs that are on their way, and others stay away until then
            books.places.keep(job, view)
            plan.await_starts()
    return False


def _begin(  # noqa: PLR0913 - where, for whom, and against whom
    plan: Plan,
    books: CellBooks,
    job: Job,
    cells: list[Cell],
    bound: list[tuple[Due, Cell]],
    guests: Mapping[Run, Mapping[Node, int]],
) -> bool:
    """Place a job in some cells, after the guests there that are in its way have left."""
    view = view_of(cells)
    with _without(plan, guests):
        parts = _find(plan, job, view)
    if parts is None:
        return False
    mark = plan.mark()
    wanted = masks_of(plan.ledger, parts)
    claims = books.cover(job, parts, bound)
    if not claims:
        return False
    dues = [due for due in books.dues.owed(job) if any(one.promise == due.key for one in claims)]
    why = f"{because(job.queue.spec.id, dues)}: makes room for {job.id}"
    for run, masks in guests.items():
        if any(mask & wanted.get(node, 0) for node, mask in masks.items()):
            taken = {node: mask & wanted.get(node, 0) for node, mask in masks.items()}
            if not _send_away(plan, run, taken, why):
                plan.undo(mark)
                return False
    if _make_fit(plan, job, parts, guests, why):
        # An elastic guest that goes on with less may have been given one of these cells.
        claims = books.cover(job, parts, bound)
        if claims and plan.place_at(job, Allocation(parts), claims):
            return True
    plan.undo(mark)
    return False


def _make_fit(
    plan: Plan, job: Job, parts: Iterable[Part], guests: Mapping[Run, object], why: str
) -> bool:
    """Let more guests leave whose CPUs or memory are in the way; False: it is not enough."""
    for part in parts:
        node, need = plan.ledger.nodes[part.node], needs(job, part)
        for run in list(guests):
            if not refusal(node, part, need):
                break
            if run in node.runs and run.booked and _can_go(run):
                _send_away(plan, run, {}, why)
        if refusal(node, part, need):
            return False
    return True


def _find(plan: Plan, job: Job, view: Mapping[Node, int]) -> tuple[Part, ...] | None:
    """Room for a job on some devices."""
    shape = plan.waiting.line_of(job).shape
    with plan.in_time(job.remaining_s), plan.ledger.within(view):
        return plan.find_kind(job, shape)


# -- those in the way ------------------------------------------------------------------------------


def _guests(plan: Plan, books: CellBooks, view: Mapping[Node, int]) -> dict[Run, dict[Node, int]]:
    """Runs on some devices that have no claim to them, and which: lower priorities first."""
    found: dict[Run, dict[Node, int]] = {}
    seen: set[Run] = set()
    for node in view:
        for run in node.runs:
            if run in seen:
                continue
            seen.add(run)
            if not run.booked or not run.job.preemptible:
                continue
            masks = masks_of(plan.ledger, (run.target or run.allocation).parts)
            here = {one: mask & view.get(one, 0) for one, mask in masks.items()}
            bare = _bare(books, run, here)
            if bare or not any(masks.values()):
                found[run] = bare
    order = sorted(
        found, key=lambda run: (run.job.spec.priority, run.disturbance_s(plan.now), -run.job.seq)
    )
    return {run: found[run] for run in order}


def _can_go(run: Run) -> bool:
    """Whether a run can be asked to leave now."""
    if not run.job.preemptible:
        return False
    return run.settled or run.frozen or run.phase in (RunPhase.RESERVED, RunPhase.RECALLED)


def _send_away(plan: Plan, run: Run, taken: Mapping[Node, int], why: str) -> bool:
    """Take devices from a run: only these if it can go on with the rest, else all."""
    if run.settled and run.job.spec.elastic and taken:
        left = _left(plan, run, taken)
        if goes_on(run.job.spec, left) and plan.reshape(run, left, f"size: {why}"):
            return True
    return plan.recall(run, why) or plan.evict(run, why)


def _left(plan: Plan, run: Run, taken: Mapping[Node, int]) -> Allocation:
    """What a run has without the workers on some devices."""
    parts: list[Part] = []
    for part in run.allocation.parts:
        lost = set(devices(taken.get(plan.ledger.nodes[part.node], 0)))
        if part.role != WORKER or lost.isdisjoint(part.gpus):
            parts.append(part)
            continue
        each = len(part.gpus) // part.workers
        kept = [
            part.gpus[at : at + each]
            for at in range(0, len(part.gpus), each)
            if lost.isdisjoint(part.gpus[at : at + each])
        ]
        if kept:
            gpus = tuple(gpu for some in kept for gpu in some)
            parts.append(part._replace(gpus=gpus, workers=len(kept)))
    return Allocation(tuple(parts))


@contextmanager
def _without(plan: Plan, guests: Iterable[Run]) -> Iterator[None]:
    """See the ledger as if some runs had left."""
    ledger = plan.ledger
    held = [
        (part, needs(run.job, part))
        for run in guests
        for part in (run.target or run.allocation).parts
    ]
    if not held:
        yield
        return
    with ledger.trial():
        for part, need in held:
            ledger.release(part, need)
        yield
        for part, need in reversed(held):
            ledger.take(part, need)


# -- lower priorities of the same queue ------------------------------------------------------------


def _supersede(plan: Plan, books: CellBooks, job: Job) -> bool:
    """Give a job the claims of runs of its own queue with a lower priority.

    They keep running as long as there is room for both, and those that need not have lost their
    claims have them back.
    """
    lower = [
        run
        for other in books.holdings.jobs.get(job.queue.spec.id, {}).values()
        if other.spec.priority < job.spec.priority
        and other.preemptible
        and (run := other.run) is not None
        and run.booked
        and run.phase not in RESHAPING
    ]
    lower.sort(key=lambda run: (run.job.spec.priority, -run.job.seq))
    mark, lost = plan.mark(), list[Run]()
    for run in lower:
        lost.append(run)
        plan.reclaim(run, ())
        if _place(plan, books, job):
            for other in reversed(lost):
                if other.booked and other.phase not in RESHAPING:
                    found = books.fitted(other.job, other.allocation)
                    if found:
                        plan.reclaim(other, found)
            return True
    plan.undo(mark)
    return False
