"""Step times: the model is found again from its own times, and hopes where nothing was seen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import astuple

import numpy as np
import pytest

from roost.perf.arrays import Reals
from roost.perf.steps import LEAST, START, Objective, StepModel, StepSample, fit_steps

TRUTH = StepModel(0.05, 0.002, 0.12, 0.004, 0.03, 0.002, 1.8)
#: Median relative errors of step times after a fit to the whole table, with a margin.
ERRORS = {"cifar10": 0.08, "deepspeech2": 0.09, "bert": 0.08, "yolov3": 0.28, "imagenet": 0.08}
ONE_NODE = [(1, workers, local) for workers in (1, 2, 4) for local in (16, 64, 128)]
MANY_NODES = [*ONE_NODE, *((workers // 4, workers, 64) for workers in (8, 16, 32))]


def times(truth: StepModel, *sizes: tuple[int, int, int]) -> list[StepSample]:
    return [
        StepSample(*size, step := truth.step_s(*size), step - truth.compute_s(size[2]))
        for size in sizes
    ]


def model_of(parameters: Reals) -> StepModel:
    ac, bc, an, bn, ar, br, gamma = parameters.tolist()
    return StepModel(ac, bc, an, bn, ar, br, gamma)


def log_errors(model: StepModel, samples: list[StepSample]) -> list[float]:
    return [abs(math.log(model.step_s(*sample[:3]) / sample.step_s)) for sample in samples]


def test_a_step_computes_and_agrees() -> None:
    plain = StepModel(0.1, 0.01, 0.5, 0.05, 0.2, 0.02, 1.0)

    assert plain.compute_s(10) == pytest.approx(0.2)
    assert plain.network_s(1, 1) == LEAST
    assert plain.network_s(1, 2) == pytest.approx(0.2)
    assert plain.network_s(1, 4) == pytest.approx(0.24)
    assert plain.network_s(2, 4) == pytest.approx(0.6)
    assert plain.step_s(2, 4, 10) == pytest.approx(0.8)


def test_a_large_gamma_hides_the_shorter_part() -> None:
    hidden = StepModel(0.1, 0.01, 0.5, 0.05, 0.2, 0.02, 10.0)

    assert hidden.step_s(2, 4, 10) == pytest.approx(0.6, rel=1e-3)


def test_arrays_say_what_numbers_say() -> None:
    sizes = [(1, 1, 8), (1, 2, 8), (2, 2, 16), (4, 16, 32)]
    nodes, workers, local = np.array(sizes).T

    assert TRUTH.step_s(nodes, workers, local).tolist() == pytest.approx(
        [TRUTH.step_s(*size) for size in sizes]
    )
    assert TRUTH.step_s(nodes[:, None], workers[:, None], local).shape == (4, 4)


def test_a_scaled_model_takes_as_much_longer_everywhere() -> None:
    for size in MANY_NODES:
        assert TRUTH.scaled(2.5).step_s(*size) == pytest.approx(2.5 * TRUTH.step_s(*size))


@pytest.mark.parametrize("seed", range(10))
def test_the_truth_is_found_again(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = model_of(np.array(astuple(TRUTH)) * [*rng.uniform(0.4, 2.5, 6), 1.0])
    model = fit_steps(times(truth, *MANY_NODES))

    beyond = times(truth, (1, 3, 32), (1, 4, 256), (3, 12, 64), (12, 48, 64))
    assert max(log_errors(model, times(truth, *MANY_NODES))) < 0.05
    assert max(log_errors(model, beyond)) < 0.10


@pytest.mark.parametrize("seed", range(20))
def test_the_gradient_is_that_of_the_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = model_of(np.array([*rng.uniform(0.01, 0.2, 6), rng.uniform(1, 5)]))
    objective = Objective(times(truth, *MANY_NODES))
    p = np.array([*rng.uniform(0.01, 0.2, 6), rng.uniform(1, 9)])
    look = objective(p)

    for i in range(7):
        step = np.zeros(7)
        step[i] = 1e-6
        rise = objective(p * np.exp(step)).error - objective(p * np.exp(-step)).error
        assert look.slope[i] == pytest.approx(rise / 2e-6, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_the_curvature_is_that_of_the_slope_where_errors_are_small(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = model_of(np.array([*rng.uniform(0.01, 0.2, 6), rng.uniform(1, 5)]))
    objective = Objective(times(truth, *MANY_NODES))
    p = np.array(astuple(truth))
    look = objective(p)

    step = rng.normal(0, 1, 7) * 1e-7
    bend = objective(p * np.exp(step)).slope - objective(p * np.exp(-step)).slope
    assert bend.tolist() == pytest.approx((2 * look.curve @ step).tolist(), rel=0.01, abs=1e-7)
    assert np.linalg.eigvalsh(look.curve).min() > -1e-9


def test_the_error_is_as_it_is_defined() -> None:
    samples = [StepSample(1, 1, 10, 0.3, 0.0), StepSample(2, 4, 10, 0.9, 0.5)]
    model = StepModel(0.1, 0.01, 0.5, 0.05, 0.2, 0.02, 2.0)
    computing = [math.log(0.2 / 0.3), math.log(0.2 / 0.4)]
    steps = [math.log(0.2 / 0.3), math.log(math.hypot(0.2, 0.6) / 0.9)]
    pulls = 1e-3 + 1e-2 * (0.1**2 + 0.1**2)
    rms = [math.sqrt((first**2 + second**2) / 2) for first, second in (computing, steps)]

    found = Objective(samples)(np.array(astuple(model))).error
    assert found == pytest.approx(sum(rms) + pulls, abs=0.002)


def test_one_worker_alone_predicts_perfect_scaling() -> None:
    model = fit_steps(times(TRUTH, (1, 1, 16), (1, 1, 64)))

    assert model.step_s(1, 1, 64) == pytest.approx(TRUTH.step_s(1, 1, 64), rel=1e-3)
    assert model.step_s(1, 8, 64) == pytest.approx(model.step_s(1, 1, 64), rel=1e-4)
    assert model.step_s(8, 64, 64) == pytest.approx(model.step_s(1, 1, 64), rel=1e-4)


def test_one_batch_is_half_overhead() -> None:
    model = fit_steps(times(TRUTH, (1, 1, 64)))

    assert model.ac == pytest.approx(TRUTH.compute_s(64) / 2)
    assert model.bc == pytest.approx(TRUTH.compute_s(64) / 2 / 64, rel=1e-3)


def test_across_nodes_is_a_tenth_worse_than_within_until_somebody_looked() -> None:
    model = fit_steps(times(TRUTH, *ONE_NODE))

    assert model.an == pytest.approx(1.1 * model.ar)
    assert model.bn == pytest.approx(1.1 * model.br)


def test_two_workers_say_nothing_of_growth() -> None:
    model = fit_steps(times(TRUTH, (1, 1, 16), (1, 2, 64), (2, 2, 64)))

    assert model.br == pytest.approx(LEAST)
    assert model.bn == pytest.approx(LEAST)
    assert model.network_s(1, 2) == pytest.approx(model.network_s(1, 16), rel=1e-3)


def test_within_a_node_nothing_is_known_from_across_nodes() -> None:
    model = fit_steps(times(TRUTH, (1, 1, 16), (2, 8, 64), (4, 16, 64)))

    assert model.ar == pytest.approx(LEAST)
    assert model.br == pytest.approx(LEAST)


def test_who_cannot_tell_computing_from_agreeing_counts_by_the_step_alone() -> None:
    samples = times(TRUTH, *MANY_NODES)
    untold = [sample._replace(sync_s=math.nan) if sample[1] > 1 else sample for sample in samples]

    assert np.median(log_errors(fit_steps(untold), samples)) < 0.02
    nothing_told = [sample._replace(sync_s=math.nan) for sample in samples]
    assert np.median(log_errors(fit_steps(nothing_told), samples)) < 0.02


def test_a_fit_depends_on_its_samples_alone() -> None:
    samples = times(TRUTH, *MANY_NODES)

    assert fit_steps(samples) == fit_steps(samples)
    again = fit_steps(samples, start=fit_steps(samples[:4]))
    assert max(log_errors(again, samples)) < 0.05


def test_an_odd_start_does_no_harm() -> None:
    samples = times(TRUTH, *MANY_NODES)

    for start in (START, START.scaled(100), model_of(np.array([*[LEAST] * 6, 1.0]))):
        assert np.median(log_errors(fit_steps(samples, start), samples)) < 0.05


def test_a_fit_takes_milliseconds() -> None:
    samples = times(TRUTH, *MANY_NODES[:10])
    fit_steps(samples)
    spent = []
    for _ in range(20):
        begun = time.process_time()
        fit_steps(samples)
        spent.append(time.process_time() - begun)

    # 1 ms on a quiet machine of 2026.
    assert min(spent) < 0.010


@pytest.mark.parametrize("machine", ["aws", "rtx", "dgx-ext"])
@pytest.mark.parametrize("application", ERRORS)
def test_real_applications_are_met(
    application: str, machine: str, measured: Callable[[str, str], list[StepSample]]
) -> None:
    samples = measured(application, machine)

    assert np.median(log_errors(fit_steps(samples), samples)) < ERRORS[application]
