"""The Gittins index: its values by brute force, and schedules worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.played import Played, cluster, finish, job, simulation

from roost.policies.gittins import Gittins, gittins_index

#: 64 finished jobs of 70 GPU-s each: a job that has had 60 is nearly done, one that has had 120
#: is like none ever seen. G(0) = 1/70, G(60) = 1/10, G(120) = 0.
HISTORY = [70.0] * 64


def by_the_formula(samples: Sequence[float], attained: float) -> Fraction:
    """G(a) = max over d of P(S <= a + d | S > a) / E[min(S - a, d) | S > a], by trying every d.

    The numerator grows only where a + d passes a sample while the denominator always grows, so
    the best d ends at a sample.
    """
    alive = [Fraction(s) - Fraction(attained) for s in samples if s > attained]
    return max(
        (
            Fraction(sum(left <= d for left in alive)) / sum(min(left, d) for left in alive)
            for d in alive
        ),
        default=Fraction(0),
    )


@given(
    samples=st.lists(st.integers(1, 100).map(float), min_size=1, max_size=8),
    limits=st.lists(st.integers(1, 90).map(float), min_size=1, max_size=4, unique=True).map(sorted),
)
def test_the_index_is_that_of_the_formula(samples: list[float], limits: list[float]) -> None:
    expected = [float(by_the_formula(samples, attained)) for attained in [0.0, *limits]]

    assert gittins_index(samples, limits) == pytest.approx(expected, rel=1e-12)


def test_the_index_by_hand() -> None:
    # S is 10, 10, 10 or 1000. From 0: stop at 10, 3 of 4 done for 10 s each: 0.075.
    # From 10 (only the long one is left): 1/990. From 1000: nobody has ever gone on.
    index = gittins_index([10.0, 10.0, 10.0, 1000.0], [10.0, 1000.0])

    assert index == pytest.approx([0.075, 1 / 990, 0.0])


def _two_jobs(policy: Gittins, history: Sequence[float]) -> Played:
    sim = simulation(policy, [job("a", 0, 200), job("b", 10, 200)], cluster(1))
    sim.core.history.service.extend(history)
    return finish(sim)


def test_a_job_that_is_likely_to_end_soon_keeps_its_place() -> None:
    # a 0-120: at 60 its index rises, at 120 it falls to nothing and b (1/70) goes. b is nearly
    # done at 180, like nothing else at 240, but no worse than a. b 120-320, a 320-400.
    played = _two_jobs(Gittins(), HISTORY)

    assert played.began == {"a": [0, 320], "b": [120]}
    assert played.times == {"a": (0, 400), "b": (120, 320)}


def test_upside_down_the_smallest_index_goes_first() -> None:
    # a's index rises at 60: b goes. b's rises at 120, where a's is as high: b stays until 180,
    # when its index falls to nothing, which is best here, and ends at 260.
    played = _two_jobs(Gittins(upside_down=True), HISTORY)

    assert played.began == {"a": [0, 260], "b": [60]}
    assert played.times == {"a": (0, 400), "b": (60, 260)}


@pytest.mark.parametrize("history", [(), HISTORY[:63]])
def test_as_long_as_too_little_is_known_the_least_attained_level_goes_first(
    history: Sequence[float],
) -> None:
    # Levels end at 60, 120, 240: a 0-60, b 60-180 (of a's level from 120 on), a 180-320, b -400.
    played = _two_jobs(Gittins(), history)

    assert played.began == {"a": [0, 180], "b": [60, 320]}
    assert played.times == {"a": (0, 320), "b": (60, 400)}
