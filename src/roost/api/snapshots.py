"""Snapshots of jobs: restore points from which other jobs begin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from roost.api.schema import WireView

#: What a snapshot may be called, as a pattern.
NAME = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"


def reference(job: str, name: str) -> str:
    """The id of a snapshot."""
    return f"{job}@{name}"


@dataclass(frozen=True, slots=True)
class SnapshotView(WireView):
    """A restore point of a job: how far it was, and what was copied; ``id`` is JOB@NAME."""

    id: str
    job: str = ""
    name: str = ""
    user: str = ""
    job_name: str = ""
    created_at: float = 0.0
    step: int | None = None
    progress: float | None = None
    files: int = 0
    size_bytes: int = 0
    fresh: bool = field(
        default=False, metadata={"description": "Whether the job saved itself for it."}
    )
    took_s: float = 0.0
    function: bool = field(
        default=False, metadata={"description": "Whether a submitted function is kept with it."}
    )


@dataclass(frozen=True, slots=True)
class SnapshotPage(WireView):
    """A page of snapshots, and how many there are in all."""

    items: tuple[SnapshotView, ...]
    total: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class SnapshotProgress(WireView):
    """A snapshot that is being taken."""

    job: str
    name: str
    state: Literal["taking"] = "taking"
