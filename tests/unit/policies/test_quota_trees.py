"""Queues that borrow: who may have how much, who gives it back, and what is said."""

from __future__ import annotations

import pytest

from roost.core import (
    Core,
    Exited,
    Launch,
    Outcome,
    QueueChanged,
    QueueDeleted,
    QueueId,
    QueueSpec,
    Stop,
    Submitted,
)
from roost.core.actions import Action
from roost.core.quota import Quota
from roost.core.spec import Costs, JobId, JobSpec, NodeSpec
from roost.core.wire import decode, encode
from roost.errors import InvalidSpec
from roost.policies import policy
from roost.testing.builders import core_with, node, queue, spec, started
from roost.testing.checks import validate

ORG = QueueId("org")


def tree(*queues: QueueSpec, nodes: tuple[NodeSpec, ...] = (), by: str = "priority") -> Core:
    core = core_with(policy(by), *(nodes or (node("n0"), node("n1"))))
    core.handle(*(QueueChanged(0.0, each) for each in queues))
    return core


def submit(core: Core, at: float, **wanted: JobSpec) -> list[Action]:
    return core.handle(*(Submitted(at, JobId(name), asked) for name, asked in wanted.items()))


def launched(actions: list[Action]) -> list[str]:
    return [action.run.job for action in actions if isinstance(action, Launch)]


def stopped(actions: list[Action]) -> list[str]:
    return [action.run.job for action in actions if isinstance(action, Stop)]


def why(core: Core, name: str) -> str:
    told = core.explain(JobId(name))
    assert told is not None
    return told.reason.text


def two_teams(**more: int | None) -> tuple[QueueSpec, ...]:
    return (
        queue("org"),
        queue("nlp", quota_milli=4000, parent=ORG, limit_milli=more.get("limit")),
        queue("vision", quota_milli=8000, parent=ORG, lending_milli=more.get("lending")),
    )


@pytest.mark.parametrize("by", sorted({"priority", "fair", "fifo", "srtf", "roost", "drf"}))
def test_a_queue_borrows_what_its_tree_leaves_and_no_more(by: str) -> None:
    core = tree(*two_teams(), by=by)
    actions = submit(core, 1.0, **{f"j{i}": spec(4, 900.0, queue="nlp") for i in range(4)})

    assert len(launched(actions)) == 3  # 12 of the 16 GPUs: the tree has 12
    validate(core)
    assert "its queue has 12 of 4 GPUs" in why(core, "j3")


def test_a_borrowing_limit_and_a_lending_limit_are_kept() -> None:
    few = tree(*two_teams(limit=6000))
    assert len(launched(submit(few, 1.0, **{f"j{i}": spec(2, queue="nlp") for i in range(8)}))) == 3
    little = tree(*two_teams(lending=2000))
    jobs = {f"j{i}": spec(2, queue="nlp") for i in range(8)}
    assert len(launched(submit(little, 1.0, **jobs))) == 3
    own = {f"v{i}": spec(2, queue="vision") for i in range(4)}
    assert launched(submit(little, 2.0, **own)) == ["v0", "v1", "v2"]  # 6 that nobody borrowed


@pytest.mark.parametrize("by", ["priority", "fair", "roost"])
def test_what_was_lent_comes_back_from_the_cheapest(by: str) -> None:
    core = tree(*two_teams(), by=by)
    dear = Costs(restart_s=600.0)
    started(
        core,
        submit(
            core,
            1.0,
            own=spec(4, 9e4, queue="nlp", costs=dear),
            dear=spec(4, 9e4, queue="nlp", costs=dear),
            cheap=spec(4, 9e4, queue="nlp"),
        ),
        1.0,
    )
    gone = submit(core, 100.0, back=spec(4, 9e4, queue="vision"))

    assert [run.job.id for run in core.runs.values() if run.leaves] == ["cheap"], gone


def test_a_reclaim_stops_nobody_within_its_quota() -> None:
    core = tree(*two_teams())
    started(core, submit(core, 1.0, a=spec(4, queue="nlp"), b=spec(8, queue="vision")), 1.0)
    assert stopped(submit(core, 2.0, c=spec(4, queue="vision"))) == []
    assert why(core, "c") == (
        "its queue has 8 of 8 GPUs and may borrow what others leave, of which too little is left"
    )


def test_who_gives_back_leaves_room_on_one_node() -> None:
    teams = (
        queue("org"),
        queue("nlp", quota_milli=8000, parent=ORG),
        queue("vision", quota_milli=8000, parent=ORG),
    )
    core = tree(*teams)
    pair = {"mine": spec(4, 900.0, queue="vision"), "beside": spec(4, 900.0, queue="nlp")}
    started(core, submit(core, 1.0, **pair), 1.0)
    more = {"large": spec(4, 900.0, queue="nlp"), "small": spec(1, 900.0, queue="nlp")}
    started(core, submit(core, 2.0, **more), 2.0)
    run = core.jobs[JobId("mine")].run
    assert run is not None
    core.handle(Exited(4.0, run.id, Outcome.SUCCEEDED, final=True))

    # To give back one GPU the small one would do, but it leaves no node with eight.
    assert stopped(submit(core, 5.0, wide=spec(8, 900.0, queue="vision"))) == ["beside"]
    validate(core)


