"""``roost bench guarantees``: what is counted as an anomaly, and none of them under cells."""

from __future__ import annotations

import json

import pytest
from tests.unit.cli.told import roost

from roost.core.cells import CellPromise
from roost.core.spec import JobId, JobSpec, QueueId, Range, Resources, Shape
from roost.errors import InvalidSpec
from roost.traces.workload import TraceJob, Workload
from roost_bench.guarantees.benchmark import CELLS, QUOTAS, GuaranteesBench, row
from roost_bench.guarantees.histories import Played, beyond_gpu_s, joined, overtaken, overtaken_s
from roost_bench.guarantees.moments import fits
from roost_bench.guarantees.tenants import (
    Tenant,
    close_together,
    generated,
    promise_for,
    shared,
    tenants_of,
)


def trace_job(name: str, at: float, work: float, gpus: int, queue: str = "a") -> TraceJob:
    spec = JobSpec(workers=Range(gpus, gpus), queue=QueueId(queue), run_time_s=work)
    return TraceJob(JobId(name), at, spec, work)


def history(*spans: tuple[float, float], end: float | None = None) -> Played:
    return Played(0.0, spans[-1][1] if end is None else end, 2.0, spans)


@pytest.mark.parametrize(
    ("alone", "together", "waits"),
    [
        (history((5, 10)), history((5, 10)), 0),
        (history((5, 10)), history((0, 5)), 0),  # it went ahead
        (history((5, 10)), history((7, 12)), 2),
        (history((5, 10)), history((12, 17)), 5),
        (history((5, 10)), history((0, 2), (5, 8)), 0),  # put off, and back in time
        (history((5, 10)), history((0, 2), (7, 10)), 2),
        (history((0, 2), (6, 9)), history((1, 3), (7, 10)), 2),
        (history((0, 4)), history((0, 1), (2, 3), end=3), 1),
    ],
)
def test_a_job_is_overtaken_while_it_waits_here_and_runs_there(
    alone: Played, together: Played, waits: float
) -> None:
    assert overtaken_s(alone, together) == waits
    job = JobId("j")
    assert overtaken({job: alone}, {job: together}) == ({job: waits} if waits else {})


def test_times_are_joined_and_what_is_beyond_a_promise_is_added_up() -> None:
    assert joined([(3, 4), (0, 1), (1, 2), (3, 5)]) == [(0, 2), (3, 5)]
    assert beyond_gpu_s([history((0, 10)), history((5, 20))], 2.0) == 5 * 2
    assert beyond_gpu_s([history((0, 10))], 2.0) == 0


def test_a_gang_fits_by_its_workers() -> None:
    gang = Shape(2, Resources(gpus=4))
    assert fits(gang, [4, 4])
    assert fits(gang, [8])
    assert not fits(gang, [7, 3])


def test_jobs_want_their_gpus_close_together() -> None:
    for gpus, workers, each in ((1, 1, 1), (8, 1, 8), (16, 2, 8), (12, 2, 6), (24, 3, 8)):
        spec = close_together(trace_job("j", 0, 1, gpus)).spec
        assert (spec.workers, spec.resources.gpus) == (Range(workers, workers), each)


def test_cells_suit_the_demand_and_the_largest_job() -> None:
    def promise(*jobs: TraceJob) -> str:
        return str(promise_for([close_together(job) for job in jobs], 100.0, 0.5))

    assert promise(trace_job("j", 0, 10, 1)) == "1xgpu"
    assert promise(trace_job("j", 0, 10, 4)) == "1xsocket"
    assert promise(trace_job("j", 0, 60, 4)) == "1xnode"
    assert promise(trace_job("j", 0, 10, 32)) == "4xnode"
    assert promise(*(trace_job(f"j{n}", 0, 100, 8) for n in range(3))) == "6xnode"
    with pytest.raises(InvalidSpec, match="the load of a promise"):
        tenants_of(generated(10, 0), 0.0)


def test_the_shared_cluster_has_the_cells_of_all_and_nothing_else() -> None:
    jobs = [
        trace_job("a", 0, 10, 16, "a"),
        trace_job("b", 0, 10, 4, "b"),
        trace_job("c", 100, 10, 1, "c"),
    ]
    tenants = tenants_of(Workload("w", jobs), 0.8)
    assert [(one.gpus, len(one.alone())) for one in tenants] == [(16, 2), (4, 1), (1, 1)]
    assert len(shared(tenants)) == 3
    bench = GuaranteesBench("fifo", "consolidate")
    for tenant in tenants:
        assert len(bench.alone(tenant).jobs) == 1


def test_quotas_let_a_job_wait_that_cells_do_not() -> None:
    """Two tenants with a node each: single GPUs of one leave no whole node for the other."""
    many = [trace_job(f"a{n}", float(n), 100.0 + 10 * n, 1, "a") for n in range(24)]
    one = trace_job("b0", 30.0, 50.0, 8, "b")
    tenants = [
        Tenant(QueueId("a"), tuple(map(close_together, many)), CellPromise(2, "node")),
        Tenant(QueueId("b"), (close_together(one),), CellPromise(1, "node")),
    ]
    bench = GuaranteesBench("fifo", "consolidate")
    alone = {tenant.name: bench.alone(tenant) for tenant in tenants}
    rows = {
        sharing: [row(tenant, sharing, alone[tenant.name], played) for tenant in tenants]
        for sharing in (QUOTAS, CELLS)
        for played in [bench.together(tenants, sharing)]
    }
    quotas, cells = rows[QUOTAS][1], rows[CELLS][1]
    assert quotas.queue == cells.queue == "b"
    assert quotas.anomalies == 1
    assert quotas.anomalous_wait_h > 0
    assert quotas.jct_h > quotas.alone_jct_h
    assert (cells.anomalies, cells.overtaken) == (0, 0)
    assert cells.jct_h == cells.alone_jct_h
    assert rows[CELLS][0].opportunistic_pct > 0, "what b does not use, a has"


def test_the_command_counts_none_under_cells() -> None:
    said = roost("bench", "guarantees", "--limit", 400, "--seed", 3, "-o", "json")
    rows = json.loads(said.out)
    assert len(rows) == 8
    by_sharing = {
        sharing: sum(row["anomalies"] for row in rows if row["sharing"] == sharing)
        for sharing in (QUOTAS, CELLS)
    }
    assert by_sharing[CELLS] == 0
    assert by_sharing[QUOTAS] > 0
    assert "[6/6]" in said.err
    for each in rows:
        if each["sharing"] == CELLS:
            assert each["jct_h"] <= each["alone_jct_h"] * 1.001, each
