"""How fast each job goes on each kind of GPU, as far as that is known, and which jobs claim GPUs.

First counts what was profiled beforehand (``JobSpec.rates``), then what runs were measured to do on
a kind, this job's or those of its user's application. A kind without measurements is taken to be as
fast as the mean of those that have some. So without any knowledge all kinds are equal, and runs
correct that. The notes are kept in the plan's memo and may vanish; they are never the truth.

A rate is work per second with a job's least workers. Where a job cannot run at all it is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from roost.core.allocation import WORKER
from roost.core.node import Node, cell_of, empty_room
from roost.core.plan import Plan
from roost.core.spec import WHOLE, JobId, Level, NodeSpec, Resources
from roost.core.state import Job, Run
from roost.core.waiting import Line
from roost.perf.arrays import Reals
from roost.policies.kit.assignment import assign
from roost.policies.kit.moves import Wish

#: The user and the application of a job, or the job itself if it has no name.
_Whose: TypeAlias = tuple[str, str] | JobId

_MEMO = "rates"
#: How many applications are remembered.
_MANY = 2000


@dataclass(slots=True)
class Kinds:
    """The kinds of GPU in service, in the order in which they came, and how many there are."""

    names: tuple[str, ...]
    gpus: Reals
    nodes: tuple[tuple[Node, ...], ...]

    @classmethod
    def of(cls, plan: Plan) -> Kinds:
        """What is there now; nodes without GPUs are none."""
        nodes: dict[str, list[Node]] = {}
        for node in plan.ledger.select(plan.ledger.up):
            if node.healthy:
                nodes.setdefault(node.spec.kind, []).append(node)
        gpus = [sum(node.healthy.bit_count() for node in of) for of in nodes.values()]
        return cls(tuple(nodes), np.array(gpus, dtype=float), tuple(map(tuple, nodes.values())))


@dataclass(slots=True)
class MeasuredRates:
    """What runs were seen to do, by application and kind: the latest of each."""

    rates: dict[_Whose, dict[str, float]] = field(default_factory=dict)

    def look(self, plan: Plan) -> None:
        """Note how fast the runs of now go."""
        for run in plan.running:
            if run.settled and run.rate > 0 and not run.job.spec.rates:
                kind = kind_of(plan, run)
                if kind:
                    rate = run.rate * run.job.spec.workers.min / run.workers
                    self.rates.setdefault(_whose(run.job), {})[kind] = rate
        while len(self.rates) > _MANY:
            del self.rates[next(iter(self.rates))]

    def of(self, job: Job) -> Mapping[str, float]:
        """What is known of a job."""
        if job.spec.rates:
            return dict(job.spec.rates)
        return self.rates.get(_whose(job), {})


def measured_rates(plan: Plan) -> MeasuredRates:
    """The notes of earlier plans, brought up to date."""
    notes: MeasuredRates = plan.memo.setdefault(_MEMO, MeasuredRates())
    notes.look(plan)
    return notes


def rates_by_kind(plan: Plan, jobs: Sequence[Job], kinds: Kinds, *, aware: bool = True) -> Reals:
    """Rates of jobs (rows) on kinds (columns); not ``aware``: all kinds that will do are equal."""
    notes, found = measured_rates(plan), np.zeros((len(jobs), len(kinds.names)))
    able: dict[tuple[Resources, int, Level | None], tuple[bool, ...]] = {}
    for row, job in enumerate(jobs):
        gang = (job.spec.resources, job.spec.workers.min, job.spec.within)
        if gang not in able:
            able[gang] = tuple(_holds(plan, of, *gang) for of in kinds.nodes)
        known = notes.of(job) if aware else {}
        other = sum(known.values()) / len(known) if known else 1.0
        for column, kind in enumerate(kinds.names):
            if able[gang][column]:
                found[row, column] = known.get(kind, other)
    return found


def gpus_of(jobs: Iterable[Job]) -> Reals:
    """GPUs that jobs take with their least workers."""
    return np.array([job.gpu_milli / WHOLE for job in jobs], dtype=float)


def left_of(plan: Plan, jobs: Sequence[Job], least: float) -> Reals:
    """Work that is left of each job.

    A job without a known run time is taken to have as much left as it has done, and at least that
    much.
    """
    found = np.empty(len(jobs))
    for row, job in enumerate(jobs):
        run = job.run
        held = run is not None and not run.parked
        left = run.work_left_s(plan.now) if run is not None and held else job.remaining_s
        if not left < math.inf:
            left = max(least, run.done(plan.now) if run is not None and held else job.saved_s)
        found[row] = left
    return found


def kind_of(plan: Plan, run: Run) -> str:
    """The kind of GPU on which a run is or will be; empty, if they are several or none."""
    nodes = plan.ledger.nodes
    allocation = run.target or run.allocation
    kinds = {nodes[p.node].spec.kind for p in allocation.parts if p.role == WORKER and p.gpus}
    return kinds.pop() if len(kinds) == 1 else ""


def claimants(plan: Plan) -> list[Job]:
    """Jobs with a claim on GPUs: waiting, running, or on the way; oldest first."""
    jobs = [job for job in plan.waiting if job.gpu_milli]
    jobs += [run.job for run in plan.running if run.job.gpu_milli and not run.parked]
    return sorted(jobs, key=lambda job: job.seq)


def holds_whole_gpus(run: Run) -> bool:
    """Whether a run holds no part of a GPU: what it would leave is then easy to tell."""
    return all(part.share_milli == WHOLE for part in run.allocation.parts)


def start_others(plan: Plan) -> None:
    """Start, where there is room, jobs that need no whole GPU or cannot have them of one kind."""
    if not plan.waiting.count:
        return
    waiting = plan.pending
    others = [job for job in waiting if job.gpu_milli % WHOLE or not job.gpu_milli]
    whole = [job for job in waiting if job.gpu_milli and not job.gpu_milli % WHOLE]
    rates = rates_by_kind(plan, whole, Kinds.of(plan), aware=False)
    others += [job for job, row in zip(whole, rates, strict=True) if not row.any()]
    assign(plan, {job.id: Wish("", job.spec.workers.min) for job in others})


def nothing_runs(plan: Plan) -> bool:
    """Whether nothing runs, nothing was started yet, and a job waits."""
    if not plan.waiting.count or plan.decisions:
        return False
    return all(run.parked for run in plan.running)


def start_if_idle(plan: Plan) -> None:
    """Where nothing runs, start jobs that fit: one that was chosen by its GPUs alone may not."""
    if nothing_runs(plan):
        for job in plan.pending:
            plan.place(job)


def explain_all(plan: Plan, text: str) -> None:
    """Tell all waiting lines that were told nothing yet, unless their queue is at its limit."""
    lines: list[Line] = [line for line in plan.waiting.open if line not in plan.said]
    for line in lines:
        if line.queue is None or not plan.over_limit(line.head, line.gpu_milli):
            plan.say(line, text)


def _holds(
    plan: Plan, nodes: Iterable[Node], need: Resources, workers: int, within: Level | None
) -> bool:
    """Whether nodes, or one cell of them, could hold so many workers if they were empty."""
    rooms: dict[str, int] = {}
    for node in nodes:
        if plan.ledger.suits(node, need) and (within is None or node.spec.is_within(within)):
            cell = _cell(node, within)
            rooms[cell] = rooms.get(cell, 0) + min(_empty_room(node.spec, need, within), workers)
            if rooms[cell] >= workers:
                return True
    return False


def _cell(node: Node, within: Level | None) -> str:
    """The name of the part of a cluster in which a gang of that level has to stay."""
    if within is None or within is Level.CLUSTER:
        return ""
    return node.spec.domain(within) if within > Level.NODE else node.id


def _empty_room(spec: NodeSpec, need: Resources, within: Level | None) -> int:
    """How many workers the largest such cell of a node holds; all of the node, if it is larger."""
    if within is None or within >= Level.NODE:
        return empty_room(spec, need)
    cells = (cell_of(spec, gpu, within).bit_count() for gpu in range(spec.gpus))
    return empty_room(replace(spec, gpus=max(cells, default=0), sockets=1), need)


def _whose(job: Job) -> _Whose:
    return (job.spec.user, job.spec.application) if job.spec.application else job.id
