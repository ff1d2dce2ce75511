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


#: From when on it is told that the journal is ahead of the machine's clock, and told in hours.
_FAR_S, _HOURS_S = 300.0, 7200.0


class WallClock:
    """Tells the time of the journal."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = _uptime,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._origin = wall() - monotonic()

    def now(self) -> float:
        """Seconds since the epoch, never less than before."""
        return self._origin + self._monotonic()

    @property
    def ahead_s(self) -> float:
        """By how much this time is ahead of the machine's clock; less than 0: behind it."""
        return self.now() - self._wall()

    @property
    def trouble(self) -> str:
        """What to say where it is far ahead: the machine's clock was wrong once, or is it now."""
        ahead_s = self.ahead_s
        if ahead_s < _FAR_S:
            return ""
        days, hours = divmod(int(ahead_s) // 3600, 24)
        far = f"{days} days" if days > 1 else f"{24 * days + hours} hours"
        return (
            f"times here are {far if ahead_s >= _HOURS_S else f'{ahead_s / 60:.0f} minutes'} ahead "
            "of the machine's clock, which was put back, or was wrong before: the journal goes on "
            "from its last time"
        )

    def not_before(self, moment: float) -> None:
        """Go on from there, if that is later than now."""
        behind = moment - self.now()
        if behind > 0:
            self._origin += behind
