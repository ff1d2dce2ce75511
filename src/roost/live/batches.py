"""A batch between the core's decision and the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roost.core import Action, Event, JobId
from roost.live.intake import Item
from roost.store.rows import EventRow, JobRow, JournalEntry
from roost.usage.spells import AnySpell


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
    #: Spells of usage that began, ended or changed.
    spells: list[AnySpell] = field(default_factory=list)
    #: Jobs as they are after the transaction that this one is written in, once it is.
    rows: Mapping[JobId, JobRow] = field(default_factory=dict)
