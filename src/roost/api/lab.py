"""The lab: what would have become of jobs under another policy, or on other machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from roost.api.schema import WireView

LabState = Literal["queued", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class LabView(WireView):
    """A what-if: what was asked and by whom, how it stands, and what came out of it."""

    id: str
    user: str = ""
    state: LabState = "queued"
    made_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    ask: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LabList(WireView):
    """What-ifs without their results, the newest first."""

    items: tuple[LabView, ...]
