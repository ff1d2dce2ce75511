"""The rhythm of a job in what it holds."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from roost.engines.local.gpu import memory_rhythm


@given(st.integers(5, 20), st.integers(0, 10_000))
def test_a_rhythm_is_found_through_noise(length: int, seed: int) -> None:
    chance = random.Random(seed)
    samples = [
        1000 + 400 * math.sin(2 * math.pi * n / length) + chance.gauss(0, 30) for n in range(160)
    ]
    found = memory_rhythm.period(samples)
    assert found is not None
    assert abs(found - length) <= 1


def test_what_never_changes_has_no_rhythm() -> None:
    assert memory_rhythm.period([7.0] * 100) is None


def test_what_only_grows_has_no_rhythm() -> None:
    assert memory_rhythm.period([float(n) for n in range(100)]) is None


def test_too_little_was_seen() -> None:
    assert memory_rhythm.period([1.0, 2.0] * 3) is None
    assert memory_rhythm.period([]) is None


def test_low_is_near_the_least() -> None:
    assert memory_rhythm.is_low([100, 200, 300], 110)
    assert not memory_rhythm.is_low([100, 200, 300], 150)
