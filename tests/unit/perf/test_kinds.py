"""Models by kind: fitted where a job ran, carried over elsewhere, and kept while nothing is new."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from roost.core.events import Measured
from roost.core.history import History
from roost.core.observed import Observed
from roost.core.spec import JobId, Resources, Training
from roost.core.state import Job, Queue
from roost.perf import kinds
from roost.perf.goodput import BatchLimits
from roost.perf.hybrid import HybridModel, ReplicaSplit
from roost.perf.kinds import (
    Estimates,
    job_fits,
    job_models,
    limits,
    models,
    samples,
)
from roost.perf.steps import StepModel, StepSample, fit_steps
from roost.testing.builders import queue, run, spec

TRUTH = StepModel(0.05, 0.002, 0.12, 0.004, 0.03, 0.002, 1.8)
TRAINING = Training(
    batch=128,
    batch_max=4096,
    local_min=32,
    local_max=(("A100", 1024), ("", 256)),
    alone=(("T4", 100.0), ("A100", 400.0)),
)
ALONE = [(1, 1, 64), (1, 1, 128)]
SIZES = [*ALONE, (1, 2, 64), (1, 4, 64), (2, 8, 64), (4, 16, 64)]
KINDS = ("T4", "A100")
#: Replicas of four stages: two of them have room on a node, and all were seen with 16 samples each.
STAGED = HybridModel(ReplicaSplit(1, 4, 2), StepModel(0.05, 0.1, 0.5, 0.25, 0.3, 0.1, 1.5))
STAGES = replace(TRAINING, local_min=1, pipeline=4, micro=2)
REPLICAS = [(1, 1, 16), (1, 2, 16), (2, 3, 16), (2, 4, 16)]


def measured(truth: StepModel | HybridModel, kind: str, size: tuple[int, int, int]) -> Measured:
    nodes, workers, local = size
    step = truth.step_s(*size)
    sync = step - truth.compute_s(local)
    seen = Measured(0.0, run("j"), workers, step, nodes=nodes, local_batch=local)
    return replace(seen, kind=kind, sync_s=sync)


def observed(truth: StepModel | HybridModel, kind: str, *sizes: tuple[int, int, int]) -> Observed:
    seen = Observed()
    for size in sizes:
        seen.add(measured(truth, kind, size))
    return seen


def learner(history: History | None = None) -> Job:
    wanted = replace(spec(1, user="ann", application="net"), training=TRAINING)
    return Job(JobId("j"), 0, wanted, Queue(queue()), 0.0, None, history=history)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples each fit was made of, in their order."""
    sizes: list[int] = []

    def counted(seen: tuple[StepSample, ...]) -> StepModel:
        sizes.append(len(seen))
        return fit_steps(seen)

    monkeypatch.setattr(kinds, "fit_steps", counted)
    return sizes


def test_what_was_measured_is_sorted_by_kind() -> None:
    seen = observed(TRUTH, "T4", *ALONE)
    seen.add(measured(TRUTH, "A100", (1, 2, 64)))

    assert {kind: len(found) for kind, found in samples(seen).items()} == {"T4": 2, "A100": 1}
    step = TRUTH.step_s(1, 2, 64)
    assert samples(seen)["A100"] == [StepSample(1, 2, 64, step, step - TRUTH.compute_s(64))]


def test_who_did_not_tell_of_agreeing_counts_by_steps() -> None:
    seen = Observed()
    for workers in (1, 2):
        seen.add(Measured(0.0, run("j"), workers, 0.5, kind="T4", local_batch=8))

    alone, pair = samples(seen)["T4"]
    assert alone.sync_s == 0.0
    assert math.isnan(pair.sync_s)


def test_steps_with_servers_or_without_a_batch_are_left_out() -> None:
    seen = Observed()
    seen.add(Measured(0.0, run("j"), 2, 0.5, kind="T4", local_batch=8, servers=1))
    seen.add(Measured(0.0, run("j"), 2, 0.5, kind="T4"))

    assert samples(seen) == {}
    assert models(seen, TRAINING, KINDS, Estimates()) == {}


