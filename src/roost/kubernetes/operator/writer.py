"""What a leader has and a reader has not: requests to the API server, Events, tasks.

The reconciler folds objects for both. Only a leader gives it a ``Writer``; a reader gives it none,
so nothing that a reader does can reach the API server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from roost.errors import Fatal, Retryable
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.operator.binding import Binder
from roost.kubernetes.operator.events import EventWriter

_log = logging.getLogger(__name__)


class Writer:
    """Makes requests in tasks beside the loop; all of them end with the leadership."""

    def __init__(
        self, api: Api, binder: Binder, identity: str, broken: Callable[[BaseException], None]
    ) -> None:
        self.api, self.binder = api, binder
        self.events = EventWriter(api, binder, identity)
        #: Called with an error after which the loop must not go on.
        self._broken = broken
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Run something beside the loop."""
        task = asyncio.create_task(self._watched(work, what))
        # The loop keeps only weak references to tasks: this set keeps them alive.
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(lambda _: work.close())  # if it ends before it has begun
        return task

    async def _watched(self, work: Coroutine[Any, Any, None], what: str) -> None:
        try:
            await work
        except (Deposed, Fatal) as error:  # the loop must not go on believing that it was done
            self._broken(error)
        except Retryable as error:
            _log.warning("%s: %s", what, error)
        except Exception:  # noqa: BLE001 - the loop goes on, whatever it is
            _log.exception("%s went wrong", what)

    async def close(self) -> None:
        """Cancel all tasks and wait for their ends: the next leader must meet no late request."""
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
