"""Measuring the simulator: what it costs, next to what it gives.

Every policy runs in a fresh process, one after the other, so that peak memory and CPU time are its
own. Times cover building the simulation, running it and working out all metrics; reading the trace
is not part of them.
"""

from __future__ import annotations

import resource
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

from roost import traces
from roost.errors import InvalidSpec, Retryable
from roost.sim.metrics import summarise
from roost.sim.parallel import workers
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
class SimulatorCost:
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

    def measure(self, policy: str) -> SimulatorCost:
        """Run one policy in a process of its own."""
        try:
            with workers(1) as submit:
                measured: SimulatorCost = submit(_measure, self, policy).result()
                return measured
        except BrokenProcessPool:
            raise Retryable(
                f"the process that measured {policy!r} was killed, for want of memory perhaps",
                after=0.0,
            ) from None


def _measure(bench: SimBench, policy: str) -> SimulatorCost:
    workload = bench.selection.of(traces.read(bench.trace))
    nodes = uniform_cluster(bench.nodes, bench.gpus_per_node)
    scenario = Scenario(workload, nodes, skip_impossible=True)
    wall, cpu = time.perf_counter(), time.process_time()
    results = Simulation(scenario.setup(policy, bench.placer, 0)).run()
    summary = summarise(results)
    return SimulatorCost(
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
