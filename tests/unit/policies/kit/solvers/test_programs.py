"""Programs: the best of small ones, worked out by hand or by trying all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from roost.errors import Fatal
from roost.policies.kit.solvers.programs import choose_exactly, columns, solve


def test_a_linear_program() -> None:
    found = solve([-3.0, -5.0], [[1, 0], [0, 2], [3, 2]], [4, 12, 18])
    assert found.x == pytest.approx([2, 6])
    assert found.objective == pytest.approx(-36)
    assert found.optimal


def test_rows_may_have_a_least_and_columns_a_most() -> None:
    found = solve([1.0, 2.0], [[1, 1]], [np.inf], least=[3.0], upper=[2.0, 5.0])
    assert found.x == pytest.approx([2, 1])


def test_an_integer_program_is_not_rounded() -> None:
    whole = solve([-1.0, -1.0], [[2, 2]], [3], integer=True)
    assert whole.objective == pytest.approx(-1)
    assert solve([-1.0, -1.0], [[2, 2]], [3]).objective == pytest.approx(-1.5)


def test_what_has_no_solution_says_so() -> None:
    with pytest.raises(Fatal, match="infeasible"):
        solve([1.0], [[1.0]], [1.0], least=[2.0])
    with pytest.raises(Fatal, match="not solved"):
        solve([-1.0], [[0.0]], [1.0])


def test_nothing_to_choose_is_no_program() -> None:
    assert solve([], np.zeros((1, 0)), [1.0]).objective == 0.0
    assert choose_exactly(np.full((2, 2), np.inf), [1, 1], [1]).tolist() == [-1, -1]
    assert choose_exactly(np.array([[0.5]]), [1], [9]).tolist() == [-1]


def test_zeros_are_left_out() -> None:
    matrix = columns([[1, 0, 2], [0, 0, 3]])
    assert matrix.start.tolist() == [0, 1, 1, 3]
    assert matrix.row.tolist() == [0, 0, 1]
    assert matrix.value.tolist() == [1, 2, 3]
    assert matrix.rows == 2


costs = st.lists(
    st.lists(st.sampled_from((np.inf, -1.0, -2.0, -3.5, 1.0)), min_size=3, max_size=3),
    min_size=1,
    max_size=5,
)


@given(costs, st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=examples(60))
def test_the_best_choice_is_found(rows: list[list[float]], a: int, b: int) -> None:
    cost, uses, capacity = np.array(rows), np.array([[1, 0], [0, 2], [3, 0]]), np.array([a, b])
    chosen = choose_exactly(cost, uses, capacity)
    assert chosen.tolist() == choose_exactly(cost, uses, capacity).tolist()

    def total(choice: tuple[int, ...]) -> float:
        used = sum((uses[c] for c in choice if c >= 0), start=np.zeros(2))
        worth = sum(float(cost[row, c]) for row, c in enumerate(choice) if c >= 0)
        return worth if (used <= capacity).all() else np.inf

    best = min(total(choice) for choice in product((-1, 0, 1, 2), repeat=len(cost)))
    assert total(tuple(chosen.tolist())) == pytest.approx(best)
