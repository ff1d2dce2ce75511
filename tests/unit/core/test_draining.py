"""Nodes that take nothing new, and nodes that are being drained."""

from __future__ import annotations

import pytest

from roost.core import (
    CancelRequested,
    Core,
    Exited,
    GpuFailed,
    GpuRestored,
    JobState,
    Launch,
    Migrate,
    MigrateRequested,
    NodeCordoned,
    NodeJoined,
    NodeLost,
    NodeUncordoned,
    Outcome,
    Range,
    Resize,
    Resized,
    ScaleRequested,
    Started,
    Stop,
    Submitted,
    snapshot,
)
from roost.core.node import Notice
from roost.core.transitions import RunPhase
from roost.errors import Conflict, NotFound
from roost.policies import policy
from roost.testing.builders import core_with, held, job, node, run, spec, started
from roost.testing.checks import validate

N0, N1 = node("n0").id, node("n1").id
BACKFILL = policy("backfill")
WHY = "its node n0 is being drained: new memory"


def two_nodes(gpus: int = 4) -> Core:
    return core_with(BACKFILL, node("n0", gpus), node("n1", gpus))


def drain(at: float, name: str = "n0") -> NodeCordoned:
    return NodeCordoned(at, node(name).id, "new memory", "ada", drain=True)


def test_nothing_new_begins_on_a_cordoned_node_and_what_runs_there_goes_on() -> None:
    core = core_with(BACKFILL, node("n0", 4))
    started(core, core.handle(Submitted(1.0, job("a"), spec(2))), 2.0)

    assert core.handle(NodeCordoned(3.0, N0, "odd noise", "ada")) == []
    assert core.handle(Submitted(4.0, job("b"), spec(1))) == []
    assert core.runs[run("a")].settled
    assert core.ledger.capacity_milli == core.ledger.free_milli == 0
    (launch,) = core.handle(NodeUncordoned(5.0, N0))

    assert launch == Launch(run("b"), spec(1), held("n0", [2]), NodeUncordoned(5.0, N0))
    validate(core)


def test_a_waiting_job_is_told_of_the_nodes_that_are_kept_back() -> None:
    core = core_with(BACKFILL, node("n0", 4))
    core.handle(drain(1.0), Submitted(1.0, job("a"), spec(2)))

    told = core.explain(job("a"))

    assert told is not None
    assert told.reason.text.endswith("; node n0 is being drained by ada: new memory")


def test_a_run_moves_away_if_there_is_room() -> None:
    core = two_nodes()
    started(core, core.handle(Submitted(1.0, job("a"), spec(2))), 2.0)

    (move,) = core.handle(drain(3.0))

    assert move == Migrate(run("a"), held("n1", [0, 1]), drain(3.0))
    validate(core)


def test_a_run_without_another_place_ends_at_its_checkpoint_and_waits() -> None:
    core = core_with(BACKFILL, node("n0", 4))
    started(core, core.handle(Submitted(1.0, job("a"), spec(2, preemptible=False))), 2.0)

    assert core.handle(drain(3.0)) == [Stop(run("a"), WHY, drain(3.0))]
    assert core.handle(Exited(9.0, run("a"), Outcome.STOPPED, 5.0)) == []
    assert core.jobs[job("a")].state is JobState.QUEUED
    assert core.jobs[job("a")].failures == 0
    assert not core.ledger.nodes[N0].runs


def test_only_the_workers_there_move_of_a_gang_on_several_nodes() -> None:
    core = core_with(BACKFILL, node("n0", 2), node("n1", 2), node("n2", 2))
    started(core, core.handle(Submitted(1.0, job("a"), spec(2, workers=(2, 2)))), 2.0)

    (move,) = core.handle(drain(3.0))

    assert isinstance(move, Migrate)
    assert {p.node for p in move.allocation.parts} == {"n1", "n2"}


def test_an_elastic_run_goes_on_with_the_workers_that_it_has_elsewhere() -> None:
    core = core_with(policy("alnair"), node("n0", 2), node("n1", 2))
    actions = core.handle(Submitted(1.0, job("a"), spec(1, workers=(1, 4))))
    started(core, actions, 2.0)
    if core.runs[run("a")].target is not None:
        core.handle(Resized(3.0, run("a")))
    assert core.runs[run("a")].allocation.nodes == ("n0", "n1")

    (shrink,) = core.handle(drain(9.0))

    assert isinstance(shrink, Resize)
    assert shrink.allocation.nodes == ("n1",)


def test_what_is_starting_is_stopped_and_what_is_reserved_looks_elsewhere() -> None:
    core = core_with(policy("srtf"), node("n0", 4))
    started(core, core.handle(Submitted(1.0, job("long"), spec(4, 9000.0))), 2.0)
    core.handle(Submitted(900.0, job("short"), spec(4, 10.0)))
    assert core.runs[run("short")].after == {run("long")}

    assert core.handle(drain(901.0)) == []
    assert core.jobs[job("short")].state is JobState.QUEUED
    assert core.withdrawn == [job("short")]
    core.handle(Exited(910.0, run("long"), Outcome.STOPPED, 5.0))
    assert core.handle(NodeUncordoned(911.0, N0)) != []
    (stop,) = core.handle(drain(912.0))

    assert stop == Stop(run("short"), WHY, drain(912.0))
    validate(core)


