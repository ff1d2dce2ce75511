"""Answers of the server as values: the views of ``roost.api``, and pages of them.

Read leniently: a field that an older server does not send has its default, one that a newer server
adds is in ``raw``, which is what the API gave, word for word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from roost.api.events import EventView
from roost.api.jobs import (
    OVER,
    STATES,
    ChangeView,
    JobView,
    PlacementView,
    VerdictView,
    WorkersView,
)
from roost.api.schema import decode
from roost.api.snapshots import SnapshotView
from roost.api.usage import UsageRowView, UsageView
from roost.errors import Fatal

__all__ = [
    "OVER",
    "STATES",
    "ChangeView",
    "EventView",
    "JobView",
    "Page",
    "PlacementView",
    "SnapshotView",
    "UsageRowView",
    "UsageView",
    "VerdictView",
    "WorkersView",
    "event_view",
    "items_of",
    "job_page",
    "job_view",
    "snapshot_view",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and how long the whole list is."""

    items: tuple[T, ...]
    total: int
    offset: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def job_view(told: Any) -> JobView:
    """A job from what the API gave."""
    return decode(JobView, _with_id(told, "job"))


def job_page(told: Any) -> Page[JobView]:
    """A page of jobs from what the API gave."""
    items = items_of(told)
    return Page(
        tuple(map(job_view, items)),
        int(told.get("total", len(items))),
        int(told.get("offset", 0)),
        told,
    )


def snapshot_view(told: Any) -> SnapshotView:
    """A snapshot from what the API gave."""
    return decode(SnapshotView, _with_id(told, "snapshot"))


def event_view(told: Mapping[str, Any]) -> EventView:
    """An event from what the API gave."""
    return decode(EventView, told)


def items_of(told: Any) -> Sequence[Any]:
    """The items of a list, bare or in a page."""
    items = told.get("items") if isinstance(told, dict) else told
    if not isinstance(items, list):
        raise Fatal("the server's answer is not a list; is that a Roost server?")
    return items


def _with_id(told: Any, noun: str) -> dict[str, Any]:
    if not isinstance(told, dict) or not isinstance(told.get("id"), str):
        raise Fatal(f"the server's answer is not a {noun}; is that a Roost server?")
    return told
