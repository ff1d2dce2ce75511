"""How noisy the gradient is: what tells whether a larger batch would pay.

The noise scale is the batch size, in samples, at which the noise of a gradient is as large as the
gradient (McCandlish et al., "An empirical model of large-batch training", 2018, appendix A). Two
estimates of the gradient from batches of different size give it: those of the workers and their
mean, or, with one worker, two steps that follow each other. Plain numbers in, plain numbers out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: A step in so many is looked at, at first and later: a look costs most of a step, and the noise
#: changes slowly.
_EVERY, _LATER = 100, 1000
#: How much of the older estimates is kept at each look.
_KEEP = 0.9


def since_look(step: int) -> int:
    """How many steps ago the last look was due; 0: it is now."""
    return step % (_EVERY if step < _LATER else _LATER)


@dataclass(slots=True)
class Statistics:
    """Running means of the squared gradient and of its variance per sample."""

    signal: float = 0.0
    spread: float = 0.0
    looks: int = 0

    @property
    def noise(self) -> float | None:
        """The noise scale in samples; None as long as it cannot be told."""
        if not self.looks or self.signal <= 0.0 or self.spread < 0.0:
            return None
        return self.spread / self.signal

    def look(self, small: tuple[float, float], large: tuple[float, float]) -> None:
        """Take in squared norms: (samples, squared norm) of a small batch and of a large one.

        For several small batches, their harmonic mean size and the mean of their squared norms.
        """
        (few, of_few), (many, of_many) = small, large
        if not 0.0 < few < many or not math.isfinite(of_few + of_many):
            return
        signal = (many * of_many - few * of_few) / (many - few)
        spread = (of_few - of_many) / (1.0 / few - 1.0 / many)
        keep = _KEEP if self.looks else 0.0
        self.signal = keep * self.signal + (1.0 - keep) * signal
        self.spread = keep * self.spread + (1.0 - keep) * spread
        self.looks += 1

    def state(self) -> dict[str, float]:
        """For the checkpoint."""
        return {"signal": self.signal, "spread": self.spread, "looks": float(self.looks)}

    def load(self, state: dict[str, float]) -> None:
        """Go on from a checkpoint."""
        self.signal, self.spread = state["signal"], state["spread"]
        self.looks = int(state["looks"])
