"""The heap driver: it gives the core its events in virtual time and performs its actions.

    while something can still happen:
        take everything that happens at the next instant
        hand it to the core as one batch
        let the world perform the actions

A simulation can be saved between two instants and resumed later (``saved``), observed batch by
batch, and is the same to the last bit for the same inputs and seed.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

from roost.core.actions import Action
from roost.core.controller import Core, Policy
from roost.core.decisions import Decision
from roost.core.events import Event, NodeJoined, Outcome, QueueChanged, Submitted, Woke
from roost.core.plan import Placer
from roost.core.spec import WHOLE, JobId, NodeSpec, QueueSpec, Shape
from roost.errors import InvalidSpec
from roost.perf.speed import Speed, SpeedModel
from roost.sim.failures import Breakdowns, Failures
from roost.sim.results import JobResult, Results, Segment, Series
from roost.sim.worlds.rates import EndedHold, TrueJob, World
from roost.traces.workload import TraceJob, Workload

#: Sees every batch: its events, what was decided, and the actions that followed.
Observer: TypeAlias = Callable[[Sequence[Event], Sequence[Decision], Sequence[Action]], None]
#: Told now and then how far a run is: virtual time, jobs over, jobs in all.
Progress: TypeAlias = Callable[[float, int, int], None]
#: Makes a world of jobs that go as fast as the speed model says.
MakeWorld: TypeAlias = Callable[[Mapping[JobId, TrueJob], SpeedModel], World]
#: Asked after every batch whether to stop here.
Enough: TypeAlias = Callable[[], bool]

_REPORT_EVERY = 2048
#: Objects made before the cycle collector looks at them.
_GARBAGE = 200_000
#: Collections of young objects before older ones are looked at again: a run keeps what it makes.
_ROUNDS = 1000
#: How often a policy is asked to start the jobs that are left in an idle cluster.
_PATIENCE = 1000


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that a run depends on."""

    workload: Workload
    nodes: Sequence[NodeSpec]
    policy: Policy
    placer: Placer
    policy_name: str = ""
    placer_name: str = ""
    queues: Sequence[QueueSpec] = ()
    speed: SpeedModel = field(default_factory=Speed)
    failures: Failures = field(default_factory=Failures)
    seed: int = 0
    skip_impossible: bool = False
    timeline: bool = False
    #: Makes the world in which the jobs run.
    world: MakeWorld = World


