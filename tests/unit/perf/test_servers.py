"""Speed models of parameter-server jobs: truth is found again, doubt is honest, gaps are filled."""

from __future__ import annotations

import numpy as np
import pytest

from roost.core import JobSpec, Queue, QueueId, QueueSpec, Range, Resources, Role
from roost.core.events import Measured
from roost.core.history import History, Profile
from roost.core.observed import Observed
from roost.core.spec import JobId, RunId, Training
from roost.core.state import Job
from roost.perf.servers import (
    ENOUGH,
    Fits,
    Mode,
    ServerModel,
    ServerSample,
    assumed,
    fit,
    mode_of,
    samples_of,
)

ASYNC = (1.0, 0.3, 0.02, 0.01)
SYNC = (2.0, 0.2, 0.15, 0.03, 0.02)
SPOTS = ((1, 1), (1, 4), (4, 4), (2, 8), (8, 8), (4, 2), (10, 6), (3, 10))


def truth(mode: Mode, p: int, w: int) -> float:
    if mode is Mode.ASYNC:
        a, b, c, d = ASYNC
        return w / (a + b * w / p + c * w + d * p)
    a, b, c, d, e = SYNC
    return 1 / (a / w + b + c * w / p + d * w + e * p)


def seen(mode: Mode, noise: float = 0.0, seed: int = 0) -> list[ServerSample]:
    chance = np.random.default_rng(seed)
    return [
        ServerSample(p, w, truth(mode, p, w) * float(chance.lognormal(0, noise))) for p, w in SPOTS
    ]


def model_of(samples: list[ServerSample], mode: Mode) -> ServerModel:
    found = fit(samples, mode)
    assert found is not None
    return found


@pytest.mark.parametrize("mode", [Mode.ASYNC, Mode.SYNC])
def test_exact_measurements_give_back_the_truth(mode: Mode) -> None:
    model = model_of(seen(mode), mode)

    np.testing.assert_allclose(model.coefficients, ASYNC if mode is Mode.ASYNC else SYNC, atol=2e-3)
    assert model.trusted
    assert model.rate(6, 12) == pytest.approx(truth(mode, 6, 12), rel=1e-3)


@pytest.mark.parametrize("mode", [Mode.ASYNC, Mode.SYNC])
def test_noisy_measurements_come_close(mode: Mode) -> None:
    p, w = np.meshgrid(np.arange(1, 11), np.arange(1, 11), indexing="ij")
    true = np.vectorize(lambda p, w: truth(mode, p, w))(p, w)
    for seed in range(30):
        model = model_of(seen(mode, 0.03, seed), mode)
        off = np.log(model.rate(p, w) / true)
        assert np.abs(off).mean() < 0.06


def test_coefficients_are_never_negative() -> None:
    chance = np.random.default_rng(1)
    for _ in range(50):
        samples = [
            ServerSample(int(p), int(w), float(chance.uniform(0.1, 9)))
            for p, w in chance.integers(1, 17, (8, 2))
        ]
        for mode in Mode:
            model = model_of(samples, mode)
            assert min(model.coefficients) >= 0
            assert np.isfinite(model.rate(np.arange(1, 17), 4)).all()


def test_nothing_measured_is_no_model() -> None:
    assert fit([], Mode.SYNC) is None
    assert fit([ServerSample(1, 1, 0.0)], Mode.SYNC) is None


def test_one_measurement_scales_what_is_assumed() -> None:
    model = model_of([ServerSample(2, 4, 3.0)], Mode.SYNC)

    assert not model.trusted
    assert model.rate(2, 4) == pytest.approx(3.0)
    shape = assumed(Mode.SYNC)
    assert model.rate(4, 8) / model.rate(2, 4) == pytest.approx(shape.rate(4, 8) / shape.rate(2, 4))


@pytest.mark.parametrize("mode", list(Mode))
def test_a_fit_is_trusted_from_enough_distinct_settings_on(mode: Mode) -> None:
    samples = [ServerSample(p, w, 1.0 + w) for p, w in SPOTS[: ENOUGH[mode]]]

    assert model_of(samples, mode).trusted
    assert not model_of(samples[:-1] * 3, mode).trusted


def test_settings_that_say_nothing_of_servers_leave_them_to_the_assumption() -> None:
    samples = [ServerSample(1, w, truth(Mode.SYNC, 1, w)) for w in range(1, 9)]
    model = model_of(samples, Mode.SYNC)

    assert model.rate(1, 6) == pytest.approx(truth(Mode.SYNC, 1, 6), rel=0.02)
    assert model.rate(4, 8) >= model.rate(1, 8)  # more servers are assumed to help at all


