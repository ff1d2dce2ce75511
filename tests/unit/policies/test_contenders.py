"""Who takes part in a decision of roost, and what rigid jobs may count on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from roost.core import Costs, Policy, QueueChanged, Submitted, Woke
from roost.core.decisions import SetAside
from roost.core.events import Outcome
from roost.core.plan import Plan
from roost.core.spec import JobSpec
from roost.policies.contenders import active, promised, rounds
from roost.policies.fifo import fifo
from roost.policies.roost import Roost
from roost.testing.builders import core_with, job, node, queue, run, spec
from roost.testing.engine import FakeEngine

ELASTIC = spec(1, workers=(1, 4))
RIGID = spec(1)


def world(gpus: int = 4, policy: Policy | None = None) -> FakeEngine:
    return FakeEngine(core_with(policy or Roost(), node("n0", gpus)))


def submit(engine: FakeEngine, name: str, what: JobSpec = RIGID, at: float = 0.0) -> None:
    engine.tell(Submitted(at, job(name), what))
    engine.answer_all()


def running(engine: FakeEngine) -> set[str]:
    return {str(name.job) for name, one in engine.core.runs.items() if not one.parked}


def told(plan: Plan, window: float = 600.0) -> list[tuple[set[str], set[str]]]:
    jobs, _ = active(plan)
    return [
        ({str(one.id) for one in part.jobs}, {str(name) for name in part.stay})
        for part in rounds(plan, jobs, promised(plan, jobs), window)
    ]


def test_equal_rigid_jobs_run_one_after_the_other_and_nobody_is_stopped() -> None:
    engine = world(1)
    for index in range(5):
        submit(engine, f"j{index}", at=10.0 * index)
    order: list[str] = []
    for turn in range(5):
        for at in range(60, 3600, 600):
            engine.tell(Woke(4000.0 * turn + at))
            engine.answer_all()
        order += running(engine)
        engine.end(run(order[-1]), Outcome.SUCCEEDED)
        engine.answer_all()

    assert order == ["j0", "j1", "j2", "j3", "j4"]
    assert all(one.preemptions == 0 for one in engine.core.jobs.values())


def test_a_job_of_higher_priority_takes_what_it_needs_and_keeps_it() -> None:
    engine = world()
    for index in range(4):
        submit(engine, f"low{index}", at=float(index))
    submit(engine, "high", spec(2, priority=5), at=100.0)
    for at in range(160, 4000, 60):
        engine.tell(Woke(float(at)))
        engine.answer_all()

    assert "high" in running(engine)
    assert len(running(engine)) == 3


def test_who_makes_room_is_told_for_whom() -> None:
    engine = world(1)
    submit(engine, "low")
    submit(engine, "high", spec(1, priority=5), at=100.0)
    engine.tell(Woke(700.0))

    decisions = [one for batch in engine.journal for one in batch.decisions]
    reasons = [one.reason for one in decisions if isinstance(one, SetAside)]
    assert reasons == ["makes room for high"]


def test_rigid_runs_are_left_out_unless_somebody_counts_more() -> None:
    engine = world(policy=fifo)
    for name in ("a", "b", "c"):
        submit(engine, name, replace(RIGID, costs=Costs(checkpoint_every_s=math.inf)))
    submit(engine, "e", ELASTIC)
    engine.core.handle(Submitted(1.0, job("same"), RIGID))
    assert told(engine.core._plan) == [({"e", "same"}, {"a", "b", "c"})]

    engine.core.handle(Submitted(2.0, job("more"), spec(4, priority=1)))
    first, second = told(engine.core._plan)
    assert first == ({"a", "b", "c", "e", "more"}, set())
    assert second == ({"e", "same", "more"}, {"a", "b", "c"})


def test_who_was_promised_room_stays_when_another_claims_it() -> None:
    engine = world(policy=fifo)
    engine.tell(QueueChanged(0.0, queue("team", quota_milli=3000)))
    submit(engine, "mine", spec(2, queue="team"))
    submit(engine, "guest", spec(2))
    engine.core.handle(Submitted(1.0, job("more"), spec(1, queue="team")))

    first, _ = told(engine.core._plan)
    assert first == ({"mine", "guest", "more"}, {"mine"})


@pytest.mark.parametrize(("what", "looked_at"), [(RIGID, 4), (spec(4), 1), (ELASTIC, 36)])
def test_of_equals_as_many_are_looked_at_as_there_could_be_room_for(
    what: JobSpec, looked_at: int
) -> None:
    engine = world(policy=fifo)
    for index in range(40):
        submit(engine, f"j{index}", what)
    plan = engine.core._plan

    ((names, _),) = told(plan)
    assert len(names & {str(one.id) for one in plan.waiting}) == looked_at
