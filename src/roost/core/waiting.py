"""Jobs that wait, in lines of equals.

Jobs of one shape are the same to a placer, so they stand in one line, sorted by what the policy
orders by. A decision looks at the heads of lines, not at all jobs: with thousands waiting there
are still only as many lines as there are shapes. Why a line waits is noted on the line; each job's
share of that time is settled when it leaves, so the split of queueing delay costs O(1) per job.

A key must not change while a job waits; a policy with keys that change calls ``rekey``.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from roost.core.reasons import Cause, Reason, lack
from roost.core.spec import QueueId, Resources, Shape
from roost.core.state import Job

#: Anything that sorts; smaller goes first.
Key: TypeAlias = float | tuple[float, ...]
KeyOf: TypeAlias = Callable[[Job], Key]
#: A job's place in a line: its key, its number (ties go to the older one), the job.
Entry: TypeAlias = tuple[Key, int, Job]


#: In a queue that is promised cells: the one that a job asks for, and its priority.
_Claim: TypeAlias = tuple[str, int] | None
#: How many resources are remembered with their lines.
_MEMORY = 65536


def by_arrival(job: Job) -> Key:
    """First come, first served."""
    return job.seq


@dataclass(slots=True, eq=False)
class Line:
    """Waiting jobs of one shape, and of one queue where the queue has a limit.

    ``preempts``: others may be disturbed for them, or for none of them. ``adaptable``: they can
    change their size or kind of GPU, where a policy has such jobs stand apart.

    ``refused_at`` is the ledger's count of releases when the shape was last refused: while that
    stands, it need not be tried again. ``blocked`` is what ``fill`` remembers about making room.
    ``only_gpus``, ``needs_pool`` and ``needs_extras`` are those of the shape, worked out once.
    ``cause`` is what the line lacks since ``since``; ``said`` what the policy has to say about it.
    """

    shape: Shape
    gpu_milli: int
    queue: QueueId | None
    epoch: int
    only_gpus: int = 0
    needs_pool: bool = False
    needs_extras: bool = False
    preempts: bool = True
    adaptable: bool = False
    entries: list[Entry] = field(default_factory=list)
    refused_at: int = -1
    blocked: object | None = None
    cause: Cause = Cause.TURN
    said: str | None = None
    since: float = 0.0
    totals: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])

    @property
    def head(self) -> Job:
        """The job that goes first."""
        return self.entries[0][2]

    def settle(self, now: float) -> list[float]:
        """Seconds spent on each cause until now."""
        if now > self.since:
            self.totals[self.cause] += now - self.since
            self.since = now
        return self.totals

    def blame(self, cause: Cause, now: float) -> None:
        """From now on the line waits for this."""
        if cause is not self.cause:
            self.settle(now)
            self.cause = cause

    @property
    def reason(self) -> Reason:
        """Why the line waits."""
        need = self.shape.resources
        text = self.said or lack(self.cause, self.gpu_milli, need.kinds, pool=bool(need.pool))
        return Reason(self.cause, text)


class Waiting:
    """All waiting jobs, in lines."""

    def __init__(self) -> None:
        self.lines: dict[tuple[Shape, QueueId | None, bool, bool, _Claim], Line] = {}
        self._known: dict[tuple[object, ...], tuple[Resources, Line]] = {}
        #: Lines that are not empty.
        self.open: dict[Line, None] = {}
        self.key: KeyOf = by_arrival
        self.by_queue = False
        self.apart = False
        #: Jobs that ran before and wait again since the last decision.
        self.returned: list[Job] = []
        #: Whether a line was opened since the last decision.
        self.opened = False
        #: What the key raised; since then all stand in order of arrival.
        self.fault: BaseException | None = None
        self.epoch = 0
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Job]:
        """All waiting jobs in order."""
        return (entry[2] for entry in heapq.merge(*(line.entries for line in self.open)))

    def ahead(self, job: Job) -> list[list[Entry]]:
        """Of each line that is not empty, those that go before a job, in their order.

        Also of a job that does not wait, as if it did.
        """
        place: tuple[Key, int] = (self._key_of(job), job.seq)
        return [line.entries[: bisect_left(line.entries, place)] for line in self.open]

    def _key_of(self, job: Job) -> Key:
        """The key by which a job stands in its line, or would."""
        if job.waiting:
            entries = self.line_of(job).entries
            return entries[self._place_of(job, entries)][0]
        return self.key(job)

    def order_by(
        self, key: KeyOf, now: float, *, by_queue: bool = False, apart: bool = False
    ) -> None:
        """Sort by another key from now on.

        If asked for with a line per queue, or with adaptable jobs apart from others. Raises what
        the key raises; all stand in order of arrival then.
        """
        if key != self.key or by_queue != self.by_queue or apart != self.apart:
            jobs = self._disband(now)
            self.key, self.by_queue, self.apart, self.fault = key, by_queue, apart, None
            self._reform(jobs, now)
            if self.fault is not None:
                raise self.fault

    def order_by_arrival(self) -> None:
        """Sort by what cannot fail, without asking the present key."""
        self.key = by_arrival
        for line in self.open:
            line.entries = sorted((job.seq, job.seq, job) for _, _, job in line.entries)

    def tidy(self, now: float) -> None:
        """Forget shapes that came once and never again, where there are very many."""
        if len(self.lines) > _MEMORY:
            self._reform(self._disband(now), now)

    def regroup(self, now: float, change: Callable[[], None]) -> None:
        """Form the lines anew around a change to what they depend on."""
        jobs = self._disband(now)
        change()
        self._reform(jobs, now)

    def _disband(self, now: float) -> list[Job]:
        """Send all jobs out of their lines at once: as ``leave``, without looking for each."""
        jobs: list[Job] = []
        for line in self.open:
            totals = line.settle(now)
            since: tuple[float, ...] | None = None
            passed: list[tuple[int, float]] = []
            for _, _, job in line.entries:
                if job.joined is not since:  # those that joined at once share it
                    since = job.joined
                    passed = [
                        (cause, total - since[cause])
                        for cause, total in enumerate(totals)
                        if total != since[cause]
                    ]
                job.waiting = False
                for cause, seconds in passed:
                    job.waits[cause] += seconds
                jobs.append(job)
            line.entries = []
        self.open.clear()
        self.count = 0
        return sorted(jobs, key=by_arrival)

    def _reform(self, jobs: list[Job], now: float) -> None:
        self.lines.clear()
        self._known.clear()
        self.epoch += 1
        self.join_all(jobs, now)

    def join_all(self, jobs: Collection[Job], now: float) -> None:
        """Many jobs stand in line, each as it did since ``queued_at``; lines are sorted once."""
        joined: dict[Line, tuple[float, ...]] = {}
        for job, key in zip(jobs, self._keys(jobs), strict=True):
            line = self.line_of(job)
            since = joined.get(line)
            if since is None:
                if not line.entries:
                    line.since, line.blocked = now, None
                    self.open[line] = None
                    self.opened = True
                since = joined[line] = tuple(line.settle(now))
            line.entries.append((key, job.seq, job))
            job.joined, job.waiting = since, True
            if job.attempts:
                self.returned.append(job)
        self.count += len(jobs)
        try:
            for line in joined:
                line.entries.sort()
        except BaseException as error:  # noqa: BLE001 - keys of a policy may not compare
            self.fault = error
            self.order_by_arrival()

    def _keys(self, jobs: Collection[Job]) -> list[Key]:
        try:
            return [self.key(job) for job in jobs]
        except BaseException as error:  # noqa: BLE001 - a policy's key raises what it likes
            self.fault = error
            self.order_by_arrival()
            return [job.seq for job in jobs]

    def line_of(self, job: Job) -> Line:
        """The line in which a job stands or would stand."""
        if job.line is not None and job.line.epoch == self.epoch:
            return job.line
        spec = job.spec
        limited = self.by_queue or job.queue.bounded
        queue = job.queue.spec.id if limited else None
        # Jobs of a trace share their resources: the same object is found without hashing it.
        sort = (queue, spec.preempts, self.apart and spec.adaptable)
        # In a queue that is promised cells a higher priority has them first.
        claim = (spec.cell, max(-1, spec.priority)) if job.queue.spec.cells else None
        known = (spec.workers.min, id(spec.resources), spec.roles, spec.within, *sort, claim)
        found = self._known.get(known)
        if found is not None and found[0] is spec.resources:
            job.line = found[1]
            return found[1]
        shape = Shape(spec.workers.min, spec.resources, spec.roles, spec.within)
        line = self.lines.get((shape, *sort, claim))
        if line is None:
            only_gpus, needs_pool = shape.only_gpus, shape.needs_pool
            milli, extras = shape.gpu_milli, shape.needs_extras
            line = Line(
                *(shape, milli, queue, self.epoch), only_gpus, needs_pool, extras, *sort[1:]
            )
            self.lines[shape, *sort, claim] = line
        if len(self._known) > _MEMORY:  # jobs that do not come from one trace share nothing
            self._known.clear()
        self._known[known] = (spec.resources, line)
        job.line = line
        return line

    def join(self, job: Job, now: float) -> None:
        """A job starts to wait."""
        line = self.line_of(job)
        if not line.entries:
            line.since, line.blocked = now, None
        self._insert(line, job)
        job.joined = tuple(line.settle(now))
        job.queued_at = now
        if job.attempts:
            self.returned.append(job)

    def leave(self, job: Job, now: float) -> None:
        """A job waits no longer: it gets a place, or it is not wanted any more."""
        line = self.line_of(job)
        self._remove(line, job)
        waits = job.waits
        for cause, total in enumerate(line.settle(now)):
            waits[cause] += total - job.joined[cause]

    def waits(self, job: Job, now: float) -> list[float]:
        """Seconds that a job has waited for each cause, until now."""
        if not job.waiting:
            return job.waits
        line = self.line_of(job)
        waits = [
            waited + total - since
            for waited, total, since in zip(job.waits, line.totals, job.joined, strict=True)
        ]
        waits[line.cause] += now - line.since
        return waits

    def rejoin(self, job: Job, now: float) -> None:
        """Undo ``leave`` within the same instant."""
        line = self.line_of(job)
        self._insert(line, job)
        for cause, total in enumerate(line.settle(now)):
            job.waits[cause] -= total - job.joined[cause]

    def rekey(self, job: Job, change: Callable[[Job], None]) -> None:
        """Change something about a waiting job that its key depends on."""
        line = self.line_of(job)
        self._remove(line, job)
        try:
            change(job)
        finally:
            self._insert(line, job)

    def rekey_all(self, change: Callable[[], None]) -> None:
        """Change something that all keys depend on."""
        change()
        for line in self.open:
            line.entries = sorted((self.key(job), job.seq, job) for _, _, job in line.entries)

    def forget_refusals(self) -> None:
        """Try every line again at the next decision."""
        for line in self.open:
            line.refused_at, line.blocked = -1, None

    def _insert(self, line: Line, job: Job) -> None:
        if not line.entries:
            self.open[line] = None
            self.opened = True
        try:
            insort(line.entries, (self.key(job), job.seq, job))
        except BaseException as error:  # noqa: BLE001 - a policy's key raises what it likes
            self.fault = error
            self.order_by_arrival()
            insort(line.entries, (job.seq, job.seq, job))
        job.waiting = True
        self.count += 1

    def _remove(self, line: Line, job: Job) -> None:
        entries = line.entries
        if entries[0][2] is job:
            del entries[0]
        else:
            del entries[self._place_of(job, entries)]
        job.waiting = False
        self.count -= 1
        if not entries:
            del self.open[line]

    def _place_of(self, job: Job, entries: list[Entry]) -> int:
        """Where a job stands in its line, also if its key is no longer what it was."""
        try:
            found = bisect_left(entries, (self.key(job), job.seq))
            if entries[found][2] is job:
                return found
        except BaseException as error:  # noqa: BLE001 - as above; also an index beyond the end
            self.fault = error
        return next(place for place, entry in enumerate(entries) if entry[2] is job)
