"""Weather: everything that can happen to a core, and what must hold in the end.

``Weather`` is a fake engine that can also lose nodes, break GPUs, let workers die, repeat itself,
report late and restart the core from its journal. A test decides what happens; ``Storm``, in
``storm``, decides by chance. ``shortest`` reduces the journal of one that broke something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from roost.core import (
    Action,
    Allocation,
    Core,
    Event,
    Exited,
    GpuFailed,
    GpuRestored,
    JobId,
    JobSpec,
    Measured,
    NodeId,
    NodeJoined,
    NodeLost,
    NodeSpec,
    Outcome,
    Policy,
    Progressed,
    QueueChanged,
    QueueId,
    QueueSpec,
    Resized,
    ResumeRequested,
    RunId,
    Shape,
    Shrank,
    Started,
    Submitted,
    Suspended,
    Woke,
)
from roost.core.allocation import keeping
from roost.errors import Conflict, NotFound
from roost.placement import placer as placer_named
from roost.testing.builders import queue
from roost.testing.checks import rough_decisions, validate
from roost.testing.engine import FakeEngine
from roost.testing.journal import check_journal, differ, snapshot
from roost.testing.usage import used

QUEUES = ("red", "blue")


class Weather(FakeEngine):
    """A core, a cluster, and what happens to them."""

    def __init__(self, policy: Policy, placer: str, cluster: Sequence[NodeSpec]) -> None:
        self.policy = policy
        self.placer = placer_named(placer)
        super().__init__(Core(policy, self.placer))
        self.cluster = {spec.id: spec for spec in cluster}
        self.broken: set[tuple[NodeId, int]] = set()
        #: Runs that are over, for reports that come late.
        self.gone: list[RunId] = []
        self.failed = False
        #: Whether the policy must leave alone who is not to be disturbed, or not yet.
        self.gentle = True
        self._allowed: dict[QueueId, int] = {}
        self.tell(*(NodeJoined(0.0, spec) for spec in cluster))

    def tell(self, *events: Event) -> list[Action]:
        """Hand a batch to the core; remember who is gone, and whether the core broke down."""
        before = set(self.core.runs)
        self.failed = True
        actions = super().tell(*events)
        self.failed = False
        self.gone += sorted(before - set(self.core.runs))
        return actions

    def later(self, after_s: float) -> float:
        """Let time pass."""
        self.now += after_s
        return self.now

    # -- what can happen -----------------------------------------------------------------------

    def submit(self, *wanted: JobSpec) -> list[JobId]:
        """Users hand in jobs."""
        first = self.core.submitted
        names = [JobId(f"j{first + index}") for index in range(len(wanted))]
        self.tell(*(Submitted(self.now, name, w) for name, w in zip(names, wanted, strict=True)))
        return names

    def request(self, event: Event) -> None:
        """Users ask for what may be impossible just now; that changes nothing."""
        try:
            self.tell(event)
        except (Conflict, NotFound):
            self.failed = False

    def change_queue(self, changed: QueueSpec) -> None:
        """A queue's promise, limit or priority changes; what it holds stays its own."""
        held = self.core.queues.get(changed.id)
        self._allowed[changed.id] = held.used_milli if held is not None else 0
        self.tell(QueueChanged(self.now, changed))

    def lose(self, name: NodeId, *, at_once: bool) -> None:
        """A node goes down; its runs are reported with it, or later."""
        events: list[Event] = [NodeLost(self.now, name)]
        if at_once:
            hit = {run.id for run in self.core.ledger.nodes[name].runs} & set(self.processes)
            for run_id in sorted(hit):
                del self.processes[run_id]
                events.append(Exited(self.now, run_id, Outcome.LOST, 1.0))
        self.tell(*events)

    def break_or_repair(self, name: NodeId, gpu: int) -> None:
        """A GPU fails, or works again."""
        device = (name, gpu)
        repaired = device in self.broken
        self.broken ^= {device}
        self.tell(GpuRestored(self.now, *device) if repaired else GpuFailed(self.now, *device))

    @property
    def shrinkable(self) -> list[RunId]:
        """Runs at work whose job can go on with a worker less."""
        found = []
        for run_id in self.working:
            run = self.core.runs.get(run_id)
            if run is not None and run.workers > run.job.spec.workers.min:
                found.append(run_id)
        return found

    def lose_worker(self, run_id: RunId, index: int) -> None:
        """A main worker of a run dies, and the others go on without it."""
        run = self.core.runs[run_id]
        others = set(range(run.workers)) - {index % run.workers}
        left = keeping(run.allocation, others)
        self.processes[run_id].uses = used(run.job.spec, left)
        self.tell(Shrank(self.now, run_id, left, "a worker died"))

    def late_reports(self, run_id: RunId) -> list[Event]:
        """What an attempt that is over may still report."""
        return [
            Started(self.now, run_id),
            Resized(self.now, run_id),
            Suspended(self.now, run_id, 1.0),
            Progressed(self.now, run_id, 1.0, 1.0),
            Measured(self.now, run_id, 1, 0.5, 100, 10.0),
            Shrank(self.now, run_id, Allocation(())),
            Exited(self.now, run_id, Outcome.SUCCEEDED, 1.0),
        ]

    def report_late(self, report: Event) -> None:
        """A report of an attempt that is over: but for the time, it changes nothing."""
        self.tell(Woke(self.now))  # what time itself brings about is no fault of the report
        before = snapshot(self.core)
        self.tell(report)
        changed = differ(before, {**snapshot(self.core), "now": before["now"]})
        if changed:
            raise AssertionError(f"{report} came late and changed {changed}")

    def repeated_reports(self, run_id: RunId) -> list[Event]:
        """What a run may report once more; what it is still asked for is not among it."""
        process = self.processes.get(run_id)
        asked = {type(action).__name__ for action in process.asked} if process else set()
        reports: list[Event] = []
        if not {"Launch", "Resume"} & asked:
            reports.append(Started(self.now, run_id))
        if not {"Resize", "Migrate"} & asked:
            reports.append(Resized(self.now, run_id))
        if "Suspend" not in asked:
            reports.append(Suspended(self.now, run_id, 1.0))
        if run_id in self.core.runs:
            reports.append(Shrank(self.now, run_id, self.core.runs[run_id].allocation))
        return reports

    def restart(self) -> None:
        """The controller dies and is brought back from its journal."""
        again = Core(self.policy, self.placer)
        for batch in self.journal:
            again.refold(batch.events, batch.decisions)
        changed = differ(snapshot(self.core), snapshot(again))
        if changed:
            raise AssertionError(f"the restart changed {changed}")
        self.core = again
        self.tell(Woke(self.now))

    # -- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        """Everything about the core is sound, and queues stay within what they may hold."""
        validate(self.core, limits=False)
        rough = rough_decisions(self.core) if self.gentle else []
        if rough:
            raise AssertionError("; ".join(rough))
        for name, tenant in self.core.queues.items():
            limit = tenant.spec.limit_milli
            if limit is not None:
                allowed = max(limit, self._allowed.get(name, 0))
                if tenant.used_milli > allowed:
                    raise AssertionError(f"queue {name} uses {tenant.used_milli} of {allowed}")
                self._allowed[name] = min(allowed, tenant.used_milli)

    def clear_up(self) -> None:
        """Repair everything, lift all limits, let everyone go on, and let all that runs succeed.

        Then no job is lost: each is over, or waits, and nothing is taken.
        """
        self.tell(*(QueueChanged(self.now, queue(name)) for name in self.core.queues))
        self.tell(
            *(GpuRestored(self.now, *device) for device in sorted(self.broken)),
            *(NodeJoined(self.now, n.spec) for n in self.core.ledger.order if not n.up),
            *(ResumeRequested(self.now, job.id) for job in self.core.jobs.values()),
        )
        self._finish()
        for job in self.core.jobs.values():
            if not (job.state.over or job.waiting):
                raise AssertionError(f"{job.id} is lost: {job}")
        for place in self.core.ledger.order:
            if place.taken:
                raise AssertionError(f"devices of {place.id} are never given back")
        self.check()
        check_journal(self.journal, self.core)

    def _finish(self) -> None:
        for _ in range(10 * len(self.core.jobs) + 10):
            self.answer_all()
            for run_id in self.working:
                if run_id in self.processes:
                    self.end(run_id, Outcome.SUCCEEDED, 1.0)
            self.tell(Woke(self.later(60.0)))
            if all(run.parked for run in self.core.runs.values()):
                return
        raise AssertionError(f"jobs never end: {list(self.core.runs)}")

    def still_fit(self) -> list[JobId]:
        """Jobs that wait though there would be room for them."""
        return [job.id for job in self.core.waiting if self._fits(job.spec)]

    def _fits(self, wanted: JobSpec) -> bool:
        shape = Shape(wanted.workers.min, wanted.resources, wanted.roles, wanted.within)
        return self.placer(self.core.ledger, shape) is not None


def shortest(events: Sequence[Event], breaks: Callable[[Sequence[Event]], bool]) -> list[Event]:
    """The fewest of these events that still break something: drop runs of them, ever shorter."""
    left = list(events)
    length = len(left) // 2
    while length:
        start = 0
        while start < len(left):
            fewer = left[:start] + left[start + length :]
            if breaks(fewer):
                left = fewer
            else:
                start += length
        length //= 2
    return left
