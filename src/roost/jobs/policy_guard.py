"""A policy that cannot end a server: when it fails, a plain order decides until it works again.

A policy fails if it raises, if its key does, or if it takes too long. Then all it wrote on the plan
is undone and what runs stays; jobs are started in order of arrival with backfilling, and the policy
is asked again after a pause. Decisions are journaled as any others, so a restart folds the same.

How long a policy has taken is looked at in the verbs of the plan, in CPU time of its thread: there
nothing is half done. One that does not touch its plan is stopped by the watch
(``roost.jobs.policy_watch``); where even that is of no use, the process is told (``on_stuck``).
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from roost.core.controller import Policy
from roost.core.plan import Plan
from roost.core.state import Job
from roost.errors import Fatal, Retryable, RoostError
from roost.jobs.policy_watch import WATCH, PolicyStopped, PolicyWatch, is_half_done
from roost.policies import resizes
from roost.policies.backfill import Easy

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: What one decision may take, in seconds of CPU time.
PATIENCE_S = 20.0
#: The same in a forecast, where somebody waits for the answer.
FORECAST_PATIENCE_S = 4.0
#: How long a policy that failed is left alone, at first and at most, in seconds.
_PAUSE_S = (5.0, 300.0)
#: How much longer that pause is after one that had to be stopped: nothing else went on meanwhile.
_AFTER_STOP = 12.0
#: How long it may leave its plan alone, in seconds of CPU time: nothing else goes on meanwhile.
_SILENT_S = 10.0
#: Forecasts that may be stuck before no more are made: each keeps a thread busy.
_STUCK_FORECASTS = 3


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
        watch: PolicyWatch = WATCH,
    ) -> None:
        self.policy = policy
        self.watch = watch
        #: Called, in another thread, where the policy cannot be stopped: this one is lost.
        self.on_stuck: Callable[[str], None] = _tell_stuck
        #: How many forecasts are stuck.
        self.stuck_forecasts = 0
        self.resizes = resizes(policy)
        self.trouble: PolicyTrouble | None = None
        #: How often the policy failed.
        self.failures = 0
        self._plain: Policy = Easy()
        self._forecasts = False
        self._aside: tuple[str, float] | None = None
        self._changed = False
        self._patience_s, self._cpu_s = patience_s, cpu_s
        self._pause_s = _PAUSE_S[0]

    def copy(self) -> PolicyGuard:
        """A guard for a forecast, which fails on its own; what failed is not asked again."""
        copy = PolicyGuard(
            self.policy,
            patience_s=min(self._patience_s, FORECAST_PATIENCE_S),
            cpu_s=self._cpu_s,
            watch=self.watch,
        )
        copy._forecasts, copy._pause_s = True, math.inf
        if self.trouble is not None:
            copy.trouble = PolicyTrouble(self.trouble.why, self.trouble.since, math.inf)
        return copy

    def change(self, policy: Policy) -> None:
        """Let another policy decide from now on; it begins without the notes of this one."""
        self.policy, self.resizes = policy, resizes(policy)
        self.trouble, self._aside, self._pause_s = None, None, _PAUSE_S[0]
        self._changed = True

    def set_aside(self, why: str, pause_s: float) -> None:
        """Do not ask the policy for a while from the first decision on: it failed before."""
        self._aside = (why, pause_s)

    def watched(self, decide: Callable[..., T], *given: Any) -> T:
        """Call what asks the policy, its key or both, in this thread; they are stopped in time."""
        patience_s = min(self._patience_s, _SILENT_S)
        outermost = self.watch.enter(patience_s, self._is_stuck)
        try:
            return decide(*given)
        finally:
            self.watch.leave(outermost=outermost)

    def __call__(self, plan: Plan) -> None:
        """Let the policy write on the plan, or else the plain one."""
        mark = plan.mark()
        if self._changed:
            self._changed = False
            plan.start_over(mark)
        if self._aside is not None:
            (why, pause_s), self._aside = self._aside, None
            self.trouble = PolicyTrouble(why, plan.now, plan.now + pause_s)
            _log.error("%s; it is asked again in %g s", self.trouble.text, pause_s)
        if self.trouble is None or plan.now >= self.trouble.until:
            try:
                self.watched(self._ask, plan)
            except BaseException as error:
                if is_half_done(error):
                    raise self._lost from error
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
        except BaseException:  # noqa: BLE001 - a policy may raise anything, and will when asked
            return False

    def _is_stuck(self, why: str) -> None:
        self.on_stuck(why)

    @property
    def _lost(self) -> RoostError:
        """What to say of a core that cannot be relied on any more."""
        said = "the policy was stopped within a step of the core"
        return Retryable(said, after=5.0) if self._forecasts else Fatal(said)

    def _ask(self, plan: Plan) -> None:
        ends = self._cpu_s() + self._patience_s
        watched = self.watch.current()

        def check_time() -> None:
            if watched is not None:
                watched.since_cpu_s = None
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
        except (Exception, PolicyStopped):  # noqa: BLE001 - what runs stays, nothing starts
            _log.exception("no job is started: the plain order failed, too")
            plan.start_over(mark)
        if self.trouble is not None:
            plan.wake(self.trouble.until)

    def _failed(self, error: BaseException, now: float) -> None:
        said = str(error) or type(error).__name__
        ours = isinstance(error, RoostError | PolicyStopped)
        why = " ".join((said if ours else f"{type(error).__name__}: {error}").splitlines())
        since = now if self.trouble is None else self.trouble.since
        pause_s = self._pause_s
        if isinstance(error, PolicyStopped | _TooSlow):
            pause_s *= _AFTER_STOP
        self.trouble = PolicyTrouble(why, since, now + pause_s)
        self.failures += 1
        if self._forecasts:
            _log.info("in a forecast %s", self.trouble.text)
            return
        _log.error("%s; it is asked again in %g s", self.trouble.text, pause_s, exc_info=error)
        self._pause_s = min(2 * self._pause_s, _PAUSE_S[1])

    def _works(self) -> None:
        if self.trouble is not None:
            _log.warning("the policy works again")
            self.trouble, self._pause_s = None, _PAUSE_S[0]


async def foreseen(guard: PolicyGuard, ask: Callable[[Policy], dict[str, Any]]) -> dict[str, Any]:
    """What a forecast tells, made in another thread. If the policy fails there, it says so."""
    policy = guard.copy()
    if guard.stuck_forecasts >= _STUCK_FORECASTS:
        raise Retryable("no forecast can be made: earlier ones did not come to an end", after=60.0)
    try:
        found = await _beside(guard, policy, ask)
    except RoostError:
        raise
    except Exception as error:
        _log.exception("a forecast failed")
        raise Retryable(f"no forecast can be made now: {error}", after=5.0) from error
    if policy.trouble is not None:
        found["assumptions"] = [*found.get("assumptions", ()), policy.trouble.text]
    return found


async def _beside(
    guard: PolicyGuard, policy: PolicyGuard, ask: Callable[[Policy], dict[str, Any]]
) -> dict[str, Any]:
    """Ask in a thread that nobody waits for at the end: one that is stuck is left behind."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[dict[str, Any]] = loop.create_future()

    def settle(found: dict[str, Any] | None, error: BaseException | None) -> None:
        if answer.done():  # whoever asked has gone, or it was stuck and came back
            return
        if error is not None or found is None:
            answer.set_exception(error or Fatal("a forecast told nothing"))
        else:
            answer.set_result(found)

    def tell(found: dict[str, Any] | None, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, found, error)

    def stuck(why: str) -> None:
        guard.stuck_forecasts += 1
        _log.error("a forecast does not come to an end: %s; its thread is left behind", why)
        tell(None, Retryable(f"no forecast can be made now: {why}", after=60.0))

    def work() -> None:
        try:
            tell(policy.watched(ask, policy), None)
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits for it
            tell(None, error)
        except BaseException as error:  # noqa: BLE001 - that ends no process from here
            tell(None, RuntimeError(str(error) or type(error).__name__))

    policy.on_stuck = stuck
    threading.Thread(target=work, name="forecast", daemon=True).start()
    return await answer


def _tell_stuck(why: str) -> None:
    _log.critical("the policy cannot be stopped: %s", why)
