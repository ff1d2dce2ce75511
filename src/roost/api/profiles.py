"""What was measured of applications, and what is predicted from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roost.api.schema import WireView


@dataclass(frozen=True, slots=True)
class SizeView(WireView):
    """Step times of an application with so many workers; ``speed`` is relative to the fewest."""

    workers: int
    share: float
    step_s: float
    count: int
    speed: float | None


@dataclass(frozen=True, slots=True)
class PredictionView(WireView):
    """What a step is expected to take in a setting, and what it was seen to take there."""

    nodes: int
    workers: int
    local_batch: int = field(metadata={"description": "Samples that a worker takes at once."})
    step_s: float
    error: float = field(metadata={"description": "Of step_s, relative; one standard deviation."})
    samples_per_s: float
    measured_s: float | None
    count: int = field(metadata={"description": "How often it was measured there."})


@dataclass(frozen=True, slots=True)
class SpeedModelView(WireView):
    """What is expected of an application on a kind of device, with such a batch of all workers."""

    kind: str
    batch: int
    sizes: tuple[PredictionView, ...]


@dataclass(frozen=True, slots=True)
class ChangeCostView(WireView):
    """What a change of a job took on average, and how often that was measured."""

    mean_s: float
    count: int


@dataclass(frozen=True, slots=True)
class ProfileView(WireView):
    """What was measured of a user's application."""

    user: str
    application: str
    memory_mib: int
    noise: float | None
    busy: float | None = field(
        metadata={"description": "The part of the time in which devices work; mean."}
    )
    sizes: tuple[SizeView, ...]
    models: tuple[SpeedModelView, ...] = field(
        metadata={"description": "Empty where many profiles are asked for at once."}
    )
    costs: Mapping[str, ChangeCostView]


@dataclass(frozen=True, slots=True)
class ProfileList(WireView):
    """What was measured of applications."""

    items: tuple[ProfileView, ...]
