"""Nodes that change under those who use them, and pools: named sets of nodes."""

from __future__ import annotations

import pytest

from roost.core import (
    Adopted,
    CancelRequested,
    Cause,
    Core,
    Exited,
    GpuFailed,
    JobSpec,
    JobState,
    Launch,
    MigrateRequested,
    NodeChanged,
    NodeId,
    NodeJoined,
    NodeLost,
    NodeSpec,
    Outcome,
    PoolChanged,
    Range,
    Reason,
    Resize,
    ScaleRequested,
    Submitted,
    Woke,
)
from roost.core.snapshot import digest, dump, load
from roost.core.wire import encode
from roost.errors import Conflict, NotFound
from roost.placement import PLACERS, placer
from roost.policies import names, policy
from roost.testing.builders import core_with, held, job, node, role, run, shared, spec, started
from roost.testing.checks import validate
from roost.testing.journal import differ, snapshot

A, B = job("a"), job("b")
N0, N1 = NodeId("n0"), NodeId("n1")


def pool(time: float, *nodes: str, name: str = "p") -> PoolChanged:
    return PoolChanged(time, name, frozenset(map(NodeId, nodes)))


def why(core: Core) -> Reason:
    explained = core.explain(A)
    assert explained is not None
    return explained.reason


# -- nodes that change ---------------------------------------------------------------------------


def test_a_node_that_grew_takes_more() -> None:
    core = core_with(policy("fifo"), node("n0", 2))
    assert core.handle(Submitted(0.0, A, spec(4))) == []

    (launch,) = core.handle(NodeChanged(1.0, node("n0", 4)))

    assert launch.run == run("a")
    assert core.ledger.capacity_milli == 4000
    validate(core)


def test_what_is_in_use_stays_where_it_is() -> None:
    core = core_with(policy("fifo"), node("n0", 4, cpu_milli=8000, gpu_memory_mib=1000))
    core.handle(
        Adopted(0.0, A, spec(1, cpu_milli=3000), held("n0", (1,)), attempts=1),
        Adopted(0.0, B, spec(0.5), shared("n0", 0, 500), attempts=1),
    )

    new = node("n0", 2, cpu_milli=4000, gpu_memory_mib=2000, kind="b", memory_mib=500)
    core.handle(NodeChanged(1.0, new))

    place = core.ledger.node(N0)
    assert (place.free, place.cpu_left, place.shared[0].left_mib) == (0, 1000, 1000)
    validate(core)
    core.handle(Exited(2.0, run("a"), Outcome.SUCCEEDED), Exited(2.0, run("b"), Outcome.SUCCEEDED))
    assert (place.free, place.cpu_left, place.memory_left) == (3, 4000, 500)
    validate(core)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (node("n0", 1, cpu_milli=8000), "node n0 has no GPU 1"),
        (node("n0", 0, cpu_milli=8000), "node n0 has no GPU 1"),
        (node("n0", 4, cpu_milli=2000), "node n0 has 2000 milli-CPUs left"),
        (node("n0", 4, cpu_milli=8000, memory_mib=50), "node n0 has 50 MiB of memory left"),
        (node("n0", 4, cpu_milli=8000, gpu_memory_mib=100), "GPUs of node n0 have 100 MiB"),
    ],
)
def test_a_node_cannot_have_less_than_is_in_use(changed: NodeSpec, told: str) -> None:
    core = core_with(policy("fifo"), node("n0", 4, cpu_milli=8000))
    wanted = spec(1, cpu_milli=3000, memory_mib=100, gpu_memory_mib=300)
    core.handle(Adopted(0.0, A, wanted, held("n0", (1,)), attempts=1))
    before = snapshot(core)

    with pytest.raises(Conflict, match=told):
        core.handle(NodeChanged(0.0, changed))

    assert not differ(before, snapshot(core))
    validate(core)


def test_a_node_cannot_have_less_while_somebody_leaves_it() -> None:
    core = core_with(policy("fifo"), node("n0", 4))
    core.handle(Adopted(0.0, A, spec(1), held("n0", (0,)), attempts=1), CancelRequested(0.0, A))

    with pytest.raises(Conflict, match="come or go"):
        core.handle(NodeChanged(1.0, node("n0", 2)))
    core.handle(NodeChanged(1.0, node("n0", 8)))
    validate(core)

    core.handle(Exited(2.0, run("a"), Outcome.STOPPED), NodeChanged(2.0, node("n0", 2)))
    validate(core)


def test_devices_that_failed_stay_so() -> None:
    core = core_with(policy("fifo"), node("n0", 4))
    core.handle(GpuFailed(0.0, N0, 2))

    core.handle(NodeChanged(1.0, node("n0", 6)))

    assert core.ledger.node(N0).free == 0b111011
    assert core.ledger.capacity_milli == 5000
    validate(core)


def test_only_a_node_in_service_changes() -> None:
    core = core_with(policy("fifo"), node("n0", 4))
    with pytest.raises(NotFound):
        core.handle(NodeChanged(0.0, node("n1", 4)))
    core.handle(NodeLost(0.0, N0))
    with pytest.raises(Conflict, match="not in service"):
        core.handle(NodeChanged(0.0, node("n0", 2)))


