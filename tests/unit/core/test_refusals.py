"""What cannot be is refused, and changes nothing."""

from __future__ import annotations

import pytest

from roost.core import (
    CancelRequested,
    Event,
    GpuFailed,
    NodeId,
    NodeJoined,
    NodeLost,
    ResumeRequested,
    Submitted,
    SuspendRequested,
    Woke,
)
from roost.errors import Conflict, Fatal, NotFound
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, job, node, spec
from roost.testing.checks import validate
from roost.testing.journal import differ, snapshot

GHOST = job("ghost")


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Submitted(9.0, job("a"), spec(2)), Conflict),
        (NodeJoined(9.0, node("n0", 4)), Conflict),
        (CancelRequested(9.0, GHOST), NotFound),
        (SuspendRequested(9.0, GHOST), NotFound),
        (ResumeRequested(9.0, GHOST), NotFound),
        (NodeLost(9.0, NodeId("ghost")), NotFound),
        (GpuFailed(9.0, NodeId("ghost"), 0), NotFound),
        (GpuFailed(9.0, NodeId("n0"), 4), NotFound),
        (GpuFailed(9.0, NodeId("n0"), -1), NotFound),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type) else value.__name__,
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    event: Event, error: type[Exception]
) -> None:
    core = core_with(fifo, node("n0", 4), node("lost", 4))
    core.handle(NodeLost(1.0, NodeId("lost")), Submitted(1.0, job("a"), spec(1)))
    core.handle(Woke(9.0))
    before = snapshot(core)

    with pytest.raises(error):
        core.handle(event)

    assert differ(before, snapshot(core)) == []
    assert core.handle(Woke(10.0)) == []
    validate(core)


def test_time_never_runs_backwards() -> None:
    core = core_with(fifo)
    core.handle(Woke(5.0))

    with pytest.raises(Fatal, match="backwards"):
        core.handle(Woke(4.9))
    with pytest.raises(Fatal, match="backwards"):
        core.handle(Woke(6.0), Woke(5.5))


def test_what_stood_before_a_refused_event_still_follows() -> None:
    core = core_with(fifo, node("n0", 1))

    with pytest.raises(Conflict):
        core.handle(Submitted(1.0, job("a"), spec(1)), Submitted(1.0, job("a"), spec(1)))

    assert [action.run.job for action in core.handle(Woke(2.0))] == ["a"]
    validate(core)


def test_asking_for_a_job_that_nobody_knows_names_it() -> None:
    core = core_with(fifo)

    with pytest.raises(NotFound, match="ghost"):
        core.job(GHOST)
    with pytest.raises(NotFound, match="ghost"):
        core.explain(GHOST)
