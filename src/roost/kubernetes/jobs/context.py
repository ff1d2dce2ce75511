"""What the workload of one Job needs of the source that it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from roost.core import Event, JobId, RunId
from roost.engines import Report
from roost.jobs.record import JobRecord
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs.blueprint import Site
from roost.kubernetes.kueue.admission import Admission, QueueWish
from roost.kubernetes.operator.status import Obstacle
from roost.kubernetes.operator.workload import OperatorContext

if TYPE_CHECKING:
    from roost.kubernetes.jobs.rendezvous import RendezvousServer
    from roost.kubernetes.jobs.request import JobRequest


class JobsContext(Protocol):
    """The source of Jobs, as a workload sees it."""

    context: OperatorContext
    records: dict[JobId, JobRecord]

    @property
    def meeting(self) -> RendezvousServer | None:
        """Where pods call."""
        ...

    def site(self) -> Site:
        """What is known of the cluster."""
        ...

    def admitted(
        self, namespace: str, wish: QueueWish, *, stands: bool = False
    ) -> Admission | Obstacle:
        """The core's queue behind those that a Job names, or why it may be in none."""
        ...

    def why_impossible(self, asked: JobRequest) -> str | None:
        """Why a job can never run here, empty if it can; None: that is not known yet."""
        ...

    def interpret(self, report: Report, now: float) -> list[Event]:
        """What a report means to the core."""
        ...

    def keep_tails(self, run: RunId, tails: dict[str, bytes]) -> None:
        """Keep the ends of logs until they are understood; none: forget them."""
        ...

    def is_status_written(self, job: JobId) -> bool:
        """Whether the status of a job says all that there is to say."""
        ...

    def mark_status(self, job: JobId) -> None:
        """Something is to be said about a job."""
        ...

    def release_pod(self, pod: Object) -> None:
        """A pod is no part of its job any more: until it is gone it takes room, and no more."""
        ...

    def is_victim(self, job: JobId) -> bool:
        """Whether the policy has just chosen a job to make room for others."""
        ...

    def eviction_forbidden(self, pods: Sequence[Object]) -> str:
        """Why disruption budgets do not let pods go; empty if they do."""
        ...

    async def save_members(self, job: JobId, text: str) -> None:
        """Write down what the next leader has to know of a run."""
        ...
