"""The results of a simulated run: columns per job, series over time, and which job held what when.

Everything is a plain list or array, filled in by the recorder while the run goes on; the figures
that people compare are computed from it in ``metrics``, the page they look at in ``report``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class JobResult(NamedTuple):
    """One finished (or unfinished) job. Times in seconds; ``None`` where it never happened.

    ``work_s`` is its run time without any disturbance; ``service_gpu_s`` what it really held;
    ``lost_gpu_s`` the part of it that was thrown away or spent on restarts. The waits add up to
    its queueing delay: over its queue's quota, room there but in pieces, no room at all, and room
    there but it was not its turn.
    """

    id: str
    queue: str
    gpus: float
    submitted_at: float
    started_at: float | None
    finished_at: float | None
    outcome: str
    work_s: float
    service_gpu_s: float
    lost_gpu_s: float
    runs: int
    preemptions: int
    resizes: int
    wait_quota_s: float
    wait_fragmentation_s: float
    wait_capacity_s: float
    wait_turn_s: float


class Segment(NamedTuple):
    """A device held by a run for a while: one bar of the timeline. ``job`` indexes ``jobs``."""

    job: int
    node: str
    gpu: int
    share_milli: int
    start: float
    end: float


@dataclass(slots=True)
class Series:
    """Step functions over time: each value holds from its ``time`` to the next one."""

    time: list[float] = field(default_factory=list)
    capacity: list[float] = field(default_factory=list)
    allocated: list[float] = field(default_factory=list)
    useful: list[float] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    demand: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Results:
    """One run of one policy on one workload.

    ``series`` counts GPUs: in service, held by runs, doing work that counts; jobs queued and
    running; and GPUs asked for by all unfinished jobs. ``segments`` is empty unless the timeline
    was recorded.
    """

    policy: str
    placer: str
    workload: str
    seed: int
    nodes: int
    gpus: int
    jobs: list[JobResult]
    series: Series
    segments: list[Segment] = field(default_factory=list)
    events: int = 0
    decisions: int = 0
    preemptions: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    #: What to know before one relies on the figures.
    notes: tuple[str, ...] = ()
