"""Loss curves: the truth is found again among noise and outliers, and the end is foreseen."""

from __future__ import annotations

import numpy as np
import pytest

from roost.perf.convergence import LossCurve, Rule, fit_loss, remaining


def losses(
    count: int, a: float = 0.25, b: float = 1.0, c: float = 0.1, noise: float = 0.0, seed: int = 0
) -> dict[int, float]:
    chance = np.random.default_rng(seed)
    return {k: (1 / (a * k + b) + c) * float(chance.lognormal(0, noise)) for k in range(count)}


def curve_of(points: dict[int, float]) -> LossCurve:
    found = fit_loss(points)
    assert found is not None
    return found


def test_a_curve_without_noise_is_found_again() -> None:
    curve = curve_of(losses(15))

    np.testing.assert_allclose(curve.loss(np.array([0.0, 20.0, 60.0])), [1.1, 0.2667, 0.1625], 0.02)


def test_the_scale_of_losses_does_not_matter() -> None:
    small, large = curve_of(losses(12)), curve_of({k: 50 * loss for k, loss in losses(12).items()})

    assert large.converges_at() == pytest.approx(small.converges_at(), rel=1e-6)
    assert large.loss(5.0) == pytest.approx(50 * small.loss(5.0), rel=1e-6)


def test_the_end_is_where_the_loss_falls_no_more_than_the_threshold_over_the_window() -> None:
    curve, rule = LossCurve(0.25, 1.0, 0.1), Rule(threshold=0.05, window=10)
    at = curve.converges_at(rule)

    assert curve.loss(at - 10) - curve.loss(at) == pytest.approx(0.05)
    assert curve.converges_at(Rule(threshold=0.01)) > at
    assert curve.converges_at(Rule(threshold=0.05, window=20)) > at


@pytest.mark.parametrize("count", [8, 12, 20, 30])
def test_noise_moves_the_end_by_no_more_than_a_few_epochs(count: int) -> None:
    true = curve_of(losses(60)).converges_at()
    ends = [curve_of(losses(count, noise=0.02, seed=seed)).converges_at() for seed in range(20)]

    assert abs(np.median(ends) - true) < 3
    assert np.std(ends) < 6


def test_more_points_leave_less_doubt() -> None:
    def doubt(count: int) -> float:
        return float(
            np.median([curve_of(losses(count, noise=0.02, seed=s)).spread() for s in range(20)])
        )

    assert doubt(40) < doubt(8)


def test_the_spread_covers_the_truth_about_as_often_as_it_says() -> None:
    true = curve_of(losses(200)).converges_at()
    hits = 0
    for seed in range(100):
        curve = curve_of(losses(15, noise=0.02, seed=seed))
        hits += abs(curve.converges_at() - true) < 2 * curve.spread() + 0.5
    assert hits > 75


def test_outliers_hardly_matter() -> None:
    points = losses(25, noise=0.01)
    clean = curve_of(points).converges_at()
    points[11] *= 4
    points[19] *= 0.3

    assert curve_of(points).converges_at() == pytest.approx(clean, abs=2.0)


def test_later_points_count_more() -> None:
    points = {k: loss + (0.4 if k < 5 else 0.0) for k, loss in losses(30).items()}

    assert curve_of(points).loss(35.0) == pytest.approx(1 / (0.25 * 35 + 1) + 0.1, rel=0.1)


@pytest.mark.parametrize(
    "points",
    [
        {},
        {0: 1.0},
        {0: 1.0, 1: 0.9},
        {k: 1.0 + 0.1 * k for k in range(8)},
        {0: 0.0, 1: 0.0, 2: 0.0},
    ],
    ids=["none", "one", "two", "rising", "zero"],
)
def test_what_is_no_falling_curve_is_none(points: dict[int, float]) -> None:
    assert fit_loss(points) is None
    assert remaining(points, 3.0).epochs == 20
    assert not remaining(points, 3.0).fitted


def test_remaining_epochs_are_those_to_the_end() -> None:
    points = losses(12)
    left = remaining(points, 11.0)

    assert left.fitted
    assert left.epochs == pytest.approx(curve_of(points).converges_at() - 11)
    assert left.spread >= 0


def test_nobody_is_believed_to_need_more_than_the_cap() -> None:
    slow = losses(20, a=0.01, b=1.0, c=0.0)

    assert remaining(slow, 19.0, Rule(threshold=0.001)).epochs == pytest.approx(81.0)


def test_a_job_that_is_late_is_given_as_much_as_the_estimate_is_unsure() -> None:
    points = losses(60, noise=0.01)
    left = remaining(points, 59.0)

    assert left.fitted
    assert 1 <= left.epochs <= 20


def test_a_job_beyond_the_cap_is_given_the_usual_amount_more() -> None:
    assert remaining(losses(120), 119.0).epochs == 20
