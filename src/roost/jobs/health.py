"""The health and the figures of a driver, as the server and metrics show them."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field

from roost.errors import Retryable
from roost.store import StoreFull

#: The bounds of the buckets in which decisions are counted, in seconds.
BOUNDS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, math.inf)


@dataclass(frozen=True, slots=True)
class IntakeHealth:
    """Whether commands are accepted, and if not, why; ``full``: for want of room on a disk.

    ``policy`` says what is wrong with the policy, if something is, ``clock`` what with the time.
    """

    ok: bool = True
    why: str = ""
    full: bool = False
    policy: str = ""
    clock: str = ""

    def refusal(self, after: float) -> Retryable:
        """What a command is refused with that may work in so many seconds."""
        return (StoreFull if self.full else Retryable)(self.why, after)


@dataclass(slots=True)
class DecisionCounts:
    """How many decisions were made, how long they took, and how the journal took them."""

    decisions: int = 0
    decision_s: float = 0.0
    slowest_s: float = 0.0
    appends: int = 0
    append_errors: int = 0
    #: How many decisions took at most so many seconds, and more than the bound before.
    buckets: dict[float, int] = field(default_factory=lambda: dict.fromkeys(BOUNDS_S, 0))

    def decided(self, took_s: float) -> None:
        """Count one decision."""
        self.decisions += 1
        self.decision_s += took_s
        self.slowest_s = max(self.slowest_s, took_s)
        self.buckets[BOUNDS_S[bisect_left(BOUNDS_S, took_s)]] += 1
