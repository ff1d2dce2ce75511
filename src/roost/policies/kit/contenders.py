"""Contenders: the jobs that take part in a decision about all jobs at once.

These are jobs that can change their size, or of which it is known how they do on other kinds of GPU
(*adaptable* ones), and the rigid jobs that wait for what these hold. Rigid runs are no reserve for
others; ``turns`` says which of them make room, and for which jobs.

Waiting rigid jobs stand in lines of equals: as many of them are looked at, in their order, as there
could be room for. Shares of GPUs stand among them, each for the whole GPU that has to be opened for
it and for those that then fit beside it (``shelves``).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from roost.core.node import Node
from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId
from roost.core.state import Job, Queue, Run
from roost.core.waiting import Line
from roost.policies.kit.moves import movable
from roost.policies.kit.promises import Promises
from roost.policies.kit.shelves import ShelfRoom, is_share

#: At most so many waiting jobs that can change are weighed against each other.
WEIGHED: Final = 160


class Contest(NamedTuple):
    """Jobs that are weighed against each other, and those of them that must not be set aside.

    ``eased`` are rigid jobs that could start if elastic runs were as small as they can be. A job
    that asks for a share stands for all that would go on the GPU that is opened for it.
    """

    jobs: list[Job]
    stay: Collection[JobId]
    eased: Collection[JobId] = ()


@dataclass(slots=True)
class Owed:
    """Jobs within the quota of their queue: runs, and so many of the first of each line."""

    running: set[JobId] = field(default_factory=set)
    waiting: dict[Line, int] = field(default_factory=dict)

    def names(self) -> set[JobId]:
        """All of them."""
        return self.running | {
            entry[2].id for line, count in self.waiting.items() for entry in line.entries[:count]
        }


def priority(job: Job) -> int:
    """What counts of a job before everything else: its queue's priority and its own."""
    return job.queue.spec.priority + job.spec.priority


def within_quota(plan: Plan) -> Owed:
    """Jobs for which their queue was promised room: runs by arrival, then lines in their order.

    Lines have to be those of one queue each.
    """
    promises, found = Promises(plan), Owed()
    runs = [run for run in plan.running if promises.covers(run.job.queue) and not run.job.waiting]
    for run in sorted(runs, key=lambda run: run.job.seq):
        if promises.take_run(run):
            found.running.add(run.job.id)
    lines: dict[Queue, list[Line]] = {}
    for line in plan.waiting.open:
        if promises.covers(queue := line.head.queue):
            lines.setdefault(queue, []).append(line)
    for queue, among in lines.items():
        _owe(among, queue, promises, found.waiting)
    return found


def _owe(lines: Iterable[Line], queue: Queue, promises: Promises, owed: dict[Line, int]) -> None:
    """Count how many jobs of lines are within what is left of a quota, in their order."""
    heap = [(line.entries[0][:2], line) for line in lines]
    heapq.heapify(heap)
    while heap:
        _, line = heap[0]
        if not promises.take_waiting(queue, line):
            heapq.heappop(heap)
            continue
        owed[line] = count = owed.get(line, 0) + 1
        if count < len(line.entries):
            heapq.heapreplace(heap, (line.entries[count][:2], line))
        else:
            heapq.heappop(heap)


@dataclass(slots=True)
class AdaptableRuns:
    """Runs of jobs that can change, or that have roles; found by the nodes that have changed."""

    stamp: int = -1
    nodes: dict[Node, list[Run]] = field(default_factory=dict)

    def look(self, plan: Plan) -> list[Job]:
        """Their jobs, first come first."""
        ledger = plan.ledger
        changed = ledger.changed_since(self.stamp)
        if changed is None:
            changed = ledger.order
            self.nodes.clear()
        self.stamp = ledger.stamp
        for node in dict.fromkeys(changed):
            found = [run for run in node.runs if run.job.spec.adaptable or run.job.spec.roles]
            if found:
                self.nodes[node] = found
            elif self.nodes:
                self.nodes.pop(node, None)
        if not self.nodes:
            return []
        # A run that has moved, or is over, may be noted on nodes that have not changed since.
        noted = (run for runs in self.nodes.values() for run in runs)
        jobs = {run.job.id: run.job for run in noted if run.job.run is run}
        return sorted((job for job in jobs.values() if not job.waiting), key=_seq)


