"""Events: what a world reports to the core. Past tense, immutable, each with its time in seconds.

The core never reads a clock: ``time`` is whatever clock the driver keeps, and never runs backwards.
A world that measures what it does says so: ``took_s`` is the time from an order to its effect,
``pause_s`` how long the training stood still for it; ``None`` if not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from roost.core.allocation import Allocation
from roost.core.spec import (
    ApplicationKey,
    Contingent,
    JobId,
    JobSpec,
    NodeId,
    NodeSpec,
    QueueId,
    QueueSpec,
    Range,
    RunId,
)
from roost.errors import InvalidSpec


class Outcome(StrEnum):
    """How a run ended, as its world saw it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node is there, or is back after it was lost."""

    time: float
    node: NodeSpec


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone with everything on it."""

    time: float
    node: NodeId


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node in service has other capacity, another kind or another place now.

    It is a ``Conflict`` if what is in use there would not fit any more.
    """

    time: float
    node: NodeSpec


@dataclass(frozen=True, slots=True)
class NodeCordoned:
    """Someone wants nothing new to begin on a node, for a reason.

    ``drain``: what runs there is to leave, too: it moves, or ends at its checkpoint and waits.
    """

    time: float
    node: NodeId
    reason: str = ""
    user: str = ""
    drain: bool = False


@dataclass(frozen=True, slots=True)
class NodeUncordoned:
    """A node may be used again."""

    time: float
    node: NodeId


@dataclass(frozen=True, slots=True)
class MaintenancePlanned:
    """A node is to be empty from ``starts_at`` to ``ends_at``, for a reason.

    Nothing begins there that is expected to last into it; it is drained when that time comes, and
    used again at its end.
    """

    time: float
    node: NodeId
    starts_at: float
    ends_at: float
    reason: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class MaintenanceCancelled:
    """The maintenance of a node that was to start at that time will not be, or is over early."""

    time: float
    node: NodeId
    starts_at: float


@dataclass(frozen=True, slots=True)
class PoolChanged:
    """A pool, a named set of nodes, has these nodes now.

    Unknown nodes belong to it from when they join. Runs stay where they are. None:
    the pool is not used any more, and need not be remembered. ``preferred`` are groups of its
    nodes, the best first: of places that are as good otherwise, jobs that ask for the pool are
    given those. What is in no group comes last. ``contingents`` say of a gang with as many workers
    how many of them must be where; they have no node in common.
    """

    time: float
    pool: str
    nodes: frozenset[NodeId] | None
    preferred: tuple[frozenset[NodeId], ...] = ()
    contingents: tuple[Contingent, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuFailed:
    """One device of a node stopped working, or a user wants it not to be used."""

    time: float
    node: NodeId
    gpu: int
    reason: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class GpuRestored:
    """A failed device works again."""

    time: float
    node: NodeId
    gpu: int


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """A queue was created, or its promise changed."""

    time: float
    queue: QueueSpec


@dataclass(frozen=True, slots=True)
class QueueDeleted:
    """A queue and its promise are no more."""

    time: float
    queue: QueueId


@dataclass(frozen=True, slots=True)
class Submitted:
    """A user handed in a job."""

    time: float
    job: JobId
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class Adopted:
    """A job that the world knows already, as it stands.

    With an allocation it has the run ``RunId(job, attempts)`` there: running or, where not
    ``running``, ordered and still starting; the core orders nothing and waits for what it reports.
    Without one it is queued: ``held`` by its user, or not to be tried again before ``not_before``.
    ``done_s`` is its work so far. It is a ``Conflict`` if the job is known and not over, or the
    allocation is not free.
    """

    time: float
    job: JobId
    spec: JobSpec
    allocation: Allocation | None = None
    running: bool = True
    attempts: int = 0
    failures: int = 0
    done_s: float = 0.0
    submitted_at: float | None = None
    started_at: float | None = None
    held: bool = False
    not_before: float = 0.0

    def __post_init__(self) -> None:
        """A run is some attempt."""
        if self.attempts < (0 if self.allocation is None else 1):
            msg = f"job {self.job} holds an allocation in attempt {self.attempts}"
            raise InvalidSpec(msg)


@dataclass(frozen=True, slots=True)
class Protected:
    """A job must not be evicted from now on, for a reason; without a reason it may be again.

    If it was just asked to leave, it stays: runs that wait for its place look for another.
    """

    time: float
    job: JobId
    why: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A user no longer wants a job."""

    time: float
    job: JobId


