"""Sizes decided at once and made real later: what was decided may no longer be allowed."""

from __future__ import annotations

import pytest

from roost.core import (
    Core,
    Exited,
    Launch,
    NodeJoined,
    Outcome,
    Policy,
    Range,
    ScaleRequested,
    Started,
    Submitted,
)
from roost.placement import placer
from roost.policies.bundles import Bundles
from roost.policies.kit.parameter_servers.gains import Size
from roost.policies.optimus import Optimus
from roost.testing.builders import job, node, spec


@pytest.mark.parametrize("wanted", [Range(2, 4), Range(1, 1)])
def test_a_job_whose_bounds_changed_while_it_waited_starts_within_them(wanted: Range) -> None:
    core = Core(Bundles(), placer("even"))
    core.handle(NodeJoined(0.0, node("n0", 4)))
    started = core.handle(*(Submitted(0.0, job(name), spec(workers=2)) for name in ("a", "c")))
    runs = [action.run for action in started if isinstance(action, Launch)]
    core.handle(*(Started(1.0, run) for run in runs))
    core.handle(Submitted(2.0, job("b"), spec(workers=Range(1, 3))))
    core.handle(ScaleRequested(3.0, job("b"), wanted))
    core.memo["bundles"].slots.todo[job("b")] = Size(0, 3 if wanted.max == 1 else 1)

    actions = core.handle(Exited(4.0, runs[0], Outcome.SUCCEEDED))

    (launch,) = (action for action in actions if isinstance(action, Launch))
    assert wanted.min <= launch.allocation.workers <= wanted.max


@pytest.mark.parametrize("policy", [Bundles(), Optimus()])
def test_who_finds_no_place_keeps_nobody_from_an_empty_cluster(policy: Policy) -> None:
    core = Core(policy, placer("even"))
    core.handle(NodeJoined(0.0, node("n0", 1)), NodeJoined(0.0, node("n1", 1)))
    # There are two GPUs in all, but no node has both.
    core.handle(Submitted(0.0, job("a"), spec(2)))

    core.handle(Submitted(1.0, job("b"), spec(1)))

    assert core.job(job("a")).waiting
    assert core.job(job("b")).run is not None