def test_a_kind_that_comes_later_is_found() -> None:
    core = core_with(policy("fifo"), node("n0", 1, kind="gpu"))
    core.handle(Submitted(0.0, A, spec(1, kinds=("H200",))))

    (launch,) = core.handle(NodeChanged(1.0, node("n0", 1, kind="H200")))

    assert launch.run == run("a")
    validate(core)


def test_the_largest_node_is_not_remembered_wrongly() -> None:
    core = core_with(policy("fifo"), node("n0", 2))
    assert core.ledger.could(spec(2).resources, 1)

    core.handle(NodeChanged(1.0, node("n0", 8)))
    assert core.ledger.largest == 8
    core.handle(NodeChanged(2.0, node("n0", 0)))
    assert core.ledger.largest == 0
    validate(core)


# -- pools ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", sorted(PLACERS))
def test_workers_stay_in_their_pool(where: str) -> None:
    core = core_with(policy("fifo"), *(node(f"n{n}", 2) for n in range(4)), placer=where)
    core.handle(pool(0.0, "n1", "n3"))

    actions = core.handle(Submitted(1.0, A, spec(1, workers=4, pool="p")))

    assert isinstance(actions[0], Launch)
    assert set(actions[0].allocation.nodes) == {"n1", "n3"}
    validate(core)


@pytest.mark.parametrize("gpus", [0, 0.5, 1, 2])
@pytest.mark.parametrize("name", names())
def test_every_policy_keeps_to_pools(name: str, gpus: float) -> None:
    core = core_with(policy(name), node("n0", 2), node("n1", 2))
    core.handle(pool(0.0, "n1"))

    actions = core.handle(Submitted(1.0, A, spec(gpus, 10.0, pool="p", cpu_milli=100)))
    (launch,) = actions or core.handle(Woke(core.wake_at))  # some decide in rounds
    assert isinstance(launch, Launch)
    assert launch.allocation.nodes == (N1,)
    later = core.now + 1.0
    assert core.handle(Submitted(later, B, spec(gpus, 10.0, pool="q"))) == []
    validate(core)


def test_roles_have_pools_of_their_own() -> None:
    core = core_with(policy("fifo"), node("n0", 2), node("n1", 2))
    core.handle(pool(0.0, "n0"), pool(0.0, "n1", name="q"))
    gang = spec(1, workers=2, pool="p", roles=(role("ps", 1, 1, pool="q"),))

    (launch,) = core.handle(Submitted(1.0, A, gang))

    assert isinstance(launch, Launch)
    assert [(p.role, p.node) for p in launch.allocation.parts] == [("worker", N0), ("ps", N1)]


def test_a_pool_may_name_nodes_that_come_later() -> None:
    core = core_with(policy("fifo"), node("n0", 1))
    core.handle(pool(0.0, "n1"), Submitted(0.0, A, spec(1, pool="p")))
    assert not core.runs

    (launch,) = core.handle(NodeJoined(1.0, node("n1", 1)))

    assert isinstance(launch, Launch)
    assert launch.allocation.nodes == (N1,)


def test_a_node_that_is_lost_is_still_of_its_pool_when_it_is_back() -> None:
    core = core_with(policy("fifo"), node("n0", 1), node("n1", 1))
    core.handle(pool(0.0, "n1"), NodeLost(0.0, N1), Submitted(0.0, A, spec(1, pool="p")))
    assert why(core) == (Cause.CAPACITY, "no node matches what it asks for", None)

    assert [a.run for a in core.handle(NodeJoined(1.0, node("n1", 1)))] == [run("a")]


def test_runs_stay_where_they_are_when_nodes_leave_their_pool() -> None:
    core = core_with(policy("fifo"), node("n0", 1), node("n1", 1))
    core.handle(pool(0.0, "n0"))
    started(core, core.handle(Submitted(0.0, A, spec(1, pool="p"))), 0.0)

    assert core.handle(pool(1.0)) == []
    assert core.jobs[A].state is JobState.RUNNING
    validate(core)

    assert core.handle(ScaleRequested(2.0, A, Range(2, 2))) == []
    (grown,) = core.handle(pool(3.0, "n1"))
    assert isinstance(grown, Resize)
    assert grown.allocation.nodes == (N0, N1)
    validate(core)


def test_who_is_moved_goes_to_its_pool() -> None:
    core = core_with(policy("fifo"), *(node(f"n{n}", 1) for n in range(3)))
    core.handle(pool(0.0, "n0"))
    started(core, core.handle(Submitted(0.0, A, spec(1, pool="p"))), 0.0)
    core.handle(pool(1.0, "n2"))

    assert core.handle(MigrateRequested(2.0, A, N1)) == []
    core.handle(MigrateRequested(3.0, A))

    target = core.runs[run("a")].target
    assert target is not None
    assert target.nodes == ("n2",)


