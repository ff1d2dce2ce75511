"""Nodes and GPUs break and come back; no job is lost over it."""

from __future__ import annotations

from roost.core import (
    Exited,
    GpuFailed,
    GpuRestored,
    JobState,
    Launch,
    NodeJoined,
    NodeLost,
    Outcome,
    Started,
    Stop,
    Submitted,
)
from roost.policies import policy
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, held, job, node, run, spec
from roost.testing.checks import validate


def test_a_lost_node_ends_its_runs_and_their_jobs_wait_again() -> None:
    core = core_with(fifo, node("n0", 1), node("n1", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, workers=2)))
    core.handle(Started(1.0, run("a")))

    assert core.handle(NodeLost(2.0, node("n1").id)) == [Stop(run("a"), "node n1 was lost")]
    validate(core)
    assert core.handle(Exited(3.0, run("a"), Outcome.LOST, 0.5)) == []
    assert core.jobs[job("a")].state is JobState.QUEUED
    assert core.jobs[job("a")].saved_s == 0.5
    (launch,) = core.handle(NodeJoined(4.0, node("n1", 1)))
    assert launch.run == run("a", 2)
    validate(core)


def test_a_loss_is_no_failure_of_the_job() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, max_retries=0)))

    core.handle(NodeLost(1.0, node("n0").id), Exited(1.0, run("a"), Outcome.LOST))

    assert core.jobs[job("a")].failures == 0
    assert core.jobs[job("a")].state is JobState.QUEUED


def test_a_node_that_is_back_is_not_used_before_its_old_runs_are_gone() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1)))
    core.handle(Started(1.0, run("a")))
    core.handle(NodeLost(2.0, node("n0").id))

    assert core.handle(NodeJoined(3.0, node("n0", 1)), Submitted(3.0, job("b"), spec(1))) == []
    assert core.handle(Exited(4.0, run("a"), Outcome.LOST)) == [
        Launch(run("b"), spec(1), held("n0", (0,)))
    ]
    validate(core)


def test_a_reserved_run_on_a_lost_node_is_just_taken_back() -> None:
    core = core_with(policy("srtf"), node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, 900.0)))
    core.handle(Started(0.0, run("a")))
    core.handle(Submitted(1.0, job("b"), spec(1, 10.0)))

    assert core.handle(NodeLost(2.0, node("n0").id)) == []
    assert core.jobs[job("b")].state is JobState.QUEUED
    assert core.jobs[job("b")].attempts == 0
    validate(core)


def test_a_failed_gpu_ends_only_the_runs_on_it() -> None:
    core = core_with(fifo, node("n0", 2))
    core.handle(Submitted(0.0, job("a"), spec(1)), Submitted(0.0, job("b"), spec(1)))

    assert core.handle(GpuFailed(1.0, node("n0").id, 1)) == [
        Stop(run("b"), "GPU 1 of node n0 failed")
    ]
    assert core.ledger.capacity_milli == 1000
    validate(core)


def test_a_gpu_that_failed_while_held_is_not_given_out_again() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1)))
    core.handle(GpuFailed(1.0, node("n0").id, 0))

    assert core.handle(Exited(2.0, run("a"), Outcome.LOST)) == []
    assert core.ledger.free_milli == 0
    assert [type(a) for a in core.handle(GpuRestored(3.0, node("n0").id, 0))] == [Launch]
    validate(core)


def test_a_gpu_repaired_while_held_waits_for_its_old_run() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1)))
    core.handle(GpuFailed(1.0, node("n0").id, 0))
    core.handle(Submitted(2.0, job("b"), spec(1)))

    assert core.handle(GpuRestored(3.0, node("n0").id, 0)) == []
    validate(core)
    assert core.handle(Exited(4.0, run("a"), Outcome.LOST)) == [
        Launch(run("b"), spec(1), held("n0", (0,)))
    ]


def test_a_gpu_may_fail_twice_and_on_a_lost_node() -> None:
    core = core_with(fifo, node("n0", 2))
    name = node("n0").id

    core.handle(GpuFailed(1.0, name, 0), GpuFailed(2.0, name, 0), NodeLost(3.0, name))
    core.handle(GpuFailed(4.0, name, 1), NodeLost(5.0, name), GpuRestored(6.0, name, 0))
    core.handle(NodeJoined(7.0, node("n0", 2)))

    assert core.ledger.capacity_milli == 1000
    validate(core)


def test_everyone_on_a_shared_gpu_is_ended_when_it_fails() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(*(Submitted(0.0, job(name), spec(0.3)) for name in "abc"))

    stops = core.handle(GpuFailed(1.0, node("n0").id, 0))

    assert {stop.run for stop in stops} == {run("a"), run("b"), run("c")}
    validate(core)


def test_a_gang_that_waited_for_a_large_node_looks_again_when_it_is_lost() -> None:
    core = core_with(fifo, node("n0", 8), node("n1", 2), node("n2", 2))
    core.handle(*(GpuFailed(0.0, node("n0").id, gpu) for gpu in range(5)))

    assert core.handle(Submitted(1.0, job("a"), spec(1, workers=4))) == [], "n0 could hold it"
    (launch,) = core.handle(NodeLost(2.0, node("n0").id))
    assert isinstance(launch, Launch)
    assert launch.allocation.nodes == ("n1", "n2")
