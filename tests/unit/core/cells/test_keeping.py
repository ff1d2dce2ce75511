"""Promises of cells kept, as lists of events and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roost.core import (
    CancelRequested,
    Core,
    Evict,
    Exited,
    GpuFailed,
    JobSpec,
    NodeLost,
    Outcome,
    Place,
    Protected,
    QueueChanged,
    QueueId,
    QueueSpec,
    Range,
    Reclaim,
    Reshape,
    Resized,
    Resources,
    Started,
    Stop,
    Submitted,
)
from roost.core.cells import parse_promises
from roost.core.snapshot import dump, load
from roost.errors import Conflict
from roost.placement import placer
from roost.policies.fifo import fifo
from roost.policies.srtf import Srtf
from roost.testing.builders import core_with, job, node, run
from roost.testing.checks import validate
from roost.testing.promises import broken_promises

VISION = QueueId("vision")


def promised(name: str, cells: str) -> QueueChanged:
    return QueueChanged(0.0, QueueSpec(QueueId(name), cells=parse_promises(cells)))


def submitted(time: float, name: str, queue: str, workers: int = 1, **others: object) -> Submitted:
    most = int(others.pop("most", workers))  # type: ignore[call-overload]
    spec = JobSpec(
        Range(workers, most),
        Resources(gpus=int(others.pop("gpus", 4))),  # type: ignore[call-overload]
        queue=QueueId(queue),
        **others,  # type: ignore[arg-type]
    )
    return Submitted(time, job(name), spec)


def cluster(*queues: QueueChanged, policy: object = fifo) -> Core:
    nodes = (node(f"n{at}", gpus=4, kind="A", switch=f"s{at // 2}") for at in range(4))
    core = core_with(policy, *nodes)  # type: ignore[arg-type]
    for queue in queues:
        core.handle(queue)
    return core


def begin(core: Core, *events: Submitted) -> None:
    """Let jobs begin that find room, and come up."""
    for event in events:
        for action in core.handle(event):
            core.handle(Started(event.time, action.run))
    validate(core)


def where(core: Core, name: str) -> set[str]:
    found = core.jobs[job(name)].run
    return set() if found is None else set(found.allocation.nodes)


def test_a_promise_is_kept_whatever_others_do() -> None:
    core = cluster(promised("vision", "2xnode:A"))
    begin(core, *(submitted(1.0, f"b{at}", "others") for at in range(4)))

    actions = core.handle(submitted(2.0, "v", "vision", 2))

    why = "vision is promised 2 × node of A: makes room for v"
    assert {action.reason for action in actions} == {why}  # type: ignore[union-attr]
    assert len(actions) == 2
    assert broken_promises(core) == []
    for action in actions:
        core.handle(Exited(3.0, action.run, Outcome.STOPPED))
    assert core.jobs[job("v")].run is not None
    validate(core)


def test_others_take_first_what_is_due_to_nobody() -> None:
    core = cluster(promised("vision", "2xnode:A"))
    begin(core, submitted(1.0, "b0", "others"), submitted(1.0, "b1", "others"))
    begin(core, submitted(2.0, "v", "vision", 2))

    assert where(core, "v")
    assert where(core, "v").isdisjoint(where(core, "b0") | where(core, "b1"))


def test_no_policy_takes_what_a_run_has_by_promise() -> None:
    core = cluster(promised("vision", "4xnode:A"), policy=Srtf())
    begin(core, submitted(1.0, "long", "vision", 4, run_time_s=1e6))

    assert core.handle(submitted(2.0, "short", "others", run_time_s=1.0)) == []
    assert core.handle(submitted(3.0, "own", "vision", run_time_s=1.0))  # its own queue may


def test_a_lower_priority_loses_its_claim_and_keeps_running() -> None:
    core = cluster(promised("vision", "1xnode:A"))
    begin(core, submitted(1.0, "low", "vision"))
    core.handle(submitted(2.0, "high", "vision", priority=1))
    assert Reclaim(job("low"), ()) in core.decisions
    core.handle(Started(2.0, run("high")))

    assert set(core.ledger.cells.holdings.claims) == {job("high")}  # type: ignore[union-attr]
    assert where(core, "low")
    assert where(core, "high")

    core.handle(Exited(3.0, run("high"), Outcome.SUCCEEDED))

    assert set(core.ledger.cells.holdings.claims) == {job("low")}  # type: ignore[union-attr]


def test_elastic_runs_give_back_in_place() -> None:
    core = cluster(promised("vision", "2xnode:A"))
    begin(core, submitted(1.0, "e", "others", 1, most=4))
    run_of = core.jobs[job("e")].run
    assert run_of is not None
    grown = core._plan
    grown.begin(core.now)
    assert grown.resize(run_of, 4)
    core._commit(grown.decisions, None)
    core.handle()
    core.handle(Resized(1.5, run("e")))

    core.handle(submitted(2.0, "v", "vision", 2))

    shrunk = [one for one in core.decisions if isinstance(one, Reshape)]
    assert [one.allocation.workers for one in shrunk] == [2]
    assert not [one for one in core.decisions if isinstance(one, Evict)]
    assert [one.job for one in core.decisions if isinstance(one, Place)] == [job("v")]
    validate(core)


def test_a_run_that_cannot_leave_is_not_put_where_it_would_break_a_promise() -> None:
    core = cluster(promised("vision", "1xswitch:A"))
    begin(core, submitted(1.0, "a", "others", preemptible=False))
    begin(core, submitted(1.0, "b", "others", preemptible=False))
    assert core.handle(submitted(1.0, "c", "others", preemptible=False)) == []

    begin(core, submitted(2.0, "v", "vision", 2))
    assert where(core, "v")
    assert broken_promises(core) == []


def test_a_higher_priority_takes_over_a_place_that_is_waited_for() -> None:
    core = cluster(promised("vision", "1xnode:A"), promised("rest", "3xnode:A"))
    begin(core, *(submitted(1.0, f"r{at}", "rest") for at in range(3)))
    begin(core, submitted(1.0, "guest", "others"))
    core.handle(submitted(2.0, "v1", "vision"))
    core.handle(submitted(3.0, "v2", "vision", priority=1))

    assert core.withdrawn == [job("v1")]
    core.handle(CancelRequested(4.0, job("v2")))
    actions = core.handle(Exited(5.0, run("guest"), Outcome.STOPPED))
    assert [action.run.job for action in actions] == [job("v1")]
    validate(core)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ("4xnode:A", "1 × switch of A, 3 × node of A"),
        ("1xnode:B", "there is no node such as in '1xnode:B'"),
        ("pin:n9", "there is no cell 'n9'"),
        ("pin:n0,pin:n0/gpu1", "overlaps"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_refused(cells: str, why: str) -> None:
    core = cluster(promised("vision", "1xnode:A"))

    with pytest.raises(Conflict, match=why):
        core.handle(promised("more", cells))
    assert QueueId("more") not in core.queues


def test_a_cell_is_promised_once_whoever_was_there_first() -> None:
    core = cluster(promised("vision", "1xnode:A"), promised("more", "pin:n0"))

    with pytest.raises(Conflict, match="cell 'n0' overlaps 'n0', which is promised to more"):
        core.handle(promised("vision", "1xnode:A,pin:n0"))


def test_a_smaller_promise_stops_nobody() -> None:
    core = cluster(promised("vision", "2xnode:A"))
    begin(core, submitted(1.0, "a", "vision"), submitted(1.0, "b", "vision"))

    assert core.handle(QueueChanged(2.0, QueueSpec(VISION, cells=parse_promises("1xnode:A")))) == []
    assert list(core.ledger.cells.holdings.claims) == [job("a")]  # type: ignore[union-attr]
    validate(core)


def test_what_is_broken_is_told() -> None:
    core = cluster(promised("vision", "4xnode:A"))
    core.handle(NodeLost(1.0, core.ledger.order[0].id))
    core.handle(GpuFailed(1.0, core.ledger.order[1].id, 0))
    core.handle(submitted(2.0, "v", "vision", 4))

    explained = core.explain(job("v"))
    assert explained is not None
    assert "2 cannot be kept: too little healthy hardware is left" in explained.reason.text


def test_protection_that_comes_later_breaks_nothing() -> None:
    core = cluster(promised("vision", "2xnode:A"))
    begin(core, *(submitted(1.0, f"b{at}", "others") for at in range(4)))
    core.handle(Protected(2.0, job("b0"), "it must not stop"))
    core.handle(submitted(3.0, "v", "vision", 2))

    assert job("b0") not in {one.job for one in core.decisions if isinstance(one, Evict)}
    validate(core)


def test_a_restart_brings_claims_back() -> None:
    core = cluster(promised("vision", "2xnode:A,pin:n3"))
    begin(core, submitted(1.0, "v", "vision", 2), submitted(1.0, "b", "others"))

    again = load(dump(core), fifo, placer("first-fit"))

    assert dump(again) == dump(core)
    assert again.ledger.cells is not None
    assert again.ledger.cells.holdings.claims == core.ledger.cells.holdings.claims  # type: ignore[union-attr]


def test_a_job_that_asks_for_a_cell_waits_when_that_is_promised_no_more() -> None:
    core = cluster(promised("vision", "pin:n1"))
    core.handle(submitted(1.0, "first", "vision", cell="n1"))
    core.handle(submitted(2.0, "second", "vision", cell="n1"))
    core.handle(replace(promised("vision", ""), time=2.0))

    core.handle(Started(3.0, run("first")), Exited(3.0, run("first"), Outcome.SUCCEEDED))
    assert core.jobs[job("second")].run is None

    core.handle(replace(promised("vision", "pin:n1"), time=4.0))
    assert core.runs[run("second")].allocation.nodes == ("n1",)


def test_a_job_that_waits_for_a_start_is_looked_at_until_then() -> None:
    core = cluster(promised("vision", "1xnode:A"))
    for name in ("g0", "g1", "g2", "g3"):
        core.handle(submitted(1.0, name, "guests"))
    assert core.handle(submitted(2.0, "mine", "vision")) == []
    # Another event before they are up: what was refused then, is not refused for good.
    assert core.handle(submitted(3.0, "more", "guests")) == []
    started = [Started(4.0, run(name)) for name in ("g0", "g1", "g2", "g3")]
    (stopped,) = core.handle(*started)
    assert isinstance(stopped, Stop)
    assert "vision is promised" in stopped.reason
    validate(core)


def test_a_new_promise_is_not_of_a_node_that_somebody_cannot_leave() -> None:
    core = cluster(promised("red", "1xgpu:A"))
    begin(core, submitted(1.0, "stays", "red", gpus=1, priority=-1, preemptible=False))
    (at,) = where(core, "stays")
    core.handle(QueueChanged(2.0, QueueSpec(VISION, cells=parse_promises(f"pin:{at}"))))
    begin(core, submitted(3.0, "mine", "vision", gpus=2, preemptible=False))
    assert where(core, "mine") == {at}
    core.handle(QueueChanged(4.0, QueueSpec(VISION, cells=parse_promises("1xnode:A"))))
    assert broken_promises(core) == []
    validate(core)


def test_a_larger_promise_is_not_of_a_node_where_another_queue_cannot_leave() -> None:
    core = cluster(promised("red", "1xgpu:A"), promised("vision", "1xgpu:A"))
    begin(core, submitted(1.0, "theirs", "red", gpus=1, preemptible=False))
    begin(core, submitted(2.0, "mine", "vision", gpus=1, priority=1, preemptible=False))
    assert where(core, "mine") == where(core, "theirs")
    core.handle(QueueChanged(4.0, QueueSpec(VISION, cells=parse_promises("1xnode:A"))))
    assert broken_promises(core) == []
    assert [claim.promise for claim in core.ledger.cells.claims_of(core.jobs[job("theirs")])] == [  # type: ignore[union-attr]
        "gpu:A"
    ]
    validate(core)
