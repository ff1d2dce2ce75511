"""A job starts whole or not at all."""

from __future__ import annotations

from roost.core import (
    Allocation,
    Exited,
    JobState,
    Launch,
    NodeJoined,
    Outcome,
    Started,
    Submitted,
    Woke,
)
from roost.policies.fifo import fifo
from roost.testing.builders import (
    core_with,
    held,
    job,
    node,
    part,
    role,
    run,
    shared,
    spec,
    started,
)
from roost.testing.checks import validate


def test_a_job_that_fits_is_launched_at_once() -> None:
    core = core_with(fifo, node("n0", 2))

    actions = core.handle(Submitted(1.0, job("a"), spec(2, 9.0)))

    assert actions == [Launch(run("a"), spec(2, 9.0), held("n0", (0, 1)))]
    assert core.jobs[job("a")].state is JobState.STARTING
    assert started(core, actions, at=2.0) == []
    assert core.jobs[job("a")].state is JobState.RUNNING
    validate(core)


def test_a_gang_starts_whole_or_not_at_all() -> None:
    core = core_with(fifo, node("n0", 2), node("n1", 1), placer="pack")
    gang = spec(1, workers=4)

    assert core.handle(Submitted(1.0, job("a"), gang)) == []
    assert core.ledger.free_milli == 3000
    assert core.handle(NodeJoined(2.0, node("n2", 1))) == [
        Launch(
            run("a"),
            gang,
            Allocation((part("n0", (0, 1), 2), part("n1", (0,)), part("n2", (0,)))),
        )
    ]
    validate(core)


def test_a_gang_starts_with_all_its_roles() -> None:
    core = core_with(fifo, node("n0", 1, cpu_milli=1000), node("n1", 0, cpu_milli=1000))
    with_servers = spec(1, roles=(role("ps", 2, cpu_milli=1000),))
    with_too_many = spec(1, roles=(role("ps", 3, cpu_milli=1000),))

    assert core.handle(Submitted(1.0, job("a"), with_too_many)) == []
    (launch,) = core_with(
        fifo, node("n0", 1, cpu_milli=1000), node("n1", 0, cpu_milli=1000)
    ).handle(Submitted(1.0, job("a"), with_servers))

    assert isinstance(launch, Launch)
    assert launch.allocation.workers == 1
    assert [p.node for p in launch.allocation.parts if p.role == "ps"] == ["n0", "n1"]


def test_shares_of_one_device_add_up_to_one() -> None:
    core = core_with(fifo, node("n0", 1))

    first = core.handle(Submitted(1.0, job("a"), spec(0.6)), Submitted(1.0, job("b"), spec(0.4)))
    more = core.handle(Submitted(2.0, job("c"), spec(0.1)))

    assert [action.allocation for action in first if isinstance(action, Launch)] == [
        shared("n0", 0, 600),
        shared("n0", 0, 400),
    ]
    assert more == []


def test_memory_limits_of_one_device_add_up_to_the_device() -> None:
    core = core_with(fifo, node("n0", 1, gpu_memory_mib=1000))

    core.handle(Submitted(1.0, job("a"), spec(0.1, gpu_memory_mib=700)))

    assert core.handle(Submitted(2.0, job("b"), spec(0.1, gpu_memory_mib=400))) == []
    assert len(core.handle(Submitted(3.0, job("c"), spec(0.1, gpu_memory_mib=300)))) == 0
    assert core.explain(job("c")) is not None, "first come, first served: b is ahead of c"


def test_a_job_without_gpus_needs_only_a_node_that_is_up() -> None:
    core = core_with(fifo, node("n0", 0, cpu_milli=2000))

    actions = core.handle(Submitted(1.0, job("a"), spec(0, cpu_milli=1500)))

    assert actions == [Launch(run("a"), spec(0, cpu_milli=1500), held("n0"))]
    assert core.handle(Submitted(2.0, job("b"), spec(0, cpu_milli=1000))) == []


def test_nothing_happens_without_jobs_or_without_nodes() -> None:
    core = core_with(fifo)

    assert core.handle() == []
    assert core.handle(Woke(1.0)) == []
    assert core.handle(Submitted(2.0, job("a"), spec(1))) == []
    assert core.explain(job("a")) is not None


def test_a_half_started_gang_that_failed_starts_again_from_nothing() -> None:
    core = core_with(fifo, node("n0", 2))
    gang = spec(1, workers=2, max_retries=1)
    core.handle(Submitted(1.0, job("a"), gang))

    assert core.handle(Exited(2.0, run("a"), Outcome.FAILED)) == [
        Launch(run("a", 2), gang, held("n0", (0, 1), 2))
    ]
    assert core.handle(Started(3.0, run("a", 2))) == []
    validate(core)
