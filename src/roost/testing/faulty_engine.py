"""Everything that can happen to a core, and what must hold in the end.

``FaultyEngine`` is a fake engine that can also lose nodes, break GPUs, let workers die, repeat
itself, report late and restart the core from its journal. A test decides what happens;
``RandomHistory`` decides by chance. ``shortest`` reduces the journal of one that broke something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from roost.core import (
    WHOLE,
    Action,
    Adopted,
    Allocation,
    Core,
    Event,
    Exited,
    GpuFailed,
    GpuRestored,
    JobId,
    JobSpec,
    Launch,
    MaintenanceCancelled,
    MaintenancePlanned,
    Measured,
    NodeChanged,
    NodeCordoned,
    NodeId,
    NodeJoined,
    NodeLost,
    NodeSpec,
    NodeUncordoned,
    Outcome,
    Part,
    Policy,
    PoolChanged,
    Progressed,
    Protected,
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
from roost.core.snapshot import dump, load
from roost.errors import Conflict, NotFound
from roost.placement import placer as placer_named
from roost.testing.builders import queue
from roost.testing.checks import impossible_decisions, rough_decisions, validate
from roost.testing.engine import FakeEngine, RunProcess
from roost.testing.journal import check_journal, differ, snapshot
from roost.testing.usage import used

__all__ = ["POOLS", "QUEUES", "AdoptionFields", "FaultyEngine", "shortest"]

QUEUES = ("red", "blue")
POOLS = ("p", "q")


class AdoptionFields(TypedDict, total=False):
    """What else may be told of a job that is adopted; see ``Adopted``."""

    failures: int
    done_s: float
    submitted_at: float | None
    started_at: float | None
    held: bool
    not_before: float


class FaultyEngine(FakeEngine):
    """Does to a core everything that can happen to it, and checks what must hold."""

    def __init__(self, policy: Policy, placer: str, cluster: Sequence[NodeSpec]) -> None:
        self.policy = policy
        self.placer = placer_named(placer)
        super().__init__(Core(policy, self.placer))
        self.cluster = {spec.id: spec for spec in cluster}
        self.broken: set[tuple[NodeId, int]] = set()
        #: Runs that are over, for reports that come late.
        self.gone: list[RunId] = []
        self.failed = False
        #: Whether the policy must spare jobs that are not preemptible, or did not run long enough.
        self.gentle = True
        self._allowed: dict[QueueId, int] = {}
        self.tell(*(NodeJoined(0.0, spec) for spec in cluster))

    def tell(self, *events: Event) -> list[Action]:
        """Hand a batch to the core; remember the runs that ended, and whether the core failed."""
        before = set(self.core.runs)
        self.failed = True
        actions = super().tell(*events)
        self.failed = False
        self.gone += sorted(before - set(self.core.runs))
        if wrong := impossible_decisions(self.core):
            raise AssertionError("; ".join(wrong))
        cordoned = self.core.ledger.cordoned.keys()
        for action in actions:
            if isinstance(action, Launch) and not cordoned.isdisjoint(action.allocation.nodes):
                raise AssertionError(f"{action.run} begins on a cordoned node")
        return actions

    def later(self, after_s: float) -> float:
        """Let time pass."""
        self.now += after_s
        return self.now

    # -- what can happen -----------------------------------------------------------------------

    def submit(self, *wanted: JobSpec) -> list[JobId]:
        """Submit jobs."""
        first = self.core.submitted
        names = [JobId(f"j{first + index}") for index in range(len(wanted))]
        self.tell(*(Submitted(self.now, name, w) for name, w in zip(names, wanted, strict=True)))
        return names

    def request(self, event: Event) -> bool:
        """Hand in a request that may be impossible now; then it changes nothing."""
        try:
            self.tell(event)
        except (Conflict, NotFound):
            self.failed = False
            return False
        return True

    def adopt(
        self, wanted: JobSpec, *, placed: bool, running: bool, **past: Unpack[AdoptionFields]
    ) -> JobId:
        """A job is there that the core has not heard of, with a run if there is room for one."""
        over = [job.id for job in self.core.jobs.values() if job.state.over]
        name = over[0] if over else JobId(f"j{self.core.submitted}")
        attempts = self.core.jobs[name].attempts + 1 if over else 1
        parts = self._room_for(wanted) if placed else None
        held = None if parts is None else Allocation(parts)
        if held is not None:
            limited = self.core.queues.get(wanted.queue)
            used_milli = limited.used_milli if limited is not None else 0
            self._allowed[wanted.queue] = used_milli + held.gpu_milli
            run_id = RunId(name, attempts)
            asked: list[Action] = [] if running else [Launch(run_id, wanted, held)]
            self.processes[run_id] = RunProcess(used(wanted, held), asked)
        self.tell(Adopted(self.now, name, wanted, held, running=running, attempts=attempts, **past))
        return name

    def adopt_in_vain(self, wanted: JobSpec, run_id: RunId) -> None:
        """A job is said to be where another one is: that cannot be, and changes nothing."""
        self.tell(Woke(self.now))
        run, before = self.core.runs.get(run_id), snapshot(self.core)
        if run is None or not run.booked or not run.gpu_milli:
            return
        name = JobId(f"j{self.core.submitted}")
        whole = replace(wanted, workers=run.job.spec.workers, roles=run.job.spec.roles)
        whole = replace(whole, resources=run.job.spec.resources)
        for intruder in (name, run.job.id):
            event = Adopted(self.now, intruder, whole, run.allocation, attempts=1)
            shared = any(part.share_milli < WHOLE for part in run.allocation.parts)
            if (intruder == run.job.id or not shared) and self.request(event):
                raise AssertionError(f"{intruder} was adopted where {run_id} is")
        if changed := differ(before, snapshot(self.core)):
            raise AssertionError(f"an adoption in vain changed {changed}")

    def _room_for(self, wanted: JobSpec) -> tuple[Part, ...] | None:
        """Idle devices for a job, looked for on a copy: the core is not to notice."""
        core = load(dump(self.core), self.policy, self.placer)
        shape = Shape(wanted.workers.min, wanted.resources, wanted.roles, wanted.within)
        parts = self.placer(core.ledger, shape)
        return None if parts is None or core.occupancy.still_there(parts) else parts

    def change_node(self, changed: NodeSpec) -> bool:
        """A node has other hardware; False: what is in use there would not fit.

        Where runs are, it keeps its kind and its place: those are theirs by now.
        """
        node = self.core.ledger.nodes[changed.id]
        if node.runs:
            old = node.spec
            changed = replace(changed, kind=old.kind, sockets=old.sockets, switch=old.switch)
            if old.sockets > 1:  # with other devices, each socket would have others
                changed = replace(changed, gpus=old.gpus)
        if not self.request(NodeChanged(self.now, changed)):
            return False
        self.cluster[changed.id] = changed
        self.broken = {(name, gpu) for name, gpu in self.broken if gpu < self.cluster[name].gpus}
        return True

    def protect(self, name: JobId, why: str) -> None:
        """A job must not be evicted, or may be again; what it was to leave stays its own."""
        job = self.core.jobs.get(name)
        if job is not None and job.run is not None and job.run.leaves and why:
            self._allowed[job.spec.queue] = job.queue.used_milli + job.run.gpu_milli
        self.request(Protected(self.now, name, why))

    def change_pool(self, name: str, nodes: Iterable[NodeId]) -> None:
        """Other nodes belong to a pool."""
        self.tell(PoolChanged(self.now, name, frozenset(nodes)))

    def change_queue(self, changed: QueueSpec) -> None:
        """Change a queue's promise, limit or priority; it keeps what it holds."""
        held = self.core.queues.get(changed.id)
        self._allowed[changed.id] = held.used_milli if held is not None else 0
        self.tell(QueueChanged(self.now, changed))

    def lose(self, name: NodeId, *, at_once: bool) -> None:
        """Lose a node; its runs are reported with it, or later."""
        events: list[Event] = [NodeLost(self.now, name)]
        if at_once:
            hit = {run.id for run in self.core.ledger.nodes[name].runs} & set(self.processes)
            for run_id in sorted(hit):
                del self.processes[run_id]
                events.append(Exited(self.now, run_id, Outcome.LOST, 1.0))
        self.tell(*events)

    def cordon(self, name: NodeId, *, drain: bool) -> None:
        """Let a node take nothing new; what runs there leaves, too, if it is drained."""
        self.tell(NodeCordoned(self.now, name, "its fan is loud", "ada", drain))

    def plan_maintenance(self, name: NodeId, after_s: float, lasts_s: float) -> None:
        """Let a node be empty for some time."""
        start = self.now + after_s
        self.request(MaintenancePlanned(self.now, name, start, start + lasts_s, "dust", "ada"))

    def break_or_repair(self, name: NodeId, gpu: int) -> None:
        """Let a GPU fail, or repair it."""
        device = (name, gpu)
        repaired = device in self.broken
        self.broken ^= {device}
        self.tell(GpuRestored(self.now, *device) if repaired else GpuFailed(self.now, *device))

    @property
    def shrinkable(self) -> list[RunId]:
        """Running runs of jobs that can go on with a worker less."""
        found = []
        for run_id in self.working:
            run = self.core.runs.get(run_id)
            if run is not None and run.workers > run.job.spec.workers.min:
                found.append(run_id)
        return found

    def lose_worker(self, run_id: RunId, index: int) -> None:
        """Let a main worker of a run die; the others go on without it."""
        run = self.core.runs[run_id]
        others = set(range(run.workers)) - {index % run.workers}
        left = keeping(run.allocation, others)
        self.processes[run_id].uses = used(run.job.spec, left)
        self.tell(Shrank(self.now, run_id, left, "a worker died"))

    def late_reports(self, run_id: RunId) -> list[Event]:
        """The reports that an attempt may still send when it is over."""
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
        """Send a report of an attempt that is over: it changes nothing but the time."""
        self.tell(Woke(self.now))  # what time itself brings about is no fault of the report
        before = snapshot(self.core)
        self.tell(report)
        changed = differ(before, {**snapshot(self.core), "now": before["now"]})
        if changed:
            raise AssertionError(f"{report} came late and changed {changed}")

    def repeated_reports(self, run_id: RunId) -> list[Event]:
        """The reports that a run may repeat; answers to open requests are not among them."""
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
        """Bring the core back from its journal, as after the death of the controller."""
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
        """Check that the core is sound, and that queues stay within their limits."""
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
        """Repair everything, lift all limits, resume every job, and let every run succeed.

        Afterwards each job is over or waits, and no device is taken.
        """
        self.tell(*(QueueChanged(self.now, queue(name)) for name in self.core.queues))
        self.tell(
            *(GpuRestored(self.now, *device) for device in sorted(self.broken)),
            *(
                MaintenanceCancelled(self.now, w.node, w.starts_at)
                for w in self.core.ledger.windows
            ),
            *(NodeUncordoned(self.now, name) for name in self.core.ledger.cordoned),
            *(NodeJoined(self.now, n.spec) for n in self.core.ledger.order if not n.here),
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
        start, before = 0, len(left)
        while start < len(left):
            fewer = left[:start] + left[start + length :]
            if breaks(fewer):
                left = fewer
            else:
                start += length
        if length > 1 or len(left) == before:  # what could not go alone may go without others
            length //= 2
    return left
