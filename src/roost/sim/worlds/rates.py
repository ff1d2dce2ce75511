"""The simulated world: runs that really make progress, and what it costs to disturb them.

It performs the core's actions in virtual time and answers with events, as an engine would. Here is
the truth: how much work a job has, how fast it goes where it is, when its attempts fail. The
core and the policies learn of it only through events.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

from roost.core.actions import Action, Launch, Migrate, Resize, Resume, Stop, Suspend
from roost.core.allocation import Allocation, survivors
from roost.core.events import (
    Event,
    Exited,
    GpuFailed,
    NodeJoined,
    NodeLost,
    Outcome,
    Progressed,
    Resized,
    Started,
    Suspended,
)
from roost.core.lifecycle import goes_on
from roost.core.occupancy import lasting
from roost.core.spec import CPU_SLOT, WHOLE, JobId, NodeId, NodeSpec, RunId
from roost.core.state import Run
from roost.core.transitions import RunPhase
from roost.perf.speed import SpeedModel
from roost.traces.workload import TraceJob


@dataclass(slots=True, eq=False)
class TrueJob:
    """What the world keeps of a job across its runs."""

    trace: TraceJob
    index: int
    saved_s: float = 0.0
    failed: int = 0
    service_gpu_s: float = 0.0
    lost_gpu_s: float = 0.0

    @property
    def goal_s(self) -> float:
        """The work after which the present attempt ends: where it fails, or where all is done."""
        fails = self.trace.fails_at_s
        return fails[self.failed] if self.failed < len(fails) else self.trace.work_s


@dataclass(slots=True, eq=False)
class TrueRun:
    """A run as it really is.

    ``done_s`` is the work done at ``since``; from there on it grows by ``rate`` while the run is
    ``working``. ``saved_s`` is what its last checkpoint keeps, ``phase_s`` the time since that.
    ``version`` tells a planned end that still holds from one that no longer does.
    """

    id: RunId
    job: TrueJob
    allocation: Allocation
    gpus: float
    done_s: float
    saved_s: float
    rate: float = 1.0
    since: float = 0.0
    held_since: float = 0.0
    working: bool = False
    phase_s: float = 0.0
    version: int = 0


@dataclass(slots=True)
class Gauges:
    """GPUs held and GPUs doing work that counts, right now."""

    allocated: float = 0.0
    useful: float = 0.0


@dataclass(slots=True)
class EndedHold:
    """A device hold that just ended, for the timeline."""

    run: TrueRun
    allocation: Allocation
    start: float
    end: float


class World:
    """Runs in virtual time. ``perform`` takes actions; ``due`` gives the events of an instant."""

    def __init__(self, jobs: Mapping[JobId, TrueJob], speed: SpeedModel) -> None:
        self.jobs = jobs
        self.speed = speed
        self.runs: dict[RunId, TrueRun] = {}
        self.nodes: dict[NodeId, NodeSpec] = {}
        self.gauges = Gauges()
        #: Holds that ended, oldest first; kept only if someone asked for the timeline.
        self.timeline: list[EndedHold] | None = None
        self._heap: list[tuple[float, int, TrueRun | Event, int]] = []
        self._count = 0

    # -- time ----------------------------------------------------------------------------------

    @property
    def next_time(self) -> float:
        """When something happens next; ends that no longer hold do not count."""
        heap = self._heap
        while heap:
            at, _, item, version = heap[0]
            if not isinstance(item, TrueRun) or item.version == version:
                return at
            heapq.heappop(heap)
        return math.inf

    def schedule(self, event: Event) -> None:
        """Let an event happen at its time."""
        self._count += 1
        heapq.heappush(self._heap, (event.time, self._count, event, 0))

    def due(self, now: float) -> list[Event]:
        """Everything that happens at this instant."""
        heap = self._heap
        events: list[Event] = []
        while heap and heap[0][0] <= now:
            _, _, item, version = heapq.heappop(heap)
            if not isinstance(item, TrueRun):
                self._happen(item, events)
            elif item.version == version:
                self._reach_goal(item, now, events)
        return events

    def _happen(self, event: Event, events: list[Event]) -> None:
        match event:
            case Started() | Resized():
                run = self.runs.get(event.run)
                if run is None or run.working:
                    return
                self._start(run, event, events)
                return
            case NodeJoined():
                self.nodes[event.node.id] = event.node
            case NodeLost():
                events.append(event)
                self._break(event.time, event.node, None, events)
                return
            case GpuFailed():
                events.append(event)
                self._break(event.time, event.node, event.gpu, events)
                return
            case Exited() | Suspended():
                if event.run not in self.runs:
                    return
                self._leave(self.runs[event.run], event)
            case _:
                pass
        events.append(event)

    def adopt(self, run: Run, now: float) -> None:
        """Go on with a run that began elsewhere: it works, or does now what it was asked last."""
        if run.phase is RunPhase.RESERVED:
            return  # its launch was not ordered yet
        job, costs = self.jobs[run.id.job], run.job.spec.costs
        done_s = run.done(now)
        saved_s = done_s if costs.checkpoint_every_s == 0 else min(run.job.saved_s, done_s)
        true = TrueRun(run.id, job, run.allocation, run.gpu_milli / WHOLE, done_s, saved_s)
        true.rate, true.since, true.held_since = run.rate, now, now
        self.runs[run.id] = true
        if run.phase in (RunPhase.SUSPENDED, RunPhase.RECALLED):
            true.allocation, true.gpus = Allocation(()), 0.0
            if run.job.cancelling:
                self.schedule(Exited(now, run.id, Outcome.STOPPED, done_s))
            return
        self.gauges.allocated += true.gpus
        if run.phase in (RunPhase.SUSPENDING, RunPhase.FREEZING):
            self.schedule(Suspended(now + costs.suspend_s, run.id, done_s))
        elif run.frozen:
            pass  # until its user lets it go on
        elif run.leaves:
            self.schedule(Exited(now, run.id, Outcome.STOPPED, saved_s))
        elif run.started_at is None:
            delay = costs.restart_s if run.id.attempt > 1 or run.phase is RunPhase.RESUMING else 0.0
            self.schedule(Started(max(now, run.placed_at + delay), run.id))
        else:
            true.working = True
            self.gauges.useful += true.gpus
            self._expect(true, now)
            if run.target is not None and run.phase is RunPhase.CHANGING:
                self._reshape(Resize(run.id, run.target), now)

    # -- actions -------------------------------------------------------------------------------

    def perform(self, action: Action, now: float) -> None:
        """Begin to do what the core asks; the outcome comes as events."""
        match action:
            case Launch():
                job = self.jobs[action.run.job]
                gpus = action.allocation.gpu_milli / WHOLE
                run = TrueRun(action.run, job, action.allocation, gpus, job.saved_s, job.saved_s)
                self._seize(run, now, restart=action.run.attempt > 1)
            case Resume():
                run = self.runs[action.run]
                if run.allocation.parts:  # it stood still where it is
                    self._halt(run, now)
                    self._note(run, now)
                    self.gauges.allocated -= run.gpus
                run.allocation = action.allocation
                run.gpus = action.allocation.gpu_milli / WHOLE
                self._seize(run, now, restart=True)
            case Resize() | Migrate():
                self._reshape(action, now)
            case Suspend():
                self._pause(action.run, now)
            case Stop():
                self._stop(action.run, now)

    def _seize(self, run: TrueRun, now: float, *, restart: bool) -> None:
        """A run gets its devices; it starts to work now or after its restart."""
        self.runs[run.id] = run
        run.held_since = run.since = now
        run.working = False
        self.gauges.allocated += run.gpus
        self.schedule(self._started(run, now, restart=restart))

    def _started(self, run: TrueRun, now: float, *, restart: bool) -> Started:
        """When a run that gets its devices now will be up."""
        delay = run.job.trace.spec.costs.restart_s if restart else 0.0
        return Started(now + delay, run.id)

    def _resized(self, run: TrueRun, now: float) -> Resized:
        """When a run that changes its devices now will be up again."""
        return Resized(now + run.job.trace.spec.costs.resize_s, run.id)

    def _start(self, run: TrueRun, event: Started | Resized, events: list[Event]) -> None:
        """A run begins to work, and is measured where that tells something new."""
        now = event.time
        run.job.lost_gpu_s += (now - run.since) * run.gpus
        run.working = True
        run.since = now
        if isinstance(event, Started):
            run.phase_s = 0.0
        self.gauges.useful += run.gpus
        run.rate = self._rate(run)
        self._expect(run, now)
        events.append(event)
        spec = run.job.trace.spec
        if run.rate != 1.0 or spec.elastic:
            events.append(Progressed(now, run.id, run.done_s, run.rate))
        self._meet(run, now)

    def _stop(self, run_id: RunId, now: float) -> None:
        run = self.runs.get(run_id)
        if run is None:
            return
        self._halt(run, now)
        self.schedule(Exited(now, run.id, Outcome.STOPPED, run.saved_s))

    def _pause(self, run_id: RunId, now: float) -> None:
        run = self.runs.get(run_id)
        if run is None:
            return
        self._halt(run, now)
        run.saved_s = run.done_s
        delay = run.job.trace.spec.costs.suspend_s
        self.schedule(Suspended(now + delay, run.id, run.done_s))

    def _reshape(self, action: Resize | Migrate, now: float) -> None:
        run = self.runs.get(action.run)
        if run is None:
            return
        self._halt(run, now)
        self._note(run, now)
        self.gauges.allocated -= run.gpus
        run.allocation = action.allocation
        run.gpus = action.allocation.gpu_milli / WHOLE
        self.gauges.allocated += run.gpus
        run.held_since = now
        self.schedule(self._resized(run, now))

    # -- progress ------------------------------------------------------------------------------

    def _rate(self, run: TrueRun) -> float:
        costs = run.job.trace.spec.costs
        neighbours: list[str] = []
        if self.speed.interferes:
            neighbours = [other.job.trace.spec.application for other in self.neighbours(run)]
        rate = self.speed.rate(run.job.trace.spec, run.allocation, self.nodes, neighbours)
        every = costs.checkpoint_every_s
        if costs.checkpoint_s and every and not math.isinf(every):
            rate *= every / (every + costs.checkpoint_s)
        return rate

    def neighbours(self, run: TrueRun) -> list[TrueRun]:
        """Other working runs on the devices of a run."""
        mine = _device_set(run.allocation)
        return [
            other
            for other in self.runs.values()
            if other is not run
            and other.working
            and not mine.isdisjoint(_device_set(other.allocation))
        ]

    def _meet(self, run: TrueRun, now: float) -> None:
        """A neighbour came or went: those beside it change pace."""
        if not self.speed.interferes:
            return
        for other in self.neighbours(run):
            self._advance(other, now)
            other.rate = self._rate(other)
            self._expect(other, now)
            self.schedule(Progressed(now, other.id, other.done_s, other.rate))

    def _expect(self, run: TrueRun, now: float) -> None:
        """Plan the end of a working run; an older plan no longer holds."""
        run.version += 1
        left = max(0.0, run.job.goal_s - run.done_s)
        self._count += 1
        heapq.heappush(self._heap, (now + left / run.rate, self._count, run, run.version))

    def _advance(self, run: TrueRun, now: float) -> None:
        """Count the work and the checkpoints up to now."""
        passed = now - run.since
        run.since = now
        run.done_s += passed * run.rate
        costs = run.job.trace.spec.costs
        if costs.checkpoint_every_s == 0:
            run.saved_s = run.done_s
        else:
            period = costs.checkpoint_every_s + costs.checkpoint_s
            run.phase_s += passed
            if run.phase_s >= period:
                run.phase_s %= period
                run.saved_s = run.done_s - run.phase_s * run.rate

    def _halt(self, run: TrueRun, now: float) -> None:
        """A run stops working; it still holds its devices."""
        if run.working:
            self._advance(run, now)
            run.working = False
            run.version += 1
            self.gauges.useful -= run.gpus
            self._meet(run, now)
        else:
            run.job.lost_gpu_s += (now - run.since) * run.gpus
            run.since = now

    def _reach_goal(self, run: TrueRun, now: float, events: list[Event]) -> None:
        self._halt(run, now)
        job = run.job
        run.done_s = run.saved_s = job.goal_s
        if job.failed < len(job.trace.fails_at_s):
            job.failed += 1
            outcome = Outcome.FAILED
        else:
            outcome = job.trace.outcome
        event = Exited(now, run.id, outcome, run.saved_s)
        self._leave(run, event)
        events.append(event)

    def _leave(self, run: TrueRun, event: Exited | Suspended) -> None:
        """A run gives up its devices."""
        now = event.time
        if isinstance(event, Suspended) and self._stays(run):
            return
        self._note(run, now)
        self.gauges.allocated -= run.gpus
        if isinstance(event, Suspended):
            run.job.lost_gpu_s += (now - run.since) * run.gpus
            run.gpus = 0.0
            run.allocation = Allocation(())
            return
        lost = run.done_s - run.saved_s
        if lost > 0:
            run.job.lost_gpu_s += lost / run.rate * run.gpus
        run.job.saved_s = run.saved_s
        del self.runs[run.id]

    def _note(self, run: TrueRun, now: float) -> None:
        """Book a hold of devices that ends now."""
        run.job.service_gpu_s += (now - run.held_since) * run.gpus
        if self.timeline is not None and now > run.held_since:
            self.timeline.append(EndedHold(run, run.allocation, run.held_since, now))

    def _break(self, now: float, node: NodeId, gpu: int | None, events: list[Event]) -> None:
        """Everything on a broken node or GPU dies; an elastic job's other workers may go on.

        They stand still until the core has said with what.
        """
        for run in list(self.runs.values()):
            if any(
                part.node == node and (gpu is None or gpu in part.gpus)
                for part in run.allocation.parts
            ):
                left = survivors(run.allocation, node, gpu)
                lives = run.working and goes_on(run.job.trace.spec, left)
                self._halt(run, now)
                if not lives:
                    event = Exited(now, run.id, Outcome.LOST, run.saved_s)
                    self._leave(run, event)
                    events.append(event)

    def _stays(self, run: TrueRun) -> bool:
        """Whether a run keeps its devices though it is suspended."""
        spec = run.job.trace.spec
        return any(self.nodes[name].kind != CPU_SLOT for name in lasting(spec, run.allocation))


def _device_set(allocation: Allocation) -> set[tuple[NodeId, int]]:
    return {(part.node, gpu) for part in allocation.parts for gpu in part.gpus}
