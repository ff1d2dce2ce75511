"""Goodput: what a larger batch is worth, and which one a job should use."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from roost.perf.goodput import BatchLimits, Tuned, gain, tune
from roost.perf.steps import StepModel

MODEL = StepModel(0.05, 0.002, 0.12, 0.004, 0.03, 0.002, 1.8)
LIMITS = BatchLimits(128, 4096, 32, 1024)
SIZES = np.array([1, 2, 3, 4, 8, 16, 32, 64])
NODES = -(-SIZES // 4)


def one(limits: BatchLimits, nodes: int, workers: int, noise: float = 1000.0) -> Tuned:
    return tune(MODEL, noise, limits, np.array(nodes), np.array(workers))


def slowly(model: StepModel, noise: float, limits: BatchLimits, nodes: int, workers: int) -> float:
    """The best rate by trying one total after the other."""
    best = 0.0
    least = max(limits.batch, limits.local_min * workers)
    for i in range(50):
        share = least * (limits.batch_max / least) ** (i / 49) / workers
        rounds = max(math.ceil(share / limits.local_max - 1e-8), 1)
        if workers == 1 and share > limits.batch + 1e-8:
            rounds = max(rounds, 2)
        local = math.ceil(share / rounds - 1e-8)
        local = min(local, limits.batch_max // (workers * rounds))
        if limits.local_min <= local <= limits.local_max:
            total = workers * local * rounds
            seconds = model.step_s(nodes, workers, local) + (rounds - 1) * model.compute_s(local)
            best = max(best, gain(total, limits.batch, noise) / seconds)
    return best


def test_a_step_at_its_own_batch_is_worth_one_step() -> None:
    assert gain(128, 128, 500.0) == 1.0
    assert gain(256, 128, 0.0) == 1.0


def test_noise_makes_large_batches_worth_more() -> None:
    worth = [gain(1024, 128, noise) for noise in (0.0, 10.0, 1000.0, 1e6, math.inf)]

    assert worth == sorted(worth)
    assert worth[-1] == pytest.approx(8.0)
    # (v + g2) / (v / S + g2) with noise = batch * v / g2
    assert gain(1024, 128, 256.0) == pytest.approx((2 + 1) / (2 / 8 + 1))


@pytest.mark.parametrize("noise", [10.0, 1000.0, 1e5])
@pytest.mark.parametrize(
    "limits", [LIMITS, BatchLimits(12, 384, 4, 12), BatchLimits(200, 12800, 20, 200)]
)
def test_the_best_batch_is_the_best_of_all_that_are_tried(
    limits: BatchLimits, noise: float
) -> None:
    tuned = tune(MODEL, noise, limits, NODES, SIZES)

    assert tuned.rate.tolist() == pytest.approx(
        [slowly(MODEL, noise, limits, int(n), int(w)) for n, w in zip(NODES, SIZES, strict=True)]
    )


@pytest.mark.parametrize(
    "limits", [LIMITS, BatchLimits(12, 384, 4, 12), BatchLimits(200, 12800, 20, 200)]
)
def test_limits_are_kept(limits: BatchLimits) -> None:
    tuned = tune(MODEL, 1e4, limits, NODES, SIZES)
    can = tuned.rate > 0

    assert can.any()
    assert (tuned.total[can] >= limits.batch).all()
    assert (tuned.total <= limits.batch_max).all()
    assert ((limits.local_min <= tuned.local) & (tuned.local <= limits.local_max))[can].all()
    assert (tuned.total == SIZES * tuned.local * (tuned.accumulation + 1))[can].all()


def test_one_worker_needs_two_rounds_to_see_its_noise() -> None:
    assert one(LIMITS, 1, 1, noise=0.0).accumulation == 0
    assert one(LIMITS, 1, 1, noise=1e6).accumulation >= 1
    assert one(LIMITS, 1, 2, noise=1e6).accumulation == 0


def test_what_cannot_run_goes_at_no_rate() -> None:
    assert one(LIMITS, 1, 0).rate == 0.0
    assert one(LIMITS, 16, 128).rate > 0.0
    assert one(LIMITS, 16, 129).rate == 0.0
    assert one(BatchLimits(8, 8, 4, 16), 1, 2).rate > 0.0
    assert one(BatchLimits(8, 8, 4, 16), 1, 3).rate == 0.0


def test_a_batch_that_stays_is_split_over_the_workers() -> None:
    stays = BatchLimits(128, 0, 1, 24)
    tuned = tune(MODEL, 1e6, stays, NODES, SIZES)

    assert tuned.total.tolist() == [128] * len(SIZES)
    assert tuned.local.tolist() == [22, 22, 22, 16, 16, 8, 4, 2]
    assert tuned.accumulation.tolist() == [5, 2, 1, 1, 0, 0, 0, 0]
    seconds = MODEL.step_s(1, 1, 22) + 5 * MODEL.compute_s(22)
    assert tuned.rate[0] == pytest.approx(1 / seconds)


def test_the_shape_is_that_of_the_sizes() -> None:
    square = tune(MODEL, 100.0, LIMITS, NODES.reshape(2, 4), SIZES.reshape(2, 4))

    assert [values.shape for values in square] == [(2, 4)] * 4
    assert square.rate.ravel().tolist() == tune(MODEL, 100.0, LIMITS, NODES, SIZES).rate.tolist()
    assert one(LIMITS, 1, 4).rate.shape == ()


def test_sixty_four_sizes_take_less_than_a_millisecond() -> None:
    workers = np.arange(1, 65)
    tune(MODEL, 1.0, LIMITS, -(-workers // 8), workers)
    spent = []
    for noise in range(30):
        begun = time.process_time()
        tune(MODEL, 100.0 * noise, LIMITS, -(-workers // 8), workers)
        spent.append(time.process_time() - begun)

    # 70 microseconds on a quiet machine of 2026.
    assert min(spent) < 1e-3
