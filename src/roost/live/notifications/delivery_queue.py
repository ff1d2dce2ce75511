"""Notifications that are not delivered yet, in a file: a restart loses none of them.

The file also says up to which entry of the journal all of them are known, so that what happened
while it could not be written is found again. A delivery keeps its id: one that was sent and not yet
noted as sent is sent again under the same one.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from roost import files
from roost.errors import NotFound

_log = logging.getLogger(__name__)

#: The most that wait to be sent; beyond that the oldest are given up.
MOST = 1000


@dataclass(slots=True)
class Delivery:
    """What is told to one target, how often that failed, and when it is tried again."""

    id: str
    target: str
    told: dict[str, Any]
    made_at: float
    tries: int = 0
    next_at: float = 0.0
    error: str = ""


@dataclass(slots=True)
class DeliveryQueue:
    """Deliveries that are open, by id, and the journal's last entry that was looked at."""

    path: Path
    home: str = field(default_factory=lambda: uuid4().hex)
    seq: int | None = None
    pending: dict[str, Delivery] = field(default_factory=dict)
    #: How many were given up since the file was made.
    dropped: int = 0

    @classmethod
    def load(cls, path: Path) -> DeliveryQueue:
        """The queue of a file; an empty one, if there is none or it cannot be read."""
        try:
            told = json.loads(files.load(path).text)
            pending = {item["id"]: Delivery(**item) for item in told["pending"]}
            return cls(path, told["home"], told["seq"], pending, told["dropped"])
        except NotFound:
            return cls(path)
        except (ValueError, KeyError, TypeError):
            _log.exception("%s cannot be read: notifications that waited are lost", path)
            return cls(path)

    def add(self, delivery: Delivery) -> None:
        """Let something be delivered, once."""
        if delivery.id in self.pending:
            return
        self.pending[delivery.id] = delivery
        while len(self.pending) > MOST:
            self.drop(next(iter(self.pending.values())), "too many wait")

    def drop(self, delivery: Delivery, why: str) -> None:
        """Give a delivery up."""
        _log.warning("notification %s is given up: %s", delivery.id, why)
        self.pending.pop(delivery.id, None)
        self.dropped += 1

    def text(self) -> str:
        """What is written."""
        told = {
            "home": self.home,
            "seq": self.seq,
            "dropped": self.dropped,
            "pending": [asdict(delivery) for delivery in self.pending.values()],
        }
        return json.dumps(told)

    def save(self, text: str) -> None:
        """Write the file; it may be called in a thread."""
        files.save(self.path, text, 0o600)
