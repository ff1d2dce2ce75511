"""Killed, stopped and frozen at random moments, a PyTorch training learns what one alone does."""

from __future__ import annotations

import pytest

from roost_bench.live.restarts import restarts


@pytest.mark.parametrize(("workers", "moments"), [(1, 12), (2, 6)])
def test_interrupted_or_not_it_learns_the_same_and_repeats_no_step_that_was_saved(
    workers: int, moments: int
) -> None:
    found = restarts(moments, seed=5, workers=workers)
    assert found["same"] == 1.0
    assert found["beyond"] == 0
    assert found["moments"] == moments
    assert found["lives"] > moments / 3