def test_gains_of_one_more_worker_fall() -> None:
    for mode in (Mode.SYNC, Mode.ASYNC):
        times = 1 / model_of(seen(mode), mode).rate(4, np.arange(1, 17))
        gains = times[:-1] - times[1:]
        assert (np.diff(gains) <= 1e-9).all()


def test_a_placed_model_tells_one_node_from_several() -> None:
    def rate(w: int, k: int) -> float:
        return 1 / (2.0 / w + 0.1 + 0.8 * (w / k) * (1 - 1 / k))

    spots = [(1, 1), (2, 1), (4, 1), (4, 2), (8, 2), (8, 4), (16, 4), (6, 3)]
    samples = [ServerSample(w, w, rate(w, k), 1, k) for w, k in spots]
    plain, placed = fit(samples, Mode.SYNC), fit(samples, Mode.SYNC, placed=True)
    assert plain is not None
    assert placed is not None

    assert placed.rate(8, 8, 8) == pytest.approx(rate(8, 8), rel=0.03)
    assert placed.rate(4, 4, 1) > 1.3 * placed.rate(4, 4, 2)
    assert plain.rate(4, 4, 1) == plain.rate(4, 4, 2)


# -- from jobs -------------------------------------------------------------------------------------


def job(application: str = "net", batch: int = 256) -> Job:
    spec = JobSpec(
        workers=Range(1, 16),
        roles=(Role("ps", 1, Resources(gpus=0), most=16),),
        application=application,
        training=Training(batch=batch),
    )
    return Job(JobId("j"), 0, spec, Queue(QueueSpec(QueueId("default"))), 0.0, None)


def tell(one: Job, mode: Mode, spots: tuple[tuple[int, int], ...] = SPOTS) -> Observed:
    observed = one.observed = one.observed or Observed()
    training = one.spec.training
    assert training is not None
    for p, w in spots:
        local = training.batch if mode is Mode.ASYNC else training.batch // w
        step_s = local * w / training.batch / truth(mode, p, w)
        observed.add(
            Measured(0.0, RunId(one.id, 1), w, step_s, servers=p, local_batch=local, nodes=2)
        )
    return observed


@pytest.mark.parametrize("mode", [Mode.ASYNC, Mode.SYNC])
def test_speeds_come_from_what_a_job_told(mode: Mode) -> None:
    one = job()
    tell(one, mode)

    assert mode_of(one) is mode
    assert Fits().of(one).rate(6, 6) == pytest.approx(truth(mode, 6, 6), rel=0.05)
    assert Fits().of(one).rate(np.array([1, 4]), np.array([1, 8])).shape == (2,)


def test_an_application_knows_more_than_one_of_its_jobs() -> None:
    first, second = job(), job()
    second.history = History()
    observed = tell(first, Mode.ASYNC)
    second.history.profiles["", "net"] = Profile(observed=observed)

    assert Fits().of(second).rate(4, 4) == pytest.approx(truth(Mode.ASYNC, 4, 4), rel=0.05)


def test_without_measurements_speeds_are_relative() -> None:
    one = job()

    assert Fits().of(one).rate(1, 1) == pytest.approx(1.0)
    assert Fits().of(one).rate(4, 4) > Fits().of(one).rate(1, 2) > Fits().of(one).rate(1, 1)


def test_a_job_without_servers_has_a_model_of_its_workers_alone() -> None:
    spec = JobSpec(workers=Range(1, 8), training=Training(batch=64))
    one = Job(JobId("j"), 0, spec, Queue(QueueSpec(QueueId("default"))), 0.0, None)
    one.observed = Observed()
    for w in (1, 2, 4, 8):
        one.observed.add(
            Measured(0.0, RunId(one.id, 1), w, 1.0 / w + 0.05 * w, local_batch=64 // w)
        )

    assert mode_of(one) is Mode.ALL_REDUCE
    assert Fits().of(one).rate(0, 3) == pytest.approx(1 / (1 / 3 + 0.15), rel=0.03)
    assert samples_of(one.observed, 64, servers=True) == []


def test_a_fit_is_made_again_only_when_something_is_new() -> None:
    one, fits = job(), Fits()
    tell(one, Mode.SYNC)
    before = fits.of(one)

    assert fits.of(one) is before
    tell(one, Mode.SYNC, ((5, 9),))
    assert fits.of(one) is not before
