"""Questions that take long: one is answered at a time, and a user has a few of them at most.

To say when a job starts, the future is played through. That takes processor time which scheduling
and all other requests need as well.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from roost.server.errors import HttpError

T = TypeVar("T")


class RequestLimiter:
    """Questions without an answer yet, in the order in which they came."""

    def __init__(self, most_per_user: int) -> None:
        self._most = most_per_user
        self._turn = asyncio.Semaphore(1)
        self._asked: Counter[str] = Counter()

    async def ask(self, user: str, answer: Callable[[], Awaitable[T]]) -> T:
        """The answer, once it is this one's turn; raises Refused if the user asked too much."""
        if self._asked[user] >= self._most:
            raise HttpError(429, "retry", f"{self._most} questions of {user} wait for their answer")
        self._asked[user] += 1
        try:
            async with self._turn:
                return await answer()
        finally:
            self._asked -= Counter({user: 1})
