from __future__ import annotations

import math

import numpy as np
import pytest

from roost.perf.rhythm import period


@pytest.mark.parametrize("truth", [4.0, 7.3, 12.0, 31.7])
def test_a_saw_is_found_where_it_falls(truth: float) -> None:
    saw = [(at / truth) % 1.0 for at in range(120)]

    assert period(saw) == pytest.approx(truth, rel=0.03)


def test_a_short_dip_is_found() -> None:
    busy = [0.1 if at % 15 == 3 else 0.95 for at in range(120)]

    assert period(busy) == pytest.approx(15.0, rel=0.01)


def test_the_shortest_period_is_told_and_none_of_its_multiples() -> None:
    assert period([float(at % 10 < 5) for at in range(600)]) == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [1.0] * 11,
        [0.7] * 120,
        [float(at) for at in range(120)],
        [float(at > 60) for at in range(120)],
        [float(at == 60) for at in range(120)],
        [*[math.nan] * 60, *[1.0, 0.0] * 30],
        [math.inf, *[0.0] * 60],
    ],
)
def test_what_does_not_repeat_itself_has_no_period(samples: list[float]) -> None:
    assert period(samples) is None


def test_noise_is_no_rhythm_but_for_chance() -> None:
    chance = np.random.default_rng(5)
    noises = [chance.standard_normal(120) for _ in range(200)]

    assert sum(period(one) is not None for one in noises) <= 2
    assert sum(period(np.cumsum(one)) is not None for one in noises) <= 2


def test_what_is_measured_may_be_of_any_size() -> None:
    saw = np.array([(at / 9.0) % 1.0 for at in range(120)])

    assert period(saw * 1e12 + 1e12) == pytest.approx(9.0, rel=0.03)
    assert period(saw * 1e-12) == pytest.approx(9.0, rel=0.03)
