"""Work that nobody waits for: a thread does it a little at a time, and leaves the rest to others.

Threads of one process take turns at running Python. One that never pauses has as many turns as the
loop that answers users.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from roost.errors import Retryable

#: How much of the time such work may take.
_PART = 0.2
#: The longest pause, in seconds: the end of the server is noticed after it.
_LONGEST_S = 0.25


def resting(ends: Callable[[], bool]) -> Callable[[], None]:
    """A call for a thread to make now and then: it pauses in proportion to what was worked.

    All calls are of one thread. It raises Retryable once the server ``ends``.
    """
    worked_s: float | None = None

    def rest() -> None:
        nonlocal worked_s
        if ends():
            raise Retryable("the server is stopping", after=2.0)
        if worked_s is not None:
            spent_s = time.thread_time() - worked_s
            time.sleep(min(spent_s * (1 / _PART - 1), _LONGEST_S))
        worked_s = time.thread_time()

    return rest
