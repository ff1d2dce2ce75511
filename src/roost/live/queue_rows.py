"""The queues with their submitters as the store has them, remembered until one is changed.

Every submission and every viewer asks for them. Only this server changes them, and says so here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from roost.live.snapshots import StoreQuery
from roost.store.rows import QueueRow


class QueueRows:
    """The rows of all queues."""

    def __init__(self, read: Callable[[], Sequence[QueueRow]], ask: StoreQuery) -> None:
        self._read, self._ask = read, ask
        self._known: tuple[QueueRow, ...] | None = None
        self._changes = 0

    async def all(self) -> tuple[QueueRow, ...]:
        """All of them."""
        if self._known is not None:
            return self._known
        changes = self._changes
        found = tuple(await self._ask(self._read))
        if changes == self._changes:  # else it may be from before the change
            self._known = found
        return found

    def changed(self) -> None:
        """Ask the store again: a queue was written, or may have been."""
        self._changes += 1
        self._known = None
