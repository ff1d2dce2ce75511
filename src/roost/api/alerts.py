"""Alerts: what fires, what fired, and the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from roost.api.schema import WireView


@dataclass(frozen=True, slots=True)
class AlertView(WireView):
    """A rule that found something for as long as it says: what, since when, what was done."""

    id: str
    rule: str = ""
    when: str = ""
    severity: Literal["warning", "critical"] = "warning"
    subject: str = ""
    text: str = ""
    job: str = ""
    user: str = ""
    node: str = ""
    queue: str = ""
    since: float = 0.0
    fired_at: float = 0.0
    ended_at: float | None = None
    done: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlertList(WireView):
    """What fires now, what fired (newest first), the rules, and what is wrong with their file."""

    items: tuple[AlertView, ...] = ()
    ended: tuple[AlertView, ...] = ()
    rules: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""
