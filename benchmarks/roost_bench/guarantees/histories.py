"""What became of jobs in two histories: alone in the private cluster, and in the shared one.

For one job let

    P   the times at which it holds GPUs in the private cluster,
    S   the times at which it does in the shared one, before it is over there at e.

It is *overtaken* if at some time of P before e it is not in S, for as long as that is: the measure
of (P - S) before e. A job that went ahead in the shared cluster and is over by then is not, nor one
that started early, was put off, and is back when its private cluster would have started it.

A promise can be kept at every moment, and jobs overtaken all the same: those that went ahead
elsewhere end at other times, and what comes after them finds other cells full. No list schedule is
free of that (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969). Broken promises are in
``moments``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from roost.core.spec import JobId
from roost.sim.results import Results

#: Times from and to, in order, that do not overlap.
Spans: TypeAlias = Sequence[tuple[float, float]]

#: Times are sums of floats; what is shorter is no wait.
_INSTANT_S = 1e-3


class Played(NamedTuple):
    """What became of one job: when it came, when it was over, and when it held its GPUs."""

    submitted_at: float
    finished_at: float
    gpus: float
    spans: Spans

    @property
    def jct_s(self) -> float:
        """From its submission to its end."""
        return self.finished_at - self.submitted_at


def played(results: Results) -> dict[JobId, Played]:
    """What became of each job of a run with a timeline; a job that never ended has no end."""
    held: dict[int, set[tuple[float, float]]] = defaultdict(set)
    for segment in results.segments:
        held[segment.job].add((segment.start, segment.end))
    return {
        JobId(row.id): Played(
            row.submitted_at,
            float("inf") if row.finished_at is None else row.finished_at,
            row.gpus,
            joined(held[number]),
        )
        for number, row in enumerate(results.jobs)
    }


def joined(spans: Iterable[tuple[float, float]]) -> Spans:
    """The same times, in order and without overlaps."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def overtaken_s(alone: Played, together: Played) -> float:
    """How long a job waits in the shared cluster while it runs in its private one."""
    waited, at = 0.0, 0
    for start, end in alone.spans:
        low, high = start, min(end, together.finished_at)
        while low < high:
            while at < len(together.spans) and together.spans[at][1] <= low:
                at += 1
            begins, ends = together.spans[at] if at < len(together.spans) else (high, high)
            if begins > low:
                waited += min(begins, high) - low
            low = max(low, ends) if begins < high else high
    return waited


def overtaken(
    alone: Mapping[JobId, Played], together: Mapping[JobId, Played]
) -> dict[JobId, float]:
    """The jobs that are overtaken, each with how long it is."""
    waits = {job: overtaken_s(one, together[job]) for job, one in alone.items()}
    return {job: wait for job, wait in waits.items() if wait > _INSTANT_S}


def beyond_gpu_s(jobs: Iterable[Played], promised: float) -> float:
    """GPU seconds that the jobs of a tenant hold beyond what it was promised."""
    changes = sorted(
        change
        for job in jobs
        for start, end in job.spans
        for change in ((start, job.gpus), (end, -job.gpus))
    )
    found, held, since = 0.0, 0.0, 0.0
    for at, change in changes:
        found += max(0.0, held - promised) * (at - since)
        held, since = held + change, at
    return found
