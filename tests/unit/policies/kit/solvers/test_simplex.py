"""Programs that change and are solved again: the answers are those of a fresh start."""

from __future__ import annotations

import numpy as np
import pytest

from roost.policies.kit.solvers.simplex import ChangingProgram, Entries


def program(limit: float, slope: float) -> ChangingProgram:
    """Maximise a level where ``slope`` times it is at most x, and x at most the limit."""
    rows, columns = np.array([0, 1, 1]), np.array([0, 0, 1])
    entries = Entries(rows, columns, np.array([1.0, -1.0, slope]))
    return ChangingProgram(np.array([0.0, -1.0]), entries, np.array([limit, 0.0]))


def test_a_program_is_solved_with_its_prices() -> None:
    found = program(limit=6.0, slope=2.0).solve()
    assert found is not None
    assert found.values == pytest.approx([6.0, 3.0])
    assert found.cost == pytest.approx(-3.0)
    # One more of the limit, or one less of the demand, is worth half a level.
    assert found.prices == pytest.approx([0.5, 0.5])


def test_changes_count_at_the_next_answer() -> None:
    changing = program(limit=6.0, slope=2.0)
    changing.solve()
    changing.change_entry(1, 1, 3.0)
    changing.change_most(0, 12.0)
    again = changing.solve()
    fresh = program(limit=12.0, slope=3.0).solve()
    assert again is not None
    assert fresh is not None
    assert again.values == pytest.approx(fresh.values)
    assert again.prices == pytest.approx(fresh.prices)


def test_what_cannot_be_has_no_answer() -> None:
    entries = Entries(np.array([0]), np.array([0]), np.array([1.0]))
    assert ChangingProgram(np.array([1.0]), entries, np.array([-1.0])).solve() is None
