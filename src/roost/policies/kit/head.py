"""A reservation for the job at the head: when it can start, and what is kept free for it.

The idea of EASY backfilling (Lifka, "The ANL/IBM SP scheduling system", 1995): one job has a
reservation, and others go first only if that does not delay it.
"""

from __future__ import annotations

import math
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from roost.core.allocation import Part
from roost.core.decisions import Place
from roost.core.plan import Plan
from roost.core.spec import Resources
from roost.core.state import Job, Run, needs

#: A job of which nothing is known is taken to need that long.
NEW_S = 600.0
#: A run past its estimate is expected to last this much longer, as a part of the estimate.
_OVERDUE = 0.1
#: Not to be taken for that: the same moment, computed twice.
_ROUNDING_S = 1e-6


class HeadReservation(NamedTuple):
    """When a job can start at the latest, and what must be kept free for it until then."""

    start: float
    parts: tuple[tuple[Part, Resources], ...]


class Hold(NamedTuple):
    """Devices that a job has, and until when by the estimates."""

    end: float
    seq: int
    job: Job
    parts: tuple[Part, ...]


def holds(plan: Plan, *, guess: bool = False) -> list[Hold]:
    """All jobs that hold devices, also those placed in this plan; not those that are leaving.

    ``guess``: a run of which nothing is known is taken to last as long again as it has run.
    """
    found = []
    for run in plan.running:
        if run.booked:
            end, held = expected_end(run, plan.now), run.target or run.allocation
            if guess and end == math.inf:
                age = plan.now - (plan.now if run.started_at is None else run.started_at)
                end = plan.now + max(age, NEW_S)
            found.append(Hold(end, run.job.seq, run.job, held.parts))
    for decision in plan.decisions:
        if isinstance(decision, Place):
            job = plan.jobs[decision.job]
            left = NEW_S if guess and job.run_time_s is None else job.remaining_s
            end = plan.now + left + (job.spec.costs.restart_s if job.attempts else 0.0)
            found.append(Hold(end, job.seq, job, decision.allocation.parts))
    return found


def reserve(plan: Plan, job: Job, *, guess: bool = False) -> HeadReservation | None:
    """The earliest moment at which a job will fit, by the estimates; None: unknown."""
    ledger, need = plan.ledger, plan.waiting.line_of(job).gpu_milli
    ending = sorted((hold for hold in holds(plan, guess=guess) if hold.end < math.inf), key=_by_end)
    gone: list[Hold] = []
    found = None
    with ledger.trial():
        for moment, ended in groupby(ending, key=attrgetter("end")):
            for hold in ended:
                for part in hold.parts:
                    ledger.release(part, needs(hold.job, part))
                gone.append(hold)
            parts = plan.probe(job) if ledger.free_milli >= need else None
            if parts is not None:
                found = HeadReservation(moment, _kept_free(plan, job, parts))
                break
        for hold in reversed(gone):
            for part in hold.parts:
                ledger.take(part, needs(hold.job, part))
    return found


def _kept_free(plan: Plan, job: Job, parts: tuple[Part, ...]) -> tuple[tuple[Part, Resources], ...]:
    """What others must keep off: the devices, or whole nodes where the placer wants them empty."""
    kept = [(part, needs(job, part)) for part in parts]
    if plan.consolidates and len({part.node for part in parts}) > 1:
        for index, (part, need) in enumerate(kept):
            every = tuple(range(plan.ledger.nodes[part.node].spec.gpus))
            kept[index] = (part._replace(gpus=every), need)
    return tuple(kept)


def _by_end(hold: Hold) -> tuple[float, int]:
    return hold.end, hold.seq


def expected_end(run: Run, now: float) -> float:
    """When a run will be over; one that has outstayed its estimate gets a little longer."""
    end = run.ends_at
    if end > now:
        return end if run.started_at is not None else now + run.remaining_s(now)
    if end > now - _ROUNDING_S:
        return now
    return now + max(1.0, _OVERDUE * (run.job.run_time_s or 0.0))
