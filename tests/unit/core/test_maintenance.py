"""Maintenance: nothing is there that would run into it, and nothing is there while it lasts."""

from __future__ import annotations

import math
import random

import pytest

from roost import policies
from roost.core import (
    Event,
    Exited,
    JobState,
    Launch,
    MaintenanceCancelled,
    MaintenancePlanned,
    Migrate,
    NodeUncordoned,
    Outcome,
    Progressed,
    Stop,
    Submitted,
    Suspended,
    Woke,
    snapshot,
)
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.policies import policy
from roost.testing.builders import core_with, held, job, node, run, spec, started
from roost.testing.checks import validate
from roost.testing.engine import FakeEngine
from roost.testing.policies import Scripted

N0 = node("n0").id
#: Those that are asked where a job may begin by the plan itself.
CAREFUL = ("backfill", "conservative", "fifo", "priority", "srtf", "roost", "sjf", "tiresias")


def window(at: float, start: float, end: float) -> MaintenancePlanned:
    return MaintenancePlanned(at, N0, start, end, "new disks", "ada")


def test_what_would_last_into_it_waits_and_what_would_not_begins() -> None:
    core = core_with(policy("backfill"), node("n0", 4))
    core.handle(window(1.0, 100.0, 200.0))

    assert core.handle(Submitted(2.0, job("long"), spec(1, 99.0))) == []
    told = core.explain(job("long"))
    assert told is not None
    assert told.reason.text == (
        "node n0 has maintenance in 98 s (new disks), and it is expected to last longer"
    )
    (launch,) = core.handle(Submitted(3.0, job("short"), spec(2, 90.0)))
    assert isinstance(launch, Launch)
    assert launch.run == run("short")
    assert core.wake_at == 100.0


def test_its_beginning_drains_the_node_and_its_end_opens_it_again() -> None:
    core = core_with(policy("backfill"), node("n0", 4))
    started(core, core.handle(Submitted(1.0, job("a"), spec(1, 9000.0))), 2.0)
    core.handle(window(3.0, 100.0, 200.0))
    assert core.wake_at == 100.0

    (stop,) = core.handle(Woke(100.0))
    assert stop == Stop(
        run("a"), "its node n0 is being drained: maintenance: new disks", Woke(100.0)
    )
    assert core.handle(Exited(101.0, run("a"), Outcome.STOPPED, 50.0)) == []
    assert core.jobs[job("a")].state is JobState.QUEUED
    assert core.wake_at == 200.0
    again = snapshot.load(snapshot.dump(core), policy("backfill"), core._plan.placer)
    assert snapshot.digest(again) == snapshot.digest(core)

    (launch,) = again.handle(Woke(200.0))
    assert isinstance(launch, Launch)
    assert again.ledger.windows == []
    validate(again)


def test_runs_move_where_they_can_stay() -> None:
    core = core_with(policy("backfill"), node("n0", 4), node("n1", 4))
    core.handle(window(1.0, 50.0, 200.0))
    (launch,) = core.handle(Submitted(2.0, job("a"), spec(4, 30.0)))
    assert launch.run == run("a")
    started(core, [launch], 3.0)
    core.handle(Progressed(49.0, run("a"), 1.0, 1.0))  # slower than it was thought to be

    (move,) = core.handle(Woke(50.0))

    assert isinstance(move, Migrate)
    assert move.allocation.nodes == ("n1",)


