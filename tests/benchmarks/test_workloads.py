"""Drawn workloads keep what they are drawn from, and conditions change what they should alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from roost.core.events import Event, Measured
from roost.core.spec import JobId
from roost.sim.failures import Failures
from roost.sim.simulation import Simulation
from roost.traces.generate import Arrivals
from roost.traces.sia import SiaJob
from roost_bench.optimus.benchmark import OptimusBench
from roost_bench.sensitivity.workloads import moments, recorded, resample, stressed
from roost_bench.sia.conditions import Conditions

BENCH = OptimusBench(jobs=6, nodes=4, length_s=600.0)
SIZING = "alnair"


def rows(**counts: int) -> list[SiaJob]:
    """So many jobs of each application, ten seconds apart."""
    names = [name for name, count in counts.items() for _ in range(count)]
    return [
        SiaJob(JobId(f"{name}-{at}"), 100.0 + 10.0 * at, name, 1 + at % 4, 64)
        for at, name in enumerate(names)
    ]


@pytest.mark.parametrize("arrivals", Arrivals)
def test_jobs_come_one_unit_apart_on_average(arrivals: Arrivals) -> None:
    lasts = []
    for seed in range(20):
        times = moments(arrivals, 80, seed)
        assert times[0] == 0.0
        assert times == sorted(times)
        lasts.append(times[-1])
    assert fmean(lasts) == pytest.approx(79.0, rel=0.1)


def test_days_have_a_noon_and_bursts_are_burstier() -> None:
    def share_around_noon(arrivals: Arrivals) -> float:
        found = [at for seed in range(20) for at in moments(arrivals, 80, seed)]
        return sum(20 < at < 60 for at in found) / len(found)

    def unevenness(arrivals: Arrivals) -> float:
        spreads = []
        for seed in range(20):
            stretches = Counter(int(at // 8) for at in moments(arrivals, 80, seed))
            spreads.append(pstdev(stretches.get(number, 0) for number in range(10)))
        return fmean(spreads)

    assert share_around_noon(Arrivals.DIURNAL) > share_around_noon(Arrivals.POISSON) + 0.05
    assert unevenness(Arrivals.BURSTY) > 1.15 * unevenness(Arrivals.POISSON)


def test_the_mix_of_applications_is_kept_for_every_seed() -> None:
    of = rows(cifar10=40, bert=10)
    drawn = [resample(of, [float(at) for at in range(10)], seed) for seed in range(5)]
    for one in drawn:
        assert Counter(row.application for row in one) == {"cifar10": 8, "bert": 2}
        assert [row.submitted_at for row in one] == list(range(10))
        assert len({row.id for row in one}) == 10
    assert len({tuple(row.application for row in one) for one in drawn}) > 1


def test_a_workload_may_be_larger_than_what_it_is_drawn_from() -> None:
    found = resample(rows(cifar10=2, bert=1), [float(at) for at in range(9)], 1)
    assert Counter(row.application for row in found) == {"cifar10": 6, "bert": 3}


def test_recorded_times_go_round_and_stay_as_far_apart() -> None:
    of = rows(cifar10=7)
    for seed in range(3):
        times = recorded(of, 12, seed)
        assert times[0] == 0.0
        assert {later - at for at, later in pairwise(times)} == {10.0}


def test_restarts_cost_what_they_are_said_to() -> None:
    found = stressed(BENCH, SIZING, Conditions(restart_s=120.0)).workload.jobs
    assert {(job.spec.costs.restart_s, job.spec.costs.resize_s) for job in found} == {
        (120.0, 120.0)
    }


def test_rigid_jobs_have_the_size_their_users_ask_for() -> None:
    asked = {job.id: job.spec for job in BENCH.setup("fifo", 0).workload.jobs}
    none = stressed(BENCH, SIZING, Conditions()).workload.jobs
    all_of_them = stressed(BENCH, SIZING, Conditions(rigid=1.0)).workload.jobs
    assert all(job.spec.elastic and job.spec.roles[0].most > 1 for job in none)
    for job in all_of_them:
        assert job.spec.workers == asked[job.id].workers
        assert job.spec.roles == asked[job.id].roles
        assert job.spec.training is not None


def test_twice_the_load_comes_in_half_the_time() -> None:
    once, twice = (
        [job.submitted_at for job in stressed(BENCH, SIZING, Conditions(load=load)).workload.jobs]
        for load in (1.0, 2.0)
    )
    assert once == pytest.approx([2 * at for at in twice])


def test_users_declare_epochs_that_are_wrong_within_the_error() -> None:
    told = replace(BENCH, jobs=30, told=True)

    def epochs(error: float) -> list[float]:
        jobs = stressed(told, SIZING, Conditions(epochs_error=error)).workload.jobs
        return [job.spec.training.epochs for job in jobs if job.spec.training is not None]

    exact = epochs(0.0)
    assert min(exact) > 0
    ratios = [wrong / right for wrong, right in zip(epochs(0.4), exact, strict=True)]
    assert 0.6 <= min(ratios) < 0.8
    assert 1.2 < max(ratios) <= 1.4


def test_declared_run_times_are_as_wrong_as_epochs_are() -> None:
    told = replace(BENCH, told=True)
    right, wrong = (
        [job.spec.run_time_s or 0.0 for job in stressed(told, "fifo", conditions).workload.jobs]
        for conditions in (Conditions(), Conditions(epochs_error=0.5))
    )
    assert all(0.5 <= off / on <= 1.5 for off, on in zip(wrong, right, strict=True))
    assert right != wrong


def test_policies_see_wrong_step_times_and_jobs_are_as_fast_as_ever() -> None:
    seen: dict[float, list[Measured]] = {}
    ends = []
    for error in (0.0, 0.3):
        told: list[Event] = []
        simulation = Simulation(stressed(BENCH, "fifo", Conditions(speed_error=error)))
        results = simulation.run(observer=lambda events, _decisions, _actions: told.extend(events))  # noqa: B023
        seen[error] = [event for event in told if isinstance(event, Measured)]
        ends.append([job.finished_at for job in results.jobs])
    assert ends[0] == ends[1]  # first come, first served: nobody asks how fast they are
    ratios = [
        wrong.step_s / right.step_s for wrong, right in zip(seen[0.3], seen[0.0], strict=True)
    ]
    assert 0.7 <= min(ratios) < 0.95
    assert 1.05 < max(ratios) <= 1.3


def test_jobs_outlive_nodes_that_break() -> None:
    failing = Conditions(failures=Failures(node_mtbf_s=1200.0, node_mttr_s=60.0))
    simulation = Simulation(stressed(BENCH, SIZING, failing))
    simulation.run()
    assert simulation.over
