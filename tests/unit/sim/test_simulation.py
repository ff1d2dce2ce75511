"""Whole runs: what must hold for every policy with costs, failures and elastic jobs on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from tests.oracles.played import cluster, job, simulation
from tests.oracles.workloads import COSTS, busy, machines, setup
from tests.support.effort import quick

from roost.core import Action, Decision, Event
from roost.policies import names
from roost.policies.srtf import Srtf
from roost.policies.static import StaticPartition
from roost.sim.failures import Failures
from roost.sim.results import Results
from roost.sim.saving import load, save
from roost.sim.simulation import Setup, Simulation
from roost.testing.builders import queue
from roost.traces.workload import Workload

EVERY = pytest.mark.parametrize("name", names())
JOBS = 60


def workload(name: str) -> Workload:
    """Enough for 16 GPUs; for a static partition nothing that is larger than a slice."""
    return busy(JOBS, seed=5, gpus=16, largest=2 if name == "static" else 16)


def small(name: str) -> Setup:
    return setup(quick(name), workload(name), machines(4, 4), seed=5)


@cache
def finished(name: str) -> Results:
    return Simulation(small(name)).run()


def fingerprint(results: Results) -> tuple[object, ...]:
    """All that a run has shown, wall-clock times left out."""
    return (results.jobs, results.series, results.segments, results.events)


@EVERY
def test_a_run_in_two_halves_is_the_same_run(name: str) -> None:
    whole = finished(name)
    sim = Simulation(small(name))
    for part in (0.2, 0.5, 0.9):
        sim.run(until=part * whole.series.time[-1])

    assert fingerprint(sim.run()) == fingerprint(whole)


@EVERY
def test_a_saved_run_goes_on_to_the_same_end(name: str, tmp_path: Path) -> None:
    whole = finished(name)
    sim = Simulation(small(name))
    sim.run(until=whole.series.time[-1] / 2)
    save(sim, tmp_path / "half")

    assert fingerprint(load(tmp_path / "half").run()) == fingerprint(whole)


@EVERY
def test_what_a_job_held_is_its_work_and_what_was_lost(name: str) -> None:
    """Speed is linear in the workers, so useful GPU-seconds are the work at its least size.

    A checkpoint of 10 s after every 600 s makes everything 610 / 600 as long.
    """
    overhead = 1 + COSTS.checkpoint_s / COSTS.checkpoint_every_s
    for row in finished(name).jobs:
        useful = row.work_s * row.gpus * overhead
        assert row.service_gpu_s - row.lost_gpu_s == pytest.approx(useful, abs=1e-3)
        assert row.lost_gpu_s >= 0


@EVERY
def test_no_device_is_held_by_more_than_it_has(name: str) -> None:
    bars = defaultdict(list)
    for bar in finished(name).segments:
        bars[bar.node, bar.gpu].append((bar.start, bar.share_milli))
        bars[bar.node, bar.gpu].append((bar.end, -bar.share_milli))
    assert len(bars) > 8
    for changes in bars.values():
        held = 0
        for _, change in sorted(changes):
            held += change
            assert 0 <= held <= 1000


@EVERY
def test_the_timeline_holds_as_much_as_the_jobs_say(name: str) -> None:
    results = finished(name)
    held: dict[str, float] = defaultdict(float)
    for bar in results.segments:
        held[results.jobs[bar.job].id] += (bar.end - bar.start) * bar.share_milli / 1000
    for row in results.jobs:
        assert held[row.id] == pytest.approx(row.service_gpu_s, abs=1e-3)


@EVERY
def test_series_stay_within_bounds(name: str) -> None:
    series = finished(name).series

    assert series.time == sorted(set(series.time))
    for capacity, allocated, useful in zip(
        series.capacity, series.allocated, series.useful, strict=True
    ):
        assert 0 <= useful <= allocated + 1e-9
        assert allocated <= capacity + 1e-9 <= 16 + 1e-9
    assert min(series.queued) == 0
    assert len(series.time) == len(series.queued) == len(series.running) == len(series.demand)


@EVERY
def test_every_job_ends_as_the_trace_says(name: str) -> None:
    recorded = {job.id: job.outcome.value for job in workload(name).jobs}

    assert {row.id: row.outcome for row in finished(name).jobs} == recorded


def test_the_same_seed_gives_the_same_run_and_another_another() -> None:
    first, again, other = (
        Simulation(setup(Srtf(), workload("srtf"), machines(4, 4), seed=seed)).run()
        for seed in (1, 1, 2)
    )

    assert fingerprint(first) == fingerprint(again)
    assert first.jobs != other.jobs


def test_watching_changes_nothing() -> None:
    sim = Simulation(small("tiresias"))
    batches: list[float] = []
    seen = sim.run(
        observer=lambda events, _decisions, _actions: batches.append(events[0].time),
        progress=lambda _now, _over, _total: None,
    )

    assert fingerprint(seen) == fingerprint(finished("tiresias"))
    assert batches == sorted(batches)


def test_a_run_ends_when_its_last_job_does() -> None:
    # a is expected at 100 until b takes its place; nothing happens after 115.
    sim = simulation(Srtf(), [job("a", 0, 100), job("b", 10, 15)], cluster(1))
    results = sim.run()

    assert sim.now == results.series.time[-1] == 115
    assert 100 not in results.series.time


def test_until_is_inclusive_and_nothing_later_happens() -> None:
    sim = simulation(Srtf(), [job("a", 5, 10), job("b", 15, 1)], cluster(1))

    sim.run(until=4.999)
    assert sim.core.jobs == {}
    assert [row.outcome for row in sim.run(until=15).jobs] == ["succeeded", "running"]
    assert not sim.over
    assert sim.run(until=math.inf).jobs[1].finished_at == 16


def test_a_job_that_never_starts_does_not_keep_failures_coming_for_ever() -> None:
    # a's slice is 2 of 4 GPUs.
    sim = simulation(
        StaticPartition(),
        [job("a", 0, 10, gpus=3, queue="a"), job("b", 0, 10, queue="b")],
        cluster(4),
        queues=[queue("a"), queue("b")],
        failures=Failures(node_mtbf_s=1000.0, node_mttr_s=10.0),
    )
    batches = 0

    def count(
        _events: Sequence[Event], _decisions: Sequence[Decision], _actions: Sequence[Action]
    ) -> None:
        nonlocal batches
        batches += 1
        assert batches < 10_000, f"still going on at {sim.now}"

    outcomes = [row.outcome for row in sim.run(observer=count).jobs]
    assert outcomes == ["queued", "succeeded"]
