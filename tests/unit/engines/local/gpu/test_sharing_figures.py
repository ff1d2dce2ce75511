"""What tenants get of a shared device, for kinds of programs, on a simulated one."""

from __future__ import annotations

import pytest
from tests.unit.engines.local.gpu.device_simulation import (
    Service,
    Simulation,
    Trainer,
    alone,
    unmanaged,
)

from roost.engines.local.gpu.slices import BEST_EFFORT, EQUAL, FIXED


@pytest.mark.parametrize("sync_every", [1, 2, 8, 40])
@pytest.mark.parametrize("share", [500, 250])
def test_fixed_shares_hold_beside_a_program_that_queues_its_steps(
    sync_every: int, share: int
) -> None:
    simulation = Simulation()
    simulation.join(Trainer(sync_every=sync_every), share, FIXED)
    simulation.join(Trainer(), 1000 - share, FIXED)
    queues, waits = simulation.rates(60.0)
    assert queues / (queues + waits) == pytest.approx(share / 1000, rel=0.05)
    assert queues + waits > 0.93


def test_two_that_queue_their_steps() -> None:
    simulation = Simulation()
    simulation.join(Trainer(sync_every=8), 750, FIXED)
    simulation.join(Trainer(sync_every=20), 250, FIXED)
    large, small = simulation.rates(60.0)
    assert large / (large + small) == pytest.approx(0.75, rel=0.05)


@pytest.mark.parametrize("qos", [FIXED, BEST_EFFORT, EQUAL])
def test_a_guaranteed_service_is_never_locked(qos: str) -> None:
    plain = Service()
    beside = unmanaged(plain, Trainer(), for_s=40.0)[1]
    simulation = Simulation()
    service = Service()
    simulation.join(service, 300, FIXED)
    simulation.join(Trainer(), 700, qos)
    trained = simulation.rates(40.0)[1]
    assert 1 not in simulation.locked
    assert service.quantile(0.5) <= 1.02 * plain.quantile(0.5)
    assert service.quantile(0.99) <= 1.05 * plain.quantile(0.99)
    assert trained >= 0.65
    # What is lost while both are at work is the driver's.
    assert trained == pytest.approx(beside if qos == BEST_EFFORT else 0.7, rel=0.06)


@pytest.mark.parametrize("sync_every", [1, 20, 40])
def test_a_service_whose_turns_are_full_needs_none(sync_every: int) -> None:
    plain = Service(work_s=0.006)
    unmanaged(plain, Trainer(sync_every=sync_every), for_s=40.0)
    simulation = Simulation()
    service = Service(work_s=0.006)
    simulation.join(service, 300, FIXED)
    simulation.join(Trainer(sync_every=sync_every), 700, BEST_EFFORT)
    trained = simulation.rates(40.0, warm_s=40.0)[1]
    assert 1 not in simulation.locked
    assert service.quantile(0.99) <= 1.5 * plain.quantile(0.99)
    assert trained >= 0.65


def test_a_service_over_its_share_is_held_to_it() -> None:
    simulation = Simulation()
    simulation.join(Service(per_s=100.0), 200, FIXED)
    simulation.join(Trainer(), 800, FIXED)
    served, trained = simulation.rates(60.0)
    assert served == pytest.approx(0.2, rel=0.05)
    assert trained == pytest.approx(0.8, rel=0.05)


@pytest.mark.parametrize("qos", [EQUAL, BEST_EFFORT])
def test_what_a_half_idle_job_leaves_is_used_at_once(qos: str) -> None:
    half = alone(Trainer(step_s=0.02, gap_s=0.032))
    simulation = Simulation()
    simulation.join(Trainer(step_s=0.02, gap_s=0.032), 500, qos)
    simulation.join(Trainer(), 500, qos)
    loader, trainer = simulation.rates(60.0)
    assert loader / half + trainer >= 1.3


@pytest.mark.parametrize("qos", [EQUAL, BEST_EFFORT])
def test_three_half_idle_jobs_fill_each_others_gaps(qos: str) -> None:
    plain = sum(unmanaged(*(Trainer(step_s=0.02, gap_s=0.022) for _ in range(3))))
    simulation = Simulation()
    for _ in range(3):
        simulation.join(Trainer(step_s=0.02, gap_s=0.022), 333, qos)
    assert sum(simulation.rates(60.0)) >= 0.98 * plain


@pytest.mark.parametrize("qos", [FIXED, EQUAL, BEST_EFFORT])
def test_two_busy_jobs_take_turns(qos: str) -> None:
    plain = sum(unmanaged(Trainer(), Trainer()))
    simulation = Simulation()
    for _ in range(2):
        simulation.join(Trainer(), 500, qos)
    found = simulation.rates(60.0)
    assert plain < 0.94
    assert sum(found) >= 0.98
    assert found[0] == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("qos", [FIXED, BEST_EFFORT])
def test_programs_that_come_later_have_turns_at_once(qos: str) -> None:
    simulation = Simulation()
    for _ in range(2):
        simulation.join(Trainer(ready_at=3.0), 500, qos, at_s=3.0)
    found = simulation.rates(20.0, warm_s=4.0)
    assert sum(found) >= 0.98
    assert found[0] == pytest.approx(0.5, rel=0.05)


def test_two_that_wake_up_together_take_turns_after_a_while() -> None:
    simulation = Simulation()
    for _ in range(2):
        simulation.join(Trainer(ready_at=30.0), 500, BEST_EFFORT)
    assert sum(simulation.rates(10.0, warm_s=50.0)) >= 0.98


def test_a_fixed_share_alone_is_a_part_of_the_time() -> None:
    simulation = Simulation()
    simulation.join(Trainer(), 500, FIXED)
    assert simulation.rates(30.0)[0] == pytest.approx(0.5, rel=0.05)


def test_a_job_that_wakes_up_does_not_take_more_than_its_share() -> None:
    simulation = Simulation()
    sleeper = simulation.join(Trainer(ready_at=20.0), 250, FIXED)
    steady = simulation.join(Trainer(), 500, FIXED)
    simulation.run(20.0)
    woke, went = sleeper.done_s, steady.done_s
    simulation.run(20.0)
    # It may use what it saved up, half a second, and is seen to be over a quarter later.
    assert (sleeper.done_s - woke) / 20 == pytest.approx(0.25, abs=0.04)
    assert (steady.done_s - went) / 20 == pytest.approx(0.5, rel=0.05)


def test_a_hung_neighbour_does_not_cost_the_others_their_part() -> None:
    simulation = Simulation()
    hung = Trainer(hangs=True)
    simulation.join(hung, 500, FIXED)
    simulation.join(Trainer(), 500, FIXED)
    assert simulation.rates(30.0)[1] == pytest.approx(0.47, rel=0.05)


def test_a_share_holds_at_once_when_a_hung_neighbour_is_gone() -> None:
    simulation = Simulation()
    simulation.join(Trainer(hangs=True), 500, FIXED)
    other = simulation.join(Trainer(), 500, FIXED)
    simulation.run(20.0)
    del simulation.device.programs[1]
    simulation.device.locking.pop(1, None)
    simulation.runner.leave("1")
    before = other.done_s
    simulation.run(4.0)
    assert (other.done_s - before) / 4 == pytest.approx(0.5, abs=0.05)
