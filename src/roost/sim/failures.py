"""Nodes and GPUs that break and are repaired, from a seed.

Times between failures and times to repair are exponential; each node and each GPU draws from its
own stream, so adding a node or a policy's choices do not change when the others break.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from roost.core.events import Event, GpuFailed, GpuRestored, NodeJoined, NodeLost
from roost.core.spec import NodeSpec
from roost.errors import InvalidSpec


@dataclass(frozen=True, slots=True)
class Failures:
    """Mean times between failures and to repair, in seconds; None: never fails."""

    node_mtbf_s: float | None = None
    node_mttr_s: float = 3600.0
    gpu_mtbf_s: float | None = None
    gpu_mttr_s: float = 3600.0

    def __post_init__(self) -> None:
        """Refuse times that are not positive."""
        for name in ("node_mtbf_s", "node_mttr_s", "gpu_mtbf_s", "gpu_mttr_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                msg = f"{name} must be a positive number of seconds, got {value}"
                raise InvalidSpec(msg)

    def sources(self, nodes: Iterable[NodeSpec], seed: int) -> list[Breakdowns]:
        """One endless stream of breakdowns per node and per GPU that can fail."""
        found = []
        for node in nodes:
            if self.node_mtbf_s is not None:
                found.append(Breakdowns(node, None, self.node_mtbf_s, self.node_mttr_s, seed))
            if self.gpu_mtbf_s is not None:
                found += [
                    Breakdowns(node, gpu, self.gpu_mtbf_s, self.gpu_mttr_s, seed)
                    for gpu in range(node.gpus)
                ]
        return found


class Breakdowns(Iterator[Event]):
    """Failures and repairs of one node or GPU, for ever."""

    def __init__(
        self, node: NodeSpec, gpu: int | None, mtbf_s: float, mttr_s: float, seed: int
    ) -> None:
        self._node, self._gpu = node, gpu
        self._mtbf_s, self._mttr_s = mtbf_s, mttr_s
        self._random = random.Random(f"{seed}/{node.id}/{gpu}")  # noqa: S311 - not for secrets
        self._now = 0.0
        self._broken = False

    def __next__(self) -> Event:
        """The next failure or repair."""
        mean = self._mttr_s if self._broken else self._mtbf_s
        self._now += self._random.expovariate(1.0 / mean)
        self._broken = not self._broken
        node, gpu = self._node, self._gpu
        if gpu is None:
            return NodeLost(self._now, node.id) if self._broken else NodeJoined(self._now, node)
        failed = GpuFailed if self._broken else GpuRestored
        return failed(self._now, node.id, gpu)
