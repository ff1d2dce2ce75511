"""Jobs that need not be kept any longer, and the space that they take."""

from __future__ import annotations

from dataclasses import dataclass, field

from roost.api.schema import WireView


@dataclass(frozen=True, slots=True)
class PrunedJobView(WireView):
    """A job that is forgotten, or would be, and why."""

    id: str
    name: str
    user: str
    state: str
    finished_at: float | None
    why: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PrunedJobList(WireView):
    """The jobs that one request forgot or, in a dry run, would forget."""

    items: tuple[PrunedJobView, ...]
    size_bytes: int
    more: bool = field(default=False, metadata={"description": "Ask again for the rest."})
