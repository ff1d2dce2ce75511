"""Gavel's programs: by hand, against brute force, and what their answers promise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from roost.perf.arrays import Reals
from roost.policies.kit.solvers.fractions import (
    TimeSharing,
    finish_fair,
    makespan,
    max_min,
    max_sum,
)

SEEDS = range(12)


def sharing(rates: list[list[float]], gpus: list[float], capacity: list[float]) -> TimeSharing:
    return TimeSharing(np.array(rates, float), np.array(gpus, float), np.array(capacity, float))


def some(seed: int, jobs: int = 7, kinds: int = 3) -> TimeSharing:
    chance = np.random.default_rng(seed)
    rates = chance.uniform(0.2, 4.0, (jobs, kinds))
    rates[chance.random((jobs, kinds)) < 0.15] = 0.0
    rates[:, 0] = np.maximum(rates[:, 0], 0.1)
    gpus = chance.choice([1.0, 1.0, 2.0, 4.0], jobs)
    return TimeSharing(rates, gpus, chance.integers(2, 9, kinds).astype(float))


def allowed(of: TimeSharing, fractions: Reals) -> bool:
    held = (fractions * of.gpus[:, None]).sum(axis=0)
    return bool(
        (fractions >= 0).all()
        and (fractions.sum(axis=1) <= 1 + 1e-6).all()
        and (held <= of.capacity + 1e-6).all()
        and not fractions[of.rates == 0].any()
    )


# -- by hand -------------------------------------------------------------------------------------


def test_the_most_work_in_all_gives_the_fast_gpu_to_who_gains_most() -> None:
    # 4 + 1 is more than 3 + 1.
    found = max_sum(sharing([[4, 1], [3, 1]], [1, 1], [1, 1]))
    assert found == pytest.approx(np.array([[1, 0], [0, 1]]))


def test_equal_jobs_get_equal_fractions() -> None:
    found = max_sum(sharing([[1], [1], [1], [1]], [1, 1, 1, 1], [1]))
    assert found == pytest.approx(np.full((4, 1), 0.25))


def test_who_gains_nothing_leaves_the_fast_gpu_to_others() -> None:
    # Both are at least as well off as with half of each; the first rises from 1 to 4 / 2.5.
    of = sharing([[4, 1], [1, 1]], [1, 1], [1, 1])
    found = max_min(of, np.ones(2))
    assert found == pytest.approx(np.array([[1, 0], [0, 1]]))
    assert of.throughputs(found) / of.equal == pytest.approx([1.6, 1.0])


def test_fair_shares_of_two_kinds() -> None:
    # Normalised 1.6 and 0.4, 4/3 and 2/3: with half of each both have 1, and nothing beats that.
    of = sharing([[4, 1], [2, 1]], [1, 1], [1, 1])
    assert of.throughputs(max_min(of, np.ones(2))) / of.equal == pytest.approx([1.0, 1.0])


def test_weights_and_gpus_count() -> None:
    by_weight = max_min(sharing([[1], [1]], [1, 1], [1]), np.array([3.0, 1.0]))
    assert by_weight[:, 0] == pytest.approx([0.75, 0.25])
    # A job of two GPUs gets half the time of one with one: as much of the GPUs.
    by_size = max_min(sharing([[1], [1]], [2, 1], [2]), np.ones(2))
    assert 2 * by_size[0, 0] + by_size[1, 0] == pytest.approx(2.0)
    assert by_size[:, 0] == pytest.approx([0.5, 1.0])


def test_who_has_more_left_gets_more_of_the_time() -> None:
    found = makespan(sharing([[1], [1]], [1, 1], [1]), np.array([40.0, 20.0]))
    assert found[:, 0] == pytest.approx([2 / 3, 1 / 3])


def test_equal_newcomers_share_as_if_each_had_its_own_part() -> None:
    of = sharing([[2, 1], [2, 1]], [1, 1], [1, 1])
    left = np.array([100.0, 100.0])
    found = finish_fair(of, left, np.zeros(2), np.zeros(2))
    assert left / of.throughputs(found) == pytest.approx(left / of.isolated, rel=1e-2)


def test_who_was_kept_waiting_is_served_first() -> None:
    of = sharing([[1], [1]], [1, 1], [1])
    found = finish_fair(of, np.array([50.0, 50.0]), np.array([60.0, 0.0]), np.zeros(2))
    # (60 + 50/x) / 100 = (50 / (1 - x)) / 100
    assert found[0, 0] == pytest.approx(0.6385, abs=2e-3)


def test_nobody_and_nothing_are_fine() -> None:
    none = TimeSharing(np.zeros((0, 1)), np.zeros(0), np.array([4.0]))
    for found in (
        max_sum(none),
        max_min(none, np.zeros(0)),
        makespan(none, np.zeros(0)),
        finish_fair(none, np.zeros(0), np.zeros(0), np.zeros(0)),
    ):
        assert found.shape == (0, 1)
    nowhere = sharing([[0.0], [1.0]], [1, 1], [1])
    assert max_min(nowhere, np.ones(2))[:, 0] == pytest.approx([0.0, 1.0])
    fair = finish_fair(nowhere, np.ones(2), np.zeros(2), np.zeros(2))
    assert fair[:, 0] == pytest.approx([0.0, 1.0])


# -- what answers promise ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_give_out_no_more_than_there_is(seed: int) -> None:
    of = some(seed)
    chance = np.random.default_rng(seed)
    left, age, alone = (chance.uniform(1, 1e4, 7) for _ in range(3))
    weights = chance.choice([1.0, 2.0, 5.0], 7)
    for found in (
        max_sum(of),
        max_min(of, weights),
        makespan(of, left),
        finish_fair(of, left, age, alone),
    ):
        assert allowed(of, found)


@pytest.mark.parametrize("seed", SEEDS)
def test_max_sum_is_the_most(seed: int) -> None:
    of = some(seed)
    rows, limits = _constraints(of)
    best = linprog(-of.rates.ravel(), A_ub=rows, b_ub=limits, method="highs")
    assert of.throughputs(max_sum(of)).sum() == pytest.approx(-float(best.fun or 0.0), rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_can_rise_without_lowering_somebody_who_has_less(seed: int) -> None:
    of = some(seed)
    weights = np.random.default_rng(seed).choice([1.0, 2.0, 5.0], 7)
    gains = of.rates * (of.gpus / weights / of.equal)[:, None]
    levels = (gains * max_min(of, weights)).sum(axis=1)
    rows, limits = _constraints(of)
    for job in range(7):
        below = [i for i in range(7) if i != job and levels[i] <= levels[job] * (1 + 1e-6)]
        keep = np.zeros((len(below), of.rates.size))
        for at, other in enumerate(below):
            keep[at, 3 * other : 3 * other + 3] = -gains[other]
        cost = np.zeros(of.rates.size)
        cost[3 * job : 3 * job + 3] = -gains[job]
        best = linprog(
            cost,
            A_ub=np.vstack((rows, keep)),
            b_ub=np.concatenate((limits, -levels[below] * (1 - 1e-9))),
            method="highs",
        )
        assert -float(best.fun or 0.0) <= levels[job] * (1 + 1e-5), f"job {job} could have more"


@pytest.mark.parametrize("seed", range(4))
def test_programs_agree_with_brute_force(seed: int) -> None:
    """Two jobs on two kinds, every split in steps of 4 %."""
    chance = np.random.default_rng(seed)
    of = TimeSharing(chance.uniform(0.5, 4, (2, 2)), np.ones(2), np.ones(2))
    left, age, alone = (chance.uniform(10, 200, 2) for _ in range(3))
    ticks = np.linspace(0, 1, 26)
    splits = [
        np.array([[a, b], [min(1 - a, 1 - c), c]])
        for a, b, c in itertools.product(ticks, ticks, ticks)
        if a + b <= 1 and c <= 1 - b and min(1 - a, 1 - c) + c <= 1 + 1e-9
    ]
    due = alone + left / of.isolated

    def ratio(found: Reals) -> float:
        return float(((age + left / np.maximum(of.throughputs(found), 1e-9)) / due).max())

    def last(found: Reals) -> float:
        return float((left / np.maximum(of.throughputs(found), 1e-9)).max())

    def least(found: Reals) -> float:
        return float((of.throughputs(found) / of.equal).min())

    fair = finish_fair(of, left, age, alone)
    assert ratio(fair) <= min(map(ratio, splits)) * 1.003
    assert last(makespan(of, left)) <= min(map(last, splits)) * 1.001
    assert least(max_min(of, np.ones(2))) >= max(map(least, splits)) * 0.999


@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_jobs_of_few_sorts_are_a_small_program(seed: int) -> None:
    of = some(seed)
    many = TimeSharing(np.tile(of.rates, (150, 1)), np.tile(of.gpus, 150), of.capacity * 150)
    few = of.throughputs(max_min(of, np.ones(7)))
    assert many.throughputs(max_min(many, np.ones(1050))) == pytest.approx(np.tile(few, 150))


def _constraints(of: TimeSharing) -> tuple[Reals, Reals]:
    jobs, kinds = of.rates.shape
    rows = np.zeros((jobs + kinds + 1, jobs * kinds))
    for job in range(jobs):
        rows[job, kinds * job : kinds * (job + 1)] = 1.0
        for kind in range(kinds):
            rows[jobs + kind, kinds * job + kind] = of.gpus[job]
            rows[-1, kinds * job + kind] = float(of.rates[job, kind] == 0)
    return rows, np.concatenate((np.ones(jobs), of.capacity, [0.0]))
