"""Measuring the simulator and the core: what it costs, next to what it gives.

Every policy runs in a fresh process, one after the other, so that peak memory and CPU time are its
own. Times cover building the simulation, running it and working out all metrics; reading the trace
is not part of them.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

from roost import traces
from roost.core.actions import Action, Launch, Stop
from roost.core.controller import Core
from roost.core.events import Event, Exited, NodeJoined, Outcome, Started, Submitted, Woke
from roost.core.spec import JobId, JobSpec, QueueId, Range
from roost.errors import InvalidSpec, Retryable
from roost.placement import placer as find_placer
from roost.policies import policy as find_policy
from roost.sim.many import workers
from roost.sim.metrics import summarise
from roost.sim.scenario import Scenario, uniform_cluster
from roost.sim.simulation import Simulation
from roost.traces.workload import Workload


@dataclass(frozen=True, slots=True)
class Selection:
    """Which jobs of a trace take part: a slice of those of certain sizes and lengths."""

    sizes: tuple[int, ...] = ()
    min_run_s: float = 0.0
    first: int = 0
    count: int | None = None

    def of(self, workload: Workload) -> Workload:
        """The selected jobs, with time counted from the first of them."""
        jobs = [
            job
            for job in workload.jobs
            if job.work_s >= self.min_run_s and (not self.sizes or job.spec.gpus in self.sizes)
        ]
        jobs = jobs[self.first : None if self.count is None else self.first + self.count]
        if not jobs:
            raise InvalidSpec(f"no job of {workload.name!r} is selected")
        start = jobs[0].submitted_at
        moved = [replace(job, submitted_at=job.submitted_at - start) for job in jobs]
        return Workload(workload.name, moved, workload.nodes)


@dataclass(frozen=True, slots=True)
class Measured:
    """One policy's row."""

    policy: str
    jobs: int
    mean_jct_s: float
    median_jct_s: float
    makespan_s: float
    mean_queued_s: float
    preemptions: int
    events: int
    wall_s: float
    cpu_s: float
    peak_rss_mib: float


@dataclass(frozen=True, slots=True)
class SimBench:
    """A trace, a cluster and a placer, for any policy."""

    trace: str
    nodes: int
    gpus_per_node: int
    placer: str
    selection: Selection = Selection()

    def measure(self, policy: str) -> Measured:
        """Run one policy in a process of its own."""
        try:
            with workers(1) as submit:
                measured: Measured = submit(_measure, self, policy).result()
                return measured
        except BrokenProcessPool:
            raise Retryable(
                f"the process that measured {policy!r} was killed, for want of memory perhaps",
                after=0.0,
            ) from None


def _measure(bench: SimBench, policy: str) -> Measured:
    workload = bench.selection.of(traces.read(bench.trace))
    nodes = uniform_cluster(bench.nodes, bench.gpus_per_node)
    scenario = Scenario(workload, nodes, skip_impossible=True)
    wall, cpu = time.perf_counter(), time.process_time()
    results = Simulation(scenario.setup(policy, bench.placer, 0)).run()
    summary = summarise(results)
    return Measured(
        policy=policy,
        jobs=summary.jobs,
        mean_jct_s=summary.jct_mean or 0.0,
        median_jct_s=summary.jct_median or 0.0,
        makespan_s=summary.makespan or 0.0,
        mean_queued_s=summary.delay_mean or 0.0,
        preemptions=summary.preemptions,
        events=results.events,
        wall_s=time.perf_counter() - wall,
        cpu_s=time.process_time() - cpu,
        peak_rss_mib=_peak_rss_mib(),
    )


def _peak_rss_mib() -> float:
    """The most memory that this process has held."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except (OSError, IndexError):
        # Includes the peak of the process that started this one: Linux keeps it across exec.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass(frozen=True, slots=True)
class Decision:
    """How long one decision takes, in milliseconds."""

    policy: str
    nodes: int
    jobs: int
    median_ms: float
    worst_ms: float
    cold_ms: float


def time_decisions(policy: str, *, nodes: int, jobs: int, placer: str, rounds: int) -> Decision:
    """Submit jobs, one a second, of which half fill the cluster, then time single decisions.

    In each round one job ends and another is submitted. The last round is *cold*: everything that
    the core and the policy remember to save time is forgotten first, as after a restart.
    """
    core = Core(find_policy(policy), find_placer(placer))
    cluster = uniform_cluster(nodes, 8, nodes_per_switch=16)
    core.handle(*(NodeJoined(0.0, node) for node in cluster))
    half = jobs // 2
    wide = max(1, nodes * 8 // half)
    now = 0.0
    for number in range(jobs):
        now += 1.0
        size = wide if number < half else (1, 2, 4, 8, 16, 32, wide)[number % 7]
        spec = _spec(number, size, 10_000.0 + number)
        _answer(core, now, core.handle(Submitted(now, JobId(f"job-{number}"), spec)))
    samples = []
    for round_ in range(rounds + 1):
        now += 10.0
        if round_ == rounds:
            core.waiting.forget_refusals()
            core.ledger.forget_changes()
        oldest = min(core.runs.values(), key=lambda run: run.placed_at)
        events: list[Event] = [
            Exited(now, oldest.id, Outcome.SUCCEEDED, 0.0),
            Submitted(now, JobId(f"new-{round_}"), _spec(round_, 8, 500.0)),
        ]
        if core.wake_at <= now:
            events.append(Woke(now))
        begin = time.perf_counter()
        actions = core.handle(*events)
        samples.append(1000 * (time.perf_counter() - begin))
        _answer(core, now, actions)
    *warm, cold = samples
    return Decision(policy, nodes, jobs, statistics.median(warm), max(warm), cold)


def _answer(core: Core, now: float, actions: Sequence[Action]) -> None:
    """Do at once what the core asks for, until it asks for nothing more."""
    while actions:
        events: list[Event] = []
        for action in actions:
            if isinstance(action, Launch):
                events.append(Started(now, action.run))
            elif isinstance(action, Stop):
                events.append(Exited(now, action.run, Outcome.STOPPED, 0.0))
        actions = core.handle(*events)


def _spec(number: int, gpus: int, run_s: float) -> JobSpec:
    return JobSpec(
        workers=Range(gpus, gpus), run_time_s=run_s, queue=QueueId(f"queue-{number % 10}")
    )
