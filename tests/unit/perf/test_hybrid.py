"""Pipelines and tensors: bubbles, whole blocks, and growth by replicas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from roost.errors import InvalidSpec
from roost.perf.goodput import BatchLimits, gain, tune
from roost.perf.hybrid import HybridModel, ReplicaSplit, bounded, fit_hybrid
from roost.perf.steps import StepModel, StepSample

SHAPE = ReplicaSplit(tensor=2, pipeline=4, micro=8)
#: Half a second for each turn of a stage, and a network that is never hidden.
TRUTH = HybridModel(SHAPE, StepModel(0.2, 0.5, 3.0, 0.1, 1.0, 0.05, 1.0))
LIMITS = BatchLimits(64, 1024, 8, 1024)


def array(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers)


def sample(nodes: int, replicas: int, local: int) -> StepSample:
    step = TRUTH.step_s(array(nodes), array(replicas), array(local)).item()
    return StepSample(nodes, replicas, local, step, step - TRUTH.compute_s(array(local)).item())


def test_a_replica_is_a_block_of_tensor_times_pipeline() -> None:
    assert SHAPE.gpus == 8


def test_a_block_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidSpec):
        ReplicaSplit(tensor=0)
    with pytest.raises(InvalidSpec):
        ReplicaSplit(micro=0)


def test_stages_wait_in_a_bubble() -> None:
    # GPipe: (p - 1) / m of the work, for p stages and m micro-batches.
    assert SHAPE.slots(array(8, 32, 33)).tolist() == [4.0, 7.0, 8.0]
    assert ReplicaSplit(tensor=8).slots(array(1, 100)).tolist() == [1.0, 100.0]


def test_a_step_is_its_turns_and_agreeing_on_top() -> None:
    assert TRUTH.compute_s(array(32)).item() == pytest.approx(0.2 + 7 * 0.5)
    one, two, far = TRUTH.step_s(array(1, 1, 4), array(1, 2, 4), array(32, 32, 32)).tolist()

    assert one == pytest.approx(3.7, abs=1e-6)
    assert two == pytest.approx(3.7 + 1.0)
    assert far == pytest.approx(3.7 + 3.0 + 2 * 0.1)


def test_a_replica_over_several_nodes_agrees_with_nobody() -> None:
    assert TRUTH.step_s(array(2), array(1), array(32)) == TRUTH.step_s(
        array(1), array(1), array(32)
    )


def test_more_micro_batches_make_a_pipeline_more_efficient() -> None:
    local = array(8, 16, 64, 256)
    per_sample = TRUTH.compute_s(local) / local

    assert per_sample.tolist() == sorted(per_sample.tolist(), reverse=True)


def test_the_truth_is_found_again() -> None:
    seen = [sample(1, 1, 16), sample(1, 1, 64), sample(1, 2, 64), sample(1, 4, 32)]
    seen += [sample(2, 4, 32), sample(4, 8, 64)]
    model = fit_hybrid(SHAPE, seen)
    nodes, replicas, local = array(1, 1, 3, 8), array(1, 3, 6, 16), array(128, 48, 32, 96)

    off = np.log(model.step_s(nodes, replicas, local) / TRUTH.step_s(nodes, replicas, local))
    assert np.abs(off).max() < 0.05


def test_one_length_of_the_pipeline_foretells_others() -> None:
    model = fit_hybrid(SHAPE, [sample(1, 1, 32)])

    assert model.compute_s(array(32)).item() == pytest.approx(3.7, rel=1e-3)
    assert model.compute_s(array(96)).item() == pytest.approx(3.7 * 15 / 7, rel=1e-3)


def test_the_rate_is_what_the_batch_is_worth_over_the_time_of_a_step() -> None:
    tuned = tune(TRUTH, 1e4, bounded(LIMITS, 8), array(2), array(2))
    local, total = tuned.local.item(), tuned.total.item()
    seconds = TRUTH.step_s(array(2), array(2), array(local)).item()

    assert total == 2 * local
    assert tuned.accumulation.item() == 0
    assert tuned.rate.item() == pytest.approx(gain(total, 64, 1e4) / seconds)


def test_one_replica_sees_its_noise_from_its_micro_batches() -> None:
    tuned = tune(TRUTH, math.inf, bounded(LIMITS, 8), array(1), array(1))

    assert tuned.total.item() > LIMITS.batch
    assert tuned.accumulation.item() == 0
