"""The time of the journal: seconds since the epoch that never run backwards.

The wall clock is read once, at the start; from there on the monotonic clock counts. A wall clock
that jumps (an hour, or to 2038) changes no order, no lease and no limit; after a restart the time
goes on from the journal's last, even if the wall clock is now behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def _uptime() -> float:
    """Seconds since the machine started, also those it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WallClock:
    """Tells the time of the journal."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = _uptime,
    ) -> None:
        self._monotonic = monotonic
        self._origin = wall() - monotonic()

    def now(self) -> float:
        """Seconds since the epoch, never less than before."""
        return self._origin + self._monotonic()

    def not_before(self, moment: float) -> None:
        """Go on from there, if that is later than now."""
        behind = moment - self.now()
        if behind > 0:
            self._origin += behind
