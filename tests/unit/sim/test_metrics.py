"""Figures of a run, against values computed by hand; and that nothing is ever NaN."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from roost.sim.metrics import Estimate, Summary, compare, estimate, size_of, student_t, summarise
from roost.sim.results import JobResult, Results, Series


def job(name: str = "a", **values: Any) -> JobResult:
    """A job of one GPU that ran from 0 to 10 undisturbed, but for what is given."""
    usual = JobResult(
        name, "x", 1.0, 0.0, 0.0, 10.0, "succeeded", 10.0, 10.0, 0.0, 1, 0, 0, 0, 0, 0, 0
    )
    return usual._replace(**values)


def results(*jobs: JobResult, **values: Any) -> Results:
    usual = Results("fifo", "pack", "tiny", 0, nodes=1, gpus=4, jobs=list(jobs), series=Series())
    return replace(usual, **values)


CROWDED = Series(
    time=[0.0, 10.0, 20.0],
    capacity=[4.0, 4.0, 8.0],
    allocated=[1.0, 4.0, 4.0],
    useful=[1.0, 2.0, 4.0],
    queued=[2, 1, 1],
    running=[1, 1, 1],
    demand=[9.0, 4.5, 4.0],
)

SECOND = job(
    "b",
    queue="y",
    gpus=4.0,
    outcome="failed",
    started_at=10.0,
    finished_at=30.0,
    work_s=20.0,
    service_gpu_s=80.0,
    lost_gpu_s=8.0,
    runs=2,
    preemptions=1,
    resizes=3,
    wait_quota_s=1.0,
    wait_fragmentation_s=2.0,
    wait_capacity_s=3.0,
    wait_turn_s=4.0,
)

UNFINISHED = job(
    "c",
    queue="y",
    gpus=0.5,
    outcome="queued",
    submitted_at=5.0,
    started_at=None,
    finished_at=None,
    service_gpu_s=0.0,
    runs=0,
    wait_capacity_s=20.0,
)


@pytest.fixture
def summary() -> Summary:
    return summarise(results(job(), SECOND, UNFINISHED, series=CROWDED))


def test_counts(summary: Summary) -> None:
    assert (summary.jobs, summary.finished) == (3, 2)
    assert summary.outcomes == {"failed": 1, "queued": 1, "succeeded": 1}
    assert (summary.restarts, summary.preemptions, summary.resizes) == (1, 1, 3)
    assert summary.lost_gpu_h == pytest.approx(8 / 3600)


def test_completion_times_are_of_jobs_that_ended(summary: Summary) -> None:
    assert summary.jct_mean == 20.0
    assert summary.jct_median == 20.0
    assert summary.jct_p95 == pytest.approx(29.0)
    assert summary.jct_p99 == pytest.approx(29.8)
    assert summary.jct_max == 30.0
    assert summary.makespan == 30.0


def test_waits_are_of_all_jobs_and_split_by_cause(summary: Summary) -> None:
    assert summary.delay_mean == 10.0
    assert summary.delay_median == 10.0
    assert summary.delay_p95 == pytest.approx(19.0)
    means = (summary.wait_quota, summary.wait_fragmentation, summary.wait_turn)
    assert means == pytest.approx((1 / 3, 2 / 3, 4 / 3))
    assert summary.wait_capacity == pytest.approx(23 / 3)
    assert summary.wait_capacity_fraction == pytest.approx(23 / 30)
    assert summary.wait_turn_fraction == pytest.approx(4 / 30)


def test_gpus_are_averaged_over_the_makespan(summary: Summary) -> None:
    assert summary.gpu_allocation == pytest.approx(90 / 160)
    assert summary.gpu_useful == pytest.approx(70 / 160)


def test_lost_work_is_not_useful() -> None:
    wasteful = SECOND._replace(lost_gpu_s=30.0)
    assert summarise(results(job(), wasteful, series=CROWDED)).gpu_useful == pytest.approx(60 / 160)


def test_fairness_compares_with_an_equal_part_of_the_cluster(summary: Summary) -> None:
    first = 10 / (10 * 9 / 4)
    second = 30 / (20 * (9 / 4 + 4.5 / 4 + 4 / 8) / 3)
    assert summary.rho_mean == pytest.approx((first + second) / 2)
    assert summary.rho_max == pytest.approx(second)
    assert summary.rho_p95 == pytest.approx(first + 0.95 * (second - first))
    assert summary.unfair_fraction == 0.5


def test_an_idle_cluster_owes_no_more_than_the_run_time() -> None:
    calm = Series(time=[0.0], capacity=[8.0], allocated=[1], useful=[1], demand=[1.0])
    assert summarise(results(job(finished_at=15.0), series=calm)).rho_mean == pytest.approx(1.5)


def test_moments_without_capacity_do_not_count_in_contention() -> None:
    broken = Series(
        time=[0.0, 5.0], capacity=[0.0, 2.0], allocated=[0, 2], useful=[0, 2], demand=[4.0, 4.0]
    )
    assert summarise(results(job(), series=broken)).rho_mean == pytest.approx(0.5)


def test_groups_hold_their_part_of_the_cluster(summary: Summary) -> None:
    assert list(summary.by_queue) == ["x", "y"]
    assert list(summary.by_size) == ["<1", "1", "2-4"]
    assert summary.by_queue["y"].jobs == 2
    assert summary.by_queue["y"].jct_mean == 30.0
    assert summary.by_queue["y"].gpu_allocation == pytest.approx(80 / 160)
    assert summary.by_queue["y"].gpu_useful == pytest.approx(72 / 160)
    assert summary.by_size["1"].delay_mean == 0.0


@pytest.mark.parametrize(
    ("gpus", "size"),
    [(0.25, "<1"), (1, "1"), (1.5, "2-4"), (4, "2-4"), (5, "5-8"), (16, "9-16"), (17, "17+")],
)
def test_sizes(gpus: float, size: str) -> None:
    assert size_of(gpus) == size


def test_nothing_can_be_said_of_no_jobs() -> None:
    nothing = summarise(results())
    assert (nothing.jobs, nothing.finished, nothing.by_queue) == (0, 0, {})
    assert nothing.jct_mean is None
    assert nothing.makespan is None
    assert nothing.delay_mean is None
    assert nothing.gpu_allocation is None
    assert nothing.unfair_fraction is None


def test_jobs_without_work_or_end_have_no_fairness() -> None:
    odd = summarise(results(job(work_s=0.0), UNFINISHED, series=CROWDED))
    assert odd.rho_mean is None
    assert odd.jct_mean == 10.0


def test_no_capacity_means_no_utilisation() -> None:
    nowhere = Series(time=[0.0], capacity=[0.0], allocated=[0.0], useful=[0.0], demand=[1.0])
    assert summarise(results(job(), series=nowhere)).gpu_allocation is None


def test_confidence_interval_by_hand() -> None:
    mean, half, n = estimate([10.0, 12.0, 14.0, None])
    assert (mean, n) == (12.0, 3)
    assert half == pytest.approx(4.3027 * 2 / math.sqrt(3), rel=1e-4)


def test_one_seed_has_no_interval_and_none_no_mean() -> None:
    assert estimate([3.0]) == Estimate(3.0, None, 1)
    assert estimate([None]) == Estimate(None, None, 0)


@pytest.mark.parametrize(
    ("df", "t"), [(1, 12.706), (9, 2.262), (30, 2.042), (40, 2.021), (120, 1.980)]
)
def test_student_t(df: int, t: float) -> None:
    assert student_t(df) == pytest.approx(t, abs=6e-4)


def test_policies_are_compared_seed_by_seed() -> None:
    ends = {"fifo": {1: 10.0, 2: 20.0}, "sjf": {2: 16.0, 1: 8.0, 3: 5.0}}
    rows = compare(
        results(job(finished_at=end), policy=policy, seed=seed)
        for policy, seeds in ends.items()
        for seed, end in seeds.items()
    )
    fifo, sjf = rows
    assert (fifo.policy, fifo.seeds, fifo.against_first) == ("fifo", (1, 2), {})
    assert fifo.figures["jct_mean"].mean == 15.0
    assert fifo.figures["jct_mean"].half_width == pytest.approx(12.7062 * 5, rel=1e-4)
    assert sjf.seeds == (2, 1, 3)
    assert sjf.figures["jct_mean"].mean == pytest.approx(29 / 3)
    assert sjf.against_first["jct_mean"].mean == -3.0
    assert sjf.against_first["jct_mean"].half_width == pytest.approx(12.7062, rel=1e-4)
    assert sjf.against_first["jct_mean"].n == 2


def test_a_policy_with_another_placer_is_another_row() -> None:
    rows = compare([results(job()), results(job(), placer="spread"), results(job(), seed=1)])
    assert [(row.policy, row.placer, len(row.seeds)) for row in rows] == [
        ("fifo", "pack", 2),
        ("fifo", "spread", 1),
    ]
    assert compare([]) == []


finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
counts = st.integers(0, 10_000)
rows = st.builds(
    JobResult,
    id=st.text(max_size=3),
    queue=st.sampled_from(["x", "y"]),
    gpus=positive,
    submitted_at=positive,
    started_at=st.none() | positive,
    finished_at=st.none() | positive,
    outcome=st.sampled_from(["succeeded", "failed"]),
    work_s=positive,
    service_gpu_s=finite,
    lost_gpu_s=positive,
    runs=counts,
    preemptions=counts,
    resizes=counts,
    wait_quota_s=positive,
    wait_fragmentation_s=positive,
    wait_capacity_s=positive,
    wait_turn_s=positive,
)


@st.composite
def series(draw: st.DrawFn) -> Series:
    moments = sorted(draw(st.lists(positive, max_size=5)))

    def column() -> list[float]:
        return draw(st.lists(positive, min_size=len(moments), max_size=len(moments)))

    zeros = [0] * len(moments)
    return Series(moments, column(), column(), column(), zeros, zeros, column())


@settings(max_examples=examples(150))
@given(st.lists(rows, max_size=5), series())
def test_no_figure_is_ever_nan_or_infinite(jobs: list[JobResult], steps: Series) -> None:
    summary = summarise(results(*jobs, series=steps)).to_dict()
    assert all(map(math.isfinite, numbers(summary)))
    assert json.dumps(summary, allow_nan=False)


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, dict):
        for part in value.values():
            yield from numbers(part)
    elif isinstance(value, int | float):
        yield value


def test_a_hundred_thousand_jobs_are_summarised_at_once() -> None:
    jobs = [
        job(str(i), queue=f"q{i % 12}", gpus=float(1 + i % 9), submitted_at=i, finished_at=i + 9.0)
        for i in range(100_000)
    ]
    steps = [float(i) for i in range(100_000)]
    full = [4.0] * 100_000
    busy = Series(steps, full, full, full, demand=full)
    begin = time.process_time()
    summarise(results(*jobs, series=busy))
    # 0.27 s measured; the rest is margin for slower machines.
    assert time.process_time() - begin < 1.5
