"""Who takes part in a decision of roost, and what rigid jobs may count on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from roost.core import Costs, MigrateRequested, Policy, QueueChanged, Submitted, Woke
from roost.core.decisions import SetAside
from roost.core.events import Outcome
from roost.core.plan import Plan
from roost.core.spec import JobSpec, NodeId
from roost.policies.fifo import fifo
from roost.policies.kit.contenders import AdaptableRuns, contest, within_quota
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


def told(plan: Plan, window: float = 600.0) -> tuple[set[str], set[str]]:
    plan.lines(plan.waiting.key, apart=True)
    part = contest(plan, AdaptableRuns().look(plan), window, None)
    return {str(one.id) for one in part.jobs}, {str(name) for name in part.stay}


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


def test_rigid_runs_are_left_out_and_rigid_jobs_that_wait_are_not() -> None:
    engine = world(policy=fifo)
    for name in ("a", "b", "c"):
        submit(engine, name, replace(RIGID, costs=Costs(checkpoint_every_s=math.inf)))
    submit(engine, "e", ELASTIC)
    engine.core.handle(Submitted(1.0, job("same"), RIGID))
    assert told(engine.core._plan) == ({"e", "same"}, {"e"})
    assert told(engine.core._plan, 0.5) == ({"e", "same"}, set())

    engine.core.handle(Submitted(2.0, job("more"), spec(4, priority=1)))
    assert told(engine.core._plan) == ({"e", "same"}, {"e"})  # not even with all that e holds


def test_runs_are_within_the_quota_before_those_that_wait() -> None:
    engine = world(policy=fifo)
    engine.tell(QueueChanged(0.0, queue("team", quota_milli=3000)))
    submit(engine, "mine", spec(2, queue="team"))
    submit(engine, "guest", spec(2))
    for name in ("more", "most"):
        engine.core.handle(Submitted(1.0, job(name), spec(1, queue="team")))
    plan = engine.core._plan
    plan.lines(plan.waiting.key, by_queue=True)

    owed = within_quota(plan)
    assert owed.running == {job("mine")}
    assert owed.names() == {job("mine"), job("more")}


@pytest.mark.parametrize(("what", "looked_at"), [(RIGID, 4), (spec(4), 1), (ELASTIC, 40)])
def test_of_equals_as_many_are_looked_at_as_there_could_be_room_for(
    what: JobSpec, looked_at: int
) -> None:
    engine = world(policy=fifo)
    submit(engine, "e", spec(1, workers=(4, 8)))
    for index in range(40):
        submit(engine, f"j{index}", what)
    plan = engine.core._plan

    names, _ = told(plan)
    assert len(names & {str(one.id) for one in plan.waiting}) == looked_at


def test_who_was_promised_room_is_looked_at_however_many_are_ahead() -> None:
    engine = world()
    engine.tell(QueueChanged(0.0, queue("team", quota_milli=1000)))
    for index in range(40):
        submit(engine, f"j{index}")
    submit(engine, "mine", spec(1, queue="team"), at=1.0)

    assert "mine" in after(engine, 1800)


def after(engine: FakeEngine, until: int, since: int = 60) -> set[str]:
    for at in range(since, until, 60):
        engine.tell(Woke(float(at)))
        engine.answer_all()
    return running(engine)


@pytest.mark.parametrize(
    ("held", "wants"),
    [
        (spec(0, cpu_milli=6000), spec(1, priority=5, cpu_milli=4000)),
        (spec(2, preemptible=False), spec(3, workers=2, priority=5)),
    ],
)
def test_nobody_makes_room_for_who_does_not_fit_after_all(held: JobSpec, wants: JobSpec) -> None:
    nodes = [node(f"n{index}", 4, cpu_milli=8000) for index in range(2 if held.gpu_milli(1) else 1)]
    engine = FakeEngine(core_with(Roost(), *nodes))
    submit(engine, "held", held)
    submit(engine, "low", spec(4))
    submit(engine, "high", wants, at=600.0)

    assert after(engine, 6000, 660) == {"held", "low"}
    assert engine.core.jobs[job("low")].preemptions == 0


def test_elastic_jobs_share_the_limit_of_their_queue() -> None:
    engine = world()
    engine.tell(QueueChanged(0.0, queue("team", limit_milli=3000)))
    for name in ("a", "b"):
        submit(engine, name, spec(1, workers=(1, 3), queue="team"))

    assert after(engine, 3600) == {"a", "b"}


def test_a_higher_priority_gets_in_when_the_least_time_of_a_run_is_over() -> None:
    engine = world(1)
    submit(engine, "low", spec(1, min_run_s=600.0))
    submit(engine, "high", spec(1, priority=5), at=100.0)

    assert engine.core.wake_at == pytest.approx(600.0)
    engine.tell(Woke(engine.core.wake_at))
    engine.answer_all()
    assert running(engine) == {"high"}


def test_no_run_grows_by_what_is_taken_for_those_who_wait() -> None:
    engine = world()
    submit(engine, "rigid")
    submit(engine, "elastic", spec(1, workers=(1, 8), priority=5))
    submit(engine, "large", spec(4, priority=1), at=600.0)

    assert after(engine, 3600, 660) == {"rigid", "elastic"}


def test_for_who_does_not_preempt_nobody_makes_room() -> None:
    engine = world(1)
    submit(engine, "low")
    submit(engine, "polite", spec(1, priority=5, preempts=False), at=600.0)

    assert after(engine, 3600, 660) == {"low"}
    engine.end(run("low"), Outcome.SUCCEEDED)
    engine.answer_all()
    assert running(engine) == {"polite"}


def test_elastic_jobs_that_do_not_fit_at_once_take_turns_of_some_length() -> None:
    engine = world(1)
    names = [f"e{index}" for index in range(4)]
    for name in names:
        submit(engine, name, spec(1, workers=(1, 2)))
    turns = dict.fromkeys(names, 0)
    changes, last = 0, names[0]
    for at in range(60, 86_400, 60):
        (now,) = after(engine, at + 1, at)
        changes, last = changes + (now != last), now
        turns[now] += 1

    assert min(turns.values()) > 0.15 * sum(turns.values())
    assert changes < 150


def test_a_share_does_not_pass_an_older_job_that_counts_more() -> None:
    engine = world(1)
    submit(engine, "old", spec(1, preemptible=False))
    submit(engine, "vip", spec(1, priority=50), at=10.0)
    submit(engine, "half", spec(0.5), at=20.0)
    engine.end(run("old"), Outcome.SUCCEEDED)
    engine.answer_all()

    assert running(engine) == {"vip"}


@pytest.mark.parametrize("gap", [5.0, 600.0])
@pytest.mark.parametrize("run_time_s", [None, 60.0, 7200.0])
def test_an_elastic_run_makes_room_at_once_for_a_rigid_job(
    gap: float, run_time_s: float | None
) -> None:
    engine = world(8)
    submit(engine, "elastic", spec(1, workers=(1, 8)))
    submit(engine, "rigid", spec(7, run_time_s), at=gap)

    assert running(engine) == {"elastic", "rigid"}
    assert {one.job.id: one.workers for one in engine.core.runs.values()}[job("elastic")] == 1


@pytest.mark.parametrize("gap", [5.0, 600.0])
def test_an_elastic_run_makes_room_for_a_share(gap: float) -> None:
    engine = world(4)
    submit(engine, "elastic", spec(1, workers=(1, 8)))
    submit(engine, "half", spec(0.5), at=gap)

    assert running(engine) == {"elastic", "half"}
    assert {one.job.id: one.workers for one in engine.core.runs.values()}[job("elastic")] == 3


def test_a_run_that_moved_and_ended_is_forgotten() -> None:
    engine = FakeEngine(core_with(fifo, node("n0", 4), node("n1", 4)))
    submit(engine, "elastic", ELASTIC)
    runs, plan = AdaptableRuns(), engine.core._plan
    engine.tell(MigrateRequested(1.0, job("elastic"), NodeId("n1")))
    assert [one.id for one in runs.look(plan)] == [job("elastic")]  # it is still on n0
    engine.answer_all()
    assert [one.id for one in runs.look(plan)] == [job("elastic")]
    engine.end(run("elastic"), Outcome.SUCCEEDED)

    assert runs.look(plan) == []
