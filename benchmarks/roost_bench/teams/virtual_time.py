"""An event loop in which time passes only when nothing is left to do, and then at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Timers end in their order; nobody waits for them."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Seconds since the loop began."""
        return self.now


class _Jumping(selectors.SelectSelector):
    """A selector that moves the clock of its loop instead of sleeping."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        """What is ready now; nothing from outside is ever waited for."""
        if timeout is None:
            raise RuntimeError("nothing will ever happen again")
        self._loop.now += max(0.0, timeout)
        return super().select(0)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run something in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
