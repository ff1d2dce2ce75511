"""A few connections for reading, each lent to one thread at a time.

Readers never share the writer's connection: they neither wait for it nor see what it has not
committed. When all of them are lent, the next reader waits a bounded time.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from time import monotonic
from typing import Any

from roost.store.errors import StoreBusy


class ReaderPool:
    """Lends connections; made when first needed, at most ``most`` of them."""

    def __init__(self, connect: Callable[[], Any], most: int, patience_s: float) -> None:
        self._connect, self._most, self._patience_s = connect, most, patience_s
        # Guards all that follows; notified when a connection comes back and when a drain ends.
        self._changed = Condition()
        self._idle: list[Any] = []
        self._lent = 0
        #: How many drains there were, and at which of them each connection was made.
        self._drained = 0
        self._ages: dict[int, int] = {}
        self._draining = False

    def take(self) -> tuple[Any, bool]:
        """A connection of one's own, and whether it was used before; raises StoreBusy."""
        with self._changed:
            if not self._changed.wait_for(self._has_room, self._patience_s):
                raise StoreBusy(f"all {self._most} readers of the store are busy; try again")
            self._lent += 1
            if self._idle:
                return self._idle.pop(), True
            age = self._drained
        # Without the lock: connecting takes time, and the place is counted as lent already.
        try:
            connection = self._connect()
        except BaseException:
            self._came_back()
            raise
        with self._changed:
            self._ages[id(connection)] = age
        return connection, False

    def give(self, connection: Any) -> None:
        """Hand back a connection that works; one from before a drain is closed."""
        with self._changed:
            fresh = self._ages[id(connection)] == self._drained
            if fresh:
                self._idle.append(connection)
        if fresh:
            self._came_back()
        else:
            self.discard(connection)

    def discard(self, connection: Any) -> None:
        """Hand back a connection that is not to be used again."""
        try:
            self._close(connection)
        finally:
            self._came_back()

    def drain(self) -> bool:
        """Close every connection, after waiting for those that are lent; whether all came back."""
        with self._changed:
            # Connections that are lent now are from before the drain: they are closed when they
            # come back, even if that is after the wait below.
            self._draining = True
            self._drained += 1
            end = monotonic() + self._patience_s
            try:
                self._close_idle()
                while self._lent and (left := end - monotonic()) > 0:
                    self._changed.wait(left)
                    self._close_idle()
                return not self._lent
            finally:
                self._draining = False
                self._changed.notify_all()

    def _has_room(self) -> bool:
        return not self._draining and (bool(self._idle) or self._lent < self._most)

    def _close_idle(self) -> None:
        while self._idle:
            self._close(self._idle.pop())

    def _close(self, connection: Any) -> None:
        self._ages.pop(id(connection), None)
        connection.close()

    def _came_back(self) -> None:
        with self._changed:
            self._lent -= 1
            self._changed.notify_all()
