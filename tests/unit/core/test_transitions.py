"""The phases of a run: a table, nothing beside it, and the same in the documentation."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import roost.core
from roost.core import Core, Exited, Outcome, RunPhase, Started, Submitted
from roost.core.transitions import TABLE, Trigger, accepts, advance
from roost.errors import Fatal
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, job, node, run, spec

CORE = Path(roost.core.__file__).parent
ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"


def printed() -> str:
    """The table as documentation: a line for each phase, with what leads out of it."""
    lines = ["| phase | what leads to which phase |", "|---|---|"]
    for phase in RunPhase:
        ways = [
            f"{trigger.name.lower()} → {'as before' if to is None else to.name.lower()}"
            for (at, trigger), to in TABLE.items()
            if at is phase and trigger is not Trigger.EXITED
        ]
        lines.append(f"| {phase.name.lower()} | {', '.join(ways)} |")
    return "\n".join(lines)


def test_the_documentation_has_the_table() -> None:
    assert printed() in ARCHITECTURE.read_text(), f"docs/architecture.md should have:\n{printed()}"


def test_only_the_table_changes_a_phase() -> None:
    found = {
        path.name
        for path in CORE.rglob("*.py")
        for part in ast.walk(ast.parse(path.read_text()))
        if isinstance(part, ast.Attribute)
        and part.attr in ("phase", "was")
        and isinstance(part.ctx, ast.Store)
    }

    assert found == {"transitions.py"}


def test_every_phase_can_be_reached_and_left() -> None:
    reached = {to for to in TABLE.values() if to is not None} | {RunPhase.RESERVED}
    left = {at for at, _ in TABLE}

    assert reached == set(RunPhase)
    assert left == set(RunPhase) - {RunPhase.ENDED}


def started() -> Core:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, 9.0)))
    core.handle(Started(1.0, run("a")))
    return core


def test_what_is_not_in_the_table_cannot_be() -> None:
    one = started().runs[run("a")]

    assert not accepts(one, Trigger.STARTED)
    with pytest.raises(Fatal, match="run a#1 is RUNNING: STARTED cannot be"):
        advance(one, Trigger.STARTED)
    assert one.phase is RunPhase.RUNNING


def test_only_a_run_that_was_up_or_frozen_can_be_kept() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, 9.0)))
    one = core.runs[run("a")]
    advance(one, Trigger.STOP_ORDERED)

    with pytest.raises(Fatal, match=r"STOPPING \(was STARTING\): KEPT cannot be"):
        advance(one, Trigger.KEPT)
    advance(one, Trigger.STARTED)
    advance(one, Trigger.KEPT)
    assert one.phase is RunPhase.RUNNING


def test_a_run_that_is_over_has_ended() -> None:
    core = started()
    one = core.runs[run("a")]

    core.handle(Exited(2.0, run("a"), Outcome.SUCCEEDED))

    assert one.phase is RunPhase.ENDED
