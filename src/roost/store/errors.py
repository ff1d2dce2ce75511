"""The errors of a store, split by what its caller does next.

    Retryable
    ├── StoreFull    no space; intake stops until there is some
    ├── StoreBusy    another process holds the database; nothing was written
    └── StoreLost    the connection is gone; what was under way may or may not have happened
    Fatal
    ├── StoreBroken  an I/O error or damage; the process stops, the next one reads again
    └── Fenced       another server took over; this one must not write any more

After any of them from ``append``, reopen and ask ``last()``: what failed is unknown, not undone.
Other writes need no such care: the next one begins on a new connection.
"""

from __future__ import annotations

from roost.errors import Fatal, Retryable


class StoreFull(Retryable):
    """The database has no space left."""

    def __init__(self, message: str, after: float = 5.0) -> None:
        super().__init__(message, after)


class StoreBusy(Retryable):
    """Another process holds the database; nothing was written."""

    def __init__(self, message: str, after: float = 1.0) -> None:
        super().__init__(message, after)


class StoreLost(Retryable):
    """The connection to the database is gone, and with it the outcome of what was under way."""

    def __init__(self, message: str, after: float = 1.0) -> None:
        super().__init__(message, after)


class StoreBroken(Fatal):
    """The database or its disk is damaged; what was under way may or may not have happened."""


class Fenced(Fatal):
    """Another server took over this database."""
