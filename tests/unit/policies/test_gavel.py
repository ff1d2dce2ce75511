"""Gavel: rounds worked out by hand, and what it respects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.oracles.played import Played, job, play

from roost.core import (
    Costs,
    JobId,
    NodeSpec,
    Resume,
    Started,
    Submitted,
    Suspend,
    Woke,
)
from roost.core.allocation import Allocation
from roost.core.spec import JobSpec, Level, NodeId
from roost.errors import InvalidSpec, NotFound
from roost.perf.speed import Speed
from roost.policies.gavel import Gavel
from roost.testing.builders import core_with, node, queue, run, spec
from roost.testing.builders import job as name
from roost.traces.workload import TraceJob

TWO_KINDS = [node("n0", 1, kind="new"), node("n1", 1, kind="old")]


class Table:
    """Speed by job and kind, as a profiler has told it."""

    interferes = False

    def rate(
        self,
        spec: JobSpec,
        allocation: Allocation,
        nodes: Mapping[NodeId, NodeSpec],
        neighbours: Sequence[str],
    ) -> float:
        del neighbours
        return dict(spec.rates)[nodes[allocation.parts[0].node].kind]


def start(played: Played, name: str) -> float:
    """When a job began to run."""
    began = played.times[name][0]
    assert began is not None
    return began


def end(played: Played, name: str) -> float:
    """When a job was over."""
    ended = played.times[name][1]
    assert ended is not None
    return ended


def rated(trace: TraceJob, **rates: float) -> TraceJob:
    return replace(trace, spec=replace(trace.spec, rates=tuple(rates.items())))


def two_kinds(policy: Gavel, *jobs: TraceJob) -> Played:
    return play(policy, *jobs, nodes=TWO_KINDS, speed=Table())


def test_the_one_who_gains_from_the_fast_gpu_gets_it() -> None:
    jobs = (rated(job("a", 0, 3600), new=1, old=1), rated(job("b", 0, 7200), new=4, old=1))
    played = two_kinds(Gavel(), *jobs)
    assert played.times == {"a": (0, 3600), "b": (0, 1800)}
    blind = two_kinds(Gavel(aware=False), *jobs)
    assert end(blind, "b") > 1800, "taking turns on both kinds"


def test_two_jobs_on_one_gpu_take_rounds_in_turn() -> None:
    played = play(Gavel(), job("a", 0, 720), job("b", 0, 720), nodes=[node("n0", 1)])
    assert played.began == {"a": [0, 720], "b": [360, 1080]}
    assert played.times == {"a": (0, 1080), "b": (360, 1440)}


def test_a_weight_is_a_share_of_the_rounds() -> None:
    played = play(
        Gavel(),
        job("a", 0, 360 * 6, queue="red"),
        job("b", 0, 360 * 6, queue="blue"),
        nodes=[node("n0", 1)],
        queues=(queue("red", weight=3.0), queue("blue")),
    )
    # Of the first eight rounds a has six, and b the rest.
    assert played.times["a"][1] == 8 * 360


def test_newcomers_wait_for_the_next_round_and_are_told_so() -> None:
    core = core_with(Gavel(), node("n0", 1))
    core.handle(Submitted(0.0, name("a"), spec(1)), Woke(0.0))
    assert core.job(name("a")).run is not None
    core.handle(Submitted(100.0, name("b"), spec(1)))
    found = core.explain(name("b"))
    assert found is not None
    assert found.reason.text == "waits for the next round, which begins in 260 s"
    core.handle(Started(100.0, run("a")), Woke(360.0))
    assert core.job(name("b")).run is not None


def test_where_nothing_runs_a_round_begins_at_once() -> None:
    jobs = (job("a", 1, 50), job("b", 2, 50), job("c", 100, 900), job("d", 110, 900))
    played = play(Gavel(), *jobs, nodes=[node("n0", 1)])
    # c has had 259 s of the first round when the next begins, and d none.
    assert played.began == {"a": [1], "b": [51], "c": [101, 720, 1440], "d": [360, 1080, 1721]}


def test_who_can_never_run_keeps_nobody_from_an_empty_cluster() -> None:
    core = core_with(Gavel(), node("n0", 2))
    scattered = spec(1, workers=2, within=Level.GPU)
    core.handle(Submitted(0.0, name("a"), scattered), Submitted(0.0, name("b"), spec(2)))
    assert core.job(name("a")).waiting
    assert core.job(name("b")).run is not None


def test_who_is_chosen_again_is_not_disturbed() -> None:
    played = play(Gavel(), job("a", 0, 3000), job("b", 0, 3000), nodes=[node("n0", 2)])
    assert played.times == {"a": (0, 3000), "b": (0, 3000)}
    assert not [one for one in played.diary.actions if isinstance(one, Suspend | Resume)]


def test_gangs_run_whole_on_one_kind() -> None:
    nodes = [node("n0", 2, kind="new"), node("n1", 2, kind="old")]
    played = play(
        Gavel(),
        job("a", 0, 1000, workers=2),
        job("b", 0, 1000, workers=2),
        job("c", 0, 1000, workers=1),
        nodes=nodes,
        timeline=True,
    )
    where: dict[tuple[int, float], set[str]] = {}
    for held in played.results.segments:
        where.setdefault((held.job, held.start), set()).add(held.node)
    assert all(len(nodes) == 1 for nodes in where.values())


def test_a_gang_too_large_for_any_kind_runs_on_several() -> None:
    nodes = [node("n0", 2, kind="new"), node("n1", 2, kind="old")]
    played = play(Gavel(), job("a", 0, 1000, workers=4), nodes=nodes)
    assert played.times == {"a": (0, 1000)}


def test_limits_and_protection_are_respected() -> None:
    played = play(
        Gavel(),
        job("kept", 0, 2000, preemptible=False),
        job("a", 0, 500, queue="red"),
        job("b", 0, 500, queue="red"),
        nodes=[node("n0", 3)],
        queues=(queue("red", limit_milli=1000),),
    )
    assert played.times["kept"] == (0, 2000)
    first, second = sorted("ab", key=lambda one: start(played, one))
    assert start(played, second) >= 360, "never both at once"
    assert end(played, second) >= 1000
    assert end(played, first) >= 500


@pytest.mark.parametrize("objective", ["max_min", "max_sum", "ftf", "makespan"])
def test_every_objective_serves_jobs_of_which_nothing_is_known(objective: str) -> None:
    jobs = [job(f"j{at}", 100.0 * at, 700.0, declared=None) for at in range(5)]
    played = play(Gavel(objective), *jobs, nodes=TWO_KINDS)
    assert all(row.outcome == "succeeded" for row in played.results.jobs)


def test_the_makespan_objective_serves_the_long_job_most() -> None:
    jobs = (job("long", 0, 36000), *(job(f"short{at}", 0, 10800) for at in range(3)))
    soon, late = (play(Gavel(one), *jobs, nodes=[node("n0", 2)]) for one in ("makespan", "max_min"))
    assert end(soon, "long") <= 36000 * 1.03, "but for a few rounds, nobody could do better"
    assert end(late, "long") > 36000 * 1.2


def test_of_equals_those_who_are_there_stay() -> None:
    jobs = [job(f"j{at}", 0, 7200) for at in range(3)]
    moves = [
        sum(isinstance(one, Suspend) for one in played.diary.actions)
        for sticky in (False, True)
        for played in [play(Gavel(sticky=sticky), *jobs, nodes=[node("n0", 2)])]
    ]
    assert moves[1] < moves[0]


def test_finish_times_are_fairer_than_with_the_most_work() -> None:
    # The fast GPU does most for a; b, which is as old, would be left with the slow one.
    jobs = (rated(job("a", 0, 36000), new=10, old=1), rated(job("b", 0, 3600), new=2, old=1))
    most, fair = two_kinds(Gavel("max_sum"), *jobs), two_kinds(Gavel("ftf"), *jobs)
    assert end(most, "b") > end(fair, "b")


def test_restarts_are_counted_where_they_cost() -> None:
    costs = Costs(restart_s=60.0, suspend_s=0.0)
    played = play(
        Gavel(), job("a", 0, 720, costs=costs), job("b", 0, 720, costs=costs), nodes=[node("n0", 1)]
    )
    assert end(played, "a") > 1080


def test_nonsense_is_refused() -> None:
    with pytest.raises(NotFound, match="did you mean 'max_min'"):
        Gavel("max_mim")
    with pytest.raises(InvalidSpec, match="at least a second"):
        Gavel(round_s=0.5)


def test_jobs_that_are_over_are_forgotten() -> None:
    jobs = (job(f"j{at}", 400.0 * at, 10) for at in range(30))
    played = play(Gavel(), *jobs, nodes=[node("n0", 1)])
    notes = played.simulation.core._plan.memo["gavel"]
    assert set(notes.had) <= {JobId("j29")}


def test_kinds_that_are_equally_fast_share_evenly() -> None:
    played = play(
        Gavel(),
        *(job(f"j{at}", 0, 1800) for at in range(4)),
        nodes=TWO_KINDS,
        speed=Speed(kinds={"new": 1.0, "old": 1.0}),
    )
    ends = [end(played, f"j{at}") for at in range(4)]
    assert max(ends) - min(ends) <= 720
