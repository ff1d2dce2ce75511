"""A policy that cannot end a server: when it fails, a plain order decides until it works again.

A policy fails if it raises, if its key does, or if it takes too long. Then all it wrote on the plan
is undone and what runs stays; jobs are started in order of arrival with backfilling, and the policy
is asked again after a pause. Decisions are journaled as any others, so a restart folds the same.

How long a policy has taken is looked at in the verbs of the plan, in CPU time of its thread: there
nothing is half done. One that loops without touching its plan cannot be stopped this way.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from roost.core.controller import Policy
from roost.core.plan import Plan
from roost.core.state import Job
from roost.errors import Retryable, RoostError
from roost.policies import resizes
from roost.policies.backfill import Easy

_log = logging.getLogger(__name__)

#: What one decision may take, in seconds of CPU time.
PATIENCE_S = 20.0
#: How long a policy that failed is left alone, at first and at most, in seconds.
_PAUSE_S = (5.0, 300.0)


@dataclass(frozen=True, slots=True)
class PolicyTrouble:
    """Why a policy is not asked, since when, and when it will be again."""

    why: str
    since: float
    until: float

    @property
    def text(self) -> str:
        """What to say of it."""
        return f"the policy failed ({self.why}); jobs start in order of arrival until it works"


class _TooSlow(RoostError):
    """A policy did not come to an end."""


class PolicyGuard:
    """A policy that asks another one, and a plain one in its stead while that fails."""

    def __init__(
        self,
        policy: Policy,
        *,
        patience_s: float = PATIENCE_S,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self.policy = policy
        self.resizes = resizes(policy)
        self.trouble: PolicyTrouble | None = None
        #: How often the policy failed.
        self.failures = 0
        self._plain: Policy = Easy()
        self._forecasts = False
        self._patience_s, self._cpu_s = patience_s, cpu_s
        self._pause_s = _PAUSE_S[0]

    def copy(self) -> PolicyGuard:
        """A guard for a forecast, which fails on its own; what failed is not asked again."""
        copy = PolicyGuard(self.policy, patience_s=self._patience_s, cpu_s=self._cpu_s)
        copy._forecasts, copy._pause_s = True, math.inf
        if self.trouble is not None:
            copy.trouble = PolicyTrouble(self.trouble.why, self.trouble.since, math.inf)
        return copy

    def __call__(self, plan: Plan) -> None:
        """Let the policy write on the plan, or else the plain one."""
        mark = plan.mark()
        if self.trouble is None or plan.now >= self.trouble.until:
            try:
                self._ask(plan)
            except Exception as error:  # noqa: BLE001 - a policy may raise anything
                plan.start_over(mark)
                self._failed(error, plan.now)
            else:
                self._works()
                return
        self._do_without(plan, mark)

    def ignores(self, plan: Plan, job: Job) -> bool:
        """Whether the policy that decides now need not be asked about a newcomer."""
        asked = self.policy if self.trouble is None else self._plain
        ignores: Callable[[Plan, Job], bool] | None = getattr(asked, "ignores", None)
        try:
            return ignores is not None and plan.waiting.fault is None and ignores(plan, job)
        except Exception:  # noqa: BLE001 - a policy may raise anything; it will again when asked
            return False

    def _ask(self, plan: Plan) -> None:
        ends = self._cpu_s() + self._patience_s

        def check_time() -> None:
            if self._cpu_s() > ends:
                raise _TooSlow(f"it took more than {self._patience_s:g} s for one decision")

        plan.check_time = check_time
        try:
            self.policy(plan)
        finally:
            plan.check_time = None
        if plan.waiting.fault is not None:
            raise plan.waiting.fault
        # Lines whose keys cannot be compared would fail those who ask for the order later.
        min((line.entries[0][:2] for line in plan.waiting.open), default=None)

    def _do_without(self, plan: Plan, mark: int) -> None:
        try:
            self._plain(plan)
        except Exception:  # noqa: BLE001 - what runs stays, nothing starts
            _log.exception("no job is started: the plain order failed, too")
            plan.start_over(mark)
        if self.trouble is not None:
            plan.wake(self.trouble.until)

    def _failed(self, error: Exception, now: float) -> None:
        said = str(error) or type(error).__name__
        why = said if isinstance(error, RoostError) else f"{type(error).__name__}: {error}"
        why = " ".join(why.splitlines())
        since = now if self.trouble is None else self.trouble.since
        self.trouble = PolicyTrouble(why, since, now + self._pause_s)
        self.failures += 1
        if self._forecasts:
            _log.info("in a forecast %s", self.trouble.text)
            return
        _log.error(
            "%s; it is asked again in %g s", self.trouble.text, self._pause_s, exc_info=error
        )
        self._pause_s = min(2 * self._pause_s, _PAUSE_S[1])

    def _works(self) -> None:
        if self.trouble is not None:
            _log.warning("the policy works again")
            self.trouble, self._pause_s = None, _PAUSE_S[0]


async def foreseen(guard: PolicyGuard, ask: Callable[[Policy], dict[str, Any]]) -> dict[str, Any]:
    """What a forecast tells, made in another thread. If the policy fails there, it says so."""
    policy = guard.copy()
    try:
        found = await asyncio.to_thread(ask, policy)
    except RoostError:
        raise
    except Exception as error:
        _log.exception("a forecast failed")
        raise Retryable(f"no forecast can be made now: {error}", after=5.0) from error
    if policy.trouble is not None:
        found["assumptions"] = [*found.get("assumptions", ()), policy.trouble.text]
    return found
