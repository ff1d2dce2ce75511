"""What the core knows of jobs, runs and queues: the evolving half of the vocabulary.

These are the core's own records. Only the controller changes them; policies read them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from roost.core.allocation import WORKER, Allocation, Part
from roost.core.observed import Observed
from roost.core.quota import GPU
from roost.core.quota_tree import PLENTY, Account
from roost.core.spec import WHOLE, ApplicationKey, JobId, JobSpec, QueueSpec, Resources, RunId
from roost.core.transitions import LEAVING, RETURNING, UNBOOKED, RunPhase
from roost.errors import Fatal

if TYPE_CHECKING:
    from roost.core.history import History, Profile, Spent
    from roost.core.waiting import Line


class JobState(StrEnum):
    """One spelling in every interface."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    RESIZING = "resizing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to the job."""
        return self in _OVER


_OVER = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


@dataclass(slots=True, eq=False)
class Queue:
    """A tenant and what its runs hold now (stops under way count as done)."""

    spec: QueueSpec
    used_milli: int = 0
    used_cpu_milli: int = 0
    used_memory_mib: int = 0
    #: Where it borrows and lends, or has quotas beside GPUs.
    account: Account | None = None

    @property
    def bounded(self) -> bool:
        """Whether there may be room for its jobs that they must not have."""
        return (
            self.spec.limit_milli is not None or self.account is not None or bool(self.spec.cells)
        )

    @property
    def room_milli(self) -> int | None:
        """How many milli-GPUs more it may have, by its limit and its tree; None: no bound."""
        limit, account = self.spec.limit_milli, self.account
        room = PLENTY if limit is None else limit - self.used_milli
        if account is not None and GPU in account.tree.counted:
            room = min(room, account.room(GPU))
        return None if room >= PLENTY >> 1 else room

    def charge(self, job: Job, allocation: Allocation, sign: int = 1) -> None:
        """Book what an allocation takes, or with ``sign=-1`` what it gives back."""
        resources = job.spec.resources
        for part in allocation.parts:
            self.used_milli += sign * len(part.gpus) * part.share_milli
            need = resources if part.role == WORKER else needs(job, part)
            if need.cpu_milli:
                self.used_cpu_milli += sign * part.workers * need.cpu_milli
            if need.memory_mib:
                self.used_memory_mib += sign * part.workers * need.memory_mib
        if self.account is not None:
            self.account.book(self.account.held(job, allocation), sign)


# Names of the module are found faster than members of an enumeration.
_RUNNING: Final = RunPhase.RUNNING
_SUSPENDED: Final = RunPhase.SUSPENDED
_FROZEN: Final = RunPhase.FROZEN
_STOPPING: Final = RunPhase.STOPPING


@dataclass(slots=True, eq=False)
class Run:
    """One attempt of a job.

    ``phase`` says where it is between its place and its end; ``transitions`` has the table. While
    it waits for a place, ``after`` holds the runs that must leave first. ``target`` is the other
    allocation that it is to have, ``reason`` why it was asked to leave or to stand still, ``was``
    the phase in which it was asked to stop.
    ``done_s`` is the work done at ``measured_at``; from there on ``rate`` extrapolates, to its end
    at ``ends_at``.
    ``changed_at`` is when it last started or changed size. ``leaving`` are parts that it still uses
    but that are promised to others. ``recalled``: a plan that is not binding yet took from it the
    place that it waits for.
    """

    id: RunId
    job: Job
    allocation: Allocation
    workers: int
    gpu_milli: int
    placed_at: float
    done_s: float
    rate: float
    after: set[RunId] = field(default_factory=set)
    started_at: float | None = None
    ends_at: float = math.inf
    measured_at: float = 0.0
    changed_at: float = 0.0
    phase: RunPhase = RunPhase.RESERVED
    was: RunPhase = RunPhase.RUNNING
    reason: str = ""
    target: Allocation | None = None
    leaving: tuple[Part, ...] = ()
    recalled: bool = False

    @property
    def settled(self) -> bool:
        """Whether it is up and nothing is asked of it: only such runs may be disturbed."""
        return self.phase is _RUNNING

    @property
    def parked(self) -> bool:
        """Whether it is suspended, and not on its way back: it holds no device."""
        return self.phase is _SUSPENDED

    @property
    def frozen(self) -> bool:
        """Whether it is suspended where it is: it holds its devices and does nothing."""
        return self.phase is _FROZEN

    @property
    def leaves(self) -> bool:
        """Whether it was asked to give up its place; ``reason`` says why."""
        return self.phase in LEAVING

    @property
    def booked(self) -> bool:
        """Whether the books have what it holds: its target, or else its allocation."""
        return self.phase not in UNBOOKED and not self.recalled

    @property
    def activity(self) -> RunPhase:
        """What its workers do: its phase, or the one in which it was asked to stop."""
        return self.was if self.phase is _STOPPING else self.phase

    def account(self, now: float) -> None:
        """Settle work and service up to now."""
        if self.started_at is not None:
            passed = now - self.measured_at
            self.done_s += passed * self.rate
            self.job.attained_gpu_s += passed * self.gpu_milli / WHOLE
            self.measured_at = now

    def foresee(self, now: float) -> None:
        """Work out when it will end, if it goes on like this from now."""
        total = self.job.run_time_s
        if total is None or self.phase is _FROZEN:
            self.ends_at = math.inf
            return
        self.ends_at = now + (total - self.done_s) / self.rate
        if self.started_at is None and (self.id.attempt > 1 or self.activity in RETURNING):
            self.ends_at += self.job.spec.costs.restart_s

    def done(self, now: float) -> float:
        """Work done so far, as far as anyone has told."""
        if self.started_at is None:
            return self.done_s
        return self.done_s + (now - self.measured_at) * self.rate

    def remaining_s(self, now: float) -> float:
        """Seconds until the job is done here, by the estimates; infinite when unknown."""
        left = self.ends_at - (self.placed_at if self.started_at is None and self.after else now)
        return left if left > 0 else 0.0

    def work_left_s(self, now: float) -> float:
        """Work that is left, in seconds at the pace of the job's least workers."""
        total = self.job.run_time_s
        if total is None:
            return math.inf
        left = total - self.done_s
        if self.started_at is not None:
            left -= (now - self.measured_at) * self.rate
        return left if left > 0 else 0.0

    def attained_gpu_s(self, now: float) -> float:
        """GPU-seconds the job has held in all its runs."""
        held = self.job.attained_gpu_s
        if self.started_at is not None:
            held += (now - self.measured_at) * self.gpu_milli / WHOLE
        return held

    def disturbance_s(self, now: float) -> float:
        """What a stop would cost the job: its restart, and the work that would be lost.

        A restart costs what restarts of such jobs were measured to, else what its user declared.
        """
        restart_s, spent = self.job.spec.costs.restart_s, self.job.spent
        if spent is not None and spent.start.count:
            restart_s = spent.start.mean
        return restart_s + self.unsaved_s(now)

    def unsaved_s(self, now: float) -> float:
        """Seconds of work that a stop would lose: on average half a checkpoint period."""
        every_s = self.job.spec.costs.checkpoint_every_s
        if self.started_at is None or every_s == 0:
            return 0.0
        return min(now - self.started_at, every_s / 2)


