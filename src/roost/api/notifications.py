"""Notifications: their settings without secrets, and what waits to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roost.api.schema import WireView


@dataclass(frozen=True, slots=True)
class DeliveryView(WireView):
    """A notification that waits to be sent, or to be tried again."""

    id: str
    target: str
    job: str = ""
    tries: int = 0
    next_at: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class NotificationView(WireView):
    """The settings of notifications, what waits, and how many were given up."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    waiting: tuple[DeliveryView, ...] = ()
    dropped: int = 0
