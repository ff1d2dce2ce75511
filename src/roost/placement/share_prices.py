"""What the free part of a GPU is worth, by the shares that will want it.

Shares of GPUs are cut out of whole ones as lengths are cut out of stock (Gilmore and Gomory, 1961).
The linear program "the fewest GPUs that serve all typical shares in their proportions" has a price
for each size of share, in GPUs: of sizes that fill a GPU without rest, the prices of the pieces add
up to 1. The free part of a GPU is worth what the dearest shares cost that fit into it.

It is solved by the simplex method. A column is a pattern: how many shares of each size one GPU
holds. There are as many patterns in the basis as there are sizes, and the pattern to come in is the
most valuable one at the prices of the moment, found by dynamic programming.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roost.core.spec import WHOLE

#: Sizes are rounded up to this many milli-GPUs, free parts down.
_STEP = 10
_STEPS = WHOLE // _STEP
#: The most sizes that are told apart, and the most patterns that come in.
_SIZES, _ROUNDS = 24, 500
_EPSILON = 1e-9


class SharePrices:
    """Prices of shares: of sizes in milli-GPUs, and so of free parts of a GPU."""

    def __init__(self, frequencies: Mapping[int, float]) -> None:
        """``frequencies``: how often each size below a whole GPU is asked for."""
        rounded: dict[int, float] = {}
        for milli, frequency in frequencies.items():
            size = -(-milli // _STEP)
            rounded[size] = rounded.get(size, 0.0) + frequency
        kept = sorted(rounded, key=lambda size: (-rounded[size], size))[:_SIZES]
        sizes = sorted(size for size in kept if size < _STEPS)
        prices = _duals(sizes, [rounded[size] for size in sizes])
        self._worth = _worth(sizes, prices)[0]
        self._worth[_STEPS] = max(self._worth[_STEPS], 1.0)

    def worth(self, free_milli: int) -> float:
        """What a GPU is worth of which so much is free, in GPUs."""
        return self._worth[free_milli // _STEP]


def _duals(sizes: Sequence[int], wanted: Sequence[float]) -> list[float]:
    """The price of each size in an optimal basis."""
    many = len(sizes)
    patterns = [[0] * many for _ in sizes]
    for place, size in enumerate(sizes):
        patterns[place][place] = _STEPS // size
    prices = [1.0 / (_STEPS // size) for size in sizes]
    for _ in range(_ROUNDS):
        worth, last = _worth(sizes, prices)
        if worth[_STEPS] <= 1.0 + _EPSILON:
            break
        coming = _pattern(sizes, last)
        columns = [[float(patterns[of][row]) for of in range(many)] for row in range(many)]
        enters = _solved(columns, [float(count) for count in coming])
        uses = _solved(columns, list(wanted))
        leaving = _leaving(uses, enters)
        if leaving < 0:
            break
        patterns[leaving] = coming
        prices = _solved([[float(n) for n in pattern] for pattern in patterns], [1.0] * many)
    return [max(price, 0.0) for price in prices]


def _worth(sizes: Sequence[int], prices: Sequence[float]) -> tuple[list[float], list[int]]:
    """For each length the worth of the best that fits in, and the last piece of it (-1: none)."""
    worth, last = [0.0] * (_STEPS + 1), [-1] * (_STEPS + 1)
    for length in range(1, _STEPS + 1):
        worth[length] = worth[length - 1]
        for place, size in enumerate(sizes):
            if size <= length and worth[length - size] + prices[place] > worth[length] + _EPSILON:
                worth[length] = worth[length - size] + prices[place]
                last[length] = place
    return worth, last


def _pattern(sizes: Sequence[int], last: Sequence[int]) -> list[int]:
    """The pieces of the most valuable pattern."""
    found, length = [0] * len(sizes), _STEPS
    while length > 0:
        place = last[length]
        if place < 0:
            length -= 1
        else:
            found[place] += 1
            length -= sizes[place]
    return found


def _leaving(uses: Sequence[float], enters: Sequence[float]) -> int:
    """The pattern that is used up first when the new one comes in; -1: none, by rounding errors."""
    best, ratio = -1, 0.0
    for place, each in enumerate(enters):
        if each > _EPSILON and (best < 0 or uses[place] / each < ratio - _EPSILON):
            best, ratio = place, uses[place] / each
    return best


def _solved(rows: list[list[float]], right: list[float]) -> list[float]:
    """The solution of a system of linear equations, by elimination with pivots."""
    many = len(right)
    lines = [[*row, value] for row, value in zip(rows, right, strict=True)]
    for place in range(many):
        pivot = max(range(place, many), key=lambda row: abs(lines[row][place]))
        lines[place], lines[pivot] = lines[pivot], lines[place]
        head = lines[place]
        for row in range(many):
            factor = lines[row][place] / head[place]
            if row != place and factor:
                line = lines[row]
                for column in range(place, many + 1):
                    line[column] -= factor * head[column]
    return [lines[place][many] / lines[place][place] for place in range(many)]
