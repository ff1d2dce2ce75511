"""Snapshots and journals that were written before runs had a phase are still read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roost.core import Core, Plan, RunPhase
from roost.core.snapshot import digest, load
from roost.core.wire import decode_decision, decode_event
from roost.errors import InvalidSpec
from roost.placement import placer
from roost.testing.checks import validate

#: What Roost 0.x wrote, for each situation: the journal, and the snapshot at its end.
STORED = json.loads((Path(__file__).parent / "data" / "snapshots_v1.json").read_text())

PHASES = {
    "evicted": "a STOPPING RUNNING, b RESERVED",
    "starting": "a RUNNING, b STARTING",
    "cancelled early": "a STOPPING STARTING, b RESERVED",
    "suspending": "a SUSPENDING, b RESERVED",
    "suspended": "a SUSPENDED",
    "resuming": "a RESUMING",
    "recalled": "a RECALLED, b STOPPING RUNNING",
    "changing": "a CHANGING",
    "expecting": "a EXPECTING, b STOPPING RUNNING",
    "stopped while it changed": "a STOPPING RUNNING",
    "out of range": "a RUNNING, b STARTING",
    "freezing": "a FREEZING",
    "stopped while it froze": "a STOPPING FREEZING",
    "frozen": "a FROZEN",
    "frozen and stopped": "a STOPPING FROZEN",
    "thawing": "a RESUMING",
    "stopped while it thawed": "a STOPPING RESUMING",
}


def idle(plan: Plan) -> None:
    """Decide nothing."""


def phases(core: Core) -> str:
    return ", ".join(
        f"{run.id.job} {run.phase.name}"
        + (f" {run.was.name}" if run.phase is RunPhase.STOPPING else "")
        for run in core.runs.values()
    )


@pytest.mark.parametrize("stored", STORED, ids=[stored["name"] for stored in STORED])
def test_an_old_snapshot_is_what_the_old_journal_gives(stored: dict[str, Any]) -> None:
    folded = Core(idle, placer("pack"))
    for batch in stored["journal"]:
        events = [decode_event(data) for data in batch["events"]]
        folded.refold(events, [decode_decision(data) for data in batch["decisions"]])

    loaded = load(stored["snapshot"], idle, placer("pack"))

    validate(loaded)
    assert phases(loaded) == PHASES[stored["name"]]
    # What usually comes was not kept then: it is counted by the jobs that are known.
    loaded.ledger.demand.recall(folded.ledger.demand.counts)
    assert digest(loaded) == digest(folded)


def test_every_phase_was_stored() -> None:
    words = set(" ".join(PHASES.values()).replace(",", "").split())

    assert {phase.name for phase in RunPhase} - words == {"ENDED"}


def test_a_malformed_flag_is_refused() -> None:
    broken = json.loads(json.dumps(STORED[0]["snapshot"]))
    broken["runs"][0]["suspending"] = "yes"

    with pytest.raises(InvalidSpec, match="suspending: expected true or false"):
        load(broken, idle, placer("pack"))