def test_the_same_pool_again_changes_nothing() -> None:
    core = core_with(policy("fifo"), node("n0", 1))
    core.handle(pool(0.0, "n0"))
    releases = core.ledger.releases

    core.handle(pool(1.0, "n0"))

    assert core.ledger.releases == releases


@pytest.mark.parametrize(
    ("members", "wanted", "cause", "text"),
    [
        ((), spec(1, pool="p"), Cause.CAPACITY, "no node matches what it asks for"),
        ((), spec(0, cpu_milli=1, pool="p"), Cause.CAPACITY, "no node matches what it asks for"),
        (("n9",), spec(1, pool="p"), Cause.CAPACITY, "no node matches what it asks for"),
        (
            (),
            spec(1, roles=(role("ps", pool="p"),)),
            Cause.CAPACITY,
            "no node matches what it asks for",
        ),
        (
            ("n1",),
            spec(2, pool="p"),
            Cause.CAPACITY,
            "fewer than 2 GPUs are free on the nodes that match what it asks for",
        ),
        (
            ("n1",),
            spec(1, kinds=("x",), pool="p"),
            Cause.CAPACITY,
            "no node matches what it asks for",
        ),
        (
            ("n0",),
            spec(4, pool="p"),
            Cause.FRAGMENTATION,
            "4 GPUs are free, but not where such a gang fits with all it needs",
        ),
    ],
)
def test_why_a_job_waits_for_its_pool(
    members: tuple[str, ...], wanted: JobSpec, cause: Cause, text: str
) -> None:
    core = core_with(policy("fifo"), node("n0", 4), node("n1", 1))
    core.handle(pool(0.0, *members))
    if cause is Cause.FRAGMENTATION:
        wanted = spec(4, cpu_milli=100, pool="p")
        core.handle(NodeChanged(0.0, node("n0", 4, cpu_milli=50)))

    assert core.handle(Submitted(1.0, A, wanted)) == []

    assert why(core) == (cause, text, None)


def test_reservations_leave_the_pool_with_their_nodes() -> None:
    core = core_with(policy("conservative"), node("n0", 1), node("n1", 1))
    core.handle(pool(0.0, "n0"))
    started(core, core.handle(Submitted(0.0, B, spec(1, 100.0, pool="p"))), 0.0)
    core.handle(Submitted(1.0, A, spec(1, 10.0, pool="p")))
    assert core.wake_at == 100.0

    (launch,) = core.handle(pool(2.0, "n1"))

    assert isinstance(launch, Launch)
    assert launch.allocation.nodes == (N1,)


# -- restarts ------------------------------------------------------------------------------------


def test_pools_and_protections_come_back() -> None:
    core = core_with(policy("fifo"), node("n0", 1))
    core.handle(pool(0.0, "n0", "later"), pool(0.0, name="none"))

    again = load(dump(core), policy("fifo"), placer("first-fit"))

    assert again.ledger.pools == core.ledger.pools == {"p": 1, "none": 0}
    assert again.ledger.members == core.ledger.members
    assert digest(again) == digest(core)
    (launch,) = again.handle(Submitted(1.0, A, spec(1, pool="p")))
    assert launch.run == run("a")


def test_what_was_written_before_there_were_pools_is_the_same_today() -> None:
    core = core_with(policy("fifo"), node("n0", 1))
    core.handle(Submitted(0.0, A, spec(1)))

    data = dump(core)

    assert "pools" not in data
    assert "protected" not in data["jobs"][0]
    assert encode(spec(1)) == {}
    assert digest(load(data, policy("fifo"), placer("first-fit"))) == digest(core)


def test_a_node_that_takes_fewer_workers_than_are_there_does_not_change() -> None:
    core = core_with(policy("fifo"), node("n0", 4, workers=4))
    started(core, core.handle(Submitted(0.0, A, spec(1, workers=3))), 0.5)
    with pytest.raises(Conflict, match="in use"):
        core.handle(NodeChanged(1.0, node("n0", 4, workers=2)))
    core.handle(NodeChanged(1.0, node("n0", 4, workers=3)))
    assert core.handle(Submitted(2.0, B, spec(1))) == []
    (launch,) = core.handle(Exited(3.0, run("a"), Outcome.SUCCEEDED))
    assert isinstance(launch, Launch)
    again = load(dump(core), policy("fifo"), placer("first-fit"))
    assert not differ(snapshot(again), snapshot(core))
    validate(core)


def test_a_pool_is_forgotten() -> None:
    core = core_with(policy("fifo"), node("n0", 4))
    core.handle(pool(0.0, "n0"))
    core.handle(Submitted(1.0, A, spec(1, pool="p")))
    core.handle(PoolChanged(2.0, "p", None), PoolChanged(2.0, "unknown", None))
    assert (core.ledger.pools, core.ledger.members) == ({}, {})
    assert core.handle(Submitted(3.0, B, spec(1, pool="p"))) == []
    (launch,) = core.handle(pool(4.0, "n0"))
    assert launch.run.job == B
    validate(core)
