from __future__ import annotations

from typing import Any

from roost.jobs.curves import AllocationNote
from roost.jobs.timeline import timeline


def event(time: float, kind: str, new: str = "", text: str = "", old: str = "") -> dict[str, Any]:
    return {"time": time, "kind": kind, "new": new, "old": old, "text": text, "actor": "roost"}


LIFE = [
    event(0.0, "submitted", text="asks for 2 GPUs"),
    event(0.0, "state", "queued"),
    event(1.0, "state", "starting", "placed on a"),
    event(2.0, "state", "running"),
    event(5.0, "state", "resizing"),
    event(6.0, "state", "running", "2 → 4 workers"),
    event(8.0, "decision", text="stopped: preempted"),
    event(9.0, "state", "queued", "its run was stopped"),
    event(12.0, "state", "starting"),
    event(13.0, "state", "running"),
    event(20.0, "state", "succeeded"),
]
PLACE = ({"node": "a", "gpus": [0, 1]},)
NOTES = [
    AllocationNote(1.1, "starting", 1, 2, 2.0, 1.0, PLACE),
    AllocationNote(2.1, "running", 1, 2, 2.0, 1.0, PLACE),
    AllocationNote(5.1, "resizing", 1, 2, 2.0, 1.0, PLACE),
    AllocationNote(6.1, "running", 1, 4, 4.0, 1.0, PLACE),
    AllocationNote(7.0, "running", 1, 3, 3.0, 1.0, PLACE),
    AllocationNote(9.1, "queued", 1),
    AllocationNote(12.1, "starting", 2, 4, 4.0, 1.0, PLACE),
    AllocationNote(13.1, "running", 2, 4, 4.0, 1.0, PLACE),
    AllocationNote(20.1, "succeeded", 2),
]


def test_a_life_has_what_was_held_in_each_stretch_of_time() -> None:
    found = timeline("j", LIFE, NOTES, 30.0)
    assert [(s.attempt, s.kind, s.begin, s.end, s.workers) for s in found.spans] == [
        (0, "queued", 0.0, 1.0, 0),
        (1, "starting", 1.0, 2.0, 2),
        (1, "running", 2.0, 5.0, 2),
        (1, "resizing", 5.0, 6.0, 2),
        (1, "running", 6.0, 7.0, 4),
        (1, "running", 7.0, 9.0, 3),
        (0, "queued", 9.0, 12.0, 0),
        (2, "starting", 12.0, 13.0, 4),
        (2, "running", 13.0, 20.0, 4),
    ]
    assert found.spans[1].placement[0].gpus == (0, 1)
    assert [(a.attempt, a.started_at, a.ended_at, a.outcome) for a in found.attempts] == [
        (1, 1.0, 9.0, "stopped"),
        (2, 12.0, 20.0, "succeeded"),
    ]
    assert [mark.kind for mark in found.marks] == ["submitted", "decision"]


def test_without_notes_the_states_stand_alone() -> None:
    found = timeline("j", LIFE[:9], (), 30.0)
    assert [(s.attempt, s.kind, s.end) for s in found.spans] == [
        (0, "queued", 1.0),
        (1, "starting", 2.0),
        (1, "running", 5.0),
        (1, "resizing", 6.0),
        (1, "running", 9.0),
        (0, "queued", 12.0),
        (2, "starting", None),
    ]
    assert [(a.attempt, a.outcome) for a in found.attempts] == [(1, "stopped"), (2, "")]


def test_of_a_job_without_events_nothing_is_told() -> None:
    found = timeline("j", [], [], 1.0)
    assert (found.spans, found.attempts, found.marks) == ((), (), ())
    only = timeline("j", [event(1.0, "state", "running", old="queued")], [], 2.0)
    assert [(s.kind, s.begin, s.end) for s in only.spans] == [
        ("queued", 1.0, 1.0),
        ("running", 1.0, None),
    ]
