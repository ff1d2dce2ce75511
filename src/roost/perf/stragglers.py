"""Workers that lag behind the others, found from the times of their steps.

Optimus (EuroSys 2018) replaces a worker whose speed stays below half of the median. Here a worker
lags when a step takes it ``factor`` times the median *and* longer than the others' own spread can
explain (median absolute deviation); it is called a straggler once that has been so ``patience``
times in a row, and no longer once it was below ``calm`` times the median as often. So one slow step
makes no straggler, and one that hovers at the bound does not come and go.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from statistics import median

from roost.errors import InvalidSpec

#: Fewer workers than this have no majority to be compared with.
_FEW = 3
_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a worker lags, and for how many looks before it is called a straggler, or no longer."""

    factor: float = 2.0
    calm: float = 1.5
    sigmas: float = 5.0
    patience: int = 3

    def __post_init__(self) -> None:
        """The bound to come back must be below the one to be called."""
        if not 1 <= self.calm <= self.factor or self.patience < 1 or self.sigmas < 0:
            raise InvalidSpec(f"needs 1 <= calm <= factor and patience >= 1, got {self}")


@dataclass(slots=True)
class Stragglers:
    """Watches the workers of one job."""

    bounds: Bounds = Bounds()
    #: Who is a straggler now, by how many times slower than the median it was last seen.
    found: dict[Hashable, float] = field(default_factory=dict)
    #: How often in a row a worker was seen on the other side of its bound.
    _streaks: dict[Hashable, int] = field(default_factory=dict)

    def look(self, step_s: Mapping[Hashable, float]) -> list[Hashable]:
        """Take one look at all workers' step times; returns those who became stragglers by it."""
        self._forget(step_s)
        times = [time for time in step_s.values() if time > 0]
        if len(times) < _FEW:
            return []
        middle = median(times)
        sigma = _TO_SIGMA * median(abs(time - middle) for time in times)
        bounds, new = self.bounds, []
        for worker, time in step_s.items():
            slow = time / middle
            if worker in self.found:
                self.found[worker] = slow
                turned = slow < bounds.calm
            else:
                turned = slow >= bounds.factor and time - middle > bounds.sigmas * sigma
            streak = self._streaks.get(worker, 0) + 1 if turned else 0
            if streak < bounds.patience:
                self._streaks[worker] = streak
                continue
            self._streaks[worker] = 0
            if worker in self.found:
                del self.found[worker]
            else:
                self.found[worker] = slow
                new.append(worker)
        return new

    def _forget(self, step_s: Mapping[Hashable, float]) -> None:
        """Workers that are gone take their past with them."""
        for known in (self.found, self._streaks):
            for worker in [worker for worker in known if worker not in step_s]:
                del known[worker]
