"""An API server over a connection of its own, on an event loop of its own, in a thread.

For what must not wait for the work of others: a leader that folds ten thousand pods answers no
timer for a while, and its requests stand in line. A lease that is renewed here is not lost by that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from roost.kubernetes.client.api import Api

T = TypeVar("T")


class ApiThread:
    """A thread with an event loop and an ``api`` that belongs to it, while it is open."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lease", daemon=True)
        self._api: Api | None = None

    @classmethod
    async def open(cls, connect: Callable[[], Coroutine[Any, Any, Api]]) -> Self:
        """Start the thread, and connect in it; raises what is wrong with the way to the server."""
        made = cls()
        made._thread.start()
        try:
            made._api = await made.run(connect())
        except BaseException:
            await made.close()
            raise
        return made

    @property
    def api(self) -> Api:
        """The API server; to be asked in ``run`` only."""
        assert self._api is not None  # noqa: S101 - open() has connected
        return self._api

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of some work in the thread; cancelling this cancels it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def close(self) -> None:
        """Close the connection and end the thread."""
        if self._api is not None:
            await self.run(self._api.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()
