"""How much memory the bodies of requests may take at once: of all users, and of each.

A body counts from its declared length on, before any of it is read, until its request is answered.
One without a length counts as it comes. Afterwards the memory goes back to the system: left to
itself, the allocator keeps what a storm of bodies took.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import Counter

from roost.server.errors import HttpError
from roost.server.options import ServerOptions

#: After so many bytes at once it is worth the while to give memory back.
_STORM_BYTES = 32 << 20
_TRIM_AFTER_S = 1.0


class BodyMemory:
    """Bytes of bodies that are held now."""

    def __init__(self, options: ServerOptions) -> None:
        self._most, self._most_of_user = options.bodies_bytes, options.bodies_bytes_per_user
        self._held: Counter[str] = Counter()
        self._total = self._peak = 0

    def __len__(self) -> int:
        return self._total

    def take(self, user: str, size: int) -> None:
        """Count a body, or a part of one; raises HttpError where there are too many."""
        if self._held[user] + size > self._most_of_user:
            raise HttpError(429, "retry", "too many large requests of yours are under way")
        if self._total + size > self._most:
            raise HttpError(503, "retry", "too many large requests are under way")
        self._held[user] += size
        self._total += size
        self._peak = max(self._peak, self._total)

    def give_back(self, user: str, size: int) -> None:
        """A request is over."""
        self._held[user] -= size
        if not self._held[user]:
            del self._held[user]
        self._total -= size
        if self._peak >= _STORM_BYTES and 4 * self._total <= self._peak:
            self._peak = self._total
            # Later: the last objects of the request are still to be dropped.
            loop = asyncio.get_running_loop()
            loop.call_later(_TRIM_AFTER_S, loop.run_in_executor, None, _trim)


def _trim() -> None:
    """Return what is free to the system, where the C library can do that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
