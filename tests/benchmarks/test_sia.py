"""Sia's benchmark: its cluster, its jobs, its figures, and that policies are told no truth."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.oracles.profiled import NAME, toy_tables

from roost.core.actions import Action
from roost.core.controller import Core, Policy
from roost.core.decisions import Decision
from roost.core.events import Event, Submitted
from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.errors import Fatal
from roost.placement import placer
from roost.policies.allox import AlloX
from roost.policies.gavel import Gavel
from roost.policies.kit.assignment import assign
from roost.policies.kit.moves import Wish, carry_on
from roost.policies.kit.rounds import round_begins
from roost.policies.pollux import Pollux
from roost.policies.roost import Roost
from roost.policies.sia import Sia
from roost.policies.themis import Themis
from roost.sim.learning import Terms, one_kind_placer
from roost.traces.profiles import Tables, read_profiles
from roost.traces.sia import SiaJob, read_rows
from roost_bench.sia import benchmark
from roost_bench.sia.benchmark import JobEnd, SiaOutcome, SiaRow

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("ROOST_DATA", ROOT.parent / "shared" / "data")) / "sia"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no tables of Sia in {DATA}")


def four_each(plan: Plan) -> None:
    """Four GPUs for every job, on the fastest kind that has any left, in rounds of a minute."""
    carry_on(plan)
    if not round_begins(plan, 60.0):
        return
    left = {"A100": 16, "RTX2080Ti": 24, "T4": 24}
    wishes: dict[JobId, Wish | None] = {}
    for job in plan.jobs.values():
        if not job.state.over:
            kind = next((kind for kind, gpus in left.items() if gpus), None)
            wishes[job.id] = None if kind is None else Wish(kind, 4)
            if kind is not None:
                left[kind] -= 4
    assign(plan, wishes)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return toy_tables(tmp_path)


@pytest.fixture(scope="module")
def published() -> Tables:
    return read_profiles(DATA / "profiles")


def crowd(count: int) -> list[SiaJob]:
    return [
        SiaJob(JobId(f"j{number}"), 20.0 * number, NAME, (2, 4, 8)[number % 3], 64)
        for number in range(count)
    ]


def test_the_cluster_has_64_gpus_either_way() -> None:
    mixed, alike = benchmark.cluster(), benchmark.cluster(homogeneous=True)
    assert sum(node.gpus for node in mixed) == sum(node.gpus for node in alike) == 64
    assert list(dict.fromkeys(node.kind for node in mixed)) == ["T4", "A100", "RTX2080Ti"]
    assert {node.kind for node in alike} == {"T4"}


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("sia", Terms(adaptive=True, capped=True)),
        ("pollux", Terms(adaptive=True)),
        ("roost", Terms(adaptive=True, library=True)),
        ("roost:calm_s=9,library=no", Terms(adaptive=True)),
        ("gavel:objective=max_sum", Terms(adaptive=False)),
        ("themis", Terms(adaptive=False)),
    ],
)
def test_every_policy_takes_part_on_its_own_terms(text: str, terms: Terms) -> None:
    assert Terms.of(text) == terms


def test_names_in_tables_are_those_one_may_write() -> None:
    assert benchmark.label("roost:library=no") == "roost-blind"
    assert benchmark.label("gavel:objective=max_sum") == "gavel"
    assert benchmark.label("las") == "las"


def test_sia_is_told_the_batch_of_the_tuned_job_and_others_the_largest(tables: Tables) -> None:
    nodes = benchmark.cluster()
    for terms, most in ((Terms.of("sia"), 64), (Terms.of("pollux"), 256)):
        (job, *_), totals = benchmark.trace_jobs(tables, crowd(1), nodes, terms)
        assert job.spec.training is not None
        assert job.spec.training.batch_max == most
        assert (job.spec.workers, totals) == ((1, 64), {})


def test_a_run_counts_what_its_jobs_held_and_how_long_they_took(tables: Tables) -> None:
    rows = crowd(6)
    outcome = benchmark.run(tables, rows, "four", policy=four_each, terms=Terms(adaptive=True))

    row = outcome.row
    assert (row.policy, row.jobs, len(outcome.ended)) == ("four", 6, 6)
    assert row.mean_jct_h == pytest.approx(sum(job.jct_s for job in outcome.ended) / 6 / 3600)
    assert row.gpu_hours_per_job == pytest.approx(
        sum(job.gpu_s for job in outcome.ended) / 6 / 3600
    )
    assert row.p99_jct_h == max(job.jct_s for job in outcome.ended) / 3600
    assert row.makespan_h > row.p99_jct_h
    assert row.decision_ms_p50 > 0
    assert outcome.by_application().keys() == {NAME}


def test_the_same_run_gives_the_same_figures(tables: Tables) -> None:
    first, second = (
        benchmark.run(tables, crowd(12), "four", policy=four_each, terms=Terms(adaptive=True)).ended
        for _ in range(2)
    )
    assert first == second


def test_policies_that_know_of_no_kinds_still_get_one_at_a_time(tables: Tables) -> None:
    outcome = benchmark.run(tables, crowd(20), "fifo")
    assert outcome.row.jobs == 20
    assert outcome.row.restarts_per_job == 0


def test_a_job_that_is_never_run_is_named(tables: Tables) -> None:
    with pytest.raises(Fatal, match="job j0 never ends"):
        benchmark.run(tables, crowd(1), "idle", policy=lambda _: None, terms=Terms(adaptive=True))


def _outcome(policy: str, hours: Sequence[float], makespan_h: float) -> SiaOutcome:
    ended = [JobEnd(NAME, hour * 3600, 7200.0, 1) for hour in hours]
    row = SiaRow(policy, "w", len(hours), sum(hours) / len(hours), 0, makespan_h, 2, 1, 3.0, 4.0)
    return SiaOutcome(row, ended, [4.0])


def test_pooled_figures_are_those_of_all_jobs_together() -> None:
    few, many = _outcome("p", [1.0], 10.0), _outcome("p", [2.0] * 98 + [50.0], 20.0)
    row = benchmark.pooled([few, many], "both")
    assert (row.workload, row.jobs) == ("both", 100)
    assert row.mean_jct_h == pytest.approx((1 + 2 * 98 + 50) / 100)
    assert row.p99_jct_h == 50.0
    assert row.makespan_h == 15.0
    assert benchmark.spread_h([few, many]) == pytest.approx((246 / 99 - 1) / 2)


# -- no truth ----------------------------------------------------------------------------------


class Recorder:
    """Every batch of events, and what was decided on it."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[Event], list[Decision], list[Action]]] = []

    def __call__(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        self.batches.append((list(events), list(decisions), list(actions)))


def same_without_a_world(
    tables: Tables, rows: Sequence[SiaJob], name: str, make: Callable[[], Policy]
) -> int:
    """Replay what a core was told into a new one: no world, no tables and no workload behind it.

    All it has are the events. Gives the number of decisions, which must be the same.
    """
    recorder = Recorder()
    simulation, _ = benchmark.prepare(tables, rows, name, policy=make())
    simulation.run(observer=recorder)
    where = one_kind_placer(placer("first-fit"), tables, benchmark.cluster())
    core = Core(make(), where)
    count = 0
    for events, decisions, actions in recorder.batches:
        for event in events:
            if isinstance(event, Submitted):
                assert event.spec.run_time_s is None
        assert core.handle(*events) == actions
        assert core.decisions == decisions
        count += len(decisions)
    return count


POLICIES: dict[str, Callable[[], Policy]] = {
    "sia": Sia,
    "pollux": Pollux,
    "gavel": Gavel,
    "themis": Themis,
    "allox": AlloX,
    "roost": Roost,
}


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_rest_on_what_was_told_alone(name: str, tables: Tables) -> None:
    assert same_without_a_world(tables, crowd(10), name, POLICIES[name]) >= 10


# -- the real tables ---------------------------------------------------------------------------


@needs_data
def test_nobody_can_do_better_than_alone(published: Tables) -> None:
    alone = benchmark.best_alone_h(published)
    known = {"philly-1": 0.219, "philly-3": 0.198, "saturn-2": 0.233, "newtrace-1": 0.216}
    for name, hours in known.items():
        rows = read_rows(DATA / "workloads" / f"{name}.csv")
        assert benchmark.floor_h(alone, rows) == pytest.approx(hours, abs=0.001)


@needs_data
def test_gavel_with_tuned_jobs_is_as_slow_as_was_measured(published: Tables) -> None:
    """The authors' simulator: 1.671 h, makespan 35.63 h, 6.42 restarts; here 1.659, 35.55, 6.24."""
    row = benchmark.run(
        published, DATA / "workloads" / "philly-1.csv", "gavel", policy=Gavel("max_sum")
    ).row
    assert row.mean_jct_h == pytest.approx(1.671, rel=0.05)
    assert row.makespan_h == pytest.approx(35.63, rel=0.05)
    assert row.restarts_per_job == pytest.approx(6.42, rel=0.1)


@needs_data
@pytest.mark.parametrize("name", POLICIES)
def test_decisions_on_real_jobs_rest_on_what_was_told_alone(name: str, published: Tables) -> None:
    rows = [
        row
        for row in read_rows(DATA / "workloads" / "philly-1.csv")
        if row.application != "imagenet"
    ]
    assert same_without_a_world(published, rows[:25], name, POLICIES[name]) >= 25
