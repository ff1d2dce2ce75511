"""A linear program that is solved again and again with small changes, by HiGHS.

``programs`` solves programs once and forgets them. Here the solver keeps the last answer and goes
on from there, which for a program that changes in a few numbers takes a small part of the time. It
also tells the price of each row: how much less the cost would be if the row's limit were one more.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np

from roost.perf.arrays import Integers, Reals

_ROWWISE = int(highspy.MatrixFormat.kRowwise)
_MINIMISE = int(highspy.ObjSense.kMinimize)
_INFINITE = float(highspy.kHighsInf)
#: From an answer that is still allowed the primal simplex method goes on at once.
_PRIMAL = 4
_OPTIONS: tuple[tuple[str, bool | int | str], ...] = (
    ("output_flag", False),
    ("parallel", "off"),
    ("threads", 1),
    ("random_seed", 0),
    ("solver", "simplex"),
    ("presolve", "off"),
)


class Entries(NamedTuple):
    """A sparse matrix: values by row and column, in any order, no place twice."""

    row: Integers
    column: Integers
    value: Reals


class Answer(NamedTuple):
    """The best values, the price of each row, and the least cost."""

    values: Reals
    prices: Reals
    cost: float


class ChangingProgram:
    """Minimise ``cost @ x`` with ``entries @ x <= most`` and ``x >= 0``, as often as it changes."""

    def __init__(self, cost: Reals, entries: Entries, most: Reals) -> None:
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in _OPTIONS:
            self._solver.setOptionValue(name, value)
        order = np.lexsort((entries.column, entries.row))
        rows, count = len(most), len(cost)
        starts = np.searchsorted(entries.row[order], np.arange(rows + 1))
        self._solver.passModel(
            count,
            rows,
            len(order),
            _ROWWISE,
            _MINIMISE,
            0.0,
            np.ascontiguousarray(cost),
            np.zeros(count),
            np.full(count, _INFINITE),
            np.full(rows, -_INFINITE),
            np.ascontiguousarray(most),
            starts.astype(np.int32),
            entries.column[order].astype(np.int32),
            np.ascontiguousarray(entries.value[order]),
            np.zeros(count, dtype=np.int32),
        )
        self._solved = False

    def change_entry(self, row: int, column: int, value: float) -> None:
        """Put another number in the matrix."""
        self._solver.changeCoeff(row, column, value)

    def change_most(self, row: int, value: float) -> None:
        """Limit a row otherwise."""
        self._solver.changeRowBounds(row, -_INFINITE, value)

    def solve(self) -> Answer | None:
        """The answer to the program as it is now; None: there is none."""
        if self._solved:
            self._solver.setOptionValue("simplex_strategy", _PRIMAL)
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        self._solved = True
        found = self._solver.getSolution()
        values = np.array(found.col_value, dtype=np.float64)
        prices = -np.array(found.row_dual, dtype=np.float64)
        return Answer(values, prices, float(self._solver.getObjectiveValue()))
