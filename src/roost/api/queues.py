"""Queues: what they were promised, what they hold, how many jobs wait in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from roost.api.schema import WireView


@dataclass(frozen=True, slots=True)
class CellUseView(WireView):
    """How many cells of a promise are used, and how many of them cannot be had now."""

    promise: str
    used: int = 0
    broken: int = 0


@dataclass(frozen=True, slots=True)
class QueueView(WireView):
    """A queue, what it holds and how many jobs wait in it."""

    id: str
    quota: float | None = field(default=None, metadata={"description": "Promised, in GPUs."})
    limit: float | None = field(default=None, metadata={"description": "At most, in GPUs."})
    weight: float = 1.0
    priority: int = 0
    submitters: tuple[str, ...] = ("*",)
    gpus_used: float = 0.0
    waiting: int = 0
    cells: tuple[str, ...] = field(
        default=(), metadata={"description": "Promised places, such as ``2xnode:A100``."}
    )
    overflows: bool = field(
        default=True,
        metadata={"description": "Whether its jobs may also run beyond the promised places."},
    )
    standing: tuple[CellUseView, ...] = field(
        default=(), metadata={"description": "How it stands with each promise of places."}
    )
    borrowed: float = field(
        default=0.0, metadata={"description": "GPUs that it holds beyond its quota."}
    )
    oldest_at: float | None = field(
        default=None,
        metadata={"description": "When the job was submitted that waits longest, if one waits."},
    )
    running: int | None = field(
        default=0, metadata={"description": "``null`` for users: they see their own jobs only."}
    )


@dataclass(frozen=True, slots=True)
class QueueList(WireView):
    """All queues that the caller may know of."""

    items: tuple[QueueView, ...]
