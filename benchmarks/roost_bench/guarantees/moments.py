"""Sharing anomalies as they happen: a job waits though it would run now in its private cluster.

At the end of every batch of events the private cluster of each queue is taken to hold what the
queue runs now within its promise. A job that waits is anomalous from then on until the next batch
if that cluster has room for it.

Under cells, where a run stands in the private cluster is where it has claimed a cell, and every
waiting job is looked at. Under quotas there are no claims: a job is given seats in the private
cluster when it starts, in the fullest cells that have room, and is beyond the promise while no
cells have. There only the first job in the line of each queue is looked at, for a strict policy
would let it block the others. So cells are judged more severely than quotas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from roost.core.actions import Action
from roost.core.cells.books import CellBooks
from roost.core.controller import Core
from roost.core.decisions import Decision
from roost.core.events import Event
from roost.core.spec import JobId, QueueId, Shape
from roost.core.state import Job
from roost.core.waiting import Line
from roost_bench.guarantees.tenants import Tenant

#: Free GPUs of each cell of a private cluster.
_Free: TypeAlias = Sequence[int]


class MomentaryAnomalies:
    """Watches a run; how long which job was anomalous is in ``waits_s``."""

    def __init__(self, core: Core, tenants: Iterable[Tenant]) -> None:
        self._core = core
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._seats: dict[QueueId, _Seats] = {
            name: _Seats(tenant) for name, tenant in self._tenants.items()
        }
        #: What is free in each queue's cells, and what its claims were like then.
        self._known: dict[QueueId, tuple[tuple[int, ...], _Free]] = {}
        self._open: tuple[JobId, ...] = ()
        self._since = 0.0
        self.waits_s: dict[JobId, float] = defaultdict(float)

    def __call__(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        """Look at the end of a batch."""
        del decisions, actions
        now = events[0].time if events else self._since
        for job in self._open if now > self._since else ():
            self.waits_s[job] += now - self._since
        self._since = now
        self._open = tuple(job.id for job in self._anomalous())

    def _anomalous(self) -> Iterable[Job]:
        lines: dict[QueueId, list[Line]] = defaultdict(list)
        for line in self._core.waiting.open:
            lines[line.head.queue.spec.id].append(line)
        if self._core.ledger.cells is None:
            self._seat()
        for queue, waiting in lines.items():
            if self._core.ledger.cells is not None:
                free = self._claimed(self._tenants[queue])
                for line in waiting:
                    if fits(line.shape, free):
                        yield line.head
            else:
                first = min(waiting, key=lambda line: line.head.seq)
                if fits(first.shape, self._seats[queue].free):
                    yield first.head

    def _claimed(self, tenant: Tenant) -> _Free:
        """What is free in the cells of a queue, claimed by it or not yet."""
        books, each = self._core.ledger.cells, tenant.gpus // tenant.promise.count
        if books is None:
            return [each] * tenant.promise.count
        now = books.version_for(tenant.name)[1:]
        known = self._known.get(tenant.name)
        if known is None or known[0] != now:
            known = self._known[tenant.name] = now, self._unused(tenant, books)
        return known[1]

    def _unused(self, tenant: Tenant, books: CellBooks) -> _Free:
        each = tenant.gpus // tenant.promise.count
        used: dict[str, int] = defaultdict(int)
        for job in books.holdings.jobs.get(tenant.name, {}).values():
            if job.run is None:
                continue
            held = {claim.cell: 0 for claim in books.claims_of(job)}
            for part in (job.run.target or job.run.allocation).parts:
                for gpu in part.gpus:
                    cell = _cell_of(held, part.node, gpu)
                    if cell is not None:
                        held[cell] += 1
            for cell, gpus in held.items():
                used[cell] += gpus
        unclaimed = tenant.promise.count - len(used)
        return [each - gpus for gpus in used.values()] + [each] * unclaimed

    def _seat(self) -> None:
        """Under quotas: runs that are over give their seats back, others get some."""
        running: dict[QueueId, dict[JobId, Job]] = defaultdict(dict)
        for run in self._core.runs.values():
            running[run.job.queue.spec.id][run.job.id] = run.job
        for queue, seats in self._seats.items():
            seats.keep(running[queue])


def _cell_of(cells: Mapping[str, int], node: str, gpu: int) -> str | None:
    """The one of some cells that a GPU is in."""
    socket = f"{node}/socket{gpu // 4}"
    return next((name for name in (node, socket, f"{node}/gpu{gpu}") if name in cells), None)


def fits(shape: Shape, free: _Free) -> bool:
    """Whether all workers of a gang fit into cells with so many free GPUs."""
    need = shape.resources.gpus
    return sum(gpus // need for gpus in free) >= shape.workers


class _Seats:
    """Who sits where in a private cluster that is not there."""

    def __init__(self, tenant: Tenant) -> None:
        each = tenant.gpus // tenant.promise.count
        self.free = [each] * tenant.promise.count
        self._taken: dict[JobId, dict[int, int]] = {}

    def keep(self, running: Mapping[JobId, Job]) -> None:
        """Take these jobs for those that run; what started first is seated first."""
        for gone in [job for job in self._taken if job not in running]:
            for cell, gpus in self._taken.pop(gone).items():
                self.free[cell] += gpus
        for job in sorted(
            (job for name, job in running.items() if name not in self._taken),
            key=lambda job: job.seq,
        ):
            self._sit(job)

    def _sit(self, job: Job) -> None:
        need, left = job.spec.resources.gpus, job.spec.workers.min
        found: dict[int, int] = {}
        for cell in sorted(range(len(self.free)), key=lambda cell: self.free[cell]):
            workers = min(left, self.free[cell] // need)
            if workers:
                found[cell] = workers * need
                left -= workers
        if not left:
            self._taken[job.id] = found
            for cell, gpus in found.items():
                self.free[cell] -= gpus
