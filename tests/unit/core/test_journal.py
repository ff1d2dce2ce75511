"""A restart folds the journal: the same actions, the same state, and nobody is asked again."""

from __future__ import annotations

import pytest

from roost.core import Core, Launch, NodeJoined, Plan, QueueChanged, Started, Submitted, Woke
from roost.errors import RoostError
from roost.placement import placer
from roost.policies import policy
from roost.testing.builders import core_with, job, node, queue, run, spec
from roost.testing.checks import validate
from roost.testing.engine import FakeEngine
from roost.testing.journal import check_journal, differ, snapshot
from roost.testing.policies import Restless


def a_story() -> FakeEngine:
    """A day in the life of a small cluster whose policy disturbs everything."""
    engine = FakeEngine(Core(Restless(1), placer("pack")))
    engine.tell(*(NodeJoined(0.0, node(name, 4)) for name in ("n0", "n1")))
    engine.tell(QueueChanged(0.0, queue(limit_milli=6000)))
    for index in range(30):
        wanted = spec(1 + index % 2, 50.0, workers=(1, 1 + index % 3))
        engine.tell(Submitted(engine.now + 1.0, job(f"j{index}"), wanted))
        for run_id in engine.unanswered[: index % 3]:
            engine.answer(run_id)
    return engine


def test_folding_gives_the_same_actions_and_state() -> None:
    engine = a_story()

    assert any(isinstance(a, Launch) for batch in engine.journal for a in batch.actions)
    check_journal(engine.journal, engine.core)


def test_a_core_that_was_folded_carries_on() -> None:
    engine = a_story()
    again = Core(policy("fifo"), placer("pack"))
    for batch in engine.journal:
        again.refold(batch.events, batch.decisions)
    validate(again)

    engine.core = again
    assert again.wake_at == again.now, "its policy has something to say"
    engine.tell(Woke(again.now))
    engine.answer_all()
    validate(again)


def test_the_policy_is_not_asked_again() -> None:
    def never(plan: Plan) -> None:
        raise AssertionError(plan)

    core = Core(never, placer("pack"))

    assert core.refold([Submitted(0.0, job("a"), spec(1))], []) == []


def test_a_journal_that_lacks_a_batch_is_noticed() -> None:
    engine = a_story()

    with pytest.raises((AssertionError, RoostError)):
        check_journal(engine.journal[:3] + engine.journal[4:], engine.core)


def test_a_state_that_was_tampered_with_is_noticed() -> None:
    engine = a_story()
    engine.core.jobs[job("j0")].attempts += 1

    with pytest.raises(AssertionError, match="jobs/j0/attempts"):
        check_journal(engine.journal, engine.core)


def test_snapshots_compare_by_value() -> None:
    def run_it() -> Core:
        core = core_with(policy("srtf"), node("n0", 1))
        core.handle(Submitted(1.0, job("a"), spec(1, 9.0)))
        core.handle(Started(1.0, run("a")))
        return core

    one, other = run_it(), run_it()

    assert differ(snapshot(one), snapshot(other)) == []
    other.handle(Submitted(2.0, job("b"), spec(1, 1.0)))
    assert "/runs/a#1/reason: '' became 'makes room for b'" in differ(
        snapshot(one), snapshot(other)
    )
