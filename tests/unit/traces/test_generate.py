"""Generated workloads: like Philly, as asked for, and the same every time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean, median, stdev

import pytest

from roost.core.events import Outcome
from roost.errors import InvalidSpec
from roost.traces import bundled
from roost.traces.generate import DEMO, Arrivals, Synthetic, generate
from roost.traces.workload import TraceJob

MANY = Synthetic(jobs=20_000, gpus=128)


def gpu_s(job: TraceJob) -> float:
    return job.work_s * job.spec.gpus


def load(jobs: list[TraceJob], gpus: int) -> float:
    return sum(map(gpu_s, jobs)) / jobs[-1].submitted_at / gpus


def test_a_description_gives_one_workload_and_a_seed_another() -> None:
    few = replace(MANY, jobs=200, elastic=0.3, fractional=0.3, estimate_error=0.5)
    assert generate(few) == generate(few)
    assert generate(few) != generate(replace(few, seed=1))


@pytest.mark.parametrize("arrivals", Arrivals)
def test_jobs_come_in_order_from_time_0_at_the_load_asked_for(arrivals: Arrivals) -> None:
    for asked in (0.5, 1.2):
        jobs = generate(replace(MANY, arrivals=arrivals, load=asked)).jobs
        times = [job.submitted_at for job in jobs]
        assert times == sorted(times)
        assert times[0] == 0.0
        # The spread of 20 000 Poisson arrivals is 0.7 %.
        assert load(jobs, 128) == pytest.approx(asked, rel=0.03)


def test_a_rate_counts_jobs_per_second() -> None:
    jobs = generate(replace(MANY, rate=0.5, arrivals="uniform")).jobs
    assert jobs[-1].submitted_at == 19_999 / 0.5


def test_other_parameters_leave_the_rest_of_a_job_as_it_was() -> None:
    few = replace(MANY, jobs=300)
    plain = generate(few).jobs
    for job, other in zip(plain, generate(replace(few, load=0.4)).jobs, strict=True):
        assert (job.spec, job.work_s, job.outcome) == (other.spec, other.work_s, other.outcome)
        assert other.submitted_at == pytest.approx(2 * job.submitted_at, abs=0.002)
    for job, other in zip(plain, generate(replace(few, failed=0.0, queues=1)).jobs, strict=True):
        assert (job.submitted_at, job.work_s) == (other.submitted_at, other.work_s)
    more = generate(replace(few, jobs=600, rate=1.0)).jobs
    assert more[:300] == generate(replace(few, rate=1.0)).jobs


def test_sizes_and_run_times_are_those_of_philly() -> None:
    jobs = generate(MANY).jobs
    share = {size: count / len(jobs) for size, count in Counter(j.spec.gpus for j in jobs).items()}
    # Shares and medians of the trace; a median of 400 jobs is good to about a third.
    assert share[1] == pytest.approx(0.932, abs=0.01)
    assert share[8] == pytest.approx(0.020, abs=0.005)
    for size, middle in ((1, 1117), (4, 17_410), (8, 23_683)):
        times = [job.work_s for job in jobs if job.spec.gpus == size]
        assert median(times) == pytest.approx(middle, rel=0.35)
    singles = [job.work_s for job in jobs if job.spec.gpus == 1]
    assert fmean(singles) == pytest.approx(8301, rel=0.2)
    assert max(singles) > 100 * fmean(singles)


def test_outcomes_and_queues_are_those_of_philly() -> None:
    jobs = generate(MANY).jobs
    outcomes = Counter(job.outcome for job in jobs)
    assert outcomes[Outcome.CANCELLED] / len(jobs) == pytest.approx(0.135, abs=0.01)
    assert outcomes[Outcome.FAILED] / len(jobs) == pytest.approx(0.172, abs=0.01)
    queues = Counter(job.spec.queue for job in jobs)
    assert len(queues) == 11
    assert queues.most_common(1)[0][1] / len(jobs) == pytest.approx(0.5, abs=0.03)


def test_nothing_is_larger_or_longer_than_asked_for() -> None:
    small = replace(MANY, jobs=5000, gpus=8, elastic=1.0, max_run_s=3600.0, run_time_scale=0.5)
    for job in generate(small).jobs:
        assert 1 <= job.spec.workers.min <= job.spec.workers.max <= 8
        # Half the workers take twice the time.
        assert 0 < job.work_s <= 3600.0


def test_elastic_jobs_do_the_same_work_with_half_to_twice_the_workers() -> None:
    rigid = generate(replace(MANY, jobs=2000)).jobs
    jobs = generate(replace(MANY, jobs=2000, elastic=0.25)).jobs
    assert sum(job.spec.elastic for job in jobs) == pytest.approx(500, abs=60)
    for before, job in zip(rigid, jobs, strict=True):
        n = before.spec.workers.min
        if job.spec.elastic:
            assert job.spec.workers == (max(1, n // 2), min(2 * n, 128))
        assert gpu_s(job) == pytest.approx(gpu_s(before), rel=1e-3)


def test_fractional_jobs_ask_for_a_part_of_one_gpu() -> None:
    jobs = generate(replace(MANY, jobs=2000, fractional=0.5, elastic=0.5)).jobs
    parts = [job for job in jobs if job.spec.resources.share_milli < 1000]
    assert len(parts) == pytest.approx(0.5 * 0.932 * 2000, abs=80)
    assert all(job.spec.workers == (1, 1) for job in parts)
    assert {job.spec.resources.share_milli for job in parts} == {250, 500, 750}


def test_estimates_are_right_wrong_or_missing() -> None:
    for job in generate(replace(MANY, jobs=50)).jobs:
        assert job.spec.run_time_s == job.work_s
    for job in generate(replace(MANY, jobs=50, estimate_error=None)).jobs:
        assert job.spec.run_time_s is None
    wrong = generate(replace(MANY, estimate_error=0.3)).jobs
    ratios = [(job.spec.run_time_s or 0.0) / job.work_s for job in wrong]
    assert median(ratios) == pytest.approx(1.0, abs=0.02)
    assert stdev(ratios) == pytest.approx(0.32, abs=0.03)


def test_days_have_a_noon_and_bursts_are_bursts() -> None:
    hourly = replace(MANY, rate=100 / 3600)

    def counts(arrivals: str, swing: float = 0.6) -> list[int]:
        jobs = generate(replace(hourly, arrivals=arrivals, daily_swing=swing)).jobs
        hours = Counter(int(job.submitted_at // 3600) for job in jobs)
        return [hours[hour] for hour in range(192)]  # 8 whole days

    daily = counts("diurnal")
    by_hour = [sum(daily[hour::24]) for hour in range(24)]
    assert sum(by_hour[10:14]) / sum(by_hour) == pytest.approx(4 / 24 * 1.585, rel=0.1)
    steady, bursty = counts("poisson"), counts("bursty")
    assert stdev(steady) ** 2 / fmean(steady) == pytest.approx(1.0, abs=0.35)
    assert stdev(bursty) ** 2 / fmean(bursty) > 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobs": 0},
        {"seed": -1},
        {"arrivals": "weekly"},
        {"load": 0.0},
        {"load": float("nan")},
        {"gpus": 0},
        {"rate": -1.0},
        {"daily_swing": 1.0},
        {"queues": 0},
        {"gpu_weights": ()},
        {"gpu_weights": ((128, 1.0),)},
        {"gpu_weights": ((0, 1.0), (1, 1.0))},
        {"max_run_s": 0.0},
        {"run_time_scale": float("inf")},
        {"killed": 0.6, "failed": 0.6},
        {"elastic": 1.5},
        {"estimate_error": -0.1},
    ],
)
def test_what_cannot_be_generated_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidSpec, match="must be"):
        Synthetic(**wrong)  # type: ignore[arg-type]


def test_the_bundled_demo_is_what_its_description_gives() -> None:
    demo = bundled("demo")
    assert demo == generate(DEMO, "demo")
    assert len(demo.jobs) == 400
    assert len({job.spec.queue for job in demo.jobs}) == 4
    assert 0.15 < sum(job.spec.elastic for job in demo.jobs) / 400 < 0.25
    assert load(demo.jobs, 64) == pytest.approx(0.9, abs=0.1)
