"""Speed: how fast a job really goes on what it was given.

``rate`` is in seconds of work per second, where one second of work is what the job does in a
second with its least workers, close together, on the reference GPU. The simulator owns the true
model; policies only ever see measurements (``Progressed``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from roost.core.allocation import WORKER, Allocation
from roost.core.spec import JobSpec, Level, NodeId, NodeSpec
from roost.core.topology import span
from roost.errors import InvalidSpec
from roost.perf.pairs import Pairs


class SpeedModel(Protocol):
    """Says how fast a job goes on an allocation beside its neighbours on its devices."""

    @property
    def interferes(self) -> bool:
        """Whether neighbours matter, so that rates must be asked again when they come and go."""

    def rate(
        self,
        spec: JobSpec,
        allocation: Allocation,
        nodes: Mapping[NodeId, NodeSpec],
        neighbours: Sequence[str],
    ) -> float:
        """Seconds of work per second, beside runs of these applications."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Factors for GPU kind, distance, number of workers and neighbours.

    ``kinds`` gives each GPU kind's speed (1 for kinds not named); a gang goes at the pace of its
    slowest device. ``spread`` is the factor by the cell that holds the gang: 40 % to 5 times
    slower across PCIe and nodes is what Gandiva reports. ``scaling`` is the exponent of speed in
    the number of workers (1: linear). ``pairs`` tells what a job loses to each neighbour on its
    devices; to one of which it tells nothing, ``interference`` is lost.
    """

    kinds: Mapping[str, float] = field(default_factory=dict)
    spread: Mapping[Level, float] = field(default_factory=dict)
    scaling: float = 1.0
    interference: float = 0.0
    pairs: Pairs | None = None

    def __post_init__(self) -> None:
        """Refuse speeds that are not positive."""
        named = {**self.kinds, **{level.name.lower(): f for level, f in self.spread.items()}}
        for name, factor in named.items():
            if not 0 < factor < float("inf"):
                msg = f"the speed factor of {name!r} must be positive, got {factor}"
                raise InvalidSpec(msg)
        if not 0 <= self.scaling < float("inf"):
            msg = f"scaling must be a number >= 0, got {self.scaling}"
            raise InvalidSpec(msg)
        if not 0 <= self.interference < 1:
            msg = f"interference must be in 0..1, got {self.interference}"
            raise InvalidSpec(msg)

    @property
    def interferes(self) -> bool:
        """Whether neighbours matter."""
        return self.interference > 0 or self.pairs is not None

    def rate(
        self,
        spec: JobSpec,
        allocation: Allocation,
        nodes: Mapping[NodeId, NodeSpec],
        neighbours: Sequence[str],
    ) -> float:
        """Seconds of work per second, beside runs of these applications."""
        factor = 1.0
        if spec.elastic:
            factor *= (allocation.workers / spec.workers.min) ** self.scaling
        if self.kinds:
            factor *= min(
                (
                    self.kinds.get(nodes[part.node].kind, 1.0)
                    for part in allocation.parts
                    if part.role == WORKER and part.gpus
                ),
                default=1.0,
            )
        if self.spread:
            factor *= self.spread.get(span(allocation, nodes), 1.0)
        if neighbours:
            factor *= self._beside(spec, allocation, nodes, neighbours)
        return factor

    def _beside(
        self,
        spec: JobSpec,
        allocation: Allocation,
        nodes: Mapping[NodeId, NodeSpec],
        neighbours: Sequence[str],
    ) -> float:
        """What neighbours leave; a gang goes at the pace of its slowest kind of GPU."""
        left = 1.0 - self.interference
        if self.pairs is None:
            return left ** len(neighbours)
        kinds = {nodes[part.node].kind for part in allocation.parts if part.gpus}
        return min(
            self.pairs.factor(kind, spec.application, neighbours, left) for kind in sorted(kinds)
        )