@dataclass(slots=True, eq=False)
class Job:
    """A job: what was asked, and what became of it so far.

    ``run_time_s`` is what its user declared or, failing that, what earlier jobs of the same user
    and application took; ``None`` when there were none. A failed job is not tried again before
    ``not_before``. ``protected`` is why it must not be evicted; empty: it may be. ``observed`` is
    what was measured of this job alone.
    """

    id: JobId
    seq: int
    spec: JobSpec
    queue: Queue
    submitted_at: float
    run_time_s: float | None
    state: JobState = JobState.QUEUED
    run: Run | None = None
    line: Line | None = None
    attempts: int = 0
    failures: int = 0
    saved_s: float = 0.0
    attained_gpu_s: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    queued_at: float = 0.0
    not_before: float = 0.0
    preemptions: int = 0
    resizes: int = 0
    held: bool = False
    cancelling: bool = False
    protected: str = ""
    waits: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])
    joined: tuple[float, ...] = ()
    waiting: bool = False
    history: History | None = field(default=None, repr=False)
    observed: Observed | None = field(default=None, repr=False)

    @property
    def preemptible(self) -> bool:
        """Whether it may be disturbed for others: its user allows it, and nothing protects it."""
        return self.spec.preemptible and not self.protected

    @property
    def application_key(self) -> ApplicationKey:
        """Its user and application; a job without a name is its own application."""
        return self.spec.user, self.spec.application or self.id

    @property
    def profile(self) -> Profile | None:
        """What was measured of its user's application, if anything was."""
        profiles = self.history.profiles if self.history is not None else None
        return profiles.get(_whose(self.spec)) if profiles else None

    @property
    def spent(self) -> Spent | None:
        """What it was measured to cost to disturb its user's application, if anything was."""
        costs = self.history.costs if self.history is not None else None
        return costs.get(_whose(self.spec)) if costs else None

    def speed_up(self, workers: int, of: int) -> float:
        """How many times faster it is with so many workers than with others.

        As measured of its application at both sizes, else in proportion.
        """
        profile, share_milli = self.profile, self.spec.resources.share_milli
        if profile is not None:
            new, old = profile.step_s(workers, share_milli), profile.step_s(of, share_milli)
            if new is not None and old is not None:
                return old / new
        return workers / of

    @property
    def remaining_s(self) -> float:
        """Run time left for a waiting job with its least workers; infinite when unknown."""
        total = self.run_time_s
        if total is None:
            return math.inf
        return total - self.saved_s if total > self.saved_s else 0.0

    @property
    def gpu_milli(self) -> int:
        """GPUs it needs to start, in milli-GPUs."""
        return self.spec.gpu_milli(self.spec.workers.min)


def _whose(spec: JobSpec) -> tuple[str, str]:
    return spec.user, spec.application


def needs(job: Job, part: Part) -> Resources:
    """What one worker of a part's role needs."""
    if part.role == WORKER:
        return job.spec.resources
    for role in job.spec.roles:
        if role.name == part.role:
            return role.resources
    msg = f"job {job.id} has no role {part.role!r}"
    raise Fatal(msg)
