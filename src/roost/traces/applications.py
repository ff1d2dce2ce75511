"""Applications that come with Roost, for workloads of which nothing was measured.

They have formulas where ``profiles`` has tables. A step on n GPUs with so many samples each takes

    step = overhead + samples / (speed of the GPU kind * samples per second) + sync
    sync = 2 (n - 1) / n * gradients / bandwidth          (ring all-reduce)

with the bandwidth of one node, or of the network where there are several. The gradient noise scale
(McCandlish et al., 2018) grows linearly over the epochs. The figures are of the order of published
ones for such models: they serve to compare policies and do not predict a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from roost.errors import InvalidSpec
from roost.traces.profiles import Application, Counts, ProfiledStep, Tables

#: Bytes per second between GPUs of one node, and between nodes.
_NODE_BANDWIDTH = 20e9
_NETWORK_BANDWIDTH = 2.5e9
_OVERHEAD_S = 0.02
_EPOCHS = 10
#: Steps of an epoch; a job's own work is scaled to its run time.
_EPOCH_STEPS = 1000.0
#: Speeds of GPU kinds, where no option says otherwise; others count as 1.
KIND_SPEEDS = {
    "K80": 0.25,
    "T4": 0.5,
    "P100": 0.6,
    "RTX2080Ti": 0.8,
    "V100": 1.0,
    "A100": 2.2,
    "H100": 4.0,
    "H200": 4.5,
}


class BuiltIn(NamedTuple):
    """What the formulas need of an application.

    ``samples_per_s`` is that of one GPU of speed 1, ``gradients`` bytes, ``noise`` the gradient
    noise scale in samples at the beginning and at the end.
    """

    samples_per_s: float
    gradients: float
    batch: int
    batch_max: int
    local_max: int
    noise: tuple[float, float]
    penalty_s: float


BUILT_IN = {
    "cifar10": BuiltIn(3000.0, 45e6, 128, 4096, 1024, (500.0, 8000.0), 30.0),
    "imagenet": BuiltIn(350.0, 100e6, 128, 8192, 256, (1000.0, 16000.0), 60.0),
    "bert": BuiltIn(50.0, 440e6, 32, 1024, 32, (100.0, 1000.0), 60.0),
    "yolov3": BuiltIn(40.0, 240e6, 8, 512, 16, (50.0, 800.0), 60.0),
    "deepspeech2": BuiltIn(60.0, 350e6, 20, 640, 64, (50.0, 1500.0), 30.0),
}


@dataclass(frozen=True, slots=True)
class StepFormula:
    """Step times of an application on GPUs of one kind, by the formula above."""

    samples_per_s: float
    gradients: float
    local_max: int
    local_min: int = 1

    def time(self, counts: Counts, local: int) -> ProfiledStep:
        """The time of a step on nodes with so many GPUs each, at so many samples per GPU."""
        workers = sum(counts)
        bandwidth = _NODE_BANDWIDTH if len(counts) == 1 else _NETWORK_BANDWIDTH
        sync_s = 2 * (workers - 1) / workers * self.gradients / bandwidth
        return ProfiledStep(_OVERHEAD_S + local / self.samples_per_s + sync_s, sync_s)

    def most_local(self, counts: Counts) -> int:  # noqa: ARG002 - memory does not depend on it
        """The most samples that a GPU takes at once."""
        return self.local_max

    def alone(self) -> float:
        """Samples per second of one GPU."""
        return self.local_max / self.time((1,), self.local_max).step_s


def built_in(kinds: Iterable[str], speeds: Mapping[str, float]) -> Tables:
    """All applications on GPUs of some kinds; ``speeds`` replaces those of ``KIND_SPEEDS``."""
    factors = {kind: speeds.get(kind, KIND_SPEEDS.get(kind, 1.0)) for kind in kinds}
    for kind, factor in factors.items():
        if not factor > 0:
            raise InvalidSpec(f"GPUs of kind {kind!r} need a speed above 0, got {factor}")
    return Tables({name: _application(name, one, factors) for name, one in BUILT_IN.items()})


def _application(name: str, one: BuiltIn, factors: Mapping[str, float]) -> Application:
    first, last = one.noise
    noises = [first + (last - first) * epoch / (_EPOCHS - 1) for epoch in range(_EPOCHS)]
    # Noise scale = batch * variance / squared norm; with a norm of 1 only the variance is left.
    gradients = [(1.0, noise / one.batch) for noise in noises]
    return Application(
        name=name,
        batch=one.batch,
        batch_max=one.batch_max,
        penalty_s=one.penalty_s,
        slowdown=1.0,
        progress=[_EPOCH_STEPS * (epoch + 1) for epoch in range(_EPOCHS)],
        steps={
            kind: StepFormula(factor * one.samples_per_s, one.gradients, one.local_max)
            for kind, factor in factors.items()
        },
        _batches=[one.batch, one.batch_max],
        _gradients=[gradients, gradients],
    )
