"""The journal and its views, in SQLite or PostgreSQL through the same code.

The journal (events and decisions, append-only) is the truth of the embedded mode: what is in it
happened, what is not did not. Beside it, in the same transaction, stand views for lists. Deciding
what to write, and folding it again, is for ``roost.live``.
"""

from roost.store.errors import Fenced, StoreBroken, StoreBusy, StoreFull, StoreLost
from roost.store.rows import (
    EventQuery,
    EventRow,
    HomeRow,
    JobQuery,
    JobRow,
    JournalEntry,
    QueueRow,
    RestorePointRow,
    RowPage,
    Token,
    User,
)
from roost.store.store import Store, open_store

__all__ = [
    "EventQuery",
    "EventRow",
    "Fenced",
    "HomeRow",
    "JobQuery",
    "JobRow",
    "JournalEntry",
    "QueueRow",
    "RestorePointRow",
    "RowPage",
    "Store",
    "StoreBroken",
    "StoreBusy",
    "StoreFull",
    "StoreLost",
    "Token",
    "User",
    "open_store",
]
