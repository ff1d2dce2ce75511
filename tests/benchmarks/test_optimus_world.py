"""The world of parameter-server jobs: its physics, its reports, and what neighbours cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from roost.core import (
    Action,
    Decision,
    Event,
    Measured,
    NodeSpec,
    Policy,
    Progressed,
    Resized,
    Started,
)
from roost.core.allocation import Allocation, Part
from roost.core.plan import Plan
from roost.core.spec import Costs, JobId, JobSpec, NodeId, Range, Resources, Role, Training
from roost.perf.servers import Mode
from roost.placement import placer
from roost.policies.fifo import fifo
from roost.policies.optimus import Optimus
from roost.sim.simulation import Setup, Simulation
from roost.traces.workload import TraceJob, Workload
from roost_bench.optimus.world import (
    NodeShare,
    ParameterServerWorld,
    TrainedModel,
    TrueLoss,
    TrueTraining,
)

BANDWIDTH = 1.25e9
WORKER = Resources(gpus=1, cpu_milli=4000)
SERVER = Resources(gpus=0, cpu_milli=4000)


def network(mode: Mode = Mode.SYNC, size: float = 1e8) -> TrainedModel:
    return TrainedModel(size, 10e-3, 0.02, 256 if mode is Mode.SYNC else 32, mode)


def desks(*pairs: tuple[int, int], bandwidth: float = BANDWIDTH) -> list[NodeShare]:
    return [NodeShare(w, p, bandwidth) for w, p in pairs]


MODES = [Mode.SYNC, Mode.ASYNC]


@pytest.mark.parametrize("mode", MODES)
def test_one_of_each_on_one_node_does_little_but_compute(mode: Mode) -> None:
    one = network(mode)
    compute_s = 0.02 + 0.01 * one.batch

    assert compute_s < one.step_s(desks((1, 1))) < 1.4 * compute_s


@pytest.mark.parametrize("mode", MODES)
def test_workers_and_servers_together_are_faster_than_apart(mode: Mode) -> None:
    one = network(mode)

    together = one.rate(desks((2, 2)))
    even = one.rate(desks((1, 1), (1, 1)))
    apart = one.rate(desks((2, 0), (0, 2)))
    assert together > even > apart


@pytest.mark.parametrize("mode", MODES)
def test_an_even_spread_beats_a_lopsided_one(mode: Mode) -> None:
    one = network(mode)

    assert one.rate(desks((2, 2), (2, 2))) > one.rate(desks((3, 1), (1, 3)))


@pytest.mark.parametrize("mode", MODES)
def test_one_node_is_better_than_several(mode: Mode) -> None:
    one = network(mode)

    assert one.rate(desks((4, 4))) > one.rate(desks((2, 2), (2, 2)))
    assert one.rate(desks((4, 4))) > one.rate(desks(*[(1, 1)] * 4))


@pytest.mark.parametrize("mode", MODES)
def test_a_faster_card_never_hurts(mode: Mode) -> None:
    one, spread = network(mode), ((2, 1), (2, 1))

    slow = one.rate(desks(*spread, bandwidth=1e8))
    assert slow < one.rate(desks(*spread)) < one.rate(desks(*spread, bandwidth=1e11))


def test_synchronous_jobs_have_a_best_size_asynchronous_ones_go_on() -> None:
    def best(mode: Mode) -> int:
        one = network(mode, 4e7)
        return max(range(1, 17), key=lambda n: one.rate(desks(*[(2, 2)] * n)))

    assert best(Mode.SYNC) < 16
    assert best(Mode.ASYNC) == 16


def test_asynchronous_workers_are_bounded_by_the_busiest_card() -> None:
    one = network(Mode.ASYNC)
    bound = BANDWIDTH / (2 * one.bytes)  # all of them send to, and fetch from, one lonely server

    rates = [one.rate(desks((w, 0), (0, 1))) for w in (1, 4, 16, 64)]
    assert rates == sorted(rates)
    assert rates[-1] <= bound
    assert rates[-1] == pytest.approx(bound, rel=0.1)


def test_a_course_ends_where_it_is_flat() -> None:
    course = TrueLoss(0.25, 1.0, 0.1)
    at = course.converges_at()

    assert course.loss(at - 10) - course.loss(at) <= 0.05 * course.loss(0)
    assert course.loss(at - 11) - course.loss(at - 1) > 0.05 * course.loss(0)
    assert TrueLoss(0.0001, 1.0, 0.0).converges_at(threshold=1e-9) == 100


# -- the world -------------------------------------------------------------------------------------


def elastic() -> JobSpec:
    return JobSpec(
        workers=Range(1, 8),
        resources=WORKER,
        roles=(Role("ps", 1, SERVER, most=8),),
        application="net",
        training=Training(batch=256),
        costs=Costs(restart_s=20.0, resize_s=20.0),
    )


def simulation(policy: Policy, *specs: JobSpec, nodes: int = 4, steps: float = 50.0) -> Simulation:
    jobs = [TraceJob(JobId(f"j{at}"), 0.0, one, 30 * steps) for at, one in enumerate(specs)]
    truth = {
        one.id: TrueTraining(network(), TrueLoss(0.25, 1.0, 0.1), steps, seed=3) for one in jobs
    }
    machines = [NodeSpec(NodeId(f"n{at}"), gpus=2, cpu_milli=16000) for at in range(nodes)]
    return Simulation(
        Setup(
            Workload("test", jobs),
            machines,
            policy,
            placer("even"),
            world=partial(ParameterServerWorld, truth=truth, bandwidth=BANDWIDTH),
        )
    )


def watch(simulation: Simulation) -> list[Event]:
    seen: list[Event] = []

    def look(events: Sequence[Event], _: Sequence[Decision], __: Sequence[Action]) -> None:
        seen.extend(events)

    simulation.run(observer=look)
    return seen


def test_a_job_tells_its_speed_its_epochs_and_after_each_its_loss() -> None:
    run = simulation(fifo, elastic())
    seen = watch(run)
    told = [event for event in seen if isinstance(event, Measured)]
    losses = {event.epochs: event.loss for event in told if event.loss is not None}

    assert run.over
    assert list(losses) == list(range(30))
    assert losses[0] == pytest.approx(1.1)
    assert losses[20] == pytest.approx(1 / 6 + 0.1, rel=0.1)
    assert all(event.servers == 1 and event.local_batch == 256 for event in told)
    assert {event.time % 60 for event in told if event.loss is None} == {0.0}


def test_what_is_told_is_noisy_and_close_to_the_truth() -> None:
    seen = watch(simulation(fifo, elastic()))
    times = [event.step_s for event in seen if isinstance(event, Measured)]
    true = network().step_s(desks((1, 1)))

    assert len(set(times)) == len(times)
    assert sum(times) / len(times) == pytest.approx(true, rel=0.02)


def test_every_start_takes_its_time() -> None:
    seen = watch(simulation(fifo, elastic()))
    (started,) = [event for event in seen if isinstance(event, Started)]

    assert (started.time, started.took_s) == (20.0, 20.0)


def test_work_is_done_at_the_true_rate() -> None:
    run = simulation(fifo, elastic())
    results = run.run()
    rate = network().rate(desks((1, 1)))

    assert results.jobs[0].finished_at == pytest.approx(20.0 + 1500 / rate)


def test_a_change_of_size_is_reported_with_what_it_took() -> None:
    run = simulation(Optimus(slot_s=300.0), elastic(), elastic())
    seen = watch(run)
    resized = [event for event in seen if isinstance(event, Resized)]

    assert run.over
    assert resized
    assert all(event.took_s == event.pause_s == 20.0 for event in resized)
    sizes = {(e.servers, e.workers) for e in seen if isinstance(e, Measured)}
    assert len(sizes) > 2


class Fixed:
    """Starts every job across two nodes, so that they share cards."""

    def __call__(self, plan: Plan) -> None:
        for at, job in enumerate(plan.pending):
            parts = (
                Part(NodeId("n0"), (at,)),
                Part(NodeId("n1"), (at,)),
                Part(NodeId("n0"), (), role="ps"),
            )
            plan.place_at(job, Allocation(parts))


def test_neighbours_share_a_card_and_give_it_back() -> None:
    alone = simulation(Fixed(), elastic(), nodes=2)
    pair = simulation(Fixed(), elastic(), elastic(), nodes=2)
    lonely, both = alone.run().jobs[0], pair.run().jobs

    assert lonely.finished_at is not None
    assert all((row.finished_at or 0.0) > lonely.finished_at * 1.05 for row in both)


def test_who_slows_down_says_so() -> None:
    seen = watch(simulation(Fixed(), elastic(), elastic(), nodes=2))
    rates = [event.rate for event in seen if isinstance(event, Progressed)]

    assert max(rates) > min(rates)


def test_a_run_is_the_same_again() -> None:
    def digest() -> list[float | None]:
        specs = [elastic() for _ in range(4)]
        return [row.finished_at for row in simulation(Optimus(), *specs).run().jobs]

    assert digest() == digest()
