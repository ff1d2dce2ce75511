"""The genetic search: only what is possible lives, and the best of small problems is found."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from roost.policies.kit.solvers.genetic import GeneticSearch, SeatingProblem, States


def problem(
    room: list[int], jobs: int, most: int = 4, *, least: int = 1, gpus: int = 1, across: float = 0.5
) -> SeatingProblem:
    """Jobs that gain in proportion on one node, and half of that across nodes."""
    workers = np.arange(most + 1, dtype=float)
    return SeatingProblem(
        np.array([[workers, across * workers]] * jobs),
        np.full(jobs, least),
        np.full(jobs, most),
        np.full(jobs, gpus),
        np.array(room),
        np.ones((jobs, len(room)), dtype=bool),
        np.zeros(len(room), dtype=np.int64),
        np.ones(jobs),
        np.zeros((jobs, len(room)), dtype=np.int16),
    )


def search(what: SeatingProblem, *, size: int = 40, generations: int = 60, seed: int = 0) -> States:
    found = GeneticSearch(what, np.random.default_rng(seed), size)
    found.begin(np.zeros((0, *what.current.shape), dtype=np.int16))
    return found.run(generations, 60)


def test_each_job_gets_a_node_for_itself() -> None:
    best = search(problem([4, 4, 4], 3))
    assert sorted(map(tuple, best.tolist())) == [(0, 0, 4), (0, 4, 0), (4, 0, 0)]


def test_who_would_lose_more_by_moving_than_it_gains_stays() -> None:
    what = problem([4, 4], 1)
    what.current[0] = [3, 0]
    assert search(replace(what, factor=np.array([0.5]))).tolist() == [[3, 0]]
    assert search(what).sum() == 4


def test_a_job_that_needs_several_workers_has_them_in_one_group_or_none() -> None:
    what = problem([1, 1, 1], 1, most=2, least=2, across=1.0)
    assert search(replace(what, groups=np.array([0, 1, 2]))).sum() == 0
    together = search(replace(what, groups=np.array([0, 1, 0])))
    assert together.tolist() == [[1, 0, 1]]


def test_an_earlier_population_is_gone_on_with() -> None:
    what = problem([4, 4], 2)
    last = np.array([[[4, 0], [0, 4]]], dtype=np.int16)
    found = GeneticSearch(what, np.random.default_rng(0), 10)
    found.begin(last)
    assert found.fitness.max() == pytest.approx(4.0)
    assert len(found.states) == 10


def test_the_same_seed_finds_the_same() -> None:
    what = problem([4, 4, 3, 2], 5)
    assert (
        search(what, seed=3, generations=5).tolist() == search(what, seed=3, generations=5).tolist()
    )


small = st.lists(st.integers(1, 3), min_size=1, max_size=3)


@given(small, st.integers(1, 2), st.integers(1, 2), st.integers(1, 2))
@settings(max_examples=examples(25))
def test_nobody_finds_better_by_trying_all(
    room: list[int], jobs: int, least: int, gpus: int
) -> None:
    what = problem(room, jobs, least=least, gpus=gpus)
    rows = [
        row
        for row in product(*(range(gpu // gpus + 1) for gpu in room))
        if sum(row) == 0 or least <= sum(row) <= 4
    ]
    best = 0.0
    for table in product(rows, repeat=jobs):
        state = np.array(table, dtype=np.int16)
        spans = (state > 0) & ((state > 0).sum(axis=1, keepdims=True) > 1)
        if (state.sum(axis=0) * gpus <= room).all() and (spans.sum(axis=0) <= 1).all():
            best = max(best, float(what.fitness(state[None])[0]))
    found = search(what, generations=80)
    assert (found.sum(axis=0) * gpus <= room).all()
    assert float(what.fitness(found[None])[0]) >= 0.99 * best


@given(st.integers(0, 50))
@settings(max_examples=examples(25))
def test_only_what_is_possible_lives(seed: int) -> None:
    what = problem([4, 3, 2, 4], 4, most=6)
    what.usable[1, 2] = False
    found = GeneticSearch(what, np.random.default_rng(seed), 20)
    found.begin(np.zeros((0, *what.current.shape), dtype=np.int16))
    found.run(5, 5)
    states = found.states
    assert (states.sum(axis=1) <= what.room).all()
    assert (states.sum(axis=2) <= 6).all()
    assert not states[:, 1, 2].any()
    spans = (states > 0) & ((states > 0).sum(axis=2, keepdims=True) > 1)
    assert (spans.sum(axis=1) <= 1).all()
