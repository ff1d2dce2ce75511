"""Policies that do not come to an end, each in its own way, and what becomes of them."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, NoReturn

import pytest

from roost.core import Core, Policy, Submitted, Woke
from roost.core.plan import Plan
from roost.core.state import Job, JobState
from roost.errors import Retryable
from roost.jobs.policy_guard import PolicyGuard, foreseen
from roost.jobs.policy_watch import PolicyStopped, PolicyWatch
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, job, node, spec, started
from roost.testing.checks import validate

#: Bounds of a test: a policy is told to stop after a moment.
PATIENCE_S = 0.05


def watch(**bounds: Any) -> PolicyWatch:
    return PolicyWatch(**{"tick_s": 0.01, "idle_s": 0.3, "stuck_s": 0.2, **bounds})


def guarded(policy: Policy, **bounds: Any) -> PolicyGuard:
    return PolicyGuard(policy, patience_s=PATIENCE_S, watch=watch(**bounds))


def world(guard: PolicyGuard) -> Core:
    """A node of two GPUs, one of which is in use."""
    policy, guard.policy = guard.policy, fifo
    core = core_with(guard, node("n0", 2))
    started(core, core.handle(Submitted(1.0, job("runs"), spec(1))), 1.5)
    guard.policy = policy
    return core


def loops(_plan: Plan) -> None:
    while True:
        pass


def loops_after_an_eviction(plan: Plan) -> None:
    for run in list(plan.running):
        plan.evict(run, "for nothing")
    loops(plan)


def catches_exceptions(plan: Plan) -> None:
    while True:
        with suppress(Exception):
            loops(plan)


def catches_all_at_first(plan: Plan) -> None:
    try:
        loops(plan)
    except BaseException:  # noqa: BLE001 - that is it
        loops(plan)


def never_ends(_plan: Plan) -> None:
    def numbers() -> Iterator[int]:
        while True:
            yield 1

    sum(numbers())


def sleeps(_plan: Plan) -> None:
    time.sleep(1e6)


def waits(_plan: Plan) -> None:
    threading.Event().wait()


def deep(plan: Plan) -> None:
    deep(plan)


def exits(_plan: Plan) -> NoReturn:
    sys.exit(3)


def interrupts(_plan: Plan) -> NoReturn:
    raise KeyboardInterrupt


def cancels(_plan: Plan) -> NoReturn:
    raise asyncio.CancelledError


def too_large(_plan: Plan) -> None:
    bytearray(1 << 60)


ENDLESS = [
    *(loops, loops_after_an_eviction, catches_exceptions, catches_all_at_first, never_ends),
    *(sleeps, waits),
]
WRONG = [deep, exits, interrupts, cancels, too_large]


@pytest.mark.parametrize("policy", [*ENDLESS, *WRONG])
def test_what_does_not_end_is_stopped_and_undone(policy: Policy) -> None:
    guard = guarded(policy)
    core = world(guard)
    actions = guard.watched(core.handle, Submitted(3.0, job("small"), spec(1)))

    assert guard.trouble is not None
    assert [action.run.job for action in actions] == ["small"]  # in the plain order
    assert core.jobs[job("runs")].state is JobState.RUNNING
    validate(core)

    guard.policy = fifo
    core.handle(Woke(guard.trouble.until))
    assert guard.trouble is None
    if policy in ENDLESS:
        assert guard._pause_s == 5.0


def test_the_reason_is_told_and_the_pause_is_a_long_one() -> None:
    guard = guarded(loops)
    core = world(guard)
    core.handle(Woke(3.0))
    assert guard.trouble is not None
    assert guard.trouble.why == "it took more than 0.05 s without a look at its plan"
    assert guard.trouble.until == 63.0


def test_a_policy_that_sleeps_is_told_so() -> None:
    guard = guarded(sleeps)
    world(guard).handle(Woke(3.0))
    assert guard.trouble is not None
    assert guard.trouble.why == "it did nothing for 0.3 s"


def test_a_policy_that_takes_all_memory_is_stopped() -> None:
    def hoards(_plan: Plan) -> None:
        kept = []
        while True:
            kept.append(bytearray(1 << 20))

    guard = PolicyGuard(hoards, watch=watch(least_memory=32 << 20, memory_part=0.0))
    core = world(guard)
    core.handle(Woke(3.0))
    assert guard.trouble is not None
    assert guard.trouble.why == "it took more than 0.0 GiB of memory"
    validate(core)


@pytest.mark.parametrize("when", ["at first", "when a job comes"])
def test_a_key_that_does_not_end_loses_nobody(when: str) -> None:
    hangs = when == "at first"

    def key(waiting: Job) -> float:
        while hangs:
            pass
        return waiting.seq

    def shortest(plan: Plan) -> None:
        for line in list(plan.lines(key)):
            plan.place(line.head)

    guard = guarded(shortest)
    core = core_with(guard, node("n0", 2))
    guard.watched(core.handle, Submitted(1.0, job("a"), spec(2)), Submitted(1.0, job("b"), spec(2)))
    hangs = True
    guard.watched(core.handle, Submitted(2.0, job("c"), spec(2)))
    assert guard.trouble is not None
    waiting = {waiting.id for waiting in core.waiting}
    assert len(waiting) == 2
    assert {*waiting, *(run.job.id for run in core.runs.values())} == {"a", "b", "c"}
    validate(core)


def test_one_that_cannot_be_stopped_is_told_of_and_nothing_is_raised_afterwards() -> None:
    told: list[str] = []
    stuck = threading.Event()

    def holds_out(_plan: Plan) -> None:
        while not stuck.is_set():
            with suppress(BaseException):
                loops_until(stuck)

    def note(why: str) -> None:
        told.append(why)
        stuck.set()

    guard = guarded(holds_out)
    guard.on_stuck = note
    core = world(guard)
    core.handle(Woke(3.0))
    assert told == ["it took more than 0.05 s without a look at its plan"]
    assert sum(number for number in range(1000)) == 499500  # nothing arrives late
    validate(core)


def loops_until(event: threading.Event) -> None:
    while not event.is_set():
        pass


def test_quick_policies_are_never_disturbed() -> None:
    """They begin and end while the watch looks, thousands of times."""
    guard = PolicyGuard(fifo, watch=watch(tick_s=0.0005))
    core = core_with(guard, node("n0", 2))
    for number in range(3000):
        guard.watched(core.handle, Woke(float(number)))
    assert guard.failures == 0
    assert guard.watch._decisions == {}


def test_decisions_that_end_just_when_they_are_stopped() -> None:
    """The exception arrives in the policy or not at all, never in what comes after it."""
    ends = count()

    def nearly(_plan: Plan) -> None:
        until = time.thread_time() + 0.002 + 0.0001 * (next(ends) % 40)
        while time.thread_time() < until:
            pass

    guard = PolicyGuard(nearly, patience_s=0.003, watch=watch(tick_s=0.0005))
    core = core_with(guard, node("n0", 2))
    for number in range(400):
        guard.trouble = None
        guard.watched(core.handle, Submitted(float(number), job(f"j{number}"), spec(1)))
    assert guard.failures > 0
    validate(core)


# -- forecasts -------------------------------------------------------------------------------------


def asks(guard: Policy) -> dict[str, Any]:
    core = core_with(guard, node("n0", 2))
    core.handle(Submitted(1.0, job("a"), spec(1)))
    return {"state": core.jobs[job("a")].state, "assumptions": []}


@pytest.mark.parametrize("policy", [loops, catches_exceptions, exits, deep])
def test_a_forecast_goes_on_without_the_policy(policy: Policy) -> None:
    found = asyncio.run(foreseen(guarded(policy), asks))
    assert found["state"] is JobState.STARTING
    assert any("the policy failed" in said for said in found["assumptions"])


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, PolicyStopped, ValueError])
def test_a_forecast_that_fails_ends_nothing(error: type[BaseException]) -> None:
    def fails(_policy: Policy) -> dict[str, Any]:
        raise error("why")

    with pytest.raises(Retryable, match="no forecast can be made now"):
        asyncio.run(foreseen(PolicyGuard(fifo), fails))


def test_forecasts_that_are_stuck_are_left_behind_and_only_a_few_of_them() -> None:
    over = threading.Event()

    def held(_plan: Plan) -> None:
        over.wait(60)  # in a thread of its own no signal ends it

    async def ask_often(guard: PolicyGuard) -> list[str]:
        said = []
        for _ in range(4):
            try:
                await foreseen(guard, asks)
            except Retryable as error:
                said.append(str(error))
        return said

    guard = guarded(held)
    try:
        said = asyncio.run(ask_often(guard))
    finally:
        over.set()
    assert said == [
        *["no forecast can be made now: it did nothing for 0.3 s"] * 3,
        "no forecast can be made: earlier ones did not come to an end",
    ]
    assert guard.stuck_forecasts == 3


def test_the_wrapper_of_a_policy_costs_next_to_nothing() -> None:
    """CPU seconds of the watch for each decision: far below those of any."""

    def nothing() -> None: ...

    guard = PolicyGuard(fifo, watch=watch(tick_s=0.5))

    def took(call: Callable[[], object]) -> float:
        begins = time.thread_time()
        for _ in range(20_000):
            call()
        return (time.thread_time() - begins) / 20_000

    assert min(took(lambda: guard.watched(nothing)) for _ in range(3)) < 30e-6
