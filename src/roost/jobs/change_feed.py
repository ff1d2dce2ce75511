"""Tells listeners what changed, after it is in the journal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roost.store.rows import EventRow, JobRow

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """Jobs and events that one commit brought about; ``seq`` is the journal's last entry."""

    seq: int
    jobs: Sequence[JobRow] = ()
    events: Sequence[EventRow] = ()
    deleted: Sequence[str] = ()


Listener = Callable[[ClusterChange], None]


class ChangeFeed:
    """Tells every listener of every change, in order, on the driver's loop."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Listen from now on; call what is returned to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def publish(self, change: ClusterChange) -> None:
        """Tell all listeners; one that fails does not keep the others from it."""
        for listener in list(self._listeners):
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - see above
                _log.exception("a listener failed")