@pytest.mark.parametrize("suspends", [False, True])
def test_a_reserved_run_does_not_begin_when_its_place_is_left_too_late(*, suspends: bool) -> None:
    core = core_with(script := Scripted(), node("n0", 4))
    core.handle(Submitted(1.0, job("a"), spec(4)))
    started(core, script.at(core, 2.0, lambda plan: plan.place(plan.jobs[job("a")])), 3.0)
    core.handle(window(4.0, 100.0, 200.0), Submitted(4.0, job("b"), spec(4)))
    script.at(
        core,
        90.0,
        lambda plan: (plan.suspend if suspends else plan.evict)(plan.runs[run("a")], "for b"),
        lambda plan: plan.place_at(plan.jobs[job("b")], held("n0", range(4))),
    )
    assert core.runs[run("b")].after == {run("a")}

    left = Suspended(105.0, run("a"), 9.0) if suspends else Exited(105.0, run("a"), Outcome.STOPPED)
    assert core.handle(left) == []  # the first that the core hears since the window began

    assert core.ledger.nodes[N0].draining
    assert core.withdrawn == [job("b")]
    assert core.jobs[job("b")].state is JobState.QUEUED
    assert core.jobs[job("b")].attempts == 0
    validate(core)


def test_it_is_cancelled_before_or_while_it_lasts() -> None:
    core = core_with(policy("backfill"), node("n0", 4))
    core.handle(window(1.0, 100.0, 200.0), Submitted(1.0, job("a"), spec(1)))
    assert core.jobs[job("a")].run is None

    (launch,) = core.handle(MaintenanceCancelled(2.0, N0, 100.0))
    assert isinstance(launch, Launch)
    core.handle(window(3.0, 100.0, 200.0))
    core.handle(Woke(100.0))
    assert core.ledger.nodes[N0].draining
    core.handle(MaintenanceCancelled(150.0, N0, 100.0))
    assert core.ledger.nodes[N0].up
    with pytest.raises(NotFound):
        core.handle(MaintenanceCancelled(151.0, N0, 100.0))


def test_a_node_that_someone_cordoned_meanwhile_stays_so() -> None:
    core = core_with(policy("backfill"), node("n0", 4))
    core.handle(window(1.0, 100.0, 200.0))
    core.handle(Woke(100.0))
    core.handle(NodeUncordoned(150.0, N0))
    assert core.ledger.nodes[N0].up
    core.handle(Woke(200.0))
    assert core.ledger.nodes[N0].up
    assert core.ledger.windows == []


def test_what_cannot_be_planned() -> None:
    core = core_with(policy("backfill"), node("n0", 4))
    core.handle(window(1.0, 100.0, 200.0))
    for wrong in (window(2.0, 50.0, 40.0), window(2.0, 0.0, 1.0), window(2.0, 5.0, math.inf)):
        with pytest.raises(InvalidSpec):
            core.handle(wrong)
    with pytest.raises(Conflict):
        core.handle(window(2.0, 150.0, 250.0))
    with pytest.raises(NotFound):
        core.handle(MaintenancePlanned(2.0, node("n7").id, 300.0, 400.0))


@pytest.mark.parametrize("name", CAREFUL)
@pytest.mark.parametrize("seed", range(3))
def test_no_run_is_on_the_node_in_the_window(name: str, seed: int) -> None:
    chance = random.Random(f"windows/{seed}")
    core = core_with(policies.policy(name), node("n0", 4), node("n1", 2))
    engine = FakeEngine(core)
    start = chance.randint(50, 200)
    coming: list[Event] = [window(0.0, start, start + 300.0)]
    for number in range(25):
        lasts = chance.choice((5.0, 30.0, 80.0, 200.0))
        at = float(chance.randint(0, start + 350))
        coming.append(Submitted(at, job(f"j{number}"), spec(chance.choice((1, 2)), lasts)))
    for now in map(float, range(start + 600)):
        engine.tell(Woke(now), *(event for event in coming if event.time == now))
        engine.answer_all()
        on = [one for one in core.runs.values() if "n0" in one.allocation.nodes]
        if start + 1 < now < start + 300.0:
            assert not on
        for one in on:
            lasts_s = one.job.run_time_s or 0.0
            assert one.started_at is None or not start - lasts_s < one.started_at < start - 1
        for one in list(core.runs.values()):
            if one.started_at is not None and one.done(now) >= (one.job.run_time_s or 0.0):
                engine.end(one.id, Outcome.SUCCEEDED, one.done(now))
    assert core.ledger.nodes[N0].up
    assert core.finished > 0
    validate(core)
