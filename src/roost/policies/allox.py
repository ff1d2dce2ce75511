"""AlloX: jobs matched to kinds of GPU and places in line, for the least mean completion time.

After "AlloX: Compute Allocation in Hybrid Clusters" (Le et al., EuroSys 2020). A job that is k-th
from last in the line at a GPU adds k times its run time there to the sum of completion times: its
own, and the wait of those behind it. So the least sum is that of a matching of jobs to pairs of GPU
and place, which is found exactly. A job that is first in a line with a free GPU starts; none is
stopped. When jobs come or end, the lines are drawn anew.

A gang takes several GPUs at once, which the source does not have: it stands in one line, where it
delays those behind it as often as it takes GPUs, and starts when as many are free. No job on its
kind with a later turn passes it, so it is not kept waiting for ever.

Fairness: only a fraction ``alpha`` of the waiting jobs is looked at, of the queues first that hold
the least for their weight, and of each the oldest. 1 looks at all of them, and minds only time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.perf.arrays import Reals
from roost.policies.kit.assignment import assign
from roost.policies.kit.moves import Wish, capacity, carry_on
from roost.policies.kit.packing import fits
from roost.policies.kit.speeds import (
    Kinds,
    explain_all,
    gpus_of,
    left_of,
    measured_rates,
    rates_by_kind,
    start_if_idle,
    start_others,
)

_MEMO = "allox"
#: An unknown run time is taken to be that long, where none is known.
_UNKNOWN_S = 3600.0
#: How many waiting jobs are looked at at most: matching is cubic in them.
_MOST = 500
#: Longer than anything; a job that cannot run somewhere would take so long.
_NEVER = 1e12
_WHY = "waits for its place in line: GPUs go where the sum of all waits is least"


class Slot(NamedTuple):
    """One GPU of a kind, and in how many seconds it is free by the estimates."""

    kind: int
    ready_s: float


class _Turn(NamedTuple):
    """When a job is to start, and on which kind; sorted, the next comes first."""

    starts_s: float
    seq: int
    kind: int
    job: Job


@dataclass(frozen=True, slots=True)
class AlloX:
    """AlloX: the least mean completion time over kinds of GPU, by min-cost matching."""

    alpha: float = 0.5

    def __post_init__(self) -> None:
        """A fraction of 0 would start nothing."""
        if not 0 < self.alpha <= 1:
            raise InvalidSpec(f"alpha must be above 0 and at most 1, got {self.alpha}")

    def __call__(self, plan: Plan) -> None:
        """Draw the lines, and start the job that is first in one with a free GPU."""
        carry_on(plan)
        measured_rates(plan)
        waiting = [job for job in plan.pending if job.gpu_milli]
        if plan.ledger.free_milli and waiting and plan.memo.get(_MEMO) != _situation(plan):
            kinds = Kinds.of(plan)
            jobs = self._considered(plan, waiting)
            rates = rates_by_kind(plan, jobs, kinds)
            some = np.flatnonzero(rates.max(axis=1, initial=0.0) > 0)
            if len(some):
                turns = _turns(plan, [jobs[row] for row in some.tolist()], kinds, rates[some])
                assign(plan, dict(_starts(plan, turns, kinds)))
        start_others(plan)
        start_if_idle(plan)
        explain_all(plan, _WHY)
        plan.memo[_MEMO] = _situation(plan)

    def _considered(self, plan: Plan, waiting: Sequence[Job]) -> list[Job]:
        """Jobs of queues that hold least for their weight, at least as many as GPUs are free."""
        ranked = sorted(waiting, key=lambda job: (_progress(job), job.seq))
        count = max(math.ceil(self.alpha * len(ranked)), math.ceil(plan.free_gpus))
        return ranked[: min(count, _MOST)]


def match(times: Reals, gpus: Reals, slots: Sequence[Slot]) -> list[tuple[int, int]]:
    """For each job its slot and its place from the end of the line there, counted from 1.

    ``times`` (jobs by kinds) are run times. The sum of completion times is least.
    """
    count = len(times)
    if not slots:  # shares of GPUs are held or free, but no whole one
        return [(-1, 0)] * count
    kinds = np.array([slot.kind for slot in slots])
    ready = np.array([slot.ready_s for slot in slots])
    columns: list[tuple[int, int]] = []
    costs: list[Reals] = []
    for kind in np.unique(kinds).tolist():
        own = np.flatnonzero(kinds == kind)
        # Equal slots are filled evenly: no line is much longer than jobs over slots of its kind.
        places = np.arange(1, math.ceil(count / len(own)) + 2)
        delays = times[:, kind, None] * (1 + (places - 1)[None, :] * gpus[:, None])
        costs.append((ready[own][None, :, None] + delays[:, None, :]).reshape(count, -1))
        columns += [(at, place) for at in own.tolist() for place in places.tolist()]
    rows, chosen = linear_sum_assignment(np.column_stack(costs))
    found = [(-1, 0)] * count
    for row, column in zip(rows.tolist(), chosen.tolist(), strict=True):
        found[row] = columns[column]
    return found


def _turns(plan: Plan, jobs: Sequence[Job], kinds: Kinds, rates: Reals) -> list[_Turn]:
    """When and where each job is to start, by the matching; the next first."""
    known = [job.remaining_s for job in jobs if job.remaining_s < math.inf]
    usual = sum(known) / len(known) if known else _UNKNOWN_S
    left = left_of(plan, jobs, max(usual, 1.0))
    times = np.where(rates > 0, left[:, None] / np.maximum(rates, 1e-12), _NEVER)
    gpus, slots = gpus_of(jobs), _slots(plan, kinds)
    lines: dict[int, list[tuple[int, int]]] = {}
    for row, (slot, place) in enumerate(match(times, gpus, slots)):
        if slot >= 0 and times[row, slots[slot].kind] < _NEVER:
            lines.setdefault(slot, []).append((-place, row))
    turns = []
    for slot, line in lines.items():
        starts_s, kind = slots[slot].ready_s, slots[slot].kind
        for _, row in sorted(line):
            turns.append(_Turn(starts_s, jobs[row].seq, kind, jobs[row]))
            starts_s += times[row, kind] * gpus[row]
    return sorted(turns, key=lambda turn: turn[:3])


def _slots(plan: Plan, kinds: Kinds) -> list[Slot]:
    """All GPUs, and when their holders will have ended."""
    found = []
    for kind, nodes in enumerate(kinds.nodes):
        busy: list[float] = []
        free = 0
        for node in nodes:
            free += node.free.bit_count()
            for run, milli in node.runs.items():
                left = run.remaining_s(plan.now)
                held = round(milli / 1000)
                busy += [left if left < math.inf else _UNKNOWN_S] * held
        total = int(kinds.gpus[kind])
        busy = sorted(busy)[: max(0, total - free)]
        found += [Slot(kind, 0.0)] * min(free, total)
        found += [Slot(kind, max(1.0, left)) for left in busy]
    return found


def _starts(plan: Plan, turns: Sequence[_Turn], kinds: Kinds) -> dict[JobId, Wish]:
    """Jobs that start now: in order of turn, until the next one on a kind does not fit."""
    room = capacity(plan)
    sizes: dict[str, list[int]] = {kind: [] for kind in kinds.names}
    closed: set[int] = set()
    found: dict[JobId, Wish] = {}
    for turn in turns:
        job, name = turn.job, kinds.names[turn.kind]
        if turn.starts_s > 0 or turn.kind in closed:
            continue
        if plan.over_limit(job, job.gpu_milli):
            continue
        wanted = [*sizes[name], math.ceil(job.spec.gpus)]
        if fits(wanted, room.get(name, [])):
            sizes[name] = wanted
            found[job.id] = Wish(name, job.spec.workers.min)
        else:
            closed.add(turn.kind)
    return found


def _situation(plan: Plan) -> object:
    """What the lines are drawn by; time alone does not change them."""
    queues = [queue.spec for queue in plan.queues.values()]
    ledger = plan.ledger
    return ledger.releases, ledger.capacity_milli, [job.id for job in plan.waiting], queues


def _progress(job: Job) -> float:
    """What a job's queue holds for its weight."""
    return job.queue.used_milli / job.queue.spec.weight
