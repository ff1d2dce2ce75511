"""Linear and integer programs from arrays, solved by HiGHS.

``solve`` takes any program. ``choose_exactly`` takes the one of assignment policies: at most
one column for each row, within the capacity of each resource. Answers are the same on every run:
one thread, a fixed seed, and a time limit that is far beyond what programs of a scheduler take.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np
from numpy.typing import ArrayLike

from roost.errors import Fatal
from roost.perf.arrays import Integers, Reals

#: No limit on a row or a column.
INFINITE = np.inf
_COLUMNWISE = int(highspy.MatrixFormat.kColwise)
_MINIMISE = int(highspy.ObjSense.kMinimize)


class Columns(NamedTuple):
    """A sparse matrix, column by column: column c has entries ``start[c]`` to ``start[c + 1]``."""

    start: Integers
    row: Integers
    value: Reals
    rows: int


class Solution(NamedTuple):
    """The best point that was found, and whether it was shown to be the best."""

    x: Reals
    objective: float
    optimal: bool


def columns(matrix: ArrayLike) -> Columns:
    """A dense matrix, without its zeros."""
    dense = np.atleast_2d(np.asarray(matrix, dtype=np.float64))
    column, row = np.nonzero(dense.T)
    start = np.searchsorted(column, np.arange(dense.shape[1] + 1))
    return Columns(start, row, dense[row, column], dense.shape[0])


def solve(  # noqa: PLR0913 - a program has that many parts
    cost: ArrayLike,
    matrix: Columns | ArrayLike,
    most: ArrayLike,
    *,
    least: ArrayLike = -INFINITE,
    upper: ArrayLike = INFINITE,
    integer: bool = False,
    gap: float = 1e-4,
    limit_s: float = 60.0,
) -> Solution:
    """Minimise ``cost @ x`` with ``least <= matrix @ x <= most`` and ``0 <= x <= upper``.

    An integer program may end within ``gap`` of the best, relative to it, or with the best that was
    found in ``limit_s``. It is ``Fatal`` if there is no solution, or none in that time.
    """
    costs = np.asarray(cost, dtype=np.float64)
    sparse = matrix if isinstance(matrix, Columns) else columns(matrix)
    count, rows = len(costs), sparse.rows
    if not count:
        return Solution(np.zeros(0), 0.0, optimal=True)
    solver = _take()
    solver.clear()
    _set_up(solver, gap, limit_s)
    solver.passModel(
        count,
        rows,
        len(sparse.value),
        _COLUMNWISE,
        _MINIMISE,
        0.0,
        costs,
        np.zeros(count),
        _filled(upper, count),
        _filled(least, rows),
        _filled(most, rows),
        sparse.start.astype(np.int32),
        sparse.row.astype(np.int32),
        sparse.value,
        np.full(count, int(integer), dtype=np.int32),
    )
    solver.run()
    found = _read(solver)
    _idle.append(solver)  # one that raised is not used again
    return found


def choose_exactly(
    cost: Reals, uses: ArrayLike, capacity: ArrayLike, *, gap: float = 1e-4, limit_s: float = 60.0
) -> Integers:
    """The column for each row that makes the sum of costs least; -1: none, which costs nothing.

    Each choice of a column uses its row of ``uses`` of what there is in ``capacity``. A cost that
    is not finite forbids the choice; one that is not negative is never worth it.
    """
    wanted = np.isfinite(cost) & (cost < 0)
    row, column = np.nonzero(wanted)
    chosen = np.full(len(cost), -1, dtype=np.int64)
    if not len(row):
        return chosen
    used = np.asarray(uses, dtype=np.float64).reshape(cost.shape[1], -1)[column]
    what, resource = np.nonzero(used)
    variable = np.concatenate([np.arange(len(row)), what])
    order = np.argsort(variable, kind="stable")
    matrix = Columns(
        np.searchsorted(variable[order], np.arange(len(row) + 1)),
        np.concatenate([row, len(cost) + resource])[order],
        np.concatenate([np.ones(len(row)), used[what, resource]])[order],
        len(cost) + used.shape[1],
    )
    limits = np.concatenate([np.ones(len(cost)), np.atleast_1d(np.asarray(capacity, dtype=float))])
    found = solve(
        cost[row, column], matrix, limits, upper=1.0, integer=True, gap=gap, limit_s=limit_s
    )
    taken = np.flatnonzero(found.x > 0.5)  # noqa: PLR2004 - they are 0 or 1, but for rounding
    chosen[row[taken]] = column[taken]
    return chosen


def _filled(values: ArrayLike, count: int) -> Reals:
    return np.ascontiguousarray(np.broadcast_to(np.asarray(values, dtype=np.float64), (count,)))


#: Solvers that are not in use: to make another costs more than most programs. Each serves one call
#: at a time, for calls may come from several threads; taking from a list and adding to it are one
#: step each.
_idle: list[highspy.Highs] = []


def _take() -> highspy.Highs:
    try:
        return _idle.pop()
    except IndexError:
        return highspy.Highs()  # type: ignore[no-untyped-call]


#: Ways to a first good point, and to less branching, that take longer than such programs do.
_DEAR = (
    "mip_detect_symmetry",
    "mip_heuristic_run_feasibility_jump",
    "mip_heuristic_run_rens",
    "mip_heuristic_run_rins",
    "mip_heuristic_run_root_reduced_cost",
    "mip_heuristic_run_shifting",
    "mip_heuristic_run_zi_round",
)


def _set_up(solver: highspy.Highs, gap: float, limit_s: float) -> None:
    options: dict[str, bool | int | float | str] = {
        **dict.fromkeys(_DEAR, False),
        "output_flag": False,
        "parallel": "off",
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": gap,
        "time_limit": limit_s,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)


def _read(solver: highspy.Highs) -> Solution:
    status = solver.getModelStatus()
    optimal = status == highspy.HighsModelStatus.kOptimal
    feasible = (
        solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    )
    if not optimal and not (status == highspy.HighsModelStatus.kTimeLimit and feasible):
        raise Fatal(f"a program was not solved: {solver.modelStatusToString(status).lower()}")
    x = np.array(solver.getSolution().col_value, dtype=np.float64)
    return Solution(x, float(solver.getObjectiveValue()), optimal)