def test_a_kind_where_it_ran_has_its_own_model() -> None:
    seen = observed(TRUTH, "T4", *SIZES)
    for size in SIZES:
        seen.add(measured(TRUTH.scaled(0.3), "A100", size))

    found = models(seen, TRAINING, KINDS, Estimates())
    assert found["T4"].step_s(2, 8, 64) == pytest.approx(TRUTH.step_s(2, 8, 64), rel=0.05)
    assert found["A100"].step_s(2, 8, 64) == pytest.approx(0.3 * TRUTH.step_s(2, 8, 64), rel=0.05)


def test_a_kind_where_it_never_ran_is_reached_by_what_one_gpu_does() -> None:
    found = models(observed(TRUTH, "T4", *SIZES), TRAINING, KINDS, Estimates())

    assert found["A100"] == found["T4"].scaled(0.25)


def test_the_first_kind_with_a_model_stands_for_those_without() -> None:
    seen = observed(TRUTH, "A100", *SIZES)
    seen.add(measured(TRUTH, "V100", (1, 1, 64)))
    found = models(seen, TRAINING, ("T4", "V100", "A100"), Estimates())

    # Nobody knows how a V100 compares with a T4.
    assert found["T4"] == found["V100"]
    assert models(seen, TRAINING, ("T4", "A100"), Estimates())["T4"] == found["A100"].scaled(4.0)


def test_nothing_is_fitted_again_before_something_is_new(fits: list[int]) -> None:
    estimates, seen = Estimates(), observed(TRUTH, "T4", *SIZES)
    first = models(seen, TRAINING, KINDS, estimates)

    assert models(seen, TRAINING, KINDS, estimates) == first
    assert fits == [6]
    seen.add(measured(TRUTH, "T4", (2, 6, 64)))
    models(seen, TRAINING, KINDS, estimates)
    assert fits == [6, 7]


def test_news_of_one_kind_leave_the_model_of_another(fits: list[int]) -> None:
    estimates, seen = Estimates(), observed(TRUTH, "T4", *SIZES)
    models(seen, TRAINING, KINDS, estimates)
    seen.add(measured(TRUTH, "A100", (1, 1, 64)))
    models(seen, TRAINING, KINDS, estimates)

    assert fits == [6, 1]


def test_jobs_that_saw_the_same_share_a_fit(fits: list[int]) -> None:
    estimates = Estimates()
    for _ in range(3):
        models(observed(TRUTH, "T4", *SIZES), TRAINING, KINDS, estimates)

    assert fits == [6]


def test_only_so_much_is_remembered(fits: list[int]) -> None:
    estimates = Estimates(most=2)
    jobs = [observed(TRUTH.scaled(factor), "T4", *ALONE) for factor in (1.0, 2.0, 3.0)]
    for seen in (*jobs, jobs[2], jobs[1]):
        estimates.fits(seen)

    assert len(fits) == 3
    estimates.fits(jobs[0])
    assert len(fits) == 4


def test_of_a_job_of_which_nobody_knows_anything_there_is_no_model() -> None:
    assert job_models(learner(), KINDS, Estimates()) == {}
    assert job_models(learner(History()), KINDS, Estimates()) == {}


def test_a_new_job_begins_with_what_its_application_taught() -> None:
    history = History()
    for size in SIZES:
        history.measure(learner().spec, measured(TRUTH, "T4", size))

    found = job_models(learner(history), KINDS, Estimates())
    assert found["T4"].step_s(2, 8, 64) == pytest.approx(TRUTH.step_s(2, 8, 64), rel=0.05)


def test_a_job_that_is_slower_than_others_of_its_application_is_so_everywhere() -> None:
    history = History()
    for size in SIZES:
        history.measure(learner().spec, measured(TRUTH, "T4", size))
    slow = learner(history)
    slow.observed = observed(TRUTH.scaled(1.5), "T4", *ALONE)

    found = job_models(slow, KINDS, Estimates())["T4"]
    assert found.step_s(2, 8, 64) == pytest.approx(1.5 * TRUTH.step_s(2, 8, 64), rel=0.05)


def test_what_a_job_has_seen_itself_counts_when_others_saw_no_more() -> None:
    history = History()
    history.measure(learner().spec, measured(TRUTH.scaled(2.0), "T4", (1, 1, 64)))
    own = learner(history)
    own.observed = observed(TRUTH, "T4", *SIZES)

    found = job_models(own, KINDS, Estimates())["T4"]
    assert found == fit_steps(samples(own.observed)["T4"])


