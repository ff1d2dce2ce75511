"""Jobs split over pipeline stages and tensors, which grow by whole replicas of that block.

A replica is a rigid block of ``tensor * pipeline`` GPUs; data parallelism goes over replicas alone.
In a step, ``m`` micro-batches pass through ``p`` stages one behind the other, which takes
``m + p - 1`` slots of one stage's time: ``(p - 1) / m`` of the work is a bubble, in which stages
wait (GPipe, NeurIPS'19; the same for one-forward-one-backward schedules). So a step model over
replicas holds for such a job as well, once batches are counted in slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, overload

import numpy as np

from roost.errors import InvalidSpec
from roost.perf.arrays import Numbers, Reals
from roost.perf.goodput import BatchLimits
from roost.perf.steps import LEAST, StepModel, StepSample, fit_steps


@dataclass(frozen=True, slots=True)
class ReplicaSplit:
    """How one replica is split: GPUs to a tensor, stages, and samples in a micro-batch."""

    tensor: int = 1
    pipeline: int = 1
    micro: int = 1

    def __post_init__(self) -> None:
        """Refuse blocks of nothing."""
        if min(self.tensor, self.pipeline, self.micro) < 1:
            raise InvalidSpec(f"a block needs at least one GPU, stage and sample, got {self}")

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline

    def slots(self, local: float | Numbers) -> Reals:
        """How long a step of so many samples per replica is, in turns of one stage."""
        return np.ceil(np.asarray(local) / self.micro) + (self.pipeline - 1)


@dataclass(frozen=True, slots=True)
class HybridModel:
    """Step times of a job of such blocks.

    Workers are replicas here, and local batches are samples per replica, so that ``tune`` takes it
    like any other model. In ``model`` a batch is a number of slots.
    """

    shape: ReplicaSplit
    model: StepModel

    @overload
    def compute_s(self, local: float) -> float: ...
    @overload
    def compute_s(self, local: Numbers) -> Reals: ...
    def compute_s(self, local: float | Numbers) -> float | Reals:
        """Seconds until the gradients of so many samples have left the pipeline."""
        return self.model.compute_s(self.shape.slots(local))

    @overload
    def step_s(self, nodes: float, workers: float, local: float) -> float: ...
    @overload
    def step_s(self, nodes: Numbers, workers: Numbers, local: Numbers) -> Reals: ...
    def step_s(
        self, nodes: float | Numbers, workers: float | Numbers, local: float | Numbers
    ) -> float | Reals:
        """Seconds of a whole step of so many replicas.

        One replica has no other to agree with, however many nodes it spans.
        """
        replicas = np.asarray(workers)
        spread = np.where(replicas > 1, nodes, 1)
        return self.model.step_s(spread, replicas, self.shape.slots(local))

    def scaled(self, factor: float) -> HybridModel:
        """The same job on GPUs that take ``factor`` times as long for everything."""
        return HybridModel(self.shape, self.model.scaled(factor))


#: What tells the step times of a job, whether or not it is split into stages.
Model: TypeAlias = StepModel | HybridModel


def paced(model: StepModel, shape: ReplicaSplit | None) -> Model:
    """The model in samples of one that is in slots; without a shape, the model itself."""
    return model if shape is None else HybridModel(shape, model)


def in_slots(shape: ReplicaSplit, samples: Sequence[StepSample]) -> list[StepSample]:
    """Samples of replicas, with batches counted in slots."""
    slots = shape.slots(np.array([sample.local_batch for sample in samples])).astype(int).tolist()
    return [
        StepSample(seen.nodes if seen.workers > 1 else 1, seen.workers, count, *seen[3:])
        for seen, count in zip(samples, slots, strict=True)
    ]


def fit_hybrid(shape: ReplicaSplit, samples: Sequence[StepSample]) -> HybridModel:
    """Fit to samples in which workers are replicas and batches are samples per replica."""
    turned = in_slots(shape, samples)
    model = fit_steps(turned)
    slots = {sample.local_batch for sample in turned}
    if len(slots) == 1:
        # Of one length of the pipeline alone, all is taken for turns: overhead beside is small.
        length = slots.pop()
        model = replace(model, ac=LEAST, bc=float(model.compute_s(length)) / length)
    return HybridModel(shape, model)


def bounded(limits: BatchLimits, micro: int) -> BatchLimits:
    """Limits of a job with a pipeline.

    A replica takes a whole micro-batch at least. Micro-batches show the noise of gradients, so
    that one replica needs no second round to see it.
    """
    return limits._replace(local_min=max(limits.local_min, micro), lone_rounds=1)
