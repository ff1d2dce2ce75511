"""A process that begins anew in its own place, because its policy is stuck in its main thread.

A call into C that does not return, or a loop that catches everything, cannot be ended in any other
way. The process stays the same one to whoever started it, with the same arguments; the journal, or
the API server, has all that was decided; what runs goes on. The policy is set aside at first, for
longer each time.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from roost.jobs.policy_guard import PolicyGuard

_log = logging.getLogger(__name__)

#: How often the process began anew, and why the last time, for the one that comes.
VARIABLE = "ROOST_STUCK_POLICY"
#: For how long the policy is set aside then, at first and at most, in seconds.
_PAUSE_S = (300.0, 86400.0)


def prepare(guard: PolicyGuard, before: Callable[[], None] = lambda: None) -> None:
    """Begin anew when the policy of a guard is stuck; ``before`` is called first.

    If it was stuck in the process before, it is not asked for a while.
    """
    count, _, why = os.environ.pop(VARIABLE, "").partition(" ")
    times = int(count) if count.isdecimal() else 0
    if times:
        pause_s = min(_PAUSE_S[0] * 2 ** min(times - 1, 30), _PAUSE_S[1])
        guard.set_aside(f"{why}, and could not be stopped", pause_s)

    def begin_anew(why: str) -> None:
        _log.critical("the policy cannot be stopped (%s): the process begins anew", why)
        before()
        os.environ[VARIABLE] = f"{times + 1} {why}"
        # Descriptors, with all locks, are closed by it, and all other threads end.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves

    guard.on_stuck = begin_anew
