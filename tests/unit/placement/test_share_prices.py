"""What the free part of a GPU is worth."""

from __future__ import annotations

from itertools import combinations_with_replacement
from random import Random

import pytest
from scipy.optimize import linprog
from tests.support.effort import examples

from roost.placement.share_prices import SharePrices


def test_sizes_that_fill_a_gpu_share_its_price() -> None:
    prices = SharePrices({470: 0.75, 320: 0.33, 650: 0.25, 810: 1.0})

    assert prices.worth(810) == pytest.approx(1)
    assert prices.worth(470) == pytest.approx(0.5)
    assert prices.worth(650) + prices.worth(320) == pytest.approx(1)
    assert prices.worth(310) == 0


def test_a_free_gpu_is_worth_a_gpu() -> None:
    assert SharePrices({}).worth(1000) == 1
    assert SharePrices({}).worth(990) == 0
    assert SharePrices({600: 1.0}).worth(1000) == 1


def test_more_is_never_worth_less() -> None:
    prices = SharePrices({130: 1.0, 270: 2.0, 333: 1.0, 500: 0.5})
    worth = [prices.worth(milli) for milli in range(1001)]
    assert worth == sorted(worth)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_prices_are_those_of_the_linear_program(seed: int) -> None:
    chance = Random(seed)
    sizes = chance.sample(range(150, 1000, 10), chance.randint(1, 5))
    wanted = {size: chance.uniform(0.1, 2) for size in sizes}
    patterns = [
        [many.count(size) for size in sizes]
        for length in range(1, 7)
        for many in combinations_with_replacement(sizes, length)
        if sum(many) <= 1000
    ]
    rows = [[-pattern[place] for pattern in patterns] for place in range(len(sizes))]
    fewest = linprog([1] * len(patterns), rows, [-wanted[size] for size in sizes]).fun
    prices = SharePrices(wanted)

    # The price of a size may be less than what the best of its length is worth, never more.
    assert all(
        sum(n * prices.worth(size) for n, size in zip(pattern, sizes, strict=True)) <= 1 + 1e-6
        for pattern in patterns
    )
    assert sum(wanted[size] * prices.worth(size) for size in sizes) == pytest.approx(fewest)
