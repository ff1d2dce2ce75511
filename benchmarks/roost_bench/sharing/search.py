"""A search for hyper-parameters: many trials, of which all but a few are given up early.

256 trials of 200 epochs come to 16 GPUs at once. Their user looks at them when all have 10 epochs,
and keeps the best 16. One after the other to the end, the best is known when all have ended; by
turns, after the first epochs of all and the rest of a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roost.core.actions import Action
from roost.core.decisions import Decision
from roost.core.events import CancelRequested, Event, Exited, Suspended
from roost.core.spec import Costs, JobId, JobSpec, NodeId, NodeSpec
from roost.core.state import JobState
from roost.placement import placer
from roost.policies import policy as find_policy
from roost.sim.simulation import Setup, Simulation
from roost.traces.workload import TraceJob, Workload

TRIALS, KEPT, GPUS = 256, 16, 16
EPOCHS, LOOK, EPOCH_S = 200, 10, 60.0
SUSPEND_S, RESUME_S = 0.1, 1.0
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class SearchRow:
    """How long a search takes; ``switching`` is the part of the GPUs' time that went into turns."""

    part: str
    policy: str
    hours: float
    times_sooner: float
    switching: float


@dataclass(slots=True)
class Searcher:
    """The user: gives up all but the best once each has shown what it is worth."""

    simulation: Simulation
    chosen: bool = False

    def __call__(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        """Look at all trials when one was set aside or has ended."""
        del decisions, actions
        if self.chosen or not any(isinstance(event, (Suspended, Exited)) for event in events):
            return
        core, now = self.simulation.core, self.simulation.now
        done = {
            name: job.run.done(now) if job.run is not None else job.saved_s
            for name, job in core.jobs.items()
        }
        if min(done.values()) < LOOK * EPOCH_S:
            return
        self.chosen = True
        best = sorted(core.jobs)[:: TRIALS // KEPT]  # as good as any, and always the same
        for name, job in core.jobs.items():
            if name not in best and not job.state.over:
                self.simulation.world.schedule(CancelRequested(now, name))


def searches(names: Sequence[str]) -> list[SearchRow]:
    """The search under policies, against the one that runs each trial to its end."""
    ends = {name: _search(name) for name in dict.fromkeys(["fifo", *names])}
    first = ends["fifo"][0]
    return [
        SearchRow("search", name, hours, first / hours, switching)
        for name, (hours, switching) in ends.items()
    ]


def _search(name: str) -> tuple[float, float]:
    spec = JobSpec(costs=Costs(restart_s=RESUME_S, suspend_s=SUSPEND_S), application="trial")
    work_s = EPOCHS * EPOCH_S
    jobs = [TraceJob(JobId(f"trial-{number:03d}"), 0.0, spec, work_s) for number in range(TRIALS)]
    setup = Setup(
        workload=Workload("search", jobs),
        nodes=[NodeSpec(NodeId("n0"), GPUS)],
        policy=find_policy(name),
        placer=placer("first-fit"),
        policy_name=name,
    )
    simulation = Simulation(setup)
    results = simulation.run(observer=Searcher(simulation))
    over = [row for row in results.jobs if row.outcome == JobState.SUCCEEDED.value]
    hours = max(row.finished_at or 0.0 for row in over) / _HOUR_S
    held = sum(row.service_gpu_s for row in results.jobs)
    return hours, sum(row.lost_gpu_s for row in results.jobs) / held
