"""A policy that fails: its plan is undone, what runs stays, and a plain order goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest
from tests.support.effort import examples, quick

from roost.core import Core, Policy, RunId, Submitted, Woke
from roost.core.allocation import Allocation
from roost.core.plan import Plan
from roost.core.state import Job, JobState
from roost.errors import Fatal
from roost.jobs.policy_guard import PolicyGuard
from roost.policies import names
from roost.policies.fifo import fifo
from roost.policies.kit import may_disturb
from roost.testing.builders import core_with, held, job, node, part, spec, started
from roost.testing.checks import validate
from roost.testing.random_history import RandomHistory


class Moody:
    """A policy that does as a test says, else first come first served."""

    def __init__(self) -> None:
        self.mood: Callable[[Plan], None] = fifo

    def __call__(self, plan: Plan) -> None:
        self.mood(plan)


def world(policy: Policy) -> tuple[Core, PolicyGuard]:
    """A node of four GPUs, one of which is in use, and a job that is too large for now."""
    guard = PolicyGuard(policy)
    core = core_with(guard, node("n0", 4))
    started(core, core.handle(Submitted(1.0, job("runs"), spec(1))), 1.5)
    core.handle(Submitted(2.0, job("large"), spec(4)))
    return core, guard


def raises_late(plan: Plan) -> None:
    for run in list(plan.running):
        plan.evict(run, "not any more")
    for waiting in plan.pending:
        plan.place(waiting)
    plan.memo["half"] = "done"
    plan.wake(plan.now + 1.0)
    raise ZeroDivisionError("division by zero")


def not_free(plan: Plan) -> None:
    plan.place_at(plan.pending[-1], Allocation((part("n0", (1,)), part("n0", (0,)))))


def nowhere(plan: Plan) -> None:
    plan.place_at(plan.pending[-1], held("nosuch", (0,)))


def twice(plan: Plan) -> None:
    first = plan.pending[-1]
    plan.place(first)
    plan.place_at(first, held("n0", (3,)))


def reshapes_badly(plan: Plan) -> None:
    (run,) = plan.running
    plan.reshape(run, held("n0", (1, 2), workers=2))


def sorts_badly(plan: Plan) -> None:
    def key(waiting: Job) -> float:
        return 1.0 / (waiting.seq - 2)

    plan.lines(key)


def sorts_by_anything(plan: Plan) -> None:
    def key(waiting: Job) -> float:
        return waiting.seq if waiting.seq % 2 else "odd"  # type: ignore[return-value] # that is it

    plan.lines(key)


def exits(plan: Plan) -> None:
    plan.place(plan.pending[0])
    raise Fatal("a program was not solved: not set")


WRONG = [
    *(raises_late, not_free, nowhere, twice, reshapes_badly, sorts_badly, sorts_by_anything, exits)
]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_policy_did_before_it_failed_is_undone(wrong: Callable[[Plan], None]) -> None:
    policy = Moody()
    core, guard = world(policy)
    policy.mood = wrong
    actions = core.handle(Submitted(3.0, job("small"), spec(1)))

    assert guard.trouble is not None
    assert guard.failures == 1
    assert "half" not in core.memo
    assert core.jobs[job("runs")].state is JobState.RUNNING
    validate(core)
    # Backfilling decides: the small job passes the large one only if it does no harm, and the
    # large one's length is unknown here, so nothing starts but nobody is lost.
    assert {waiting.id for waiting in core.waiting} | {a.run.job for a in actions} == {
        "large",
        "small",
    }


def test_a_plain_order_decides_until_the_policy_works_again() -> None:
    policy = Moody()
    core, guard = world(policy)
    policy.mood = raises_late
    core.handle(Woke(3.0))
    assert guard.trouble is not None
    assert "ZeroDivisionError: division by zero" in guard.trouble.text
    assert core.wake_at == guard.trouble.until == 8.0

    policy.mood = fifo
    core.handle(Submitted(4.0, job("tiny"), spec(1)))
    assert guard.trouble is not None, "it is left alone for a while"
    core.handle(Woke(8.0))
    assert guard.trouble is None
    validate(core)


def test_the_pauses_grow_and_are_reset() -> None:
    policy = Moody()
    core, guard = world(policy)
    policy.mood = exits
    pauses = []
    now = 3.0
    for _ in range(9):
        core.handle(Woke(now))
        assert guard.trouble is not None
        assert guard.trouble.since == 3.0
        pauses.append(guard.trouble.until - now)
        now = guard.trouble.until
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    policy.mood = fifo
    core.handle(Woke(now))
    policy.mood = exits
    core.handle(Woke(now + 1))
    assert guard.trouble is not None
    assert guard.trouble.until == now + 6


def test_another_policy_begins_without_the_notes_of_the_last() -> None:
    def notes(plan: Plan) -> None:
        plan.memo["mine"] = "secret"

    core, guard = world(notes)
    core.handle(Woke(3.0))
    assert core.memo == {"mine": "secret"}
    guard.policy = raises_late
    core.handle(Woke(4.0))
    assert guard.trouble is not None
    core.memo["mine"] = "secret"
    guard.change(fifo)
    assert guard.trouble is None
    core.handle(Woke(5.0))
    assert core.memo == {}
    assert core.jobs[job("runs")].state is JobState.STARTING
    validate(core)


def test_a_key_that_fails_when_a_job_comes_loses_nobody() -> None:
    def by_length(waiting: Job) -> float:
        return waiting.run_time_s * 2  # type: ignore[operator] # None is what it forgot

    def shortest(plan: Plan) -> None:
        for line in list(plan.lines(by_length)):
            plan.place(line.head)

    guard = PolicyGuard(shortest)
    core = core_with(guard, node("n0", 2))
    core.handle(Submitted(1.0, job("a"), spec(2, 9.0)), Submitted(1.0, job("b"), spec(2, 5.0)))
    assert guard.trouble is None
    actions = core.handle(Submitted(2.0, job("c"), spec(2)))
    assert guard.trouble is not None
    assert not actions
    assert [waiting.id for waiting in core.waiting] == ["a", "c"]  # of b it is known that it runs
    validate(core)


def test_a_policy_that_takes_too_long_is_stopped_at_a_verb() -> None:
    clock = count()
    looks = 0

    def never_ends(plan: Plan) -> None:
        nonlocal looks
        while True:
            looks += 1
            mark = plan.mark()
            plan.undo(mark)

    guard = PolicyGuard(never_ends, patience_s=50, cpu_s=lambda: next(clock))
    core = core_with(guard, node("n0", 2))
    actions = core.handle(Submitted(1.0, job("a"), spec(1)))
    assert looks == 51
    assert guard.trouble is not None
    assert guard.trouble.why == "it took more than 50 s for one decision"
    assert [action.run for action in actions] == [RunId(job("a"), 1)]


def test_if_even_the_plain_order_fails_nothing_starts(caplog: pytest.LogCaptureFixture) -> None:
    policy = Moody()
    core, guard = world(policy)
    guard._plain = raises_late
    policy.mood = raises_late
    assert core.handle(Submitted(3.0, job("small"), spec(1))) == []
    assert "the plain order failed, too" in caplog.text
    assert core.jobs[job("runs")].state is JobState.RUNNING
    validate(core)


def test_a_forecast_fails_on_its_own() -> None:
    policy = Moody()
    core, guard = world(policy)
    copy = guard.copy()
    policy.mood = raises_late
    other = core_with(copy, node("n0", 2))
    other.handle(Submitted(1.0, job("a"), spec(1)))
    assert copy.trouble is not None
    assert copy.trouble.until == float("inf")
    assert guard.trouble is None
    core.handle(Woke(3.0))
    policy.mood = fifo
    again = guard.copy()
    core_with(again, node("n0", 2)).handle(Submitted(1.0, job("a"), spec(1)))
    assert again.trouble is not None, "what fails now is not asked for a forecast"


# -- at random -------------------------------------------------------------------------------------


def hasty(seed: int) -> Callable[[], float]:
    """A clock by which every few looks at it an age has passed."""
    chance, now = random.Random(seed), 0.0

    def read() -> float:
        nonlocal now
        now += 1e9 if chance.random() < 0.05 else 0.0
        return now

    return read


@pytest.mark.parametrize("name", names())
def test_any_policy_may_be_stopped_at_any_verb(name: str) -> None:
    """Users, machines and reports at their worst, and a policy that fails in the middle of it."""
    failures = 0
    for seed in range(examples(4)):
        guard = PolicyGuard(quick(name), cpu_s=hasty(seed))
        RandomHistory(guard, "consolidate", seed).run(80).clear_up()
        failures += guard.failures
    assert failures


class Saboteur:
    """A policy that fails now and then: at once, in its key, in the middle, with nonsense."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.deciding = False

    def key(self, waiting: Job) -> float:
        if self.deciding and self.chance.random() < 0.03:
            raise ValueError("no such key")
        return -waiting.seq

    def __call__(self, plan: Plan) -> None:
        self.deciding = True
        try:
            self.decide(plan)
        finally:
            self.deciding = False

    def decide(self, plan: Plan) -> None:
        for line in list(plan.lines(self.key)):
            for step in self.steps(plan, line.head):
                step()
                if self.chance.random() < 0.05:
                    raise RuntimeError("enough")

    def steps(self, plan: Plan, waiting: Job) -> Iterator[Callable[[], object]]:
        yield lambda: plan.place(waiting)
        for run in list(plan.running):
            gently = run.job.preemptible and may_disturb(plan, run, 60.0)
            if gently and self.chance.random() < 0.1:
                yield partial(plan.evict, run, "sabotage")
            if self.chance.random() < 0.05:
                yield partial(plan.reshape, run, held("n0", (0, 1, 2)))
        if self.chance.random() < 0.05:
            yield lambda: plan.place_at(waiting, held("n1", (0,)))


def test_a_saboteur_loses_no_job() -> None:
    for seed in range(examples(12)):
        guard = PolicyGuard(Saboteur(seed))
        history = RandomHistory(guard, "consolidate", seed).run(150)
        assert guard.failures
        guard.policy = fifo  # it works again
        history.clear_up()
