"""Choosing one column for each job: what fits, and nearly the best of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from roost.perf.arrays import Integers, Reals
from roost.policies.kit.packing import Room, fits
from roost.policies.kit.solvers.prices import choose_by_prices

KIND = np.array([0, 0, 0, 1, 1, 0])
GPUS = np.array([1, 2, 4, 1, 2, 0])
NODES = [[4, 4], [2]]
CAPACITY = np.array([8, 2])
NONE = 5


def packs(kind: int, sizes: Sequence[int]) -> bool:
    return fits(sizes, NODES[kind])


def chosen(cost: Reals, start: Integers | None = None) -> Integers:
    begin = np.full(len(cost), NONE) if start is None else start
    return choose_by_prices(cost, KIND, GPUS, CAPACITY, begin, packs, np.zeros(2))[0]


def possible(columns: tuple[int, ...]) -> bool:
    return all(
        packs(kind, [int(GPUS[c]) for c in columns if GPUS[c] and KIND[c] == kind])
        for kind in range(2)
    )


def best(cost: Reals) -> float:
    rows = range(len(cost))
    return min(
        float(sum(cost[row, column] for row, column in zip(rows, columns, strict=True)))
        for columns in itertools.product(range(len(KIND)), repeat=len(cost))
        if possible(columns)
    )


costs = st.lists(
    st.lists(st.floats(-100, 100), min_size=len(KIND), max_size=len(KIND)), min_size=1, max_size=4
).map(np.array)


@given(costs)
@settings(max_examples=examples(60))
def test_what_is_chosen_fits_and_is_nearly_the_best(cost: Reals) -> None:
    columns = chosen(cost)

    assert possible(tuple(columns.tolist()))
    total = float(cost[np.arange(len(cost)), columns].sum())
    spread = float((cost.max(axis=1) - cost.min(axis=1)).sum())
    assert total <= best(cost) + 0.15 * spread + 1e-6


def test_the_one_who_gains_most_gets_the_last_gpus() -> None:
    cost = np.array([[0.0, -1.0, -3.0, 0.0, 0.0, 1.0]] * 2 + [[0.0, -1.0, -9.0, 0.0, 0.0, 1.0]])

    columns = chosen(cost)

    assert columns[2] == 2
    assert sorted(GPUS[columns].tolist())[-2:] == [4, 4]


def test_a_price_is_what_one_more_would_save_whatever_cannot_be() -> None:
    # All want two, there is one for each and two more: the second saves 3.
    cost = np.array([[-5.0, -8.0, -10.0, 1e12, 1e12, 0.0]] * 6)

    _, prices = choose_by_prices(cost, KIND, GPUS, CAPACITY, np.full(6, NONE), packs, np.zeros(2))

    assert prices.tolist() == pytest.approx([3.0, 0.0], abs=0.1)


def test_jobs_that_pack_badly_are_not_moved_around_for_ever() -> None:
    kind, gpus = np.array([0, 1, 0]), np.array([3, 3, 0])
    cost = np.array([[-1.0, -1.0, 0.0]] * 4)

    columns, _ = choose_by_prices(
        cost,
        kind,
        gpus,
        np.array([6, 6]),
        np.full(4, 2),
        lambda kind, sizes: fits(sizes, [[4, 2], [4, 2]][kind]),
        np.zeros(2),
    )

    assert sorted(columns.tolist()) == [0, 1, 2, 2]


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=5), st.lists(st.integers(1, 20), max_size=6)
)
def test_rooms_answer_as_packing_does(free: list[int], sizes: list[int]) -> None:
    assert Room([*free, 8], 8).fits(sizes) is _one_by_one(sizes, [*free, 8])


def _one_by_one(sizes: list[int], free: list[int]) -> bool:
    for size in sorted(sizes, reverse=True):
        whole, left = divmod(size, 8)
        for _ in range(whole):
            if 8 not in free:
                return False
            free.remove(8)
        rest = [gpus for gpus in free if gpus >= left]
        if left and not rest:
            return False
        if left:
            free.remove(min(rest))
            free.append(min(rest) - left)
    return True


@pytest.mark.parametrize("rows", [1, 3])
def test_nobody_is_given_anything_where_there_is_nothing(rows: int) -> None:
    cost = np.full((rows, len(KIND)), -1.0)
    none = choose_by_prices(
        cost, KIND, GPUS, np.zeros(2, int), np.full(rows, NONE), lambda _, s: not s, np.zeros(2)
    )[0]

    assert (none == NONE).all()
