"""Stragglers: found when it lasts, not by chance, and let go when they are back."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest

from roost.errors import InvalidSpec
from roost.perf.stragglers import Bounds, Stragglers


def times(**slow: float) -> dict[Hashable, float]:
    usual: dict[Hashable, float] = {f"w{at}": 1.0 + 0.01 * at for at in range(6)}
    return usual | slow


def test_a_worker_that_lags_for_long_enough_is_a_straggler() -> None:
    watch = Stragglers()

    assert [watch.look(times(w3=2.5)) for _ in range(4)] == [[], [], ["w3"], []]
    assert watch.found["w3"] == pytest.approx(2.5, rel=0.05)


def test_one_slow_step_makes_no_straggler() -> None:
    watch = Stragglers()
    for slow in (9.0, 1.0, 9.0, 9.0, 1.0) * 3:
        assert watch.look(times(w3=slow)) == []


def test_it_is_let_go_only_once_it_was_back_for_as_long() -> None:
    watch = Stragglers()
    for _ in range(3):
        watch.look(times(w3=3.0))
    for slow in (1.7, 1.7, 1.7, 1.7, 1.7, 1.0, 1.0, 1.7):  # between the bounds nothing changes
        watch.look(times(w3=slow))
    assert "w3" in watch.found
    for _ in range(3):
        watch.look(times())
    assert not watch.found


def test_where_all_are_unsteady_nobody_stands_out() -> None:
    chance, watch = np.random.default_rng(0), Stragglers()
    for _ in range(200):
        step_s: dict[Hashable, float] = {
            at: float(time) for at, time in enumerate(chance.lognormal(0, 0.8, 8))
        }
        assert watch.look(step_s) == []


def test_two_workers_have_no_majority() -> None:
    watch = Stragglers()
    for _ in range(5):
        assert watch.look({0: 1.0, 1: 9.0}) == []


def test_a_straggler_that_is_replaced_takes_its_past_with_it() -> None:
    watch = Stragglers()
    for _ in range(3):
        watch.look(times(w3=3.0))
    others = times()
    del others["w3"]
    watch.look(others)
    assert not watch.found
    assert watch.look(times(w3=3.0)) == []


def test_several_stragglers_are_found_at_once() -> None:
    watch = Stragglers(Bounds(patience=1))
    assert sorted(map(str, watch.look(times(w0=3.0, w5=4.0)))) == ["w0", "w5"]


@pytest.mark.parametrize("wrong", [{"calm": 3.0}, {"calm": 0.5}, {"patience": 0}, {"sigmas": -1.0}])
def test_bounds_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSpec):
        Bounds(**wrong)  # type: ignore[arg-type]