def contest(
    plan: Plan, runs: Iterable[Job], window: float, until: Line | None, *, shares: bool = True
) -> Contest:
    """Adaptable jobs, and waiting rigid ones that may have room from them.

    ``until``: rigid lines that stand behind this one are left out. ``shares``: those that ask for
    shares of GPUs take part.
    """
    now = plan.now
    lines = [line for line in plan.waiting.open if line.preempts]
    jobs = _first_in_line(line for line in lines if line.adaptable and line.head.spec.uniform)
    stay: set[JobId] = set()
    shelves = ShelfRoom(plan.ledger)
    room = spare = plan.ledger.free_milli - shelves.free_milli
    for job in runs:
        run = job.run
        if run is None or not movable(run, now):
            continue
        if not job.spec.elastic:
            stay.add(job.id)
        elif now < run.changed_at + window:
            stay.add(job.id)  # it has its turn
        if job.spec.elastic or run.unsaved_s(now) <= window:
            jobs.append(job)
            room += run.gpu_milli
            spare += run.gpu_milli - job.gpu_milli
    rigid = _in_line([line for line in lines if _counts(line, shares)], room, until, shelves)
    eased: set[JobId] = set()
    for job in rigid:
        milli = _opened(job)
        if milli <= spare:
            spare -= milli
            eased.add(job.id)
    return Contest(sorted([*jobs, *rigid], key=_seq), stay, eased)


def _first_in_line(lines: Iterable[Line]) -> list[Job]:
    """All jobs of some lines; of very many, those that go first."""
    together = [line.entries for line in lines]
    if sum(map(len, together)) <= WEIGHED:
        return [entry[2] for entries in together for entry in entries]
    first = islice(heapq.merge(*(entries[:WEIGHED] for entries in together)), WEIGHED)
    return [entry[2] for entry in first]


def next_able(plan: Plan, jobs: Iterable[Job]) -> float:
    """When the next of these runs has had its minimum time, if a job waits."""
    if not plan.waiting.count:
        return math.inf
    runs = [job.run for job in jobs if job.run is not None]
    ends = [run.started_at + run.job.spec.min_run_s for run in runs if run.started_at is not None]
    return min((end for end in ends if end > plan.now), default=math.inf)


def turn(job: Job) -> tuple[float, int]:
    """The place in line of a job: by priority, then by arrival."""
    return -priority(job), job.seq


def _counts(line: Line, shares: bool) -> bool:  # noqa: FBT001 - as it was asked for
    """Whether a line is one of jobs that take part as they are, without another size."""
    spec = line.head.spec
    return (shares and is_share(spec)) if not spec.uniform else not line.adaptable


def _opened(job: Job) -> int:
    """The GPUs that a job takes: a share takes the whole one that is opened for it."""
    return WHOLE if is_share(job.spec) else job.gpu_milli


def _in_line(
    lines: Iterable[Line], room_milli: int, until: Line | None, shelves: ShelfRoom
) -> list[Job]:
    """The first of rigid jobs in their order: as many as could find room, were it theirs alone.

    Shares that fit beside others are left out: there is nothing to weigh.
    """
    found: list[Job] = []
    left = dict.fromkeys(lines, room_milli)
    heap = [(line.entries[0][:2], line) for line in left]
    heapq.heapify(heap)
    together = 2 * room_milli
    counts: dict[Line, int] = {}
    while heap and together > 0:
        _, line = heapq.heappop(heap)
        count = counts.get(line, 0)
        job = line.entries[count][2]
        if is_share(job.spec) and shelves.take(line.shape.resources):
            milli = 0
        else:
            milli = max(_opened(job), 1)
        if milli <= left[line]:
            if milli:
                found.append(job)
                shelves.open(line.shape.resources)
            counts[line] = count = count + 1
            left[line] -= milli
            together -= milli
            if count < len(line.entries) and line is not until:
                heapq.heappush(heap, (line.entries[count][:2], line))
        if line is until:
            break
    return found


def _seq(job: Job) -> int:
    return job.seq
