"""Gavel's jobs: how fast they go, what a profiler tells of them, and jobs out of a hat."""

from __future__ import annotations

import statistics

import pytest
from tests.oracles.gavel_rates import table

from roost.core.allocation import Allocation, Part
from roost.core.spec import JobId, JobSpec, NodeId, Range
from roost.errors import InvalidSpec
from roost.testing.builders import node
from roost.traces.workload import TraceJob, Workload
from roost_bench.gavel.jobs import Mix, TableSpeed, profiled


def held(*nodes: str) -> Allocation:
    return Allocation(tuple(Part(NodeId(name), (0,)) for name in nodes))


def lm(workers: int = 1) -> JobSpec:
    return JobSpec(workers=Range(workers, workers), application="LM (batch size 5)")


def test_speed_is_relative_to_the_reference_on_one_node() -> None:
    nodes = {
        one.id: one
        for one in (node("n0", 1, kind="v100"), node("n1", 1, kind="v100"), node("n2", kind="k80"))
    }
    speed = TableSpeed(table())
    assert speed.rate(lm(), held("n0"), nodes, ()) == 1.0
    assert speed.rate(lm(), held("n2"), nodes, ()) == 0.2
    assert speed.rate(lm(2), held("n0", "n1"), nodes, ()) == pytest.approx(6 / 18)
    assert not speed.interferes
    with pytest.raises(InvalidSpec, match="does not run on v100"):
        speed.rate(JobSpec(application="CycleGAN"), held("n0"), nodes, ())


def test_a_profiler_tells_the_rates_of_a_cluster() -> None:
    jobs = [TraceJob(JobId(f"j{n}"), 0.0, lm(n), 100.0) for n in (1, 2, 3)]
    small = [node("n0", 1, kind="v100"), node("n1", 1, kind="v100"), node("n2", 4, kind="k80")]
    one, two, three = profiled(Workload("w", jobs), TableSpeed(table()), small).jobs
    assert one.spec.rates == (("v100", 1.0), ("k80", 0.2))
    assert one.spec.resources.kinds == ("v100", "k80")
    assert dict(two.spec.rates) == pytest.approx({"v100": 6 / 18}), "only spread, never on k80"
    assert two.spec.resources.kinds == ("v100",)
    assert not three.spec.rates


def test_a_hat_gives_the_same_jobs_again() -> None:
    few, again = (Mix(jobs=50, seed=3).generate(table()) for _ in range(2))
    assert few.jobs == again.jobs
    faster = Mix(jobs=50, seed=3, jobs_per_hour=8.0).generate(table())
    assert [job.spec for job in faster.jobs] == [job.spec for job in few.jobs]
    assert faster.jobs[-1].submitted_at == pytest.approx(few.jobs[-1].submitted_at / 2, abs=0.1)
    assert Mix(jobs=50, seed=4).generate(table()).jobs != few.jobs


def test_jobs_out_of_a_hat_are_like_gavels() -> None:
    jobs = Mix(jobs=4000, jobs_per_hour=5.0, several=True).generate(table()).jobs
    sizes = [job.spec.workers.min for job in jobs]
    assert [round(sizes.count(size) / 4000, 2) for size in (1, 2, 4, 8)] == pytest.approx(
        [0.70, 0.10, 0.15, 0.05], abs=0.02
    )
    minutes = [job.work_s / 60 for job in jobs]
    assert sum(one > 1000 for one in minutes) / 4000 == pytest.approx(0.2, abs=0.02)
    assert 10**1.5 <= min(minutes) < max(minutes) <= 10**4
    assert jobs[-1].submitted_at / 3600 == pytest.approx(4000 / 5, rel=0.05)
    assert statistics.fmean(minutes) == pytest.approx(1006, rel=0.06)
    assert all("LM" in job.spec.application for job in jobs if job.spec.workers.min > 1)
    static = Mix(jobs=5, jobs_per_hour=0.0).generate(table()).jobs
    assert {job.submitted_at for job in static} == {0.0}


def test_what_cannot_be_generated_is_refused() -> None:
    for wrong in (Mix, lambda **_: Mix(jobs_per_hour=-1.0)):
        with pytest.raises(InvalidSpec, match="cannot be generated"):
            wrong(jobs=0)
