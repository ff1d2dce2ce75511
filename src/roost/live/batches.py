"""A batch between the core's decision and the journal."""

from __future__ import annotations

from dataclasses import dataclass

from roost.core import Action, Event, JobId
from roost.live.intake import Item
from roost.store.rows import EventRow, JournalEntry


@dataclass(slots=True)
class DecidedBatch:
    """One batch that the core has decided on and the journal does not have yet."""

    entry: JournalEntry
    events: tuple[Event, ...]
    actions: list[Action]
    jobs: list[JobId]
    lines: list[EventRow]
    source: Item
    deleted: str = ""