def test_a_job_without_an_application_has_its_own_model() -> None:
    alone = learner()
    alone.observed = observed(TRUTH, "T4", *SIZES)

    assert job_models(alone, ("T4",), Estimates())["T4"] == fit_steps(samples(alone.observed)["T4"])


def test_limits_are_those_of_the_kind() -> None:
    assert limits(TRAINING, "A100") == BatchLimits(128, 4096, 32, 1024)
    assert limits(TRAINING, "T4") == BatchLimits(128, 4096, 32, 256)
    assert limits(Training(32), "T4") == BatchLimits(32, 32, 1, 32)


def test_a_pipeline_is_foretold_where_a_plain_model_is_wrong() -> None:
    seen = observed(STAGED, "T4", *REPLICAS)
    nodes, replicas, local = np.array([(1, 1, 4), (1, 1, 64), (1, 2, 64), (4, 8, 8), (4, 8, 64)]).T
    truth = STAGED.step_s(nodes, replicas, local)
    found = models(seen, STAGES, KINDS, Estimates(), gpus=4)["T4"]
    plain = models(seen, TRAINING, KINDS, Estimates(), gpus=4)["T4"]

    assert isinstance(found, HybridModel)
    assert found.shape == STAGED.shape
    assert np.abs(found.step_s(nodes, replicas, local) / truth - 1).max() < 0.06
    assert np.abs(plain.step_s(nodes, replicas, local) / truth - 1)[[0, 1, 2, 4]].min() > 0.15


def test_a_pipeline_is_carried_over_to_other_kinds() -> None:
    found = models(observed(STAGED, "T4", *REPLICAS), STAGES, KINDS, Estimates(), gpus=4)

    assert found["A100"] == found["T4"].scaled(0.25)
    assert found["A100"].step_s(1, 2, 8) == pytest.approx(found["T4"].step_s(1, 2, 8) / 4)


def test_the_same_samples_of_other_shapes_have_other_fits() -> None:
    estimates, seen = Estimates(), observed(STAGED, "T4", *REPLICAS)
    shapes = [(1, 1), (2, 2), (4, 2), (4, 4), (4, 2)]
    found = [
        models(seen, replace(STAGES, pipeline=stages, micro=micro), ("T4",), estimates, 4)["T4"]
        for stages, micro in shapes
    ]

    assert found[2] == found[4]
    assert len(set(found)) == 4
    assert found[0] == fit_steps(samples(seen)["T4"])


def test_a_pipeline_is_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    estimates, seen = Estimates(), observed(STAGED, "T4", *REPLICAS)
    first = models(seen, STAGES, KINDS, estimates, gpus=4)
    monkeypatch.delattr(kinds, "fit_hybrid")

    assert models(seen, STAGES, KINDS, estimates, gpus=4) == first
    assert models(observed(STAGED, "T4", *REPLICAS), STAGES, KINDS, estimates, gpus=4) == first


def test_jobs_with_pipelines_teach_each_other() -> None:
    history = History()
    taught = learner(history)
    taught.spec = replace(taught.spec, training=STAGES, resources=Resources(gpus=8))
    for size in REPLICAS:
        history.measure(taught.spec, measured(STAGED, "T4", size))
    taught.observed = observed(STAGED.scaled(1.5), "T4", (1, 1, 16))

    found = job_models(taught, KINDS, Estimates())["T4"]
    assert isinstance(found, HybridModel)
    assert found.shape == ReplicaSplit(2, 4, 2)
    assert found.step_s(4, 8, 64) == pytest.approx(1.5 * float(STAGED.step_s(4, 8, 64)), rel=0.06)
    assert job_fits(taught, Estimates())["T4"].pace == found


def test_a_replica_takes_whole_micro_batches_and_sees_its_noise_alone() -> None:
    staged = replace(TRAINING, local_min=1, pipeline=4, micro=2)

    assert limits(staged, "T4") == BatchLimits(128, 4096, 2, 256, lone_rounds=1)
    assert limits(replace(staged, local_min=32), "T4").local_min == 32
