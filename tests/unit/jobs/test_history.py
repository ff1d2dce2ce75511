"""What the event log says of jobs that were there already, of protections and of nodes."""

from __future__ import annotations

from roost.core import Adopted, Event, NodeChanged, PoolChanged, Protected
from roost.jobs.history import HistoryLine, HistoryWriter, touched
from roost.policies import policy
from roost.testing.builders import core_with, held, job, node, spec

A, B = job("a"), job("b")


def told(*events: Event) -> list[HistoryLine]:
    core = core_with(policy("fifo"), node("n0", 2))
    chronicle = HistoryWriter(core)
    actions = core.handle(*events)
    jobs = touched(core, events, actions)
    return list(chronicle.lines(core, events, core.decisions, jobs, {}))


def test_a_job_that_was_there_already_is_told_with_its_run() -> None:
    event = Adopted(1.0, A, spec(1), held("n0", (1,)), attempts=2)

    assert told(event) == [
        HistoryLine("adopted", A, text="was here already, with attempt 2 on n0 GPU 1"),
        HistoryLine("state", A, new="running", text="1 worker is up on 1 GPU"),
    ]


def test_one_without_a_run_waits() -> None:
    assert told(Adopted(1.0, A, spec(4)), Adopted(1.0, B, spec(1), held=True)) == [
        HistoryLine("adopted", A, text="was here already, without a run"),
        HistoryLine("adopted", B, text="was here already, without a run"),
        HistoryLine("state", A, new="queued", text="fewer than 4 GPUs are free"),
        HistoryLine("state", B, new="suspended"),
    ]


def test_protections_are_told_with_their_reason() -> None:
    events = (
        Adopted(1.0, A, spec(1), held("n0", (1,)), attempts=1),
        Protected(2.0, A, "budget web allows no disruption"),
        Protected(3.0, A, ""),
    )

    assert [line.text for line in told(*events) if line.kind == "protected"] == [
        "must not be evicted: budget web allows no disruption",
        "may be evicted again",
    ]


def test_a_node_that_changed_is_told_and_pools_are_not() -> None:
    events = (NodeChanged(1.0, node("n0", 4, kind="H200")), PoolChanged(1.0, "p", frozenset()))

    assert told(*events) == [HistoryLine("node", node="n0", text="has 4 x H200 now")]
