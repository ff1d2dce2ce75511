"""Everything the core knows, and the small questions about it.

``ClusterState`` is what the parts of the controller share: ``lifecycle`` (how runs begin, change
and leave) and ``folding`` (how events change it).
"""

from __future__ import annotations

import math
from typing import Any

from roost.core.actions import Action
from roost.core.decisions import Decision
from roost.core.events import Event, MigrateRequested
from roost.core.history import History
from roost.core.ledger import Ledger
from roost.core.occupancy import Occupancy
from roost.core.plan import Placer, Plan
from roost.core.spec import JobId, QueueId, QueueSpec, RunId
from roost.core.state import Job, Queue, Run
from roost.core.waiting import Waiting
from roost.errors import Fatal, NotFound


class ClusterState:
    """The state that events change, and what is left to be done about it."""

    def __init__(self, placer: Placer) -> None:
        self.now = -math.inf
        self.wake_at = math.inf
        self.jobs: dict[JobId, Job] = {}
        self.runs: dict[RunId, Run] = {}
        self.queues: dict[QueueId, Queue] = {}
        self.ledger = Ledger()
        self.occupancy = Occupancy(self.ledger)
        self.waiting = Waiting()
        #: Jobs that were submitted, and jobs that are over, also those that are forgotten.
        self.submitted = 0
        self.finished = 0
        #: Failed jobs that have to wait for their next try: when, number, job.
        self.backing_off: list[tuple[float, int, Job]] = []
        #: Jobs whose run has fewer or more workers than its user now wants.
        self.out_of_range: dict[JobId, Job] = {}
        self.history = History()
        #: What the last ``handle`` decided, for the journal.
        self.decisions: list[Decision] = []
        #: Jobs that lost their reservation in the last ``handle``, for whom there is no action.
        self.withdrawn: list[JobId] = []
        self.memo: dict[str, Any] = {}
        self._actions: list[Action] = []
        self._replan: Event | None = None
        self._moves: list[MigrateRequested] = []
        self._plan = Plan(
            self.ledger,
            self.waiting,
            self.jobs,
            self.runs,
            self.queues,
            placer,
            self.memo,
            self.history.service,
        )

    def job(self, job_id: JobId) -> Job:
        """The job of that name."""
        try:
            return self.jobs[job_id]
        except KeyError:
            msg = f"no job {job_id!r}"
            raise NotFound(msg) from None

    def _queue(self, queue_id: QueueId) -> Queue:
        queue = self.queues.get(queue_id)
        if queue is None:
            queue = self.queues[queue_id] = Queue(QueueSpec(queue_id))
        return queue

    @staticmethod
    def _run_of(job: Job) -> Run:
        if job.run is None:
            msg = f"job {job.id} does not run"
            raise Fatal(msg)
        return job.run

    def _touch(self, run: Run) -> None:
        """What is known of a run changed, and so what can be said of its nodes."""
        for part in run.allocation.parts:
            self.ledger.touch(self.ledger.nodes[part.node])
