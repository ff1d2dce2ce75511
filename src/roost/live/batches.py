"""What the driver works on and tells of itself: batches on their way, its health, its figures."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field

from roost.core import Action, Event, JobId
from roost.live.intake import Item
from roost.store.rows import EventRow, JournalEntry

#: The bounds of the buckets in which decisions are counted, in seconds.
BOUNDS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, math.inf)


@dataclass(frozen=True, slots=True)
class IntakeHealth:
    """Whether commands are accepted, and if not, why."""

    ok: bool = True
    why: str = ""


@dataclass(slots=True)
class DecidedBatch:
    """One batch that the core has decided on and the journal does not have yet."""

    entry: JournalEntry
    events: tuple[Event, ...]
    actions: list[Action]
    jobs: list[JobId]
    lines: list[EventRow]
    source: Item
    deleted: str = ""


@dataclass(slots=True)
class DecisionCounts:
    """Figures for the curious."""

    decisions: int = 0
    decision_s: float = 0.0
    slowest_s: float = 0.0
    appends: int = 0
    append_errors: int = 0
    recoveries: int = 0
    #: How many decisions took at most so many seconds, and more than the bound before.
    buckets: dict[float, int] = field(default_factory=lambda: dict.fromkeys(BOUNDS_S, 0))

    def decided(self, took_s: float) -> None:
        """Count one decision."""
        self.decisions += 1
        self.decision_s += took_s
        self.slowest_s = max(self.slowest_s, took_s)
        self.buckets[BOUNDS_S[bisect_left(BOUNDS_S, took_s)]] += 1