def test_kinds_have_quotas_of_their_own() -> None:
    nodes = (node("h0", kind="H100"), node("a0", kind="A100"))
    h100 = Quota("gpu:H100", 4000, borrowing=0)
    core = tree(queue("vision", quotas=(h100,)), nodes=nodes)
    actions = submit(
        core,
        1.0,
        first=spec(4, queue="vision"),
        second=spec(4, queue="vision"),
        third=spec(4, queue="vision", kinds=("H100",)),
    )
    places = {
        action.run.job: action.allocation.nodes for action in actions if isinstance(action, Launch)
    }
    assert places == {"first": ("h0",), "second": ("a0",)}
    assert why(core, "third") == "its queue has 4 of 4 H100 and may have no more"
    validate(core)


def test_the_sentence_names_the_borrowers() -> None:
    kinds = (Quota("gpu:H100", 8000, borrowing=4000),)
    core = tree(
        queue("org"),
        queue("vision", parent=ORG, quotas=kinds),
        queue("nlp", parent=ORG),
        queue("spare", parent=ORG, quotas=(Quota("gpu:H100", 4000),)),
        nodes=(node("h0", 16, kind="H100"),),
    )
    started(core, submit(core, 1.0, v=spec(8, queue="vision"), n=spec(4, queue="nlp")), 1.0)
    submit(core, 2.0, more=spec(4, queue="vision"))
    assert why(core, "more") == (
        "its queue has 8 of 8 H100 and may borrow 4 H100, of which 4 H100 are borrowed by nlp"
    )


@pytest.mark.parametrize(
    ("quota", "asked"),
    [
        (Quota("cpu", 4000, 0), spec(1, queue="q", cpu_milli=3000)),
        (Quota("memory", 2048, 0), spec(1, queue="q", memory_mib=1500)),
        (Quota("rdma/hca", 1, 0), spec(1, queue="q", extras=(("rdma/hca", 1),))),
    ],
)
def test_other_resources_are_counted(quota: Quota, asked: JobSpec) -> None:
    roomy = node("n0", cpu_milli=64_000, memory_mib=65_536, extras=(("rdma/hca", 8),))
    core = tree(queue("q", quotas=(quota,)), nodes=(roomy,))
    assert launched(submit(core, 1.0, a=asked, b=asked)) == ["a"]
    assert "may have no more" in why(core, "b")


def test_equals_that_borrow_take_turns_by_weight() -> None:
    core = tree(
        queue("org", quota_milli=12_000),
        queue("red", parent=ORG, weight=2.0),
        queue("blue", parent=ORG),
    )
    jobs = {f"r{i}": spec(2, queue="red") for i in range(6)}
    actions = submit(core, 1.0, **jobs, **{f"b{i}": spec(2, queue="blue") for i in range(6)})
    names = launched(actions)
    assert (len([n for n in names if n[0] == "r"]), len([n for n in names if n[0] == "b"])) == (
        4,
        2,
    )


def test_a_parent_that_is_missing_or_a_circle_lends_nothing_and_is_told() -> None:
    core = tree(queue("a", parent=QueueId("nobody"), quota_milli=2000))
    assert launched(submit(core, 1.0, x=spec(2, queue="a"), y=spec(2, queue="a"))) == ["x"]
    assert why(core, "y").endswith("may borrow none: its parent nobody does not exist")
    core.handle(
        QueueChanged(2.0, queue("nobody", parent=QueueId("a"), quota_milli=4000)),
    )
    assert "circle: a → nobody → a" in why(core, "y")
    assert launched(core.handle(QueueChanged(3.0, queue("nobody", quota_milli=4000)))) == ["y"]
    validate(core)


def test_a_parent_that_goes_takes_its_quota_along() -> None:
    core = tree(*two_teams())
    submit(core, 1.0, x=spec(8, queue="nlp"))
    core.handle(QueueDeleted(2.0, ORG))
    account = core.queues[QueueId("nlp")].account
    assert account is not None
    assert account.fault == "its parent org does not exist"
    assert account.own == {"gpu": 8000}  # what runs is left alone
    submit(core, 3.0, y=spec(1, queue="nlp"))
    assert "may borrow none" in why(core, "y")


@pytest.mark.parametrize(
    "wrong",
    [
        {"parent": QueueId("q")},
        {"quotas": (Quota("gpu", 1),)},
        {"quotas": (Quota("cpu", 1), Quota("cpu", 2))},
        {"quotas": (Quota("cpu", -1),)},
        {"parent": ORG, "quotas": (Quota("cpu", 1, None, 2),)},
        {"quotas": (Quota("cpu", 1, None, 1),)},
        {"quota_milli": 1, "lending_milli": 2, "parent": ORG},
    ],
)
def test_contradictions_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidSpec):
        queue("q", **wrong)  # type: ignore[arg-type]


def test_a_tree_is_written_and_read() -> None:
    made = queue("q", quota_milli=4, lending_milli=2, parent=ORG, quotas=(Quota("cpu", 5, 1),))
    assert decode(QueueSpec, encode(made)) == made
