"""Everything the core knows, and the small questions about it.

``ClusterState`` is what the parts of the core share. ``lifecycle`` says how runs begin, change and
leave, ``folding`` how events change it, and ``controller`` lets the policy decide on it.
"""

from __future__ import annotations

import math

from roost.core.actions import Action
from roost.core.cells.books import CellBooks
from roost.core.cells.checking import check_cells
from roost.core.demand import asked_for
from roost.core.events import MigrateRequested
from roost.core.history import History
from roost.core.ledger import Ledger
from roost.core.occupancy import Occupancy
from roost.core.quota_tree import grow
from roost.core.spec import JobId, JobSpec, QueueId, QueueSpec, RunId
from roost.core.state import Job, Queue, Run
from roost.core.waiting import Waiting
from roost.errors import Fatal, NotFound


class ClusterState:
    """The state that events change, and what is left to be done about it."""

    def __init__(self) -> None:
        self.now = -math.inf
        self.jobs: dict[JobId, Job] = {}
        self.runs: dict[RunId, Run] = {}
        self.queues: dict[QueueId, Queue] = {}
        self.ledger = Ledger()
        self.occupancy = Occupancy(self.ledger)
        self.waiting = Waiting()
        self.history = History()
        #: Jobs that were submitted, and jobs that are over, also those that are forgotten.
        self.submitted = 0
        self.finished = 0
        #: Failed jobs that have to wait for their next try: when, number, job.
        self.backing_off: list[tuple[float, int, Job]] = []
        #: Jobs with a run of fewer or more workers than the user now wants.
        self.out_of_range: dict[JobId, Job] = {}
        #: Moves that users asked for since the last decision.
        self.moves: list[MigrateRequested] = []
        #: Whether the policy wants to be asked when a run is up.
        self.awaits_starts = False
        #: Actions for the world that no call has returned yet.
        self.actions: list[Action] = []
        #: Jobs that lost their reservation in the last ``handle``: there is no action for that.
        self.withdrawn: list[JobId] = []

    def job(self, job_id: JobId) -> Job:
        """The job of that name."""
        try:
            return self.jobs[job_id]
        except KeyError:
            msg = f"no job {job_id!r}"
            raise NotFound(msg) from None

    def queue(self, queue_id: QueueId) -> Queue:
        """The queue of that name; one that was never told of has no quota and no limit."""
        queue = self.queues.get(queue_id)
        if queue is None:
            queue = self.queues[queue_id] = Queue(QueueSpec(queue_id))
        return queue

    def regrow(self) -> None:
        """Open accounts for queues that borrow, and book what runs hold: quotas have changed."""
        accounts = grow({name: queue.spec for name, queue in self.queues.items()}, self.ledger)
        for name, queue in self.queues.items():
            queue.account = accounts.get(name)
        if not accounts:
            return
        for run in self.runs.values():
            account = run.job.queue.account
            if account is not None and run.booked:
                account.book(account.held(run.job, run.target or run.allocation))

    def check_cells(self, spec: QueueSpec) -> None:
        """Refuse promises of cells that cannot be kept beside all others; raises Conflict."""
        specs = {name: queue.spec for name, queue in self.queues.items() if queue.spec.cells}
        check_cells(self.ledger.order, specs, spec)

    def reclaim(self) -> None:
        """Work out claims on cells anew: promises have changed."""
        if not any(queue.spec.cells for queue in self.queues.values()):
            self.ledger.cells = None
            return
        if self.ledger.cells is None:
            self.ledger.cells = CellBooks(self.ledger, self.queues, self.runs)
        self.ledger.cells.rebuild()

    def note_demand(self, spec: JobSpec) -> None:
        """Count what a job asks for towards what workers usually ask for."""
        for need, workers in asked_for(spec):
            self.ledger.demand.note(need, workers)

    def run_of(self, job_id: JobId) -> Run:
        """The run of a job that is known to have one."""
        run = self.jobs[job_id].run
        if run is None:
            msg = f"job {job_id} does not run"
            raise Fatal(msg)
        return run

    def touch(self, run: Run) -> None:
        """Note that what is known of a run changed, and so what can be said of its nodes."""
        for part in run.allocation.parts:
            self.ledger.touch(self.ledger.nodes[part.node])
