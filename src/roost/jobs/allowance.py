"""How much an answer may cost: a simulation ends early, and an estimate takes its place.

Simulations take from milliseconds to many seconds, mostly by how many of the jobs are elastic. What
users ask for all the time must not cost the server more than it has, so seconds of CPU are counted
where there are more than a few jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from roost.core.controller import Core

#: As many jobs, waiting or running, are simulated however long it takes.
FEW: Final = 25
#: Seconds of CPU that an answer about more jobs may take.
ALLOWED_S: Final = 0.2


def allowance(core: Core) -> Callable[[], bool]:
    """Whether what an answer may cost is spent: to be asked by the thread that works on it."""
    if core.waiting.count + len(core.runs) <= FEW:
        return bool
    until = time.thread_time() + ALLOWED_S
    return lambda: time.thread_time() > until