@dataclass(frozen=True, slots=True)
class SuspendRequested:
    """A user wants a job to step aside until told otherwise."""

    time: float
    job: JobId


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """A user wants a suspended job to go on."""

    time: float
    job: JobId


@dataclass(frozen=True, slots=True)
class ScaleRequested:
    """A user wants a job to run with another number of workers."""

    time: float
    job: JobId
    workers: Range


@dataclass(frozen=True, slots=True)
class MigrateRequested:
    """A user wants a running job to move: to that node, or anywhere but where it is."""

    time: float
    job: JobId
    node: NodeId | None = None


@dataclass(frozen=True, slots=True)
class Deleted:
    """A user wants a job that is over to be forgotten."""

    time: float
    job: JobId


@dataclass(frozen=True, slots=True)
class Started:
    """All workers of a run are up (after a launch or a resume).

    ``why``: what came in the way of the gentler course, here and below. It is for people.
    """

    time: float
    run: RunId
    took_s: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Progressed:
    """A measurement: work done so far, and its rate, in seconds of ``run_time_s`` per second."""

    time: float
    run: RunId
    done_s: float
    rate: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What was observed of a run at one size: the mean time of its steps, and what they need.

    ``step_s`` is 0 if it was not told. ``memory_mib`` is the most device memory of a worker (0:
    unknown), ``noise`` the gradient noise scale in samples, ``busy`` the part of the time in which
    its devices were at work. It is no report of progress: that is ``Progressed``.

    Where a step took that long is told by ``kind``, ``nodes`` and ``servers`` (parameter servers),
    with ``local_batch`` samples for each worker (0: unknown); ``sync_s`` of it went into bringing
    the gradients together. ``epochs`` are passes over the data so far, ``loss`` what they led to.
    ``beside`` are the applications of the runs that were on its devices all the while, in order.
    """

    time: float
    run: RunId
    workers: int
    step_s: float
    memory_mib: int = 0
    noise: float | None = None
    busy: float | None = None
    kind: str = ""
    nodes: int = 1
    servers: int = 0
    local_batch: int = 0
    sync_s: float | None = None
    epochs: float | None = None
    loss: float | None = None
    beside: tuple[ApplicationKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Resized:
    """A run now holds the allocation that the last resize or migrate asked for."""

    time: float
    run: RunId
    took_s: float | None = None
    pause_s: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Shrank:
    """A run lost workers and goes on with what is left: a part of what it held."""

    time: float
    run: RunId
    allocation: Allocation
    why: str = ""


@dataclass(frozen=True, slots=True)
class Suspended:
    """A run has left its devices and keeps its state."""

    time: float
    run: RunId
    done_s: float
    took_s: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Exited:
    """A run is over and holds nothing; ``saved_s`` is the work its last checkpoint keeps.

    A failed job is tried again while it has retries left, unless the failure is ``final``; its next
    try comes ``delay_s`` later at the earliest.
    """

    time: float
    run: RunId
    outcome: Outcome
    saved_s: float = 0.0
    final: bool = False
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Woke:
    """Time passed: a wake-up that the core asked for (``Core.wake_at``), or a periodic tick."""

    time: float


Event = (
    NodeJoined
    | NodeLost
    | NodeChanged
    | NodeCordoned
    | NodeUncordoned
    | MaintenancePlanned
    | MaintenanceCancelled
    | PoolChanged
    | GpuFailed
    | GpuRestored
    | QueueChanged
    | QueueDeleted
    | Submitted
    | Adopted
    | Protected
    | CancelRequested
    | SuspendRequested
    | ResumeRequested
    | ScaleRequested
    | MigrateRequested
    | Deleted
    | Started
    | Progressed
    | Measured
    | Resized
    | Shrank
    | Suspended
    | Exited
    | Woke
)
