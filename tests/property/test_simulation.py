"""Whatever the workload, the policy and the failures: work is counted once and time adds up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples, quick

from roost import policies
from roost.core import (
    Action,
    Core,
    Costs,
    Decision,
    Event,
    Exited,
    JobId,
    Outcome,
    Plan,
    Policy,
    RunId,
    Started,
    Submitted,
    Suspended,
)
from roost.perf.speed import Speed
from roost.placement import PLACERS, placer
from roost.sim.failures import Failures
from roost.sim.results import JobResult, Results
from roost.sim.simulation import Setup, Simulation
from roost.testing.builders import node, queue, spec
from roost.testing.checks import validate
from roost.testing.conformance import Watcher
from roost.testing.policies import Restless
from roost.testing.replay import digest
from roost.testing.situations import SITUATIONS, Situation
from roost.traces.workload import TraceJob, Workload

HORIZON_S = 1e7


@st.composite
def trace_jobs(draw: st.DrawFn, index: int, elastic: bool = False) -> TraceJob:  # noqa: FBT001, FBT002
    """A job at rate 1, or one that may change its size."""
    work_s = draw(st.sampled_from((0.0, 1.0, 60.0, 700.0, 5000.0)))
    fails = draw(st.sampled_from(((), (), (0.5,), (0.25, 0.75))))
    low = draw(st.sampled_from((1, 1, 2)))
    wanted = spec(
        draw(st.sampled_from((1, 1, 2, 0.5, 0.25))),
        draw(st.sampled_from((None, work_s, 2 * work_s))),
        workers=(low, low + (draw(st.sampled_from((0, 1, 2))) if elastic else 0)),
        queue=draw(st.sampled_from(("red", "blue"))),
        priority=draw(st.sampled_from((0, 0, 1))),
        costs=Costs(
            checkpoint_every_s=draw(st.sampled_from((0.0, 100.0, math.inf))),
            restart_s=draw(st.sampled_from((0.0, 13.0))),
            resize_s=draw(st.sampled_from((0.0, 7.0))),
        ),
        min_run_s=draw(st.sampled_from((0.0, 0.0, 300.0))),
        max_retries=len(fails),
        preemptible=draw(st.sampled_from((True, True, False))),
    )
    submitted_at = draw(st.sampled_from((0.0, 0.0, 100.0, 350.5, 1000.0)))
    fails_at_s = tuple(work_s * part for part in fails)
    return TraceJob(JobId(f"j{index}"), submitted_at, wanted, work_s, fails_at_s=fails_at_s)


@st.composite
def setups(draw: st.DrawFn, elastic: bool = False) -> Setup:  # noqa: FBT001, FBT002
    """A workload on two or three small nodes that may fail."""
    count = draw(st.integers(1, 12))
    jobs = sorted(
        (draw(trace_jobs(index, elastic)) for index in range(count)),
        key=lambda job: job.submitted_at,
    )
    # A failure repeats work, and a job without checkpoints must get through between two of them.
    failures = draw(
        st.sampled_from(
            (
                Failures(),
                Failures(node_mtbf_s=40_000.0, node_mttr_s=500.0),
                Failures(gpu_mtbf_s=90_000.0, gpu_mttr_s=500.0),
            )
        )
    )
    names = [name for name in policies.names() if name != "static"]
    return Setup(
        Workload("drawn", list(jobs)),
        tuple(node(f"n{index}", 4) for index in range(draw(st.integers(1, 3)))),
        quick(draw(st.sampled_from(names))),
        placer(draw(st.sampled_from(sorted(PLACERS)))),
        queues=(queue("red", limit_milli=draw(st.sampled_from((None, 4000)))),),
        failures=failures,
        seed=draw(st.integers(0, 3)),
        timeline=True,
    )


@dataclass
class Checkpoints:
    """Watches what every run saves, against what it has done, for jobs at rate 1."""

    core: Core
    saved: dict[JobId, float] = field(default_factory=dict)
    started: dict[RunId, float] = field(default_factory=dict)

    def __call__(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        del decisions, actions
        for event in events:
            match event:
                case Submitted():
                    self.saved[event.job] = 0.0
                case Started():
                    self.started[event.run] = event.time
                case Suspended():
                    self.saved[event.run.job] = event.done_s
                    self.started.pop(event.run, None)
                case Exited():
                    self.ended(event)
                case _:
                    pass

    def ended(self, event: Exited) -> None:
        name = event.run.job
        every = self.core.jobs[name].spec.costs.checkpoint_every_s
        before = self.saved[name]
        start = self.started.pop(event.run, None)
        done = before if start is None else before + event.time - start
        lost = done - event.saved_s
        assert event.saved_s >= before, f"{event} forgets what was saved"
        assert lost >= -1e-6, f"{event} saved more than {done}"
        if event.outcome in (Outcome.STOPPED, Outcome.LOST):
            assert lost <= min(every, done - before) + 1e-6, f"{event} loses {lost}"
        if math.isinf(every) and event.outcome in (Outcome.STOPPED, Outcome.LOST):
            assert event.saved_s == before
        self.saved[name] = event.saved_s


def finished(simulation: Simulation, results: Results) -> None:
    """Everything is over, and everything is given back."""
    assert simulation.over, [row.id for row in results.jobs if row.finished_at is None]
    core = simulation.core
    assert core.ledger.free_milli == core.ledger.capacity_milli
    assert core.waiting.count == 0
    assert not core.runs
    assert all(tenant.used_milli == 0 for tenant in core.queues.values())
    assert math.isclose(simulation.world.gauges.allocated, 0.0, abs_tol=1e-6)
    assert math.isclose(simulation.world.gauges.useful, 0.0, abs_tol=1e-6)
    validate(core)


def devices_are_held_by_one(results: Results) -> None:
    """At no time do the shares of a device in the timeline add up to more than one."""
    changes: dict[tuple[str, int], list[tuple[float, int, int]]] = {}
    for bar in results.segments:
        device = changes.setdefault((bar.node, bar.gpu), [])
        device += [(bar.start, 1, bar.share_milli), (bar.end, 0, -bar.share_milli)]
    for which, steps in changes.items():
        held = 0
        for _, _, milli in sorted(steps):
            held += milli
            assert held <= 1000, f"{which} is held {held} milli-GPUs"


def adds_up(row: JobResult) -> None:
    """For a rigid job at rate 1: service is work and losses; a life is waiting and service."""
    assert row.outcome == "succeeded"
    assert row.finished_at is not None
    assert row.started_at is not None
    useful = row.work_s * row.gpus
    assert math.isclose(row.service_gpu_s, useful + row.lost_gpu_s, abs_tol=1e-4), row
    waited = row.wait_quota_s + row.wait_fragmentation_s + row.wait_capacity_s + row.wait_turn_s
    took = row.finished_at - row.submitted_at
    assert math.isclose(took, waited + row.service_gpu_s / row.gpus, abs_tol=1e-4), row
    assert row.started_at - row.submitted_at <= waited + 1e-6 or row.runs > 1
    assert min(waited, row.lost_gpu_s) >= -1e-9


@given(setups())
@settings(max_examples=examples(60))
def test_time_and_work_of_rigid_jobs_add_up(setup: Setup) -> None:
    simulation = Simulation(setup)
    results = simulation.run(until=HORIZON_S, observer=Checkpoints(simulation.core))

    finished(simulation, results)
    devices_are_held_by_one(results)
    for row in results.jobs:
        adds_up(row)


@dataclass
class Tiring:
    """Disturbs everything for a while, then only starts what fits."""

    restless: Restless

    def __call__(self, plan: Plan) -> None:
        self.restless.calm = plan.now > 400.0
        self.restless(plan)


@given(
    st.lists(
        st.tuples(
            st.sampled_from((1.0, 0.5, 2.0)),
            st.sampled_from((0.0, 1.0, 45.0, 200.0)),
            st.sampled_from((0.0, 20.0)),
            st.sampled_from((0.0, 3.0)),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 1000),
)
@settings(max_examples=examples(40))
def test_work_is_counted_once_however_often_a_job_is_disturbed(
    drawn: list[tuple[float, float, float, float]], seed: int
) -> None:
    """Stopped, suspended and moved about by a policy that leaves nothing alone."""
    jobs = []
    for index, (gpus, work_s, every_s, cost_s) in enumerate(drawn):
        costs = Costs(every_s, restart_s=cost_s, resize_s=cost_s, suspend_s=cost_s)
        jobs.append(TraceJob(JobId(f"j{index}"), 3.0 * index, spec(gpus, costs=costs), work_s))
    nodes = (node("n0", 2), node("n1", 2))
    setup = Setup(Workload("drawn", jobs), nodes, Tiring(Restless(seed)), placer("pack"))
    simulation = Simulation(replace(setup, timeline=True))
    results = simulation.run(until=HORIZON_S, observer=lambda *_: validate(simulation.core))

    finished(simulation, results)
    devices_are_held_by_one(results)
    for row in results.jobs:
        adds_up(row)


@given(setups(elastic=True))
@settings(max_examples=examples(40))
def test_whatever_grows_shrinks_and_fails_comes_to_an_end(setup: Setup) -> None:
    simulation = Simulation(setup)
    watcher = Watcher(simulation.core)
    results = simulation.run(until=HORIZON_S, observer=watcher)

    finished(simulation, results)
    devices_are_held_by_one(results)
    for row in results.jobs:
        assert 0 <= row.lost_gpu_s <= row.service_gpu_s + 1e-6
        assert row.service_gpu_s >= row.work_s * row.gpus - 1e-4, "linear speed-up costs no less"
    held = sum((bar.end - bar.start) * bar.share_milli / 1000 for bar in results.segments)
    assert math.isclose(held, sum(row.service_gpu_s for row in results.jobs), abs_tol=1e-3)


@given(setups(elastic=True), st.sampled_from((0.0, 0.3)))
@settings(max_examples=examples(20))
def test_the_series_and_the_rows_tell_the_same(setup: Setup, interference: float) -> None:
    setup = replace(setup, speed=Speed(scaling=0.8, interference=interference))
    simulation = Simulation(setup)
    results = simulation.run(until=HORIZON_S)

    finished(simulation, results)
    series = results.series
    spans = [later - now for now, later in zip(series.time, series.time[1:], strict=False)]
    held = sum(span * gpus for span, gpus in zip(spans, series.allocated, strict=False))
    useful = sum(span * gpus for span, gpus in zip(spans, series.useful, strict=False))
    assert math.isclose(held, sum(row.service_gpu_s for row in results.jobs), abs_tol=1e-3)
    assert useful <= held + 1e-6
    assert max(series.allocated, default=0) <= max(series.capacity, default=0)


@given(setups(elastic=True))
@settings(max_examples=examples(15))
def test_two_runs_are_the_same_to_the_last_bit(setup: Setup) -> None:
    def story() -> list[str]:
        told: list[str] = []
        simulation = Simulation(setup)
        results = simulation.run(until=HORIZON_S, observer=lambda *batch: told.append(repr(batch)))
        return [*told, repr(results.jobs), repr(results.segments)]

    assert story() == story()


@given(setups(elastic=True), st.floats(0.0, 5000.0))
@settings(max_examples=examples(15))
def test_a_run_in_two_pieces_is_the_same_as_in_one(setup: Setup, until: float) -> None:
    whole, pieces = Simulation(setup), Simulation(setup)
    pieces.run(until=until)

    assert pieces.run(until=HORIZON_S).jobs == whole.run(until=HORIZON_S).jobs


@given(st.lists(st.tuples(st.sampled_from(("a", "b", "c")), st.integers(0, 40)), max_size=40))
@settings(max_examples=examples(25))
def test_a_queue_gets_what_it_was_promised_whenever_it_asks(asked: list[tuple[str, int]]) -> None:
    """Under a static partition, whatever the others do."""
    jobs = [
        TraceJob(JobId(f"j{index}"), float(at), spec(1, 50.0, queue=name), 50.0)
        for index, (name, at) in enumerate(sorted(asked, key=lambda item: item[1]))
    ]
    promised = {"a": 3000, "b": 4000, "c": 1000}
    if not jobs:
        return
    simulation = Simulation(
        Setup(
            Workload("drawn", jobs),
            (node("n0"),),
            policies.policy("static"),
            placer("first-fit"),
            queues=[queue(name, quota_milli=milli) for name, milli in promised.items()],
        )
    )

    def served(*_: object) -> None:
        waiting = {job.spec.queue for job in simulation.core.waiting}
        for name, tenant in simulation.core.queues.items():
            assert tenant.used_milli <= promised[name]
            assert name not in waiting or tenant.used_milli == promised[name]

    finished(simulation, simulation.run(observer=served))


@pytest.mark.parametrize("make", SITUATIONS)
def test_situations_replay_to_the_same_digest(make: Callable[[], Situation]) -> None:
    first = digest(policies.policy("srtf"), "pack", make())

    assert digest(policies.policy("srtf"), "pack", make()) == first
    assert digest(policies.policy("fifo"), "pack", make()) != first


def simulate(policy: Policy, job: TraceJob, until: float = HORIZON_S) -> Simulation:
    setup = Setup(Workload("one", [job]), (node("n0"),), policy, placer("pack"))
    simulation = Simulation(setup)
    simulation.run(until=until)
    return simulation


def test_resizing_does_not_put_off_checkpoints() -> None:
    def restless(plan: Plan) -> None:
        for job in plan.pending:
            plan.place(job)
        for run in plan.running:
            if run.settled and plan.now >= 40.0:
                plan.evict(run, "enough")
            elif run.settled and plan.now >= run.changed_at + 9.0:
                plan.resize(run, 3 - run.workers)
        plan.wake(plan.now + 1.0)

    costs = Costs(checkpoint_every_s=10.0)
    wanted = spec(1, 1e4, workers=(1, 2), costs=costs)
    simulation = simulate(restless, TraceJob(JobId("a"), 0.0, wanted, 1e4), until=40.0)

    done_s = 9.0 + 2 * 9.0 + 9.0 + 2 * 9.0 + 4.0
    assert done_s - simulation.core.jobs[JobId("a")].saved_s <= 2 * 10.0


def test_time_spent_suspending_is_accounted_for() -> None:
    def fickle(plan: Plan) -> None:
        for job in plan.pending:
            if plan.now < 10.0 or plan.now >= 30.0:
                plan.place(job)
        for run in plan.running:
            if run.settled and 10.0 <= plan.now < 30.0:
                plan.suspend(run, "a break")
        if plan.now < 30.0:
            plan.wake(math.floor(plan.now) + 1.0)

    wanted = spec(1, 20.0, costs=Costs(suspend_s=4.0, restart_s=2.0))
    simulation = simulate(fickle, TraceJob(JobId("a"), 0.0, wanted, 20.0))
    (row,) = simulation.results().jobs

    assert row.finished_at == 42.0
    assert row.service_gpu_s == 20.0 + 4.0 + 2.0
    assert row.lost_gpu_s == 4.0 + 2.0
    assert row.wait_turn_s == 30.0 - 14.0


def test_a_suspended_run_has_saved_all_its_work() -> None:
    def suspend_then_stop(plan: Plan) -> None:
        for job in plan.pending:
            plan.place(job)
        for run in list(plan.running):
            if run.settled and plan.now in (10.0, 25.0):
                disturb = plan.suspend if plan.now == 10.0 else plan.evict
                disturb(run, "a break")
        if plan.now < 25.0:
            plan.wake(10.0 if plan.now < 10.0 else 25.0)

    wanted = spec(1, 100.0, costs=Costs(checkpoint_every_s=1000.0))
    simulation = simulate(suspend_then_stop, TraceJob(JobId("a"), 0.0, wanted, 100.0))
    (row,) = simulation.results().jobs

    assert row.lost_gpu_s == 15.0, "what came after the suspension"
    assert row.finished_at == 25.0 + 90.0