class Simulation:
    """One run of one policy on one workload.

    It begins with an empty cluster, or with a core that was ``under_way`` elsewhere: then the
    workload tells the truth about the jobs of that core, which are all here already.
    """

    def __init__(self, setup: Setup, under_way: Core | None = None) -> None:
        self.setup = setup
        self.core = Core(setup.policy, setup.placer) if under_way is None else under_way
        jobs = check(setup) if under_way is None else setup.workload.jobs
        self.jobs = {job.id: TrueJob(job, index) for index, job in enumerate(jobs)}
        self.world = setup.world(self.jobs, setup.speed)
        if setup.timeline:
            self.world.timeline = []
        self.now = 0.0
        self.events = 0
        self.batches = 0
        self.cpu_s = 0.0
        self.wall_s = 0.0
        self._arrivals = jobs
        self._capacity_milli = WHOLE * sum(node.gpus for node in setup.nodes)
        self._arrived = 0
        self._samples: list[tuple[float, float, float, float, int, int]] = []
        self._breakdowns: dict[Event, Breakdowns] = {}
        self._forgotten = 0
        self._idle_since: int | None = None
        self._under_way = under_way is not None
        if under_way is None:
            self._begin()
        else:
            self._go_on()

    def _begin(self) -> None:
        setup = self.setup
        queues = _all_queues(setup.queues, self._arrivals)
        for queue in queues:
            if not queue.cells:
                self.world.schedule(QueueChanged(0.0, queue))
        for node in setup.nodes:
            self.world.schedule(NodeJoined(0.0, node))
        for queue in queues:
            if queue.cells:  # there must be such cells by then
                self.world.schedule(QueueChanged(0.0, queue))
        for source in setup.failures.sources(setup.nodes, setup.seed):
            self._breaks_next(source)

    def _go_on(self) -> None:
        """Take over the runs of a core that was under way."""
        core = self.core
        self.now = core.now
        core.wake_at = max(core.wake_at, core.now)
        self._arrived = len(self._arrivals)
        self._forgotten = core.finished
        self.world.nodes.update((node.id, node.spec) for node in core.ledger.order)
        for name, job in self.jobs.items():
            job.saved_s = core.jobs[name].saved_s
        for run in core.runs.values():
            self.world.adopt(run, self.now)

    @property
    def over(self) -> bool:
        """Whether every job is over."""
        return self.core.finished == len(self._arrivals) + self._forgotten

    def run(
        self,
        until: float = math.inf,
        *,
        observer: Observer | None = None,
        progress: Progress | None = None,
        enough: Enough | None = None,
    ) -> Results:
        """Go on until every job is over, until that time, or until it is enough."""
        wall, cpu = time.perf_counter(), time.process_time()
        # A caller that says what is enough may be a server with other threads.
        with _patient_collector() if enough is None else nullcontext():
            to_the_end = self._loop(until, observer, progress, enough)
            if to_the_end and not self.over and until < math.inf:
                self.now = max(self.now, until)
            self.wall_s += time.perf_counter() - wall
            self.cpu_s += time.process_time() - cpu
            if progress is not None:
                progress(self.now, self.core.finished, len(self._arrivals))
            return self.results()

    def _loop(
        self,
        until: float,
        observer: Observer | None,
        progress: Progress | None,
        enough: Enough | None,
    ) -> bool:
        """Go on; says whether that time was reached, or the end, before it was enough."""
        core, world, arrivals = self.core, self.world, self._arrivals
        failing = bool(self._breakdowns)
        endless = failing or self._under_way
        arrival = self._next_arrival()
        while True:
            now = min(arrival, world.next_time, core.wake_at)
            if now > until or now == math.inf or (endless and self._nothing_more_to_see()):
                return True
            self.now = now
            events = world.due(now)
            if failing:
                self._refill(events)
            while arrival <= now:
                job = arrivals[self._arrived]
                events.append(Submitted(now, job.id, job.spec))
                self._arrived += 1
                arrival = self._next_arrival()
            if core.wake_at <= now:
                events.append(Woke(now))
            actions = core.handle(*events)
            for action in actions:
                world.perform(action, now)
            if observer is not None:
                observer(events, core.decisions, actions)
            self.events += len(events)
            self.batches += 1
            self._sample()
            if progress is not None and self.batches % _REPORT_EVERY == 0:
                progress(now, core.finished, len(arrivals))
            if enough is not None and enough():
                return False

    def _nothing_more_to_see(self) -> bool:
        """Nodes fail for ever; this is when every job is over, or waits though all are up."""
        core = self.core
        if self._under_way:
            return self._wait_in_vain()
        return self.over or (
            self._arrived == len(self._arrivals)
            and not core.runs
            and core.wake_at == math.inf
            and core.ledger.capacity_milli == self._capacity_milli
            and bool(self._samples)
        )

    def _wait_in_vain(self) -> bool:
        """Whether nothing happens any more but that the policy is asked, again and again."""
        core = self.core
        if (
            self.world.next_time < math.inf
            or core.backing_off
            or not all(run.parked or run.frozen for run in core.runs.values())
        ):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self.batches
        return self._idle_since is not None and self.batches - self._idle_since > _PATIENCE

    def _next_arrival(self) -> float:
        if self._arrived < len(self._arrivals):
            return self._arrivals[self._arrived].submitted_at
        return math.inf

    def _sample(self) -> None:
        """Take the readings of this instant; a later batch of the same instant replaces them."""
        core, gauges, samples = self.core, self.world.gauges, self._samples
        sample = (
            self.now,
            core.ledger.capacity_milli / WHOLE,
            gauges.allocated,
            gauges.useful,
            core.waiting.count,
            len(core.runs),
        )
        if samples and samples[-1][0] == self.now:
            samples[-1] = sample
        else:
            samples.append(sample)

    # -- failures ------------------------------------------------------------------------------

    def _breaks_next(self, source: Breakdowns) -> None:
        event = next(source)
        self._breakdowns[event] = source
        self.world.schedule(event)

    def _refill(self, events: Sequence[Event]) -> None:
        """Every breakdown that happened is followed by the next one of its source."""
        for event in events:
            source = self._breakdowns.pop(event, None)
            if source is not None:
                self._breaks_next(source)

    # -- what is left --------------------------------------------------------------------------

    def results(self) -> Results:
        """What the run has shown so far."""
        setup, core = self.setup, self.core
        open_gpu_s: dict[TrueJob, float] = {}
        for run in self.world.runs.values():
            open_gpu_s[run.job] = (self.now - run.held_since) * run.gpus
        rows = [
            self._row(job, open_gpu_s.get(job, 0.0))
            for job in islice(self.jobs.values(), self._arrived)
        ]
        samples = self._samples
        if samples and samples[-1][0] < self.now:
            samples = [*samples, (self.now, *samples[-1][1:])]
        return Results(
            policy=setup.policy_name,
            placer=setup.placer_name,
            workload=setup.workload.name,
            seed=setup.seed,
            nodes=len(setup.nodes),
            gpus=sum(node.gpus for node in setup.nodes),
            jobs=rows,
            series=_series(samples, rows),
            segments=self._segments(),
            events=self.events,
            decisions=self.batches,
            preemptions=sum(job.preemptions for job in core.jobs.values()),
            wall_s=self.wall_s,
            cpu_s=self.cpu_s,
            notes=_notes(self._arrivals),
        )

    def _row(self, true: TrueJob, open_gpu_s: float) -> JobResult:
        trace = true.trace
        job = self.core.jobs[trace.id]
        # By position: named arguments cost as much again, and there may be a million rows.
        return JobResult(
            trace.id,
            trace.spec.queue,
            trace.spec.gpus,
            trace.submitted_at,
            job.started_at,
            job.finished_at,
            job.state.value,
            trace.work_s,
            true.service_gpu_s + open_gpu_s,
            true.lost_gpu_s,
            job.attempts,
            job.preemptions,
            job.resizes,
            *self.core.waiting.waits(job, self.now),
        )

    def _segments(self) -> list[Segment]:
        if self.world.timeline is None:
            return []
        still = [
            EndedHold(run, run.allocation, run.held_since, self.now)
            for run in self.world.runs.values()
            if self.now > run.held_since
        ]
        return [
            Segment(held.run.job.index, part.node, gpu, part.share_milli, held.start, held.end)
            for held in (*self.world.timeline, *still)
            for part in held.allocation.parts
            for gpu in part.gpus
        ]