def test_a_node_stays_cordoned_when_it_comes_back() -> None:
    core = core_with(BACKFILL, node("n0", 4))
    core.handle(drain(1.0))
    core.handle(NodeLost(2.0, N0))
    core.handle(NodeJoined(3.0, node("n0", 4)))

    assert core.handle(Submitted(4.0, job("a"), spec(1))) == []
    assert core.ledger.nodes[N0].here
    assert not core.ledger.nodes[N0].up


def test_it_survives_a_restart() -> None:
    core = core_with(BACKFILL, node("n0", 4))
    started(core, core.handle(Submitted(1.0, job("a"), spec(2))), 2.0)
    core.handle(NodeCordoned(3.0, N0, "odd noise", "ada"), Submitted(3.0, job("b"), spec(1)))

    again = snapshot.load(snapshot.dump(core), BACKFILL, core._plan.placer)

    assert snapshot.digest(again) == snapshot.digest(core)
    assert again.ledger.nodes[N0].cordon == core.ledger.nodes[N0].cordon
    assert again.handle(NodeUncordoned(5.0, N0)) != []
    validate(again)


def test_a_failure_on_a_cordoned_node_is_one_as_ever() -> None:
    core = core_with(BACKFILL, node("n0", 4))
    started(core, core.handle(Submitted(1.0, job("a"), spec(2))), 2.0)
    core.handle(NodeCordoned(3.0, N0))

    (stop,) = core.handle(GpuFailed(4.0, N0, 0))

    assert stop == Stop(run("a"), "GPU 0 of node n0 failed", GpuFailed(4.0, N0, 0))
    core.handle(Exited(5.0, run("a"), Outcome.LOST))
    core.handle(NodeUncordoned(6.0, N0))
    assert core.ledger.capacity_milli == 3000
    validate(core)


def test_no_job_can_be_moved_there() -> None:
    core = two_nodes()
    started(core, core.handle(Submitted(1.0, job("a"), spec(2))), 2.0)
    core.handle(NodeCordoned(3.0, N1))

    with pytest.raises(Conflict, match="node n1 takes nothing new"):
        core.handle(MigrateRequested(4.0, job("a"), N1))
    assert core.handle(MigrateRequested(4.0, job("a"))) != []  # other GPUs of its own node


def test_a_run_that_was_to_grow_there_stays_as_it_is() -> None:
    core = core_with(BACKFILL, node("n0", 1), node("n1", 1))
    started(core, core.handle(Submitted(1.0, job("a"), spec(1, workers=(1, 2)))), 2.0)
    started(core, core.handle(Submitted(3.0, job("b"), spec(1))), 4.0)
    core.handle(CancelRequested(5.0, job("b")))
    core.handle(ScaleRequested(6.0, job("a"), Range(2, 2)))
    assert core.runs[run("a")].phase is RunPhase.EXPECTING

    assert core.handle(NodeCordoned(7.0, N1)) == []
    assert core.handle(Exited(8.0, run("b"), Outcome.STOPPED)) == []

    assert core.runs[run("a")].settled
    assert core.runs[run("a")].allocation == held("n0", [0])
    validate(core)


def test_a_gpu_is_disabled_for_a_reason_and_restored() -> None:
    core = core_with(BACKFILL, node("n0", 2))
    started(core, core.handle(Submitted(1.0, job("a"), spec(1))), 2.0)
    bad = GpuFailed(3.0, N0, 0, "memory errors", "ada")

    assert core.handle(bad) == [
        Stop(run("a"), "GPU 0 of node n0 was disabled by ada: memory errors", bad)
    ]
    (launch,) = core.handle(Exited(4.0, run("a"), Outcome.STOPPED))
    assert isinstance(launch, Launch)
    assert launch.allocation == held("n0", [1])
    again = snapshot.load(snapshot.dump(core), BACKFILL, core._plan.placer)
    assert again.ledger.nodes[N0].notices == {0: Notice(3.0, "memory errors", "ada")}
    again.handle(GpuRestored(5.0, N0, 0))
    assert again.ledger.nodes[N0].notices == {}
    validate(again)


def test_unknown_nodes_and_repetitions() -> None:
    core = two_nodes()
    with pytest.raises(NotFound):
        core.handle(drain(1.0, "n7"))
    with pytest.raises(NotFound):
        core.handle(NodeUncordoned(1.0, node("n7").id))

    core.handle(drain(2.0))
    core.handle(drain(3.0))
    assert core.ledger.nodes[N0].cordon == Notice(2.0, "new memory", "ada")
    core.handle(NodeCordoned(4.0, N0, "new memory", "bob"))
    assert not core.ledger.nodes[N0].draining
    core.handle(NodeUncordoned(5.0, N0), NodeUncordoned(5.0, N0))
    assert core.ledger.capacity_milli == 8000
    validate(core)


def test_what_comes_up_while_its_node_is_drained_leaves_then() -> None:
    core = two_nodes()
    core.handle(Submitted(1.0, job("a"), spec(4)), Submitted(1.0, job("b"), spec(4)))
    core.handle(Started(2.0, run("a")), Started(2.0, run("b")))
    core.handle(CancelRequested(3.0, job("b")))
    core.handle(Exited(4.0, run("b"), Outcome.CANCELLED))
    (move,) = core.handle(MigrateRequested(5.0, job("a"), N1))
    assert isinstance(move, Migrate)

    assert core.handle(drain(6.0, "n1")) == []  # it is on its way there
    (back,) = core.handle(Resized(7.0, run("a")))

    assert isinstance(back, Migrate)
    assert back.allocation.nodes == ("n0",)
