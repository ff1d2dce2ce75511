"""The life of a job as stretches of time: what it was, what it held, and what happened to it.

States come from the event log, which has all of them. What the job held comes from the notes that
are kept with its curves; where there are none, the stretches stand without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, get_args

from roost.api.jobs import AttemptView, MarkView, PlacementView, SpanKind, SpanView, TimelineView
from roost.api.schema import decode
from roost.jobs.curves import AllocationNote

_KINDS = frozenset(get_args(SpanKind))
_BEGINS = frozenset({"starting", "running"})
_TOLD = frozenset({"submitted", "adopted", "protected", "request", "decision", "change", "deleted"})
#: A note is written a moment after the event that it belongs to, in seconds.
_LATE_S = 2.0


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A state, from when to when, and the sentence with which it began."""

    state: str
    begin: float
    end: float | None
    text: str


def timeline(
    job: str, events: Sequence[Mapping[str, Any]], notes: Iterable[AllocationNote], now: float
) -> TimelineView:
    """The life of a job, by its events and by what it held, both the oldest first."""
    stretches, left = list(_stretches(events)), list(notes)
    spans: list[SpanView] = []
    attempt = 0
    for stretch in stretches:
        if stretch.state in _BEGINS and (not spans or spans[-1].kind == "queued"):
            attempt += 1
        if stretch.state in _KINDS:
            own = _within(left, stretch)
            if own:
                attempt = max(attempt, own[0].attempt)
            spans += _spans(stretch, own, 0 if stretch.state == "queued" else attempt)
    marks = tuple(
        MarkView(event["time"], event["kind"], event["text"], event["actor"])
        for event in events
        if event["kind"] in _TOLD
    )
    return TimelineView(job, now, _attempts(spans, stretches), tuple(spans), marks)


def _stretches(events: Sequence[Mapping[str, Any]]) -> Iterator[_Stretch]:
    changes = [event for event in events if event["kind"] == "state"]
    if events and (not changes or changes[0]["new"] != "queued"):
        first = {"time": events[0]["time"], "new": changes[0]["old"] if changes else "queued"}
        changes.insert(0, {**first, "text": "", "new": first["new"] or "queued"})
    for event, after in zip_longest(changes, changes[1:]):
        end = None if after is None else after["time"]
        yield _Stretch(event["new"], event["time"], end, event["text"])


def _outcome(state: str) -> Any:
    """How an attempt ended after which the job is in that state."""
    return "stopped" if state == "queued" else state


def _within(notes: list[AllocationNote], stretch: _Stretch) -> list[AllocationNote]:
    """The notes of a stretch, the first as of its beginning; they are taken off the list."""
    found: list[AllocationNote] = []
    while notes and (stretch.end is None or notes[0].time < stretch.end + _LATE_S):
        if notes[0].state != stretch.state:
            if notes[0].time >= (stretch.begin if stretch.end is None else stretch.end):
                break  # it belongs to the next stretch
            notes.pop(0)
            continue
        note = notes.pop(0)
        found.append(replace(note, time=stretch.begin) if not found else note)
    return found


def _spans(stretch: _Stretch, notes: list[AllocationNote], attempt: int) -> Iterator[SpanView]:
    kind: Any = stretch.state
    if not notes:
        yield SpanView(attempt, kind, stretch.begin, stretch.end, text=stretch.text)
        return
    for number, (note, after) in enumerate(zip_longest(notes, notes[1:])):
        yield SpanView(
            (note.attempt or attempt) if attempt else 0,
            kind,
            note.time,
            stretch.end if after is None else after.time,
            note.workers,
            note.gpus,
            note.share,
            tuple(decode(PlacementView, part) for part in note.placement),
            stretch.text if number == 0 else "",
        )


def _attempts(spans: Sequence[SpanView], stretches: Sequence[_Stretch]) -> tuple[AttemptView, ...]:
    """Attempts with how each ended: the state that came after its last stretch."""
    after = {stretch.begin: stretch for stretch in stretches}
    found: dict[int, AttemptView] = {}
    for span in spans:
        if span.kind == "queued":
            continue
        known = found.get(span.attempt)
        ended = None if span.end is None else after.get(span.end)
        over = ended is not None and ended.state not in _KINDS - {"queued"}
        found[span.attempt] = AttemptView(
            span.attempt,
            span.begin if known is None else known.started_at,
            span.end if over else None,
            _outcome(ended.state) if ended and over else "",
            ended.text if ended and over else "",
        )
    return tuple(found.values())