def _notes(jobs: Sequence[TraceJob]) -> tuple[str, ...]:
    """What to know before one relies on the figures of such jobs."""
    unknown = sum(job.spec.run_time_s is None for job in jobs)
    if not unknown:
        return ()
    all_of_them = unknown == len(jobs)
    who = "no job declares a" if all_of_them else f"{unknown} of {len(jobs)} jobs declare no"
    text = (
        f"{who} run time: policies that go by it, such as sjf, srtf and backfill, know them at "
        "best by earlier jobs of the same user and application (--declare work tells them the "
        "truth, --declare noisy:0.3 nearly)"
    )
    return (text,)


def _all_queues(declared: Sequence[QueueSpec], jobs: Sequence[TraceJob]) -> list[QueueSpec]:
    """Queues that were declared, and those that jobs name, as if declared without a promise."""
    queues = {queue.id: queue for queue in declared}
    for job in jobs:
        if job.spec.queue not in queues:
            queues[job.spec.queue] = QueueSpec(job.spec.queue)
    return list(queues.values())


@contextmanager
def _patient_collector() -> Iterator[None]:
    """Let the cycle collector come by rarely: a run makes many lasting objects and no cycles."""
    before = gc.get_threshold()
    gc.set_threshold(_GARBAGE, _ROUNDS, _ROUNDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def check(setup: Setup) -> list[TraceJob]:
    """The jobs to run, in order; refuses what can never run and names it."""
    if not setup.workload.jobs:
        msg = f"workload {setup.workload.name!r} has no jobs"
        raise InvalidSpec(msg)
    if not setup.nodes:
        msg = "the cluster has no nodes"
        raise InvalidSpec(msg)
    empty = Core(setup.policy, setup.placer)
    for node in setup.nodes:
        empty.ledger.join(node)
    limits = {queue.id: queue.limit_milli for queue in setup.queues}
    verdicts: dict[tuple[object, ...], bool] = {}
    seen: set[JobId] = set()
    jobs: list[TraceJob] = []
    for job in sorted(setup.workload.jobs, key=lambda job: job.submitted_at):
        if job.id in seen:
            msg = f"job id {job.id!r} appears twice in {setup.workload.name!r}"
            raise InvalidSpec(msg)
        seen.add(job.id)
        spec = job.spec
        known = (spec.workers.min, id(spec.resources), spec.roles, spec.within)
        fits = verdicts.get(known)
        if fits is None:
            shape = Shape(spec.workers.min, spec.resources, spec.roles, spec.within)
            fits = verdicts[known] = setup.placer(empty.ledger, shape) is not None
        limit = limits.get(spec.queue)
        if fits and (limit is None or spec.gpu_milli(spec.workers.min) <= limit):
            jobs.append(_ends_as_recorded(job))
        elif not setup.skip_impossible:
            raise InvalidSpec(_impossible(job, setup, limit if fits else None))
    if not jobs:
        msg = f"no job of {setup.workload.name!r} can ever run on this cluster"
        raise InvalidSpec(msg)
    return jobs


def _ends_as_recorded(job: TraceJob) -> TraceJob:
    """A job that failed for good is not tried again beyond the attempts that were recorded."""
    attempts = len(job.fails_at_s)
    if job.outcome is Outcome.FAILED and job.spec.max_retries != attempts:
        return replace(job, spec=replace(job.spec, max_retries=attempts))
    return job


def _impossible(job: TraceJob, setup: Setup, limit: int | None) -> str:
    spec, need = job.spec, job.spec.resources
    asks = f"job {job.id!r} can never run: it asks for {spec.gpus:g} GPUs"
    if limit is not None:
        return f"{asks}, its queue {spec.queue!r} is limited to {limit / WHOLE:g}"
    if need.kinds:
        asks += f" of kind {'|'.join(need.kinds)}"
    if need.cpu_milli or need.memory_mib:
        asks += f", each worker with {need.cpu_milli / 1000:g} CPUs and {need.memory_mib} MiB"
    gpus = sum(node.gpus for node in setup.nodes)
    return (
        f"{asks}; no such place on {len(setup.nodes)} nodes with {gpus} GPUs "
        f"(use a larger cluster, or --skip-impossible)"
    )


def _series(
    samples: Sequence[tuple[float, float, float, float, int, int]], rows: Sequence[JobResult]
) -> Series:
    """Readings as columns, with the demand of all unfinished jobs worked out afterwards."""
    if not samples:
        return Series()
    times, capacity, allocated, useful, queued, running = map(list, zip(*samples, strict=True))
    changes = [(row.submitted_at, row.gpus) for row in rows]
    changes += [(row.finished_at, -row.gpus) for row in rows if row.finished_at is not None]
    changes.sort()
    demand, total, index = [], 0.0, 0
    for moment in times:
        while index < len(changes) and changes[index][0] <= moment:
            total += changes[index][1]
            index += 1
        demand.append(total)
    return Series(times, capacity, allocated, useful, queued, running, demand)
