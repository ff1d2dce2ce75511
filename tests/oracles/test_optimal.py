"""Policies that are known to be optimal, against brute force over all schedules."""

from __future__ import annotations

from functools import cache
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.played import Played, cluster, job, play
from tests.support.effort import examples

from roost.policies.sjf import sjf
from roost.policies.srsf import Srsf
from roost.policies.srtf import Srtf


def total_flow(played: Played) -> float:
    """The sum over all jobs of end minus submission."""
    return sum((row.finished_at or 0.0) - row.submitted_at for row in played.results.jobs)


def best_preemptive(jobs: tuple[tuple[int, int], ...]) -> int:
    """The least total flow time on one GPU: in every second any job may run.

    With whole seconds everywhere some best schedule changes jobs only at whole seconds. In every
    second each job that is there and not over adds one to the total.
    """

    @cache
    def rest(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        there = [i for i, (at, _) in enumerate(jobs) if at <= now and left[i]]
        if not there:
            return rest(now + 1, left)
        return len(there) + min(
            rest(now + 1, tuple(n - (i == chosen) for i, n in enumerate(left))) for chosen in there
        )

    return rest(0, tuple(work for _, work in jobs))


def best_in_order(work: tuple[int, ...], gpus: int) -> int:
    """The least total flow time of jobs that are all there and are never stopped."""

    def total(order: tuple[int, ...]) -> int:
        free = [0] * gpus
        flow = 0
        for length in order:
            free.sort()
            free[0] += length
            flow += free[0]
        return flow

    return min(total(order) for order in set(permutations(work)))


@settings(max_examples=examples(80))
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 6)), min_size=1, max_size=4))
def test_srtf_is_optimal_among_preemptive_schedules(jobs: list[tuple[int, int]]) -> None:
    jobs.sort()
    played = play(
        Srtf(), *[job(f"j{i}", at, work) for i, (at, work) in enumerate(jobs)], nodes=cluster(1)
    )

    assert total_flow(played) == best_preemptive(tuple(jobs))


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 6)), min_size=1, max_size=4))
def test_with_one_gpu_each_srsf_is_srtf(jobs: list[tuple[int, int]]) -> None:
    jobs.sort()
    recorded = [job(f"j{i}", at, work) for i, (at, work) in enumerate(jobs)]

    by_service = play(Srsf(), *recorded, nodes=cluster(1))
    by_time = play(Srtf(), *recorded, nodes=cluster(1))

    assert by_service.times == by_time.times


@settings(max_examples=examples(60))
@given(work=st.lists(st.integers(1, 20), min_size=1, max_size=6), gpus=st.integers(1, 3))
def test_sjf_is_optimal_when_all_are_there_at_once(work: list[int], gpus: int) -> None:
    played = play(
        sjf, *[job(f"j{i}", 0, length) for i, length in enumerate(work)], nodes=cluster(gpus)
    )

    assert total_flow(played) == best_in_order(tuple(work), gpus)
