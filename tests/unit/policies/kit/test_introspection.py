"""Trials: what is kept, what is undone, and what is remembered of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from roost.core import Core, Measured, Plan, Qos, Started, Submitted
from roost.core.spec import NodeId
from roost.core.state import Run
from roost.perf.interference import PairSpeed
from roost.policies.kit.introspection import (
    Introspection,
    TrialOutcome,
    TrialTerms,
    introspection,
    measured_beside,
)
from roost.policies.kit.sharing import Gpu, crowds, sit
from roost.testing.builders import core_with, job, node, run, spec
from roost.testing.policies import Scripted

N0 = node("n0", 1)
HERE = Gpu(N0.id, 0)
TERMS = TrialTerms(trial_s=60.0, most_loss=0.2)


def nothing(run: Run, crowd: Sequence[Run]) -> PairSpeed | None:
    del run, crowd
    return None


class Pair:
    """Jobs a and b on one GPU, up at 0 and at 10, and what a trial of them says."""

    def __init__(self) -> None:
        self.script = Scripted()
        self.core: Core = core_with(self.script, N0)
        self.judged: list[TrialOutcome] = []
        for name, at in (("a", 0.0), ("b", 10.0)):
            wanted = spec(0.5, 1000, qos=Qos.EQUAL, application=f"app-{name}")
            self.core.handle(Submitted(at, job(name), wanted))
            self.script.at(self.core, at, lambda plan, n=name: sit(plan, plan.jobs[job(n)], HERE))  # type: ignore[misc]
            self.core.handle(Started(at, run(name)))

    def tell(
        self, name: str, alone_s: float, beside_s: float, count: int = 3, at: float = 11.0
    ) -> None:
        """What a job measured alone and beside the other."""
        other = ("", f"app-{'b' if name == 'a' else 'a'}")
        for _ in range(count):
            self.core.handle(Measured(at, run(name), 1, alone_s))
            self.core.handle(Measured(at, run(name), 1, beside_s, beside=(other,)))

    def look(self, at: float, expect: object = nothing) -> list[TrialOutcome]:
        """What is judged at that time."""

        def step(plan: Plan) -> None:
            self.judged = introspection(plan).judge(plan, crowds(plan), expect, TERMS)  # type: ignore[arg-type]

        self.script.at(self.core, at, step)
        return self.judged


@pytest.mark.parametrize(
    ("first_s", "second_s", "stays"),
    [
        (1.1, 1.2, True),
        (1.2, 3.0, True),
        (2.2, 2.6, False),
        (1.9, 1.05, False),
    ],
    ids=["both-gain", "the-second-pays", "together-less-than-one", "the-first-pays"],
)
def test_what_was_measured_decides(
    first_s: float,
    second_s: float,
    stays: bool,  # noqa: FBT001
) -> None:
    pair = Pair()
    pair.tell("a", 1.0, first_s)
    pair.tell("b", 1.0, second_s)

    assert pair.look(69.0) == []
    (judged,) = pair.look(70.0)

    assert judged.run.job.id == "b", "the newest is the one to leave"
    assert judged.stays is stays
    assert judged.together is not None
    assert judged.together.speed == pytest.approx(1 / first_s + 1 / second_s)


def test_a_trial_wakes_the_policy_when_it_is_over() -> None:
    pair = Pair()
    pair.look(20.0)

    assert pair.core.wake_at == 70.0


def test_noise_is_no_loss() -> None:
    pair = Pair()
    pair.tell("a", 1.0, 1.2, count=1)
    pair.tell("b", 1.0, 6.2, count=1)  # 0.83 + 0.16: less than one, but by less than it may be off

    (judged,) = pair.look(70.0)

    assert judged.together is not None
    assert judged.together.speed < 1
    assert judged.stays


def test_what_was_not_measured_is_looked_at_later_ever_more_rarely() -> None:
    pair = Pair()

    assert pair.look(70.0) == []
    assert pair.core.wake_at == 130.0
    assert pair.look(130.0) == []
    assert pair.core.wake_at == 250.0
    pair.tell("a", 1.0, 3.0, at=131.0)
    pair.tell("b", 1.0, 3.0, at=131.0)
    (judged,) = pair.look(250.0)
    assert not judged.stays


def test_what_is_expected_stands_for_what_was_not_measured() -> None:
    pair = Pair()
    pair.tell("a", 1.0, 1.25)

    (judged,) = pair.look(70.0, lambda _run, _crowd: PairSpeed(0.1, 0.3))

    assert not judged.stays


def test_what_failed_is_remembered_for_an_hour() -> None:
    pair = Pair()
    a, b = (pair.core.runs[run(name)] for name in "ab")
    notes, found = Introspection(), list[bool]()

    def fail(plan: Plan) -> None:
        assert notes.may_try(b.job, [a.job])
        notes.undo(plan, HERE, b, [a])
        found.append(notes.may_try(b.job, [a.job]))
        found.append(notes.may_try(b.job, []))
        notes.undo(plan, HERE, b, [a])
        found.append(notes.may_try(b.job, []))

    pair.script.at(pair.core, 100.0, fail)
    assert found == [False, True, False], "with that one, with others, and after the second time"

    def forget(plan: Plan) -> None:
        notes.judge(plan, {}, nothing, TERMS)
        found.append(notes.may_try(b.job, [a.job]))

    pair.script.at(pair.core, 3699.0, forget)
    pair.script.at(pair.core, 3701.0, forget)
    assert found[3:] == [False, True]


def test_who_stays_is_not_tried_again_and_blocks_no_node() -> None:
    pair = Pair()
    pair.tell("a", 1.0, 1.1)
    pair.tell("b", 1.0, 1.1)
    (judged,) = pair.look(70.0)
    busy: list[set[NodeId]] = []

    def keep(plan: Plan) -> None:
        notes = introspection(plan)
        busy.append(notes.busy_nodes())
        notes.settle(HERE, crowds(plan)[HERE])
        busy.append(notes.busy_nodes())

    pair.script.at(pair.core, 71.0, keep)
    assert judged.stays
    assert busy == [{N0.id}, set()]
    assert pair.look(200.0) == []


def test_a_speed_needs_a_measurement_alone() -> None:
    pair = Pair()
    a, b = (pair.core.runs[run(name)] for name in "ab")
    beside = (("", "app-b"),)
    assert measured_beside(a, [a, b]) is None
    pair.core.handle(Measured(20.0, run("a"), 1, 2.0, beside=beside))
    assert measured_beside(a, [a, b]) is None
    pair.core.handle(Measured(21.0, run("a"), 1, 1.0))

    found = measured_beside(a, [a, b])

    assert found is not None
    assert found.speed == 0.5
    assert 0 < found.error < 0.05
    assert math.isfinite(found.error)
