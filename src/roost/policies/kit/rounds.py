"""Rounds: the moments at which a policy decides that decides at fixed times."""

from __future__ import annotations

import math

from roost.core.plan import Plan

#: The key of the next round in the plan's memo.
_NEXT_ROUND = "rounds"
#: Seconds; two times that differ by no more are the same time.
_INSTANT = 1e-6


def round_begins(plan: Plan, round_s: float) -> bool:
    """Whether a policy that decides in rounds decides now; asks to be woken for the next.

    Rounds begin at the multiples of their length. While there is no job, no round begins.
    """
    if not plan.waiting.count and not plan.runs:
        plan.memo.pop(_NEXT_ROUND, None)
        return False
    length, due = plan.memo.get(_NEXT_ROUND, (0.0, 0.0))
    if length != round_s:
        due = math.ceil((plan.now - _INSTANT) / round_s) * round_s
    now = bool(plan.now >= due - _INSTANT)
    if now:
        due = (math.floor((plan.now + _INSTANT) / round_s) + 1) * round_s
    plan.memo[_NEXT_ROUND] = (round_s, due)
    plan.wake(due)
    return now


def skip_rounds(plan: Plan) -> None:
    """Let no round begin until something happens: each would be as this one."""
    plan.memo.pop(_NEXT_ROUND, None)
    plan.wake_at = math.inf
