"""The contract of a cluster behind the server, wherever it runs.

``roost.live.Cluster`` is one, with a journal of its own; ``roost.kubernetes.gateway`` makes one of
a cluster of Kubernetes. Commands return when they are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from roost.core import Core, Event, JobId, NodeId, QueueId, Range, RunId
from roost.engines import JobFiles, LogFile, Usage
from roost.errors import RoostError
from roost.jobfile import JobFile
from roost.jobs.change_feed import ChangeFeed
from roost.jobs.health import DecisionCounts, IntakeHealth
from roost.jobs.requests import CloneRequest, JobSubmission, RerunRequest
from roost.store import Store
from roost.store.rows import JobRow, QueueRow, RestorePointRow, User


class OutputBackend(Protocol):
    """What the workers of a run wrote."""

    def logs(self, run: RunId, worker: str = "worker-0") -> LogFile:
        """The output of a worker; raises NotFound."""
        ...

    def workers(self, run: RunId) -> tuple[str, ...]:
        """The workers of a run that have an output."""
        ...

    def result(self, run: RunId) -> LogFile | None:
        """What a submitted function returned, pickled."""
        ...

    def files(self, run: RunId, own: Mapping[str, str]) -> JobFiles:
        """The files of a run, with the folders that the job file names; raises NotFound."""
        ...


class SnapshotBackend(Protocol):
    """Snapshots of jobs."""

    async def take(
        self, row: JobRow, name: str, actor: str, key: str = ""
    ) -> RestorePointRow | None:
        """Take one; None while it is under way."""
        ...

    async def job_of(self, clone: CloneRequest) -> JobFile:
        """The job file of a clone."""
        ...

    async def delete(self, point: RestorePointRow, actor: str) -> None:
        """Forget one."""
        ...


class NotificationBackend(Protocol):
    """Notifications of a cluster's jobs."""

    def shown(self) -> dict[str, Any]:
        """The settings without secrets, and what waits to be sent."""
        ...

    async def change(self, told: dict[str, Any]) -> dict[str, Any]:
        """Take over other settings."""
        ...

    async def test(self, target: str, user: str) -> None:
        """Send one to a target now."""
        ...


class FolderBackend(Protocol):
    """Folders that users sent for their jobs to run in."""

    def offer(self, user: str, text: bytes, *, keep: bool) -> dict[str, Any]:
        """What is lacking of the folder in a manifest."""
        ...

    def add(self, user: str, body: bytes) -> dict[str, int]:
        """Take parts of contents."""
        ...


class BoundsBackend(Protocol):
    """What each user may have, and has."""

    def shown(self, user: str) -> dict[str, Any]:
        """Bounds and use of a user."""
        ...


class ClusterBackend(Protocol):
    """A cluster behind the REST API."""

    @property
    def store(self) -> Store:
        """Lists of jobs and events, and the accounts."""
        ...

    @property
    def engine(self) -> OutputBackend:
        """Where the output of workers is."""
        ...

    @property
    def snapshots(self) -> SnapshotBackend:
        """Restore points."""
        ...

    @property
    def notifications(self) -> NotificationBackend:
        """Who is told what becomes of jobs."""
        ...

    @property
    def folders(self) -> FolderBackend | None:
        """Folders that were sent; None where jobs cannot have them."""
        ...

    @property
    def bounds(self) -> BoundsBackend | None:
        """Bounds of users; None where there are none."""
        ...

    @property
    def core(self) -> Core:
        """The scheduling core; look, do not touch."""
        ...

    @property
    def feed(self) -> ChangeFeed:
        """Tells of every change."""
        ...

    @property
    def health(self) -> IntakeHealth:
        """Whether commands are accepted."""
        ...

    @property
    def counts(self) -> DecisionCounts:
        """Figures about the driver."""
        ...

    @property
    def seq(self) -> int:
        """The number of the last change."""
        ...

    @property
    def own_users(self) -> bool:
        """Whether users are this server's; else whoever asks acts for itself."""
        ...

    @property
    def epoch(self) -> int:
        """The number of this server among all of them."""
        ...

    @property
    def broken(self) -> asyncio.Future[None]:
        """Fails when it cannot go on."""
        ...

    def now(self) -> float:
        """The time by which everything here is told."""
        ...

    def halt(self, error: RoostError) -> None:
        """Stop everything."""
        ...

    async def submit(self, request: JobSubmission) -> tuple[JobRow, bool]:
        """Accept a job; whether it is new."""
        ...

    async def clone(self, clone: CloneRequest) -> tuple[JobRow, bool]:
        """Submit a new job that begins from a snapshot."""
        ...

    async def rerun(self, rerun: RerunRequest) -> tuple[JobRow, bool]:
        """Submit a new job with the job file of an earlier one."""
        ...

    async def cancel(self, job: JobId, actor: str) -> JobRow:
        """End a job."""
        ...

    async def suspend(self, job: JobId, actor: str) -> JobRow:
        """Take a job off its devices."""
        ...

    async def resume(self, job: JobId, actor: str) -> JobRow:
        """Let a suspended job go on."""
        ...

    async def scale(self, job: JobId, workers: Range, actor: str) -> JobRow:
        """Give a job another size."""
        ...

    async def migrate(self, job: JobId, node: NodeId | None, actor: str) -> JobRow:
        """Move a running job."""
        ...

    async def delete(self, job: JobId, actor: str) -> JobRow:
        """Forget a job that is over."""
        ...

    async def set_queue(self, queue: QueueRow, actor: str) -> QueueRow:
        """Create or change a queue."""
        ...

    async def delete_queue(self, queue: QueueId, actor: str) -> None:
        """Let a queue be no more."""
        ...

    async def user_changed(self, user: User, actor: str) -> None:
        """Take note of a change of an account."""
        ...

    async def care_for(self, event: Callable[[float], Event], actor: str) -> None:
        """Take a machine out of service, or put it back."""
        ...

    async def restore_gpu(self, node: NodeId, gpu: int, actor: str) -> None:
        """Use a device again."""
        ...

    async def prune(
        self, rules: Mapping[str, float], actor: str, *, dry_run: bool
    ) -> dict[str, Any]:
        """Forget jobs that were kept long enough, or say which that would be."""
        ...

    async def plan(self, request: JobSubmission) -> dict[str, Any]:
        """Where and when a job would start."""
        ...

    async def explain(self, job: JobId) -> dict[str, Any]:
        """Why a job is where it is."""
        ...

    async def queues(self) -> list[dict[str, Any]]:
        """All queues, as they are shown."""
        ...

    def view(self, row: JobRow) -> dict[str, Any]:
        """The view of a job."""
        ...

    def profiles(self, user: str | None = None, application: str = "") -> list[dict[str, Any]]:
        """What was learned of applications."""
        ...

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes, as they are shown."""
        ...

    def state(self) -> Iterator[str]:
        """Everything the core knows, a ``StateView`` in pieces of JSON; any thread may go on."""
        ...

    def usage(self) -> Mapping[RunId, Usage]:
        """What the processes of each run use."""
        ...
